"""The handshake era's conversation: where it stands, what may be said in it, and the requests that we send in it.

    new ── initialize ──▶ initializing ── notifications/initialized ──▶ ready ── the end ──▶ closed

Pure; who is talking and over which wire is sessions.py's and the wire's affair. Spec: basic/lifecycle (2025-11-25 and before).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from server.mcp.errors import InvalidRequest, McpError, SessionNotFound
from server.mcp.messages import Notification, RequestMessage, ResponseMessage


class State(Enum):
    NEW = auto()  # nothing was agreed on
    INITIALIZING = auto()  # `initialize` was answered; the client has not said yet that it is ready
    READY = auto()
    CLOSED = auto()


class ClientHello(Enum):
    """What a client says, as far as the handshake cares."""

    INITIALIZE = auto()
    PING = auto()
    REQUEST = auto()  # any other
    INITIALIZED = auto()
    NOTE = auto()  # any other notification
    ANSWER = auto()  # to a request of ours
    GOODBYE = auto()  # DELETE, the end of a pipe, or having been silent for too long


Refusal: TypeAlias = Callable[[], McpError]

_FIRST: Final[Refusal] = partial(InvalidRequest, "initialize comes first")
_TWICE: Final[Refusal] = partial(InvalidRequest, "initialize was answered already")
_OVER: Final[Refusal] = partial(SessionNotFound, "the session has ended")

# A client that asks before it has said `initialized` is served: many do, and nothing they may ask for depends on it.
# fmt: off
_NEW, _INIT, _READY, _SHUT = State
_COLUMNS: Final = tuple(ClientHello)
_TABLE: Final[Mapping[State, Mapping[ClientHello, State | Refusal]]] = MappingProxyType({
    state: MappingProxyType(dict(zip(_COLUMNS, row, strict=True)))
    for state, *row in (
        # in       INITIALIZE  PING    REQUEST  INITIALIZED  NOTE    ANSWER  GOODBYE
        (_NEW,     _INIT,      _NEW,   _FIRST,  _NEW,        _NEW,   _NEW,   _SHUT),
        (_INIT,    _TWICE,     _INIT,  _INIT,   _READY,      _INIT,  _INIT,  _SHUT),
        (_READY,   _TWICE,     _READY, _READY,  _READY,      _READY, _READY, _SHUT),
        (_SHUT,    _OVER,      _OVER,  _OVER,   _OVER,       _OVER,  _OVER,  _SHUT),
    )
})
# fmt: on

_SAID: Final[Mapping[str, ClientHello]] = MappingProxyType(
    {"initialize": ClientHello.INITIALIZE, "ping": ClientHello.PING}
)

# What a server may say before the client has said that it is ready.
_EARLY: Final = frozenset({"ping", "notifications/message"})


def heard(message: RequestMessage | Notification | ResponseMessage) -> ClientHello:
    if isinstance(message, RequestMessage):
        return _SAID.get(message.method, ClientHello.REQUEST)
    if isinstance(message, Notification):
        return ClientHello.INITIALIZED if message.method == "notifications/initialized" else ClientHello.NOTE
    return ClientHello.ANSWER


def step(state: State, said: ClientHello) -> State | McpError:
    """The state after it, or why it may not be said now."""
    then = _TABLE[state][said]
    return then if isinstance(then, State) else then()


def may_send(state: State, method: str) -> bool:
    """Whether we may send it now: before the client is ready, only signs of life and log messages."""
    return state is State.READY or (state is State.INITIALIZING and method in _EARLY)


class _Request(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: str
    method: str
    params: Mapping[str, Any]


class _Error(msgspec.Struct):
    code: Any = None
    message: Any = None


_encode: Final = msgspec.json.Encoder().encode
_decode_error: Final = msgspec.json.Decoder(_Error).decode

# The code that the protocol's examples have for "the user rejected this" (client/sampling).
_REJECTED_BY_USER: Final = -1
# A refusal is read by a model or a person: a sentence or two.
_SHOWN_CHARACTERS: Final = 200


def encode_request(request_id: str, method: str, params: Mapping[str, Any]) -> bytes:
    return _encode(_Request(request_id, method, params))


def why_refused(error: Raw) -> str:
    """What a client's JSON-RPC error says, as a sentence for whoever wanted its answer."""
    try:
        told = _decode_error(error)
    except (msgspec.DecodeError, RecursionError):
        return "the client refused"
    if told.code == _REJECTED_BY_USER:
        return "the user rejected the request"
    if not isinstance(told.message, str) or not told.message.strip():
        return "the client refused"
    return f"the client refused: {told.message.strip()[:_SHOWN_CHARACTERS]}"
