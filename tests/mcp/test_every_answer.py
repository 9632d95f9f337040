"""Whatever is answered, made up at random: it is there again after the wire, in the words of every revision.

The results and errors are those of the lists of what exists: one that is added to them without being tried here fails. What
each revision shows of one result is in test_result_encoding.py; what is asked is in test_every_message.py.
"""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from server.mcp import errors, result_encoding
from server.mcp.call_questions import Question
from server.mcp.errors import WIRE, McpError
from server.mcp.handshake_era import encode_request
from server.mcp.messages import (
    AudioContent,
    Content,
    EmbeddedResource,
    Icon,
    ImageContent,
    Implementation,
    Message,
    Notification,
    Prompt,
    PromptArgument,
    PromptMessage,
    RequestMessage,
    Resource,
    ResourceContents,
    ResourceLink,
    ResourceTemplate,
    ResponseMessage,
    TextContent,
    Tool,
    ToolAnnotations,
    decode,
)
from server.mcp.method_params import Level
from server.mcp.result_encoding import (
    SERVER_INFO,
    Offers,
    Result,
    ServerIdentity,
    code_of,
    encode_error,
    encode_result,
)
from server.mcp.versions import REVISIONS, Revision

ALL = tuple(REVISIONS.values())
LEGACY = tuple(revision for revision in ALL if not revision.modern)
MODERN = tuple(revision for revision in ALL if revision.modern)
SERVER = ServerIdentity(Implementation(name="n", version="1"))

EXAMPLES = settings(max_examples=12, deadline=None)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
whole = st.integers(-(2**53), 2**53)
values = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=5,
)
objects = st.dictionaries(text, values, max_size=3)
ids = whole | text
unset: st.SearchStrategy[Any] = st.just(UNSET)


def decoded(data: bytes) -> Message:
    message = decode(data)
    assert isinstance(message, Message)
    return message


icons = st.lists(st.builds(Icon, src=text, sizes=unset | st.lists(text, max_size=2)), max_size=2)
meta = unset | objects
common: dict[str, Any] = {
    "title": unset | text,
    "description": unset | text,
    "icons": unset | icons,
    "meta": meta,
}
read = st.builds(ResourceContents, uri=text, text=unset | text, blob=unset | text, meta=meta)
contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(TextContent, text=text, meta=meta),
    st.builds(ImageContent, data=text, mime_type=text),
    st.builds(AudioContent, data=text, mime_type=text),
    st.builds(EmbeddedResource, resource=read),
    st.builds(ResourceLink, uri=text, name=text, title=unset | text),
)
ITEMS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "tools": (
        Tool,
        st.builds(
            Tool,
            name=text,
            input_schema=objects,
            output_schema=unset | objects,
            annotations=unset | st.builds(ToolAnnotations, read_only_hint=st.booleans()),
            **common,
        ),
    ),
    "resources": (Resource, st.builds(Resource, uri=text, name=text, size=unset | whole, **common)),
    "resourceTemplates": (
        ResourceTemplate,
        st.builds(ResourceTemplate, uri_template=text, name=text, **common),
    ),
    "prompts": (
        Prompt,
        st.builds(
            Prompt,
            name=text,
            arguments=unset | st.lists(st.builds(PromptArgument, name=text), max_size=2),
            **common,
        ),
    ),
}
flags = {field.name: st.booleans() for field in msgspec.structs.fields(Offers)}
offers = st.builds(Offers, **{**flags, "extensions": st.dictionaries(text, objects, max_size=2)})
questions = st.builds(
    Question,
    method=st.sampled_from(["elicitation/create", "sampling/createMessage", "roots/list"]),
    params=objects,
)

