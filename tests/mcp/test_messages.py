"""JSON texts become messages, and messages JSON texts, without a surprise in between."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.mcp.errors import InvalidRequest, ParseError
from server.mcp.messages import (
    Annotations,
    AudioContent,
    Batch,
    Content,
    EmbeddedResource,
    Icon,
    ImageContent,
    Implementation,
    Malformed,
    Notification,
    RequestMessage,
    ResourceContents,
    ResourceLink,
    ResponseMessage,
    TextContent,
    Tool,
    ToolAnnotations,
    decode,
    decode_one,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ids = st.integers() | text
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(text, values, max_size=4)
unset = st.just(msgspec.UNSET)


@given(ids, text, objects)
def test_a_request_keeps_its_id_its_method_and_its_parameters(
    request_id: Any, method: str, params: Any
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()
    message = decode(body)
    assert isinstance(message, RequestMessage)
    assert (message.id, message.method) == (request_id, method)
    assert type(message.id) is type(request_id)
    assert msgspec.json.decode(message.params) == params


@given(text, st.none() | objects, st.booleans())
def test_a_notification_is_a_message_without_an_id(method: str, params: Any, written: bool) -> None:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if written or params is not None:
        body["params"] = params
    message = decode(json.dumps(body).encode())
    assert isinstance(message, Notification)
    assert msgspec.json.decode(message.params) == (params or {})


@given(ids, st.sampled_from(["result", "error"]), values)
def test_a_response_is_a_message_without_a_method(request_id: Any, key: str, value: Any) -> None:
    message = decode(json.dumps({"jsonrpc": "2.0", "id": request_id, key: value}).encode())
    assert isinstance(message, ResponseMessage) and message.id == request_id
    said, silent = (message.result, message.error) if key == "result" else (message.error, message.result)
    assert silent is None and said is not None and msgspec.json.decode(said) == value


@given(st.lists(values, max_size=5), st.sampled_from(["", " ", "\n\t"]))
def test_an_array_is_a_batch_of_whatever_it_holds(items: list[Any], space: str) -> None:
    message = decode((space + json.dumps(items)).encode())
    assert isinstance(message, Batch)
    assert [msgspec.json.decode(item) for item in message.items] == items


@pytest.mark.requirement("rpc.id-type")
@given(st.none() | st.booleans() | st.floats() | st.lists(st.integers()) | objects)
def test_what_is_not_a_string_or_an_integer_is_no_id(request_id: Any) -> None:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
    message = decode(body)
    assert isinstance(message, Malformed)
    assert isinstance(message.error, InvalidRequest) and message.id is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(body: bytes) -> None:
    assert isinstance(decode(body), RequestMessage | Notification | ResponseMessage | Malformed | Batch)


@pytest.mark.requirement("safety.nesting")
@pytest.mark.parametrize("opening", [b"[", b'{"jsonrpc":"2.0","id":1,"method":"x","params":[', b'{"a":'])
def test_nesting_without_end_is_a_parse_error(opening: bytes) -> None:
    message = decode(opening * 200_000)
    assert isinstance(message, Malformed) and isinstance(message.error, ParseError)


def test_a_large_integer_keeps_every_digit() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"x"}')
    assert isinstance(message, RequestMessage) and message.id == 123456789012345678901234567890


@pytest.mark.requirement("rpc.parse-error")
@pytest.mark.parametrize(
    "body", [b'{"jsonrpc":"2.0","method":"\xff"}', b'{"unknown":"\xff","jsonrpc":"2.0","method":"m"}']
)
def test_what_is_not_utf8_is_a_parse_error_even_where_nobody_looks(body: bytes) -> None:
    message = decode(body)
    assert isinstance(message, Malformed) and isinstance(message.error, ParseError)


HALVES = [
    (r'"\ud83d"', "\ufffd"),
    (r'"\udE00 after"', "\ufffd after"),
    (r'"\ud83d\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"),
    (r'"\ud83d\n"', "\ufffd\n"),
    (r'"\ud83d\u0041"', "\ufffdA"),
    (r'"\\ud83d\ud83d"', "\\ud83d\ufffd"),
]


@pytest.mark.parametrize(("written", "read"), HALVES, ids=range(len(HALVES)))
def test_half_a_character_is_read_as_one_that_is_missing(written: str, read: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"text":{written}}}}}'.encode()
    message = decode(body)
    assert isinstance(message, RequestMessage)
    assert msgspec.json.decode(message.params) == {"text": read}
    batch = decode(b"[" + body + b"]")
    assert isinstance(batch, Batch) and [decode_one(item) for item in batch.items] == [message]


def test_a_bad_message_with_half_a_character_is_refused_by_its_id() -> None:
    message = decode(rb'{"jsonrpc":"1.0","id":7,"method":"\ud83d"}')
    assert isinstance(message, Malformed)
    assert isinstance(message.error, InvalidRequest) and message.id == 7


annotations = unset | st.builds(
    Annotations,
    audience=unset | st.lists(st.sampled_from(["user", "assistant"]), max_size=2),
    priority=unset | st.floats(0, 1),
    last_modified=unset | text,
)
icons = unset | st.lists(
    st.builds(Icon, src=text, mime_type=unset | text, theme=unset | st.sampled_from(["light", "dark"])),
    max_size=2,
)
common = {"annotations": annotations, "meta": unset | objects}
contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(TextContent, text=text, **common),
    st.builds(ImageContent, data=text, mime_type=text, **common),
    st.builds(AudioContent, data=text, mime_type=text, **common),
    st.builds(
        EmbeddedResource,
        resource=st.builds(
            ResourceContents,
            uri=text,
            mime_type=unset | text,
            text=unset | text,
            blob=unset | text,
            meta=unset | objects,
        ),
        **common,
    ),
    st.builds(
        ResourceLink,
        uri=text,
        name=text,
        title=unset | text,
        description=unset | text,
        mime_type=unset | text,
        size=unset | st.integers(0),
        icons=icons,
        **common,
    ),
)
hint = unset | st.booleans()
tools = st.builds(
    Tool,
    name=text,
    title=unset | text,
    description=unset | text,
    icons=icons,
    input_schema=objects,
    output_schema=unset | objects,
    annotations=unset
    | st.builds(
        ToolAnnotations,
        title=unset | text,
        read_only_hint=hint,
        destructive_hint=hint,
        idempotent_hint=hint,
        open_world_hint=hint,
    ),
    meta=unset | objects,
)
implementations = st.builds(
    Implementation,
    name=text,
    version=text,
    title=unset | text,
    description=unset | text,
    icons=icons,
    website_url=unset | text,
)


@pytest.mark.requirement("tools.blocks")
@given(contents)
def test_content_survives_the_wire(content: Content) -> None:
    assert msgspec.json.decode(msgspec.json.encode(content), type=Content) == content


@given(tools)
def test_a_tool_survives_the_wire(tool: Tool) -> None:
    assert msgspec.json.decode(msgspec.json.encode(tool), type=Tool) == tool


@given(implementations)
def test_an_implementation_survives_the_wire(info: Implementation) -> None:
    assert msgspec.json.decode(msgspec.json.encode(info), type=Implementation) == info


@pytest.mark.requirement("tools.blocks")
def test_names_on_the_wire_are_the_schemas() -> None:
    link = ResourceLink(
        uri="a:b", name="n", mime_type="t/x", annotations=Annotations(last_modified="2026-01-01")
    )
    assert json.loads(msgspec.json.encode(link)) == {
        "type": "resource_link",
        "uri": "a:b",
        "name": "n",
        "mimeType": "t/x",
        "annotations": {"lastModified": "2026-01-01"},
    }
    tool = Tool(
        name="t",
        input_schema={},
        output_schema={},
        annotations=ToolAnnotations(read_only_hint=True),
        meta={"k": 1},
    )
    assert json.loads(msgspec.json.encode(tool)) == {
        "name": "t",
        "inputSchema": {},
        "outputSchema": {},
        "annotations": {"readOnlyHint": True},
        "_meta": {"k": 1},
    }
