"""The context, with which a running function speaks with its caller: `Context` in async functions, `SyncContext` in others.

The two have the same methods; those of the first are awaited, those of the second block their thread. Both stand on a `Line`,
which carries events out and answers in (call.py).
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Literal, Protocol, TypeVar, overload

from .caller import Claims, Client, State
from .content import given
from .function import Contextual
from .plain import plain
from .questions import (
    Elicited,
    Messages,
    Question,
    Root,
    Sampled,
    elicitation,
    elicitation_url,
    roots,
    sampling,
)
from .uses import Answer, Part, answer_of, messages_of, parts_of, use

T = TypeVar("T")
Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
Json = dict[str, Any]


class Line(Protocol):
    subject: str
    call_id: str
    can: frozenset[str]
    resumed: Any
    wants_progress: bool
    level: str | None
    cancelled: bool
    facts: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def state(self) -> State: ...

    @property
    def lifespan(self) -> Any: ...

    async def emit(self, event: Json) -> None: ...

    async def ask(self, questions: Mapping[str, Question[Any]]) -> dict[str, Any]: ...

    async def request(self, event: Json) -> Json: ...

    def next_key(self) -> str: ...

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Wait, from a thread. Raises `Cancelled`."""
        ...

    def wait_for_use(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Wait while another thread may take this one's place, which may be needed for it."""
        ...


def progress_event(progress: float, total: float | None, message: str | None) -> Json:
    for number in (progress, 0 if total is None else total):
        if not isinstance(number, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance] - an author's
            raise TypeError(f"progress is told in numbers, not {number!r}")
    return {"event": "progress", "progress": progress, **given(total=total, message=_text(message))}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


class _Base(Contextual):
    def __init__(self, line: Line) -> None:
        self._line = line

    @property
    def subject(self) -> str:
        """The caller's opaque name, which stays the same."""
        return self._line.subject

    @property
    def call_id(self) -> str:
        """The server's name for this call, as in its log."""
        return self._line.call_id

    @property
    def request_id(self) -> str:
        """Another word for `call_id`."""
        return self._line.call_id

    @property
    def client(self) -> Client:
        """The program that calls, as it calls itself."""
        facts = self._line.facts
        return Client(facts.get("client_name", ""), facts.get("client_version", ""), self._line.can)

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the caller was granted."""
        return frozenset(self._line.facts.get("scopes", ()))

    @property
    def claims(self) -> Claims:
        """The caller, as the server knows it. There is no token in it."""
        return Claims(self._line.subject, self._line.facts)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the setting `pass_headers` names, in lower case, as far as they came."""
        return self._line.headers

    @property
    def session_id(self) -> str | None:
        """A text that all calls have which belong together: those of a session, or else of the caller. None where callers
        cannot be told apart. The text opens nothing."""
        return self._line.facts.get("session") or None

    @property
    def state(self) -> State:
        """The memory that this file has of the conversation, by names. The worker takes it along when it ends."""
        return self._line.state

    @property
    def lifespan(self) -> Any:
        """The value that the `@lifespan` of the function's file has yielded."""
        return self._line.lifespan

    @property
    def resumed(self) -> Any:
        """The last checkpoint of an earlier run of this very call; None in the first run."""
        return self._line.resumed

    @property
    def cancelled(self) -> bool:
        """True if the caller has given up. A sync function that uses no context looks here now and then."""
        return self._line.cancelled

    def can(self, ability: str) -> bool:
        """Return whether the client can be asked: "elicitation", "elicitation.url", "sampling", "sampling.tools", "roots"; or has an extension:
        "io.modelcontextprotocol/ui" if it draws pages."""
        return any(word.partition(" ")[0] == ability for word in self._line.can)

    async def _one(self, question: Question[T], key: str | None) -> T:
        key = key or self._line.next_key()
        return (await self._line.ask({key: question}))[key]


class Context(_Base):
    """The context of async functions. Asking pauses the call; on 2026-07-28 the answers come with a new request, and the
    function is run again from the start, where the same question returns at once. So questions are told apart by keys
    that are the same in every run: by the order of asking, unless `key` is given."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        event = progress_event(progress, total, message)
        if self._line.wants_progress:
            await self._line.emit(event)

    async def log(self, level: Level, data: Any, logger: str | None = None) -> None:
        """Write to the client's log, if it wants messages of this level. The server's own log takes what is printed."""
        if level not in LEVELS:
            raise ValueError(f"{level!r} is none of {', '.join(LEVELS)}")
        if self._line.level is not None and LEVELS.index(level) >= LEVELS.index(self._line.level):
            event = {"event": "message", "level": level, "data": plain(data)}
            await self._line.emit({**event, **given(logger=_text(logger))})

    async def debug(self, data: Any) -> None:
        await self.log("debug", data)

    async def info(self, data: Any) -> None:
        await self.log("info", data)

    async def warning(self, data: Any) -> None:
        await self.log("warning", data)

    async def error(self, data: Any) -> None:
        await self.log("error", data)

    @overload
    async def elicit(self, message: str, schema: type[T], key: str | None = None) -> Elicited[T]: ...
    @overload
    async def elicit(self, message: str, schema: Any, key: str | None = None) -> Elicited[Any]: ...
    async def elicit(self, message: str, schema: Any, key: str | None = None) -> Elicited[Any]:
        """Show the person a form: `schema` is a flat type, the type of a single value, or a JSON Schema. Raises `CannotAsk`."""
        return await self._one(elicitation(message, schema), key)

    async def elicit_url(self, message: str, url: str, key: str | None = None) -> Elicited[None]:
        return await self._one(elicitation_url(message, url), key)

    async def sample(
        self, messages: Messages, *, max_tokens: int = 1000, key: str | None = None, **params: Any
    ) -> Sampled:
        """Ask for a completion of the client's model. Raises `CannotAsk`."""
        return await self._one(sampling(messages, max_tokens=max_tokens, **params), key)

    async def roots(self, key: str | None = None) -> list[Root]:
        return await self._one(roots(), key)

    async def ask(self, questions: Mapping[str, Question[Any]]) -> dict[str, Any]:
        """Ask several questions at once, of `elicitation`, `elicitation_url`, `sampling` and `roots`, by keys of yours."""
        return await self._line.ask(questions)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Answer:
        """Call a tool of this server, of whichever agent, as if the caller had called it. Raises `ToolFailure` with what the
        tool says, `NotFound` and `CannotUse`."""
        wire = await self._line.request(use("tool", name, plain(dict(arguments or {}))))
        return answer_of(wire["result"])

    async def read_resource(self, uri: str) -> list[Part]:
        return parts_of((await self._line.request(use("resource", uri, {})))["result"])

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[Json]:
        return messages_of((await self._line.request(use("prompt", name, arguments or {})))["result"])

    async def checkpoint(self, data: Any) -> None:
        """Keep `data` (JSON) before this returns: should the call run again, it finds them in `ctx.resumed`."""
        await self._line.request({"event": "checkpoint", "data": plain(data)})

    async def become_task(self) -> bool:
        """Let nobody wait for the answer from here on. Returns False if the caller cannot come back for it."""
        return bool((await self._line.request({"event": "become_task"})).get("task"))

    async def close_stream(self) -> None:
        """Let go of the caller's connection, where the caller can come back for the answer."""
        await self._line.emit({"event": "close_stream"})


class SyncContext(_Base):
    """The context of sync functions: the methods of `Context`, which block. Once the call is cancelled, each of them raises
    `Cancelled`."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._awaited = Context(line)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._line.wait(self._awaited.progress(progress, total, message))

    def log(self, level: Level, data: Any, logger: str | None = None) -> None:
        self._line.wait(self._awaited.log(level, data, logger))

    def debug(self, data: Any) -> None:
        self.log("debug", data)

    def info(self, data: Any) -> None:
        self.log("info", data)

    def warning(self, data: Any) -> None:
        self.log("warning", data)

    def error(self, data: Any) -> None:
        self.log("error", data)

    @overload
    def elicit(self, message: str, schema: type[T], key: str | None = None) -> Elicited[T]: ...
    @overload
    def elicit(self, message: str, schema: Any, key: str | None = None) -> Elicited[Any]: ...
    def elicit(self, message: str, schema: Any, key: str | None = None) -> Elicited[Any]:
        return self._line.wait(self._one(elicitation(message, schema), key))

    def elicit_url(self, message: str, url: str, key: str | None = None) -> Elicited[None]:
        return self._line.wait(self._one(elicitation_url(message, url), key))

    def sample(
        self, messages: Messages, *, max_tokens: int = 1000, key: str | None = None, **params: Any
    ) -> Sampled:
        return self._line.wait(self._one(sampling(messages, max_tokens=max_tokens, **params), key))

    def roots(self, key: str | None = None) -> list[Root]:
        return self._line.wait(self._one(roots(), key))

    def ask(self, questions: Mapping[str, Question[Any]]) -> dict[str, Any]:
        return self._line.wait(self._line.ask(questions))

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Answer:
        return self._line.wait_for_use(self._awaited.call_tool(name, arguments))

    def read_resource(self, uri: str) -> list[Part]:
        return self._line.wait_for_use(self._awaited.read_resource(uri))

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[Json]:
        return self._line.wait_for_use(self._awaited.get_prompt(name, arguments))

    def checkpoint(self, data: Any) -> None:
        self._line.wait(self._awaited.checkpoint(data))

    def become_task(self) -> bool:
        return self._line.wait(self._awaited.become_task())

    def close_stream(self) -> None:
        self._line.wait(self._awaited.close_stream())
