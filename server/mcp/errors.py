"""Refusals by name, and the one table that says what each is on the wire.

Anything that is not in the tree is a bug: it is logged with its traceback and shown as `InternalError`.
Spec: basic/index, "Error codes" (2026-07-28). Our own codes lie outside -32768…-32000 (design of the protocol).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self, cast

import msgspec

from server.lib.counted import counted
from server.lib.shortened import short_name

# Of what an agent says about a failure: a message, not a dump.
MAX_SAID: Final = 2000


class McpError(Exception):
    """A refusal that the caller is told. `str(error)` is written for the caller and holds no secret."""

    data: Mapping[str, Any] | None = None
    # Of a call that a task carried out: its agent was asked, so it may have done something.
    reached: bool = False

    def as_value(self) -> Self:
        """Return it without the frames that it came through, which hold all that its request brought: for whoever has caught it for good."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class ParseError(McpError):
    """The body is not JSON."""


class InvalidRequest(McpError):
    """JSON, but not a message that may be sent here."""


class MethodNotFound(McpError):
    def __init__(self, method: str, why: str = "") -> None:
        super().__init__(f"method not found: {short_name(method)}{why}")


class BadEnvelope(McpError):
    """A modern request without the `_meta` fields that every modern request has."""


class BadParams(McpError):
    """The parameters are not those of the method."""


class InvalidArguments(McpError):
    """A tool's arguments do not fit its schema. Only where a server asked for an error instead of a result that says so. The first problem stands
    in the data by itself too, for clients that know of one alone."""

    def __init__(self, text: str, problems: Sequence[Any]) -> None:
        super().__init__(text)
        first = problems[0] if problems else None
        found = {key: getattr(first, key, None) for key in ("field", "reason")}
        self.data = {
            **{key: said for key, said in found.items() if said is not None},
            "problems": list(problems),
        }


class UnknownTool(McpError):
    """No such tool, or none that this caller may know of. `why`: what there is to say of its absence."""

    def __init__(self, name: str, why: str = "") -> None:
        super().__init__(why or f"unknown tool: {short_name(name)}")


class UnknownPrompt(McpError):
    def __init__(self, name: str) -> None:
        super().__init__(f"unknown prompt: {short_name(name)}")


class UnknownResource(McpError):
    """No such resource, or none that this caller may know of. `text` is what the agent says of it, if anything."""

    def __init__(self, uri: str, text: str = "") -> None:
        super().__init__(text[:MAX_SAID] or "resource not found")
        self.data = {"uri": uri[:2048]}


class BadCursor(McpError):
    """A cursor that was not given out for this list."""


class BadState(McpError):
    """A `requestState` that is not ours, has expired, or belongs to somebody else or to another request."""


class MissingCapability(McpError):
    """The client did not declare what this needs; `required` is a `ClientCapabilities` object."""

    def __init__(self, required: Mapping[str, Any], text: str = "") -> None:
        super().__init__(text or f"the client did not declare {_names(required)}, which this needs")
        self.data = {"requiredCapabilities": dict(required)}


def _names(required: Mapping[str, Any]) -> str:
    """Return capabilities as a person names them: `elicitation`, or an extension by its own name."""
    return ", ".join(
        name
        for key, value in required.items()
        for name in (cast("Mapping[str, Any]", value) if key == "extensions" else (key,))
    )


