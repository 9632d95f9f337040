"""Calls that cost nothing and are made once: begun, joined while they run, answered again from what is kept.

What costs something is the till's, which asks for the same keys and keeps answers in the same way. How a tool is run, and what is told of
a call that is not made, is server/calls/idempotency_stage.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import trio

from server.lib.log.logger import Logger
from server.lib.shortened import short_reason
from server.mcp.result_encoding import RawResult, ToolResult
from server.store.idempotency import kept_calls
from server.store.idempotency.call_keys import call_key, fingerprint
from server.store.idempotency.kept_answers import AnswerRoom, KeptSum
from server.store.idempotency.kept_calls import KEPT_CALLS, KEY_KEPT_MS, CallEnding, KeptCall
from server.store.idempotency.running_calls import UnderWay
from server.store.idempotency.sealed_answers import MAX_ANSWER_BYTES, AnswerVault
from server.store.jobs import Store, StoreBroken, StoreDb, StoreError
from server.store.write_retry import WriteRetry

# Whoever waits for somebody else's call is told so before its own time is over.
MARGIN_SECONDS: Final = 2.0
ID_BYTES: Final = 12
# How often it is looked for whether a call has ended in another process.
LOOK_SECONDS: Final = 0.25
# Of one caller: as many as the till keeps of what was paid for.
OF_CALLER: Final = KeptSum(10_000, 256 * 1024 * 1024)
# Of all callers without a login together: one person can have any number of addresses.
OF_STRANGERS: Final = KeptSum(20_000, 1024 * 1024 * 1024)

# Why a call is not made, in words for programs.
OTHER_CALL: Final = "idempotency_conflict"
IN_FLIGHT: Final = "in_flight"
INTERRUPTED: Final = "interrupted"
ANSWERED: Final = "answered"
UNREADABLE: Final = "answer_unreadable"
NO_ROOM: Final = "too_many_keys"


class KeptFailure(msgspec.Struct, frozen=True):
    """An error of the protocol that a call ended in."""

    code: int
    text: str
    data: Mapping[str, Any] | None = None


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the three. `raw` is of a call that became a task."""

    result: ToolResult | None = None
    raw: RawResult | None = None
    failure: KeptFailure | None = None


class IdempotentCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is to be made once. `caller` is the principal's key; `key` None: it is the same as any with these arguments, for
    `keeps_seconds` after it was answered."""

    server: str
    tool: str
    caller: str
    arguments: Mapping[str, Any]
    key: str | None
    keeps_seconds: int
    idempotent: bool  # it does no harm to make it again where nobody knows how far it came
    wait_seconds: float


class IdempotentBegun(msgspec.Struct, frozen=True):
    """The tool may run. Whoever has it ends it."""

    row: KeptCall
    call: IdempotentCall


class NotMadeAgain(msgspec.Struct, frozen=True):
    reason: str
    retry_after: int | None = None  # seconds


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(KeptAnswer).decode


class IdempotentCalls:
    """Of the whole process. `run` writes what could not be written when it happened."""

    def __init__(
        self,
        *,
        store: Store,
        vault: AnswerVault,
        key: bytes,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        boot_id: str,
        log: Logger,
        room: AnswerRoom | None = None,
    ) -> None:
        self._store = store
        self._vault = vault
        self._key = key
        self._clock = clock
        self._entropy = entropy
        self._boot_id = boot_id
        self._log = log
        self._room = room or AnswerRoom(
            store, clock, of_caller=OF_CALLER, of_strangers=OF_STRANGERS, rows=KEPT_CALLS
        )
        self._under_way = UnderWay[KeptAnswer]()
        # Ends that could not be written when they happened.
        self._arrears = WriteRetry(store, log, "call.not_kept")
        self.run: Final = self._arrears.run

    async def begin(self, call: IdempotentCall) -> IdempotentBegun | KeptAnswer | NotMadeAgain:
        """Raises `NotComparable`, and what the store raises: then nothing was begun."""
        wanted = self._draft(call)
        room = await self._room.is_left(call.caller)
        while True:
            found = await self._claim(wanted, room)
            if found is None:
                if not room and (room := await self._room.make(call.caller)):
                    continue
                return NotMadeAgain(NO_ROOM, 2)
            if found.id == wanted.id:
                return IdempotentBegun(wanted, call)
            earlier = await self._earlier(found, call, wanted.fingerprint)
            if earlier is not None:
                return earlier

    def _draft(self, call: IdempotentCall) -> KeptCall:
        now = self._clock()
        digest = fingerprint(self._key, call.server, call.tool, call.arguments)
        return KeptCall(
            id=f"one_{self._entropy(ID_BYTES).hex()}",
            call_key=call_key(
                self._key,
                caller=call.caller,
                server=call.server,
                tool=call.tool,
                fingerprint=digest,
                key=call.key,
            ),
            fingerprint=digest,
            keyed=call.key is not None,
            state="running",
            server=call.server,
            tool=call.tool,
            caller=call.caller,
            owner=self._boot_id,
            created_at=now,
            expires_at=now + KEY_KEPT_MS,
        )

    async def _claim(self, wanted: KeptCall, room: bool) -> KeptCall | None:
        """Under way from before the row is there, so that nobody finds it and not us."""
        await self._arrears.settle()
        job = partial(kept_calls.claim, wanted=wanted, room=room, now=self._clock())
        self._under_way.begin(wanted.id)
        ours = False
        try:
            found = await self._store.write(job)
            ours = found is not None and found.id == wanted.id
            return found
        except StoreBroken:  # it may be there, and nobody makes it
            self._arrears.owe(self._ending(CallEnding(id=wanted.id, state=None)))
            raise
        finally:
            if not ours:
                self._under_way.end(wanted.id)

    async def _earlier(
        self, found: KeptCall, call: IdempotentCall, digest: str
    ) -> IdempotentBegun | KeptAnswer | NotMadeAgain | None:
        """What the call that was made before comes to. None: it stands no more, so claim again."""
        if found.fingerprint != digest:
            return NotMadeAgain(OTHER_CALL)
        if found.runs(self._boot_id) or found.id in self._under_way:  # or is about to be taken up
            ended = await self._under_way.wait(found.id, within=call.wait_seconds)
            if ended is not None:
                return ended.answer
            if found.id in self._under_way:
                return NotMadeAgain(IN_FLIGHT, 2)
            # Before it is looked: what is written meanwhile is found with the next claim.
            owed = bool(self._arrears)
            again = await self._store.read(partial(kept_calls.find, call_id=found.id, boot_id=self._boot_id))
            # Nobody runs it, and its end could not be written.
            lost = again is not None and again[0].runs(self._boot_id) and found.id not in self._under_way
            return NotMadeAgain(INTERRUPTED) if lost and not owed else None
        if found.runs_elsewhere(self._boot_id):
            return await self._elsewhere(found, call)
        if found.state != "done":
            return await self._take_up(found, call) if call.idempotent else NotMadeAgain(INTERRUPTED)
        kept = await self._store.read(partial(kept_calls.find, call_id=found.id, boot_id=self._boot_id))
        if kept is None:
            return None
        sealed = kept[1]
        return NotMadeAgain(ANSWERED) if sealed is None else self._opened(found.id, sealed)

    def _opened(self, call_id: str, sealed: bytes) -> KeptAnswer | NotMadeAgain:
        """Another version may have kept it, which perhaps serves beside this one."""
        why = "it is of a form that is not known here"
        try:
            found = _decode(self._vault.open_bytes(call_id, sealed))
            if found != KeptAnswer():
                return found
        except ValueError as problem:  # msgspec's is one
            why = short_reason(problem)
        self._log.warning("call.answer_unreadable", reason=why)
        return NotMadeAgain(UNREADABLE)

    async def _elsewhere(self, found: KeptCall, call: IdempotentCall) -> NotMadeAgain | None:
        """None: it has ended in the other process, or with it."""
        job = partial(kept_calls.find, call_id=found.id, boot_id=self._boot_id)
        with trio.move_on_after(call.wait_seconds):
            while True:
                await trio.sleep(LOOK_SECONDS)
                again = await self._store.read(job)
                if again is None or not again[0].runs_elsewhere(self._boot_id):
                    return None
        return NotMadeAgain(IN_FLIGHT, 2)

    async def _take_up(self, found: KeptCall, call: IdempotentCall) -> IdempotentBegun | None:
        job = partial(
            kept_calls.take_up,
            call_id=found.id,
            owner=self._boot_id,
            expires_at=self._clock() + KEY_KEPT_MS,
        )
        self._under_way.begin(found.id)
        taken = False
        try:
            # That somebody else may have taken it up may be owed since we looked.
            await self._arrears.settle()
            taken = await self._store.write(job)
        except StoreBroken:
            until = self._clock() + KEY_KEPT_MS
            self._arrears.owe(self._ending(CallEnding(id=found.id, state="interrupted", expires_at=until)))
            raise
        finally:
            if not taken:
                self._under_way.end(found.id)
        return IdempotentBegun(found, call) if taken else None

    # ── it has ended ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self, begun: IdempotentBegun, answer: KeptAnswer) -> None:
        """This is what whoever makes the same call is given from now on."""
        text = _encode(answer)
        sealed = None
        if len(text) <= MAX_ANSWER_BYTES:
            sealed = self._vault.seal_bytes(begun.row.id, text)
        self._room.add(begun.row.caller, len(sealed or b""))
        kept_ms = KEY_KEPT_MS if begun.row.keyed else begun.call.keeps_seconds * 1000
        ended = CallEnding(id=begun.row.id, state="done", answer=sealed, expires_at=self._clock() + kept_ms)
        await self._end(ended, answer)

    async def release(self, begun: IdempotentBegun) -> None:
        """The tool did nothing: the same call is a new one."""
        await self._end(CallEnding(id=begun.row.id, state=None), None)

    async def interrupt(self, begun: IdempotentBegun) -> None:
        """It was ended from outside, and nobody knows how far it came."""
        if begun.call.idempotent or not begun.row.keyed:
            return await self.release(begun)
        self._room.add(begun.row.caller, 1)
        ended = CallEnding(id=begun.row.id, state="interrupted", expires_at=self._clock() + KEY_KEPT_MS)
        return await self._end(ended, None)

    async def _end(self, ended: CallEnding, answer: KeptAnswer | None) -> None:
        """The call was made whatever the store says: what it cannot write now is written as soon as it can. A crash before that leaves
        a call that was interrupted."""
        job = self._ending(ended)
        with trio.CancelScope(shield=True):  # bounded by the store, which gives up by itself
            try:
                await self._store.write(job)
            except StoreError as problem:
                self._arrears.owe(job)
                self._log.warning("call.not_kept", reason=short_reason(problem))
            finally:
                self._under_way.end(ended.id, answer)

    def _ending(self, ended: CallEnding) -> Callable[[StoreDb], None]:
        return partial(kept_calls.end, ended=ended, owner=self._boot_id, now=self._clock())
