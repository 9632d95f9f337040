"""A request of ours that runs at a server: what is heard of it waits here for the task that follows it.

A reader of the wire never waits for a caller: each request has a queue of its own, and one that nobody empties loses its
oldest progress. Questions and the end are never lost; one that asks more than anybody could answer is ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio
from msgspec import Raw

from server.client.mcp_session.session_messages import NOTHING, ServerRefusal
from server.client.mcp_session.session_request import SessionRequest
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question

NEWS_WAITING: Final = 256
NEWS_BYTES: Final = 1024 * 1024
QUESTIONS_OPEN: Final = 16
KEYS_KEPT: Final = 256
NO_KEYS: Final[frozenset[str]] = frozenset()

Outcome: TypeAlias = Raw | ServerRefusal | BackendError


class HandshakeQuestion(msgspec.Struct, frozen=True):
    """Something that the server asks our caller's client."""

    id: int | str  # the server's
    key: str  # ours: the same whenever it is put again
    question: Question


class _Ended(msgspec.Struct, frozen=True):
    outcome: Outcome


CallNews: TypeAlias = Progress | LogMessage | HandshakeQuestion | _Ended


class SentRequest:
    """`next` is for one task at a time; the others never wait."""

    __slots__ = (
        "_asked",
        "_follower",
        "_keys",
        "_news",
        "_size",
        "_sizes",
        "call",
        "headers",
        "method",
        "number",
        "open",
        "outcome",
        "params",
        "refused",
        "tasks",
    )

    def __init__(
        self,
        number: int,
        call: SessionRequest | None,
        method: str = "",
        params: Mapping[str, Any] = NOTHING,
        headers: Mapping[str, str] = NOTHING,
        tasks: bool = False,
    ) -> None:
        """Begin with nothing heard. `call`: whose it is; None for a request of our own, of which nobody can be asked anything. `headers` go
        along over HTTP; `tasks`: the answer may be a task."""
        self.number = number
        self.call = call
        self.method = method
        self.params = params
        self.headers = headers
        self.tasks = tasks
        self.outcome: Outcome | None = None
        self.open: dict[int | str, HandshakeQuestion] = {}  # not answered yet
        self.refused: CannotAsk | None = None  # it wanted to ask, and nobody could be
        self._asked = 0
        self._keys: frozenset[str] = NO_KEYS
        self._news: deque[CallNews] = deque()
        self._sizes: deque[int] = deque()
        self._size = 0
        self._follower: trio.lowlevel.Task | None = None

    @property
    def subject(self) -> str | None:
        return None if self.call is None else self.call.subject

    @property
    def asker(self) -> str | None:
        """The name by which the callers of one connection are told apart: those without a login by where they call from."""
        return None if self.call is None else f"{self.call.subject} {self.call.sharer}"

    def tell(self, event: Progress | LogMessage, size: int) -> None:
        if self.outcome is not None or size > NEWS_BYTES:
            return
        self._add(event, size)
        while len(self._news) > NEWS_WAITING or self._size > NEWS_BYTES:
            if not self._drop_oldest():
                break

    def ask(self, request_id: int | str, question: Question, key: str = "") -> bool:
        """Add a question; False: more are open than can be answered. `key`: the server's own, which stays one question's for as long as the
        request lasts."""
        if self.outcome is not None or len(self.open) >= QUESTIONS_OPEN or request_id in self.open:
            return False
        self._asked += 1
        if not key or key in self._keys or len(self._keys) >= KEYS_KEPT:
            key = f"upstream-{self._asked}"
        else:
            self._keys |= {key}
        asked = HandshakeQuestion(request_id, key, question)
        self.open[request_id] = asked
        self._add(asked, 0)
        return True

    def questions(self) -> list[HandshakeQuestion]:
        """Take the questions that nobody was given yet."""
        found = [event for event in self._news if isinstance(event, HandshakeQuestion)]
        for asked in found:
            place = self._news.index(asked)
            del self._news[place]
            del self._sizes[place]  # it weighs nothing
        return found

    def put_again(self) -> None:
        """Put the open questions once more to a caller who has come back."""
        waiting = {each.id for each in self._news if isinstance(each, HandshakeQuestion)}
        for asked in self.open.values():
            if asked.id not in waiting:
                self._add(asked, 0)

    def withdrawn(self, request_id: int | str) -> None:
        """Drop a question: the server does not wait for the answer any longer."""
        self.open.pop(request_id, None)

    def end(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._add(_Ended(outcome), 0)

    async def next(self) -> CallNews:
        while not self._news:
            self._follower = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._leave)
        self._size -= self._sizes.popleft()
        return self._news.popleft()

    def taken(self) -> list[Progress | LogMessage]:
        """Take what was told so far, for whoever reads the wire itself."""
        told = [event for event in self._news if isinstance(event, Progress | LogMessage)]
        if told:
            self._news = deque(event for event in self._news if not isinstance(event, Progress | LogMessage))
            self._sizes = deque(0 for _ in self._news)
            self._size = 0
        return told

    def result(self, ended: _Ended) -> Raw:
        """Return the result. Raises what it ended with; where that was an error after nobody could be asked, what would have to be offered."""
        if isinstance(ended.outcome, ServerRefusal) and self.refused is not None:
            raise self.refused
        if isinstance(ended.outcome, Exception):
            raise ended.outcome
        return ended.outcome

    def _add(self, event: CallNews, size: int) -> None:
        self._news.append(event)
        self._sizes.append(size)
        self._size += size
        follower = self._follower
        if follower is not None:
            self._follower = None  # a task is woken once
            trio.lowlevel.reschedule(follower)

    def _drop_oldest(self) -> bool:
        for place, event in enumerate(self._news):
            if isinstance(event, Progress | LogMessage):
                del self._news[place]
                self._size -= self._sizes[place]
                del self._sizes[place]
                return True
        return False

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._follower = None
        return trio.lowlevel.Abort.SUCCEEDED