class AgentError(McpError):
    """The agent's own JSON-RPC error, with the code that its author chose."""

    def __init__(self, code: int, text: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        # What the protocol keeps for itself is not an author's to use.
        self.code = -32603 if -32768 <= code <= -32000 else code
        self.data = data


class SessionRequired(McpError):
    """A request of the handshake era without a session, where the server insists on one."""


class TooManySessions(McpError):
    """Every session that the caller may have is in use."""


class TooMuchAtOnce(McpError):
    """Large requests of the caller that run have all the room that it may have."""


class TooMuchOverall(TooMuchAtOnce):
    """Large requests of all callers have all the room that there is."""


class TooOften(McpError):
    """An address, or a caller, that has to wait for so many seconds."""

    def __init__(self, text: str, seconds: int) -> None:
        super().__init__(text)
        self.seconds: Final = seconds
        self.data = {"retryAfter": seconds}


class TooManyRunning(McpError):
    """A request too many: as many of the caller run as may run at once."""


class TooHeavy(McpError):
    """A request for which there would never be room."""


class UnknownTask(McpError):
    """No such task, or none of this caller's."""

    def __init__(self) -> None:
        super().__init__("unknown task: it never was, it is somebody else's, or its time is over")


class TaskOver(McpError):
    """The task has ended, so there is nothing left to do to it."""


class TooManyTasks(McpError):
    """The caller has as many tasks as it may."""


class WasmTaskNotFound(McpError):
    """`UnknownTask` in the dialect of `compat.tasks = "wasmagent"`."""


class WasmToolNotFound(McpError):
    """`UnknownTool`, where that dialect creates a task."""


class WasmNotAwaiting(McpError):
    """An answer that nobody asked for, in that dialect."""


class HeaderMismatch(McpError):
    """A header that repeats the body is missing, malformed, or says something else."""


class UnsupportedVersion(McpError):
    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        super().__init__("unsupported protocol version")
        self.data = {"supported": list(supported), "requested": requested[:100]}


class BadVersionHeader(McpError):
    """A version header that names no revision, on a request of the handshake era."""


class SessionNotFound(McpError):
    """A session that has ended or never was. The client starts over with `initialize`."""


class BackendFailed(McpError):
    """The tool could not be run; its own failures are results, not errors."""


class AgentAway(BackendFailed):
    """The agent is not there. A model, which an error does not reach, is told so by a result."""

    @property
    def advice(self) -> str:
        """The words for the model: whether the call was made, and whether to make it again."""
        raise NotImplementedError


class AgentUnreached(AgentAway):
    """Nobody answers where the agent is, so the call was not made."""

    @property
    def advice(self) -> str:
        return f"This call was not made: {self}. Call it again in a minute; if it stays so, tell whoever runs this server."


class AnswerNotHeard(AgentAway):
    """The call was sent to the agent, and no answer came."""

    @property
    def advice(self) -> str:
        return (
            f"This call may have been made: {self}. Unless making it twice does no harm, look first what it has done;"
            " then call it again."
        )


class AgentTooSlow(BackendFailed):
    """The agent was stopped because its time was over."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"{name} did not answer within {counted(seconds, 'second')}")


class AgentReplaced(BackendFailed):
    """The agent was put aside for a newer one while the call ran."""


class ServerStopping(BackendFailed):
    """The server goes, and does not wait for the request any longer."""

    def __init__(self) -> None:
        super().__init__(
            "the server is stopping, and has cut this off: what was asked for may have been done"
        )


class InternalError(McpError):
    """A bug of ours. The log has the rest, under the request id."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"internal error (request {request_id})")


class InsufficientScope(McpError):
    """The caller could be granted what is `missing`; `scopes` is all that a login has to cover then, in one challenge."""

    scopes: frozenset[str]
    missing: frozenset[str]

    def __init__(self, scopes: frozenset[str], missing: frozenset[str]) -> None:
        super().__init__(f"needs the scope {' '.join(sorted(missing))}")
        self.scopes = scopes
        self.missing = missing


class TooManySubscriptions(McpError):
    """The caller has as many streams open as it may."""


class Wire(msgspec.Struct, frozen=True):
    code: int
    modern: int  # HTTP status on 2026-07-28
    legacy: int  # HTTP status before: what is JSON-RPC's to say is said with 200
    legacy_code: int | None = None  # where the handshake era had another


# fmt: off
WIRE: Final[Mapping[type[McpError], Wire]] = MappingProxyType({
    ParseError:           Wire(-32700, 400, 400),
    InvalidRequest:       Wire(-32600, 400, 400),
    MethodNotFound:       Wire(-32601, 404, 200),
    BadEnvelope:          Wire(-32602, 400, 400),
    BadParams:            Wire(-32602, 200, 200),  # 400 would make a probing client take us for a legacy server
    UnknownTool:          Wire(-32602, 200, 200),
    UnknownPrompt:        Wire(-32602, 200, 200),
    UnknownResource:      Wire(-32602, 200, 200, legacy_code=-32002),
    BadCursor:            Wire(-32602, 200, 200),
    BadState:             Wire(-32602, 200, 200),
    UnknownTask:          Wire(-32602, 200, 200),
    TaskOver:             Wire(-32602, 200, 200),
    InvalidArguments:     Wire(-32602, 200, 200),
    BackendFailed:        Wire(-32603, 200, 200),
    AgentReplaced:        Wire(-32603, 200, 200),
    AgentAway:            Wire(-32603, 200, 200),
    AgentUnreached:       Wire(-32603, 200, 200),
    AnswerNotHeard:       Wire(-32603, 200, 200),
    AgentTooSlow:         Wire(-32603, 200, 200),
    ServerStopping:       Wire(-32603, 200, 200),
    InternalError:        Wire(-32603, 200, 200),
    AgentError:           Wire(-32603, 200, 200),  # or its own
    WasmTaskNotFound:     Wire(-32010, 200, 200),
    WasmToolNotFound:     Wire(-32011, 200, 200),
    WasmNotAwaiting:      Wire(-32012, 200, 200),
    HeaderMismatch:       Wire(-32020, 400, 400),
    MissingCapability:    Wire(-32021, 400, 200, legacy_code=-32600),
    UnsupportedVersion:   Wire(-32022, 400, 400),
    BadVersionHeader:     Wire(-32600, 400, 400),
    SessionNotFound:      Wire(-32600, 404, 404),
    SessionRequired:      Wire(-32600, 400, 400),
    InsufficientScope:    Wire(  1403, 403, 403),  # over HTTP with the challenge of the authorization server
    TooManySubscriptions: Wire(  1429, 429, 429),
    TooManySessions:      Wire(  1430, 429, 429),
    TooManyTasks:         Wire(  1431, 200, 200),
    TooMuchAtOnce:        Wire(  1432, 429, 429),
    TooMuchOverall:       Wire(  1432, 503, 503),
    TooOften:             Wire(  1433, 429, 429),
    TooManyRunning:       Wire(  1434, 429, 429),
    TooHeavy:             Wire(-32600, 413, 413),
})
# fmt: on