RESULTS: dict[Any, st.SearchStrategy[Any]] = {
    result_encoding.EmptyResult: st.builds(result_encoding.EmptyResult),
    result_encoding.InitializeResult: st.builds(result_encoding.InitializeResult, offers),
    result_encoding.DiscoverResult: st.builds(result_encoding.DiscoverResult, offers),
    result_encoding.ListResult: st.one_of(
        *(
            st.builds(
                result_encoding.ListResult, st.just(kind), st.lists(items, max_size=3), st.none() | text
            )
            for kind, (_, items) in ITEMS.items()
        )
    ),
    result_encoding.ReadResourceResult: st.builds(
        result_encoding.ReadResourceResult, st.lists(read, max_size=3)
    ),
    result_encoding.PromptResult: st.builds(
        result_encoding.PromptResult,
        st.lists(
            st.builds(PromptMessage, role=st.sampled_from(["user", "assistant"]), content=contents),
            max_size=3,
        ),
        st.none() | text,
    ),
    result_encoding.CompletionResult: st.builds(
        result_encoding.CompletionResult,
        st.lists(text, max_size=3),
        st.none() | whole,
        st.none() | st.booleans(),
    ),
    result_encoding.ToolResult: st.builds(
        result_encoding.ToolResult,
        content=st.lists(contents, max_size=3),
        structured=unset | values,
        is_error=st.booleans(),
        meta=st.none() | objects,
    ),
    result_encoding.RawResult: st.builds(
        result_encoding.RawResult,
        st.fixed_dictionaries({"taskId": text}, optional={"result": objects, "_meta": objects}),
        st.sampled_from(["complete", "task"]),
    ),
    result_encoding.InputRequiredResult: st.builds(
        result_encoding.InputRequiredResult, st.dictionaries(text, questions, max_size=3), text
    ),
    result_encoding.ListenResult: st.builds(result_encoding.ListenResult, ids),
}
ONLY_MODERN = (
    result_encoding.DiscoverResult,
    result_encoding.InputRequiredResult,
    result_encoding.ListenResult,
)
KEPT_FOR_A_WHILE = (
    result_encoding.ListResult,
    result_encoding.DiscoverResult,
    result_encoding.ReadResourceResult,
)


def test_every_kind_of_result_is_tried() -> None:
    assert set(RESULTS) == set(typing.get_args(Result))


def answer(result: Result, revision: Revision, request_id: Any) -> dict[str, Any]:
    message = decoded(encode_result(request_id, result, revision, SERVER))
    assert isinstance(message, ResponseMessage) and message.result is not None and message.error is None
    assert message.id == request_id and type(message.id) is type(request_id)
    shown = msgspec.json.decode(message.result)
    assert isinstance(shown, dict)
    return typing.cast("dict[str, Any]", shown)


@pytest.mark.parametrize("revision", MODERN, ids=lambda revision: revision.version)
@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
@EXAMPLES
@given(data=st.data(), request_id=ids)
def test_every_result_says_what_kind_it_is_and_who_answers_where_requests_stand_alone(
    kind: Any, revision: Revision, data: st.DataObject, request_id: Any
) -> None:
    result = data.draw(RESULTS[kind])
    shown = answer(result, revision, request_id)
    expected = {
        result_encoding.InputRequiredResult: "input_required",
        result_encoding.RawResult: getattr(result, "result_type", ""),
    }
    assert shown["resultType"] == expected.get(kind, "complete")
    assert shown["_meta"][SERVER_INFO] == {"name": "n", "version": "1"}
    kept = kind in KEPT_FOR_A_WHILE
    assert ("ttlMs" in shown, "cacheScope" in shown) == (kept, kept)


@pytest.mark.parametrize("revision", LEGACY, ids=lambda revision: revision.version)
@pytest.mark.parametrize(
    "kind", [kind for kind in RESULTS if kind not in ONLY_MODERN], ids=lambda kind: kind.__name__
)
@EXAMPLES
@given(data=st.data(), request_id=ids)
def test_no_result_has_anything_of_the_stateless_era_in_a_session(
    kind: Any, revision: Revision, data: st.DataObject, request_id: Any
) -> None:
    shown = answer(data.draw(RESULTS[kind]), revision, request_id)
    assert not {"resultType", "ttlMs", "cacheScope", "inputRequests", "requestState"} & set(shown)
    assert SERVER_INFO not in shown.get("_meta", {})
    if kind is result_encoding.EmptyResult:
        assert shown == {}
    for item in (item for name in ITEMS for item in shown.get(name, ())):
        assert revision.icons or "icons" not in item
        assert revision.structured or not {"title", "outputSchema", "_meta"} & set(item)
        assert revision.annotations or "annotations" not in item
    if not revision.structured:
        assert "structuredContent" not in shown


@pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.version)
@EXAMPLES
@given(data=st.data())
def test_what_is_listed_read_and_answered_arrives_unaltered(revision: Revision, data: st.DataObject) -> None:
    for kind, (shape, items) in ITEMS.items():
        listed = data.draw(st.lists(items, max_size=2))
        shown = answer(result_encoding.ListResult(kind, listed), revision, 1)[kind]
        assert [item["name"] for item in shown] == [item.name for item in listed]
        if kind == "tools":
            assert [item["inputSchema"] for item in shown] == [item.input_schema for item in listed]
        if revision.any_structured:
            assert msgspec.convert(shown, list[shape]) == listed
    blocks = data.draw(st.lists(contents, max_size=3))
    shown = answer(result_encoding.ToolResult(content=blocks), revision, 1)["content"]
    assert len(shown) == len(blocks)
    if revision.structured:
        assert msgspec.convert(shown, list[Content]) == blocks
    pages = data.draw(st.lists(read, max_size=3))
    assert (
        msgspec.convert(
            answer(result_encoding.ReadResourceResult(pages), revision, 1)["contents"], list[ResourceContents]
        )
        == pages
    )


# ── errors, notifications, and requests of the server ────────────────────────────────────────────────────────────────

TEXT_ONLY = st.tuples(text)
OTHER: dict[Any, st.SearchStrategy[tuple[Any, ...]]] = {
    errors.InvalidArguments: st.tuples(text, st.lists(objects, max_size=2)),
    errors.MissingCapability: st.tuples(objects, text),
    errors.AgentError: st.tuples(whole, text, st.none() | objects),
    errors.UnknownTask: st.just(()),
    errors.ServerStopping: st.just(()),
    errors.AgentTooSlow: st.tuples(text, st.floats(min_value=0, max_value=1e6)),
    errors.TooOften: st.tuples(text, st.integers(1, 86_400)),
    errors.UnsupportedVersion: st.tuples(text, st.lists(text, max_size=2)),
    errors.InsufficientScope: st.tuples(st.frozensets(text, max_size=2), st.frozensets(text, max_size=2)),
}


@pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.version)
@pytest.mark.parametrize("kind", WIRE, ids=lambda kind: kind.__name__)
@EXAMPLES
@given(data=st.data(), request_id=st.none() | ids)
def test_every_error_arrives_with_its_number_its_text_and_its_data(
    kind: Any, revision: Revision, data: st.DataObject, request_id: Any
) -> None:
    error: McpError = kind(*data.draw(OTHER.get(kind, TEXT_ONLY)))
    message = decoded(encode_error(request_id, error, revision))
    assert isinstance(message, ResponseMessage) and message.error is not None and message.result is None
    assert message.id == request_id
    shown = msgspec.json.decode(message.error)
    assert shown["code"] == code_of(error, revision) != 0 or kind is errors.AgentError
    assert shown["message"] == str(error)
    assert shown.get("data") == (None if error.data is None else dict(error.data))


@given(text, objects)
def test_a_notification_of_the_server_is_there_again_after_the_wire(method: str, params: Any) -> None:
    message = decoded(result_encoding.encode_notification(method, params))
    assert isinstance(message, Notification) and message.method == method
    assert msgspec.json.decode(message.params) == params


@pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.version)
@EXAMPLES
@given(token=ids, done=st.floats(0, 1e9), total=st.none() | st.floats(0, 1e9), told=st.none() | text)
def test_progress_is_there_again_after_the_wire(
    revision: Revision, token: Any, done: float, total: float | None, told: str | None
) -> None:
    message = decoded(
        result_encoding.encode_progress(token, revision, progress=done, total=total, message=told)
    )
    assert isinstance(message, Notification) and message.method == "notifications/progress"
    shown = {"progressToken": token, "progress": done, "total": total, "message": told}
    if not revision.annotations:
        del shown["message"]
    assert msgspec.json.decode(message.params) == {
        key: value for key, value in shown.items() if value is not None
    }


@given(st.sampled_from(typing.get_args(Level)), values, st.none() | text)
def test_a_log_message_is_there_again_after_the_wire(level: Any, told: Any, logger: str | None) -> None:
    message = decoded(result_encoding.encode_log(level, told, logger))
    assert isinstance(message, Notification) and message.method == "notifications/message"
    expected = {"level": level, "data": told} | ({} if logger is None else {"logger": logger})
    assert msgspec.json.decode(message.params) == expected


@given(text, questions)
def test_a_request_of_the_server_is_there_again_after_the_wire(request_id: str, question: Question) -> None:
    message = decoded(encode_request(request_id, question.method, question.params))
    assert isinstance(message, RequestMessage)
    assert (message.id, message.method) == (request_id, question.method)
    assert msgspec.json.decode(message.params) == question.params
