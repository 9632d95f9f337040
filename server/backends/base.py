"""What answers a call. A back-end lists its tools and runs one call at a time per task, telling the caller what happens.

A back-end never knows the protocol era, the principal's token, or HTTP. Cancelling the task that runs `call` stops the
work; the deadline is a cancel scope set by the caller. Errors that a user should read are raised as `BackendError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from server.mcp.messages import Content, Tool

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    arguments: Mapping[str, Any]
    subject: str  # who asks, opaque; never a token
    call_id: str  # ours, for logs and upstream request ids


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    progress: float
    total: float | None = None
    message: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    level: LogLevel
    data: Any
    logger: str | None = None


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """A question to the person at the client (an elicitation form)."""

    key: str
    message: str
    schema: Mapping[str, Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None


class Final(msgspec.Struct, frozen=True, kw_only=True, tag="final"):
    content: Sequence[Content]
    structured: Any = msgspec.UNSET
    is_error: bool = False


class BackendError(Exception):
    """The call could not be carried out; `str(error)` is written for the caller and holds no secret."""


class CannotAsk(BackendError):
    """The caller's client cannot be asked anything."""


class Outlet(Protocol):
    """The back-end's line to its caller while a call runs. Every method may wait (back-pressure) and may be cancelled."""

    async def emit(self, event: Progress | Message) -> None: ...

    async def ask(self, question: Ask) -> Answer:
        """Raises `CannotAsk` where the client or the wire has no way to ask."""
        ...


class Backend(Protocol):
    def tools(self) -> Sequence[Tool]: ...

    async def call(self, call: ToolCall, outlet: Outlet) -> Final:
        """Run one call. Raises `BackendError` when it could not be carried out; a tool's own failure is `is_error`."""
        ...

    async def aclose(self) -> None: ...
