"""A call of an agent that is a program: what it says goes to the caller, what it asks comes back, until its final word.

An agent that cannot wait may end after its question instead: it is started again with the answer, as it is where the protocol
has the call begin anew once there is an answer, and after a restart of the server. So a question's `id` names it for the whole
call, and what is asked again by the same name is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import trio
from msgspec import Raw

from server.agents.base.agent_turns import SharedPlace
from server.agents.base.backend import ToolCall, ToolCrashed
from server.agents.base.child_process import Child, how_it_ended
from server.agents.base.short_schema import BadShortSchema, read_schema
from server.agents.command.agent_program import Programs
from server.agents.command.program_events import (
    MESSAGE_CHARACTERS,
    NoEvent,
    SaidAsk,
    SaidBecomeTask,
    SaidCheckpoint,
    SaidError,
    SaidFinal,
    SaidMessage,
    SaidProgress,
    Tell,
    TellAnswer,
    TellBecame,
    TellCall,
    TellKept,
    TellRefused,
    read_said,
    write_told,
)
from server.lib.line_outbox import LineOutbox
from server.lib.line_peer import BrokenLine, LineFraming
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered
from server.mcp.call_outlet import LogMessage, Outlet, Progress, is_wanted
from server.mcp.call_questions import Question

LINGER_SECONDS: Final = 1.0  # to end by itself after its final word, or after it has said its last
QUESTIONS_OPEN: Final = 16  # a program that asks more at once has lost its way
TEXT_FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}

Start: TypeAlias = Callable[[], Child]


class ProgramCall:
    """One call, to `run` once. Here is kept what outlives one process of it."""

    def __init__(
        self,
        call: ToolCall,
        outlet: Outlet,
        programs: Programs,
        start: Start,
        *,
        turn: SharedPlace,
        waiting: trio.Semaphore,
        line_bytes: int,
    ) -> None:
        """Prepare the call. `waiting`: how many more processes of the agent may wait for people at a time."""
        self.call = call
        self.outlet = outlet
        self.programs = programs
        self.turn = turn
        self.waiting = waiting
        self.line_bytes = line_bytes
        self.resumed: Any = call.resumed
        self.answers: dict[str, TellAnswer] = {}
        self.refusal: CannotAsk | NotAnswered | None = None
        self.progress = 0.0
        self._start = start

    async def run(self) -> Raw:
        """Return its result. Raises `BackendError`, and whatever comes out of the outlet, such as `Paused`."""
        while True:
            await self.turn.take()  # where it was given up for a question
            known = len(self.answers)
            child = self._start()
            lingers = 0.0
            try:
                ended = await _Run(self, child).follow()
                lingers = LINGER_SECONDS
            finally:
                await child.aclose(lingers)
            if isinstance(ended, SaidFinal):
                return ended.result
            if ended != 0 or len(self.answers) == known:
                how = "it said no more" if ended is None else how_it_ended(ended)
                raise self.refusal or ToolCrashed(f"the agent ended without an answer ({how})")


class _Run:
    """One process of a call."""

    def __init__(self, talk: ProgramCall, child: Child) -> None:
        self._talk = talk
        self._child = child
        # Whoever no longer listens is told nothing.
        self._outbox = LineOutbox(child.input, lambda: None)
        self._stray = talk.programs.speech()
        self._asking = set[str]()
        self._answered = trio.Event()  # none of its questions is open
        self._raised: Exception | None = None

    async def follow(self) -> SaidFinal | int | None:
        """Return its final word; or its exit status where it ended without; None where it says no more, and does not end."""
        ended: SaidFinal | int | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._child.listen)
            nursery.start_soon(self._outbox.run)
            # Caught, because it would leave a nursery as a group; what the nursery's tasks raise comes in the same way.
            try:
                await self._tell(self._beginning())
                ended = await self._hear(nursery) or await self._end()
            except Exception as error:
                self._raised = error
            nursery.cancel_scope.cancel()
        self._stray.end()
        if self._raised is not None:
            raise self._raised
        return ended

    def _beginning(self) -> TellCall:
        talk, call = self._talk, self._talk.call
        return TellCall(
            tool=call.tool,
            arguments=call.arguments,
            call_id=call.call_id,
            subject=call.subject,
            can=tuple(sorted(call.can)),
            progress=call.wants_progress,
            level=call.log_level,
            resumed=talk.resumed,
            answers=talk.answers,
        )

    async def _hear(self, nursery: trio.Nursery) -> SaidFinal | None:
        """Listen until it has said its last."""
        output, framing = self._child.output, LineFraming(self._talk.line_bytes)
        try:
            while True:
                await output.news()
                data = output.read_some()
                if data is None:
                    continue
                if not data:
                    return None
                for line in framing.feed(data):
                    if line.strip() and (final := await self._take(line, nursery)):
                        return final
        except BrokenLine as error:
            self._talk.programs.report("agent.broke_protocol", str(error))
            raise BackendError("the agent said something that cannot be understood") from error

    async def _take(self, line: bytes, nursery: trio.Nursery) -> SaidFinal | None:
        """Take one line. Raises `BrokenLine`."""
        talk, outlet = self._talk, self._talk.outlet
        try:
            said = read_said(line)
        except NoEvent:
            self._stray.feed(line + b"\n")
            return None
        match said:
            case SaidProgress():
                talk.progress = talk.progress + 1 if said.progress is None else said.progress
                if talk.call.wants_progress:
                    message = None if said.message is None else said.message[:MESSAGE_CHARACTERS]
                    await outlet.emit(
                        Progress(
                            progress=talk.progress,
                            total=said.total,
                            message=message,
                            joins=said.joins,
                            name=said.name,
                            data=said.data,
                        )
                    )
            case SaidMessage():
                if is_wanted(said.level, talk.call.log_level):
                    await outlet.emit(LogMessage(level=said.level, data=said.data, logger=said.logger))
            case SaidAsk():
                self._put(said, nursery)
            case SaidCheckpoint():
                await outlet.checkpoint(said.data)
                talk.resumed = said.data
                if said.id is not None:
                    await self._tell(TellKept(id=said.id))
            case SaidBecomeTask():
                task = await outlet.become_task()
                if said.id is not None:
                    await self._tell(TellBecame(id=said.id, task=task))
            case SaidFinal():
                return said
            case SaidError(message=message):
                if not message and talk.refusal is not None:
                    raise talk.refusal
                raise ToolCrashed(message[:MESSAGE_CHARACTERS] or "the agent failed")
            case None:
                pass
        return None

    async def _end(self) -> int | None:
        """Return its exit status, once all that it asked is answered: it may have ended to be started again with that."""
        code: int | None = None
        with trio.move_on_after(LINGER_SECONDS):
            code = await self._child.exit_code()
        while self._asking:
            await self._answered.wait()
        return code

    async def _tell(self, told: Tell) -> None:
        line = write_told(told)
        if not self._outbox.put(line):
            await self._outbox.send(line)

    # ── questions ──

    def _put(self, asked: SaidAsk, nursery: trio.Nursery) -> None:
        """Put a question. Raises `BrokenLine`."""
        if asked.id in self._asking or len(self._asking) >= QUESTIONS_OPEN:
            raise BrokenLine("it asks the same again before it is answered, or too much at once")
        if not self._asking:
            try:
                self._talk.waiting.acquire_nowait()
            except trio.WouldBlock:
                raise BackendError("the agent is busy: too many of its calls wait for answers") from None
            self._answered = trio.Event()
        self._asking.add(asked.id)
        nursery.start_soon(self._ask, asked, nursery.cancel_scope)

    async def _ask(self, asked: SaidAsk, everything: trio.CancelScope) -> None:
        """Ask the caller. The place of the call is another's while a person thinks."""
        talk = self._talk
        told: Tell | None = talk.answers.get(asked.id)
        try:
            if told is None:
                talk.turn.leave()
                told = await self._answer_to(asked)
        except Exception as error:  # Paused, for one: the call ends with it
            self._raised = self._raised or error
            everything.cancel()
            return
        finally:
            self._asking.discard(asked.id)
            if not self._asking:
                talk.waiting.release()
                self._answered.set()
        if not self._asking:
            await talk.turn.take()
        await self._tell(told)

    async def _answer_to(self, asked: SaidAsk) -> Tell:
        talk = self._talk
        try:
            answers = await talk.outlet.ask({asked.id: _question(asked)})
        except (CannotAsk, NotAnswered) as error:
            talk.refusal = error.with_traceback(None)
            return TellRefused(id=asked.id, reason=str(error), asked=isinstance(error, NotAnswered))
        answer = answers[asked.id]
        content: Any = answer.get("content")
        text = content.get("answer") if asked.schema is None and isinstance(content, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        told = TellAnswer(
            id=asked.id,
            action=answer["action"],
            content=content if isinstance(content, dict) else None,  # pyright: ignore[reportUnknownArgumentType]
            response=text if isinstance(text, str) else None,
        )
        talk.answers[asked.id] = told
        return told


def _question(asked: SaidAsk) -> Question:
    """Return the question as the caller's client has it. Raises `BackendError`."""
    form: Mapping[str, Any] = TEXT_FORM
    if asked.schema is not None:
        try:
            form = read_schema(asked.schema)
        except BadShortSchema as error:
            raise BackendError(f"the agent's question {asked.id} has no usable schema: {error}") from error
    return Question(method="elicitation/create", params={"message": asked.prompt, "requestedSchema": form})
