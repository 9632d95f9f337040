"""The messages that a bridge carries: who waits for an answer, which era each is of, which headers it needs.

Pure. A message is carried as the bytes that came; only what has to be changed is written anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeGuard, cast

import msgspec

from server.client.client_errors import ClientError
from server.client.mcp_session.agreement import PROTOCOL_VERSION
from server.client.mcp_session.session_messages import INTERNAL_ERROR
from server.lib.json_objects import mapping
from server.lib.surrogates import decode_mended
from server.mcp.request_headers import header_value, parameter_headers

Id: TypeAlias = str | int

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

# MCP 2026-07-28 streamable HTTP, "Request Metadata"; tasks extension: which parameter the header Mcp-Name repeats.
NAMED_BY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tools/call": "name",
        "prompts/get": "name",
        "resources/read": "uri",
        "tasks/get": "taskId",
        "tasks/update": "taskId",
        "tasks/cancel": "taskId",
    }
)
_HEADER_SAFE: Final = re.compile(r"[!-~]{1,1024}")
_JSON: Final = msgspec.json.Decoder[Any]()


class BridgedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or a batch with requests in it: every id here must be answered."""

    line: bytes
    ids: tuple[Id, ...]
    left: set[Id]  # those that have no answer yet
    method: str  # "" of a batch
    params: Mapping[str, Any]
    modern: bool

    @property
    def batch(self) -> bool:
        return not self.method

    @property
    def listening(self) -> bool:
        """A modern request that has no end of its own."""
        return self.modern and self.method == "subscriptions/listen"


class BridgedNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification, an answer to the server (without a method), or a batch of those: nobody waits."""

    line: bytes
    method: str
    params: Mapping[str, Any]
    modern: bool


class BridgeRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing that could be carried; `answer` says why."""

    answer: bytes


Incoming: TypeAlias = BridgedRequest | BridgedNotice | BridgeRefusal


def read_message(line: bytes) -> Incoming:
    found = decode(line)
    if isinstance(found, dict):
        return _single(line, cast("dict[str, Any]", found))
    if isinstance(found, list) and found:
        # A batch (2025-03-26) goes on as it is: whether it may, the server says.
        items = [_single(b"", cast("dict[str, Any]", item)) for item in cast("list[Any]", found)]
        ids = tuple(one for item in items if isinstance(item, BridgedRequest) for one in item.ids)
        if ids:
            return asking_for(line, ids, modern=False)
        if not any(isinstance(item, BridgeRefusal) for item in items):
            return BridgedNotice(line=line, method="", params={}, modern=False)
    if found is None:
        return BridgeRefusal(answer=error_answer(None, PARSE_ERROR, "this line is not JSON"))
    return BridgeRefusal(answer=error_answer(None, INVALID_REQUEST, "this line is not a JSON-RPC message"))


def _single(line: bytes, message: dict[str, Any]) -> Incoming:
    fields = mapping(message)
    method, request_id = fields.get("method"), fields.get("id")
    params = mapping(fields.get("params"))
    modern = PROTOCOL_VERSION in mapping(params.get("_meta")) or method == "server/discover"
    if isinstance(method, str) and method:
        if "id" not in fields:
            return BridgedNotice(line=line, method=method, params=params, modern=modern)
        if is_id(request_id):
            return asking_for(line, (request_id,), method, params, modern=modern)
    elif is_answer(fields):
        return BridgedNotice(line=line, method="", params={}, modern=False)
    text = "this line is not a JSON-RPC request, notification or response"
    return BridgeRefusal(answer=error_answer(None, INVALID_REQUEST, text))


def asking_for(
    line: bytes,
    ids: tuple[Id, ...],
    method: str = "",
    params: Mapping[str, Any] | None = None,
    *,
    modern: bool,
) -> BridgedRequest:
    return BridgedRequest(
        line=line, ids=ids, left=set(ids), method=method, params=params or {}, modern=modern
    )


def is_id(value: object) -> TypeGuard[Id]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def modern_headers(message: BridgedRequest | BridgedNotice) -> dict[str, str]:
    """Return what 2026-07-28 wants repeated in headers. A text that no header can carry is left out; the server refuses it then."""
    version = mapping(message.params.get("_meta")).get(PROTOCOL_VERSION)
    wanted = {"MCP-Protocol-Version": version, "Mcp-Method": message.method}
    headers = {name: value for name, value in wanted.items() if is_header_safe(value)}
    named = message.params.get(NAMED_BY.get(message.method, ""))
    if isinstance(named, str):
        headers["Mcp-Name"] = header_value(named)
    return headers


def argument_headers(message: BridgedRequest, schema: Any) -> dict[str, str]:
    return parameter_headers(schema, mapping(message.params.get("arguments")))


def is_header_safe(value: object) -> TypeGuard[str]:
    """Return whether a value is visible ASCII, and not too much: so a version, a method or a session id can be sent as it is."""
    return isinstance(value, str) and _HEADER_SAFE.fullmatch(value) is not None


# ---- what comes back -------------------------------------------------------------------------------------------------


def decode(data: bytes) -> Any:
    """Return the JSON value, or None where it is none."""
    try:
        return decode_mended(_JSON.decode, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_answer(message: Mapping[str, Any]) -> bool:
    return "method" not in message and ("result" in message or isinstance(message.get("error"), dict))


def answered(message: Any, ids: Collection[Id]) -> set[Id]:
    """Return the ids that this message, or batch of messages, answers. 1 and "1" are two ids."""
    items = cast("list[Any]", message) if isinstance(message, list) else [message]
    answers = [fields.get("id") for fields in map(mapping, items) if is_answer(fields)]
    return {one for one in ids if any(type(found) is type(one) and found == one for found in answers)}


def one_line(data: bytes) -> bytes:
    """Write JSON in one line. In valid JSON a line end is white space, wherever it stands."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ").strip() if b"\n" in data or b"\r" in data else data


def answer_for(request_id: Id, message: Mapping[str, Any]) -> bytes:
    """Give an answer of the server the id that is waited for: a server that refuses early may not have read it."""
    return msgspec.json.encode({**message, "id": request_id})


def error_answer(request_id: Id | None, code: int, text: str, data: Mapping[str, Any] | None = None) -> bytes:
    error: dict[str, Any] = {"code": code, "message": text}
    if data:
        error["data"] = data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def failures(message: BridgedRequest, error: ClientError, spelled: Callable[[str], str] = str) -> bytes:
    """Write the error, for everything in `message` that has no answer; its commands as `spelled` has them."""
    data = {"hint": spelled(error.hint)} if error.hint else None
    text = spelled(with_hint(error))
    return answer_rest(message, mapping(decode(error_answer(None, INTERNAL_ERROR, text, data))))


def answer_rest(message: BridgedRequest, answer: Mapping[str, Any]) -> bytes:
    """Write `answer` for every id that has none, as it was asked: a batch gets a batch."""
    answers = [answer_for(one, answer) for one in message.ids if one in message.left]
    message.left.clear()
    return b"[" + b",".join(answers) + b"]" if message.batch else answers[0]


def with_hint(error: ClientError) -> str:
    """Return the error and its hint for a reader who sees one text only."""
    if not error.hint:
        return str(error)
    return f"{error}; {'run ' if error.hint.startswith('ostiary ') else ''}{error.hint}"
