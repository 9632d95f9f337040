"""Requests of ours that a client has not answered yet: questions of a call, put to the client of its session.

When one may be put is the session's to say (session.py), what an answer has to be mcp/call_questions.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio
from msgspec import Raw

from server.mcp import call_questions as asking
from server.mcp.call_failures import NotAnswered
from server.mcp.call_questions import Question
from server.mcp.handshake_era import encode_request, why_refused
from server.mcp.loads import LargeAnswer, Load
from server.mcp.messages import ResponseMessage
from server.mcp.result_encoding import encode_notification

# A person has to read a form, or fetch something to fill it in with. Tools have deadlines of their own besides.
ANSWER_SECONDS: Final = 10 * 60.0
# Whether the client is alive: not a question for a person.
PING_SECONDS: Final = 30.0
# Questions open at once: several calls with several fields each. A client that answers none of them is not asked more.
MAX_OUTSTANDING: Final = 32
# Telling a client that its answer is not needed any more is a courtesy.
FAREWELL_SECONDS: Final = 2.0

Send: TypeAlias = Callable[[bytes], Awaitable[None]]
Answers: TypeAlias = Mapping[str, Mapping[str, Any]]

_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_NOTHING: Final = Raw(b"null")


class _Asked:
    """A request of ours, until its answer is there."""

    __slots__ = ("_answer", "_load", "_there", "id")

    def __init__(self, request_id: str) -> None:
        self.id: Final = request_id
        self._answer: ResponseMessage | str = ""
        self._load: Load | None = None
        self._there = trio.Event()

    def settle(self, answer: ResponseMessage | str, load: Load | None = None) -> None:
        """A text says why there will be none."""
        self._answer = answer
        self._load = None if load is None else load.hold()
        self._there.set()

    async def wait(self) -> Mapping[str, Any]:
        """The result."""
        await self._there.wait()
        if isinstance(self._answer, str):
            raise NotAnswered(self._answer)
        result = _result(self._answer)
        return result if self._load is None else LargeAnswer(result, self._load)

    def let_go(self) -> None:
        """Whoever has the answer holds what it weighs."""
        if self._load is not None:
            self._load.let_go()
            self._load = None

    @property
    def open(self) -> bool:
        return not self._there.is_set()


class Outstanding:
    """Those of one session. Everything in it raises `NotAnswered`, whose text is for the caller."""

    def __init__(self, name: Callable[[int], str] | None = None) -> None:
        """`name`: ids that nobody else gives to requests to the same client."""
        self._name = name
        self._waiting: dict[str, _Asked] = {}
        self._count = 0
        self._closed = ""  # why nothing is asked any more

    def answer(self, response: ResponseMessage, load: Load | None = None) -> bool:
        """Whether it was asked here. Ignored unless somebody waits for it: it may just be late. `load`: of what brought it."""
        asked = self._waiting.get(response.id) if isinstance(response.id, str) else None
        if asked is not None and asked.open:
            asked.settle(response, load)
        return asked is not None

    def settle(self, answer: ResponseMessage | str, request_id: str) -> None:
        """The same for what came by another way; a text says why there will be no answer."""
        asked = self._waiting.get(request_id)
        if asked is not None and asked.open:
            asked.settle(answer)

    def close(self, why: str) -> None:
        """Nothing is asked any more, and what was asked has no answer."""
        self._closed = self._closed or why
        for asked in self._waiting.values():
            if asked.open:
                asked.settle(why)

    async def ask(
        self, send: Send, questions: Mapping[str, Question], meta: Mapping[str, Any] | None
    ) -> Answers:
        if len(self._waiting) + len(questions) > MAX_OUTSTANDING:
            raise NotAnswered("too many questions are waiting for this client's answers")
        put: list[_Asked] = []
        try:
            with trio.move_on_after(ANSWER_SECONDS):
                asked = {
                    key: await self._put(send, put, question.method, _with(question.params, meta))
                    for key, question in questions.items()
                }
                return {
                    key: await self._settled(send, put, asked[key], question, meta)
                    for key, question in questions.items()
                }
            raise NotAnswered("the client did not answer in time")
        finally:
            await self._withdraw(send, put)

    async def request(self, send: Send, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        put: list[_Asked] = []
        try:
            with trio.move_on_after(PING_SECONDS):
                return await (await self._put(send, put, method, params)).wait()
            raise NotAnswered("the client did not answer in time")
        finally:
            await self._withdraw(send, put)

    async def _put(self, send: Send, put: list[_Asked], method: str, params: Mapping[str, Any]) -> _Asked:
        if self._closed:
            raise NotAnswered(self._closed)
        self._count += 1
        asked = _Asked(f"server-{self._count}" if self._name is None else self._name(self._count))
        put.append(asked)
        self._waiting[asked.id] = asked
        await send(encode_request(asked.id, method, params))
        return asked

    async def _settled(
        self,
        send: Send,
        put: list[_Asked],
        asked: _Asked,
        question: Question,
        meta: Mapping[str, Any] | None,
    ) -> Mapping[str, Any]:
        answer = await asked.wait()
        problem = asking.problem(question, answer)
        if problem is not None:
            again = await self._put(send, put, question.method, _with(_pressed(question, problem), meta))
            answer = await again.wait()
            problem = asking.problem(question, answer)
        if problem is not None:
            raise NotAnswered(f"the client's answer is not what was asked for: {problem}")
        return answer

    async def _withdraw(self, send: Send, put: Iterable[_Asked]) -> None:
        needless = [asked for asked in put if asked.open]
        for asked in put:
            self._waiting.pop(asked.id, None)
            asked.let_go()
        if not needless:
            return
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            for asked in needless:
                told = {"requestId": asked.id, "reason": "the answer is not needed any more"}
                await send(encode_notification("notifications/cancelled", told))


def _with(params: Mapping[str, Any], meta: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return params if meta is None else {**params, "_meta": {**params.get("_meta", {}), **meta}}


def _pressed(question: Question, problem: str) -> Mapping[str, Any]:
    """The question again, with what was wrong with the answer, where there is a person who could read it."""
    message = question.params.get("message")
    if not isinstance(message, str):
        return question.params
    return {**question.params, "message": f"{message}\n({problem})"}


def _result(response: ResponseMessage) -> Mapping[str, Any]:
    """Raises `NotAnswered` for an answer that is none."""
    if response.error is not None:
        raise NotAnswered(why_refused(response.error))
    try:
        return _decode_object(response.result or _NOTHING)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotAnswered("the client's answer is not an object") from error
