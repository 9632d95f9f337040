"""Whatever a client may ask, made up at random: there and back as JSON, and through every revision in every way it may come.

The requests are made from the types in the table of methods, so that what is added to it is tried here. What is answered is in
test_every_answer.py.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, inspect

from server.mcp.errors import MethodNotFound
from server.mcp.inbound_messages import Headers, Rejection, Route, classify, classify_item, classify_line
from server.mcp.messages import Message, RequestMessage, decode
from server.mcp.method_params import Params
from server.mcp.method_table import METHODS, Method
from server.mcp.versions import LATEST_LEGACY, REVISIONS, Era, Revision

LEGACY = tuple(revision for revision in REVISIONS.values() if not revision.modern)
MODERN = tuple(revision for revision in REVISIONS.values() if revision.modern)
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

EXAMPLES = settings(max_examples=12, deadline=None)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
whole = st.integers(-(2**53), 2**53)
values = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=5,
)
ids = whole | text


def written(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """What a client can write where this is read."""
    match kind:
        case inspect.StructType(fields=fields, tag_field=tag_field, tag=tag):
            told = [field for field in fields if field.encode_name not in (VERSION, CAPABILITIES)]
            return st.fixed_dictionaries(
                {field.encode_name: written(field.type) for field in told if field.required}
                | ({tag_field: st.just(tag)} if tag_field else {}),
                optional={field.encode_name: written(field.type) for field in told if not field.required},
            )
        case inspect.UnionType(types=types):
            return st.one_of([written(each) for each in types])
        case inspect.DictType(value_type=inner):
            return st.dictionaries(text, written(inner), max_size=3)
        case inspect.ListType(item_type=inner):
            return st.lists(written(inner), max_size=3)
        case inspect.LiteralType(values=choices):
            return st.sampled_from(choices)
        case inspect.StrType():
            return text
        case inspect.IntType():
            return whole
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType():
            return values
        case _:
            raise NotImplementedError(type(kind).__name__)


WRITTEN = {method.name: written(inspect.type_info(method.params)) for method in METHODS.values()}


def body(method: Method, request_id: Any, params: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method.name, "params": params})


def decoded(data: bytes) -> Message:
    message = decode(data)
    assert isinstance(message, Message)
    return message


def as_modern(method: Method, params: Mapping[str, Any], version: str) -> tuple[dict[str, Any], Headers]:
    """The parameters as every modern request has them, and the headers that repeat them."""
    meta = {**params.get("_meta", {}), VERSION: version, CAPABILITIES: {}}
    headers = {b"mcp-protocol-version": version.encode(), b"mcp-method": method.name.encode()}
    if method.named_by is not None:
        fields = {field.name: field.encode_name for field in msgspec.structs.fields(method.params)}
        name = params.get(fields[method.named_by])
        if name is not None:
            headers[b"mcp-name"] = b"=?base64?%s?=" % b64encode(name.encode())
    return {**params, "_meta": meta}, headers


def said(params: Params) -> dict[str, Any]:
    """All but what goes with every request."""
    fields = msgspec.structs.asdict(params)
    del fields["meta"]
    return fields


def check(
    verdict: Any, method: Method, request_id: Any, params: Mapping[str, Any], revision: Revision
) -> None:
    """The method is reached with what was sent where the era has it, and is unknown where it has not."""
    assert verdict.id == request_id and type(verdict.id) is type(request_id)
    assert verdict.revision == revision
    if revision.era in method.eras:
        assert isinstance(verdict, Route) and verdict.problem is None
        assert verdict.method is method
        assert said(verdict.params) == said(method.decode(msgspec.Raw(msgspec.json.encode(params))))
        assert verdict.params.meta.progress_token == params.get("_meta", {}).get("progressToken", UNSET)
    else:
        assert isinstance(verdict, Rejection) and isinstance(verdict.error, MethodNotFound)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@EXAMPLES
@given(data=st.data(), request_id=ids)
def test_a_request_of_every_method_is_there_again_after_the_wire(
    method: Method, data: st.DataObject, request_id: Any
) -> None:
    params = data.draw(WRITTEN[method.name])
    message = decoded(body(method, request_id, params))
    assert isinstance(message, RequestMessage)
    assert (message.id, message.method) == (request_id, method.name)
    assert msgspec.json.decode(message.params) == params
    read = method.decode(message.params)
    assert method.decode(msgspec.Raw(msgspec.json.encode(read))) == read


@pytest.mark.parametrize("revision", MODERN, ids=lambda revision: revision.version)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@EXAMPLES
@given(data=st.data(), request_id=ids)
def test_every_method_is_reached_from_requests_that_stand_alone_if_they_have_it(
    method: Method, revision: Revision, data: st.DataObject, request_id: Any
) -> None:
    params, headers = as_modern(method, data.draw(WRITTEN[method.name]), revision.version)
    message = decoded(body(method, request_id, params))
    check(classify(message, headers), method, request_id, params, revision)
    # Whatever was agreed before: a request that says its revision itself is of that one.
    for agreed in (None, *LEGACY):
        check(classify_line(message, agreed), method, request_id, params, revision)
        check(classify(message, headers, agreed), method, request_id, params, revision)


@pytest.mark.parametrize("revision", LEGACY, ids=lambda revision: revision.version)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@EXAMPLES
@given(data=st.data(), request_id=ids)
def test_every_method_is_reached_from_sessions_if_they_have_it(
    method: Method, revision: Revision, data: st.DataObject, request_id: Any
) -> None:
    params = data.draw(WRITTEN[method.name])
    named = {b"mcp-protocol-version": revision.version.encode()}
    first = method.name == "initialize"
    answered_in = revision
    if first:
        # Where it asks for another revision, or for none that has a handshake, it is answered in one that has.
        asked = data.draw(st.sampled_from([revision.version, MODERN[-1].version, ""]))
        answered_in = revision if asked == revision.version else LATEST_LEGACY
        params = {**params, "protocolVersion": asked}
    sent = body(method, request_id, params)
    message = decoded(sent)
    check(classify(message, named, revision), method, request_id, params, answered_in)
    check(classify(message, {}, revision), method, request_id, params, answered_in)
    check(classify(message, named), method, request_id, params, answered_in)
    check(classify_line(message, revision), method, request_id, params, answered_in)
    if not first:
        check(classify_item(msgspec.Raw(sent), revision), method, request_id, params, revision)


def test_both_eras_have_methods_of_their_own() -> None:
    """So that the tests above have seen methods refused as well as reached, in each of them."""
    assert {era for method in METHODS.values() if len(method.eras) == 1 for era in method.eras} == set(Era)
