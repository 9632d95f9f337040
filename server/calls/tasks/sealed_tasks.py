"""What is kept of tasks: values to sealed rows and back. Every method is one transaction.

What a caller or a tool said is sealed with AES-256-GCM, bound to its task and its place there, before a job sees it; drawing
nonces and encrypting is no job's business. Who runs a task, and when, is task_engine.py's; the SQL is store/task_rows.py's.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import trio

from auth.values.database import NotStored
from server.calls.tasks.task_order import MAX_RESULT_BYTES, Owner, TaskOrder, TaskTerms
from server.lib.log.logger import Logger
from server.lib.sealing import Sealer
from server.mcp.call_questions import Question
from server.mcp.errors import TooManyTasks, UnknownTask
from server.mcp.loads import SMALL_BYTES, weight_of
from server.mcp.task_faces import Ending, Face, Snapshot, TaskCompleted, TaskFailed, hash_id, text_of
from server.store import task_leases
from server.store import task_rows as rows
from server.store.jobs import (
    MOST_SLOW,
    JobTooSlow,
    Row,
    Store,
    StoreBroken,
    StoreDamaged,
    StoreDb,
)
from server.store.task_leases import Lease
from server.store.task_rows import Caps, NewTask, StoredTask, TasksFull
from server.store.write_retry import WriteRetry

T = TypeVar("T")

KEY_PURPOSE: Final = "tasks"
ID_BYTES: Final = 24
# A database that was restarted, or followed by its standby, is there again by then.
DOUBT_SECONDS: Final = 3.0
# Of a status message, which is shown beside the task: a line, not the result.
MESSAGE_CHARACTERS: Final = 1000

# Begun anew so often, each time after a process that died at it, and got no further: a task is what brings the server down.
MAX_RUNS: Final = 5
RESTARTED: Final = TaskFailed(-32603, "the server was restarted while this was running")

_encode: Final = msgspec.json.Encoder().encode
_decode_order: Final = msgspec.json.Decoder(TaskOrder).decode
_decode_question: Final = msgspec.json.Decoder(Question).decode
_decode_ending: Final = msgspec.json.Decoder(Ending).decode

Answers = Mapping[str, Mapping[str, Any]]


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A task that whoever ran it has left. `lease` None: it could not be run again, and has failed."""

    snapshot: Snapshot
    lease: Lease | None
    order: TaskOrder | None
    checkpointed: bool
    answers: Answers
    events: bytes | None
    weight: int  # of what it was given, where that is not small


class SealedTasks:
    def __init__(
        self,
        store: Store,
        *,
        key: bytes,
        entropy: Callable[[int], bytes],
        clock: Callable[[], int],
        boot_id: str,
        terms: TaskTerms,
        log: Logger,
    ) -> None:
        self._store = store
        self._sealer = Sealer(key, entropy)
        self._entropy = entropy
        self._boot_id = boot_id
        self._log = log
        self.arrears: Final = WriteRetry(store, log, "task.not_unmade")
        self.clock = clock
        self.terms = terms

    # ── one caller's tasks ───────────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self,
        order: TaskOrder,
        owner: Owner,
        face: Face,
        *,
        ttl_ms: int | None,
        events: bytes,
        message: str | None,
    ) -> tuple[Lease, Snapshot]:
        """Kept when it returns, and nothing happens between the commit and the return. Raises `TooManyTasks`, `StoreUnavailable`, and
        `StoreBroken` where it may be kept nevertheless until the store is there again."""
        terms, now = self.terms, self.clock()
        # Less than a second would be over before the answer has arrived.
        ttl = max(1000, min(terms.ttl_ms if ttl_ms is None else ttl_ms, terms.max_ttl_ms))
        task_id = "task_" + base64.urlsafe_b64encode(self._entropy(ID_BYTES)).decode()
        id_hash = hash_id(task_id)
        parts = {"order": _encode(msgspec.structs.replace(order, resumed=None)), "events": events}
        if order.resumed is not None:
            parts["checkpoint"] = _encode(order.resumed)
        new = NewTask(
            id_hash=id_hash,
            sealed_id=self._seal(id_hash, "id", task_id.encode()),
            server=owner.server,
            tool=order.tool,
            caller=owner.caller,
            face=face.value,
            replays=order.resumed is not None,
            created_at=now,
            expires_at=now + ttl,
            parts=self._seal_parts(id_hash, parts),
        )
        # Callers without a login share one name; they shall not take all the room from those who have one.
        caps = Caps(
            running=terms.per_owner if owner.known else terms.overall // 2,
            running_overall=terms.overall,
            kept=terms.kept_per_owner if owner.known else terms.kept_overall // 2,
            kept_overall=terms.kept_overall,
            kept_bytes=terms.kept_bytes,
        )
        snapshot = Snapshot(
            id=task_id,
            server=owner.server,
            tool=order.tool,
            state="working",
            message=message,
            created_at=now,
            updated_at=now,
            ttl_ms=ttl,
            poll_ms=terms.poll_ms,
            version=1,
        )
        job = partial(rows.insert, task=new, owner=self._boot_id, lease_until=now + terms.lease_ms, caps=caps, now=now)  # fmt: skip
        try:
            made = await self._store.write(job)
        except StoreBroken:
            made = await self._insist_at_once(partial(job, again=True))
            if made is None:  # nobody is told of it, so it is not to be run either
                self.arrears.owe(partial(rows.unmake, id_hash=new.id_hash, owner=self._boot_id))
                raise
        if made is TasksFull.CALLER:
            raise TooManyTasks("you have too many tasks: wait for some to end, or to be forgotten")
        if isinstance(made, TasksFull):
            raise TooManyTasks("this server has too many tasks: try again later")
        return made, snapshot

    async def load(self, task_id: str, owner: Owner) -> Snapshot:
        """Raises `UnknownTask` for a task that is not this caller's, as for one that never was."""
        id_hash = hash_id(task_id)
        stored = await self._store.read(partial(rows.fetch, id_hash=id_hash, parts=("events", "ending")))
        if stored is None or not self._belongs(stored.row, owner):
            raise UnknownTask
        return self._snapshot(stored)

    async def page(self, owner: Owner, *, after: tuple[int, str] | None, limit: int) -> Sequence[Snapshot]:
        job = partial(
            rows.page,
            caller=owner.caller, server=owner.server, after=after, now=self.clock(), limit=limit,
        )  # fmt: skip
        found = await self._store.read(job)
        return [self._snapshot(StoredTask(row=row, parts={}, questions={}, answers={})) for row in found]

    async def answer(self, task_id: str, answers: Answers) -> int:
        id_hash = hash_id(task_id)
        sealed = {
            name: self._seal(id_hash, f"answer/{name}", _encode(each)) for name, each in answers.items()
        }
        return await self._store.write(
            partial(rows.answer, id_hash=id_hash, now=self.clock(), answers=sealed)
        )

    async def cancel(self, task_id: str, reason: str) -> bool:
        id_hash = hash_id(task_id)
        message = self._seal(id_hash, "message", reason.encode(errors="replace"))
        return await self._store.write(
            partial(rows.cancel, id_hash=id_hash, now=self.clock(), message=message)
        )

    # ── whoever runs them ────────────────────────────────────────────────────────────────────────────────────────────

    async def keep(self, held: Sequence[Lease]) -> Mapping[str, int]:
        until = self.clock() + self.terms.lease_ms
        return await self._store.write(partial(rows.keep, held=held, until=until))

    async def release(self, lease: Lease) -> None:
        await self._store.write(partial(task_leases.release, lease=lease))

    async def orphans(self, limit: int) -> Sequence[str]:
        return await self._store.read(partial(rows.find_orphans, now=self.clock(), limit=limit))

    async def take_over(self, id_hash: str, *, alone: bool) -> Orphan | None:
        """None: there is nothing to be done here. One that cannot be read is left to the other nodes, of which one is perhaps of the
        version that wrote it; `alone`, there is nobody who could, so it has failed."""
        job = partial(
            rows.take_over,
            id_hash=id_hash,
            owner=self._boot_id,
            now=self.clock(),
            millis=self.terms.lease_ms,
            max_runs=MAX_RUNS,
            message=self._seal(id_hash, "message", RESTARTED.message.encode()),
            ending=self._seal(id_hash, "ending", _encode(RESTARTED)),
        )
        taken = await self._store.write(job)
        if taken is None:
            return None
        try:
            return self._orphan(taken.stored, taken.lease)
        except msgspec.DecodeError:  # another version of the server wrote it
            pass
        if taken.lease is not None:
            if not alone:
                self._log.info("task.of_another_version", tool=taken.stored.row["tool"])
                await self.release(taken.lease)
                return None
            events = self._open_parts(id_hash, taken.stored.parts).get("events", b"[]")
            await self.finish(taken.lease, RESTARTED, message=None, events=events)
        told = msgspec.structs.replace(taken.stored, parts={}, questions={}, answers={})
        return self._orphan(told, None)

    def _orphan(self, stored: StoredTask, lease: Lease | None) -> Orphan:
        """Raises `DecodeError`."""
        parts = self._open_parts(stored.row["id_hash"], stored.parts)
        answers = self._open_answers(stored.row["id_hash"], stored.answers)
        order = None
        if lease is not None:
            order = _decode_order(parts["order"])
            answers = {**order.answers, **answers}
            if (checkpoint := parts.get("checkpoint")) is not None:
                order = msgspec.structs.replace(order, resumed=msgspec.json.decode(checkpoint))
        return Orphan(
            snapshot=self._snapshot(stored),
            lease=lease,
            order=order,
            checkpointed="checkpoint" in parts,
            answers=answers,
            events=parts.get("events"),
            weight=_weight_of(parts, answers),
        )

    async def note(
        self,
        lease: Lease,
        *,
        message: str | None,
        parts: Mapping[str, bytes],
        replays: bool | None = None,
        anew: bool = False,
    ) -> bool:
        """False: the task is not this lease's any more. Raises `StoreUnavailable`."""
        job = partial(
            rows.note,
            lease=lease,
            now=self.clock(),
            message=self._seal_message(lease.key, message),
            parts=self._seal_parts(lease.key, parts),
            replays=replays,
            anew=anew,
        )
        return await self._store.write(job) is not None

    async def ask(
        self, lease: Lease, questions: Mapping[str, bytes], *, message: str | None, parts: Mapping[str, bytes]
    ) -> bool:
        sealed = {name: self._seal(lease.key, f"question/{name}", each) for name, each in questions.items()}
        job = partial(
            rows.ask,
            lease=lease,
            now=self.clock(),
            questions=sealed,
            message=self._seal_message(lease.key, message),
            parts=self._seal_parts(lease.key, parts),
        )
        return await self.insist(lambda: self._store.write(job)) is not None

    async def answers_to(self, lease: Lease, names: Collection[str]) -> Answers | None:
        job = partial(rows.answers_to, lease=lease, names=names)
        found = await self.insist(lambda: self._store.read(job))
        return None if found is None else self._open_answers(lease.key, found)

    async def finish(self, lease: Lease, ending: Ending, *, message: str | None, events: bytes) -> bool:
        """Whether it ended now, and so. However long the store takes to accept it: a result is not lost to a full disk."""
        encoded = _encode(ending)
        if len(encoded) > MAX_RESULT_BYTES:
            ending = TaskFailed(-32603, f"the result has {len(encoded):,} bytes, more than the {MAX_RESULT_BYTES:,} that a task may keep")  # fmt: skip
            encoded = _encode(ending)
        message = why_it_failed(ending) or message
        job = partial(
            rows.finish,
            lease=lease,
            now=self.clock(),
            state="completed" if isinstance(ending, TaskCompleted) else "failed",
            tool_failed=isinstance(ending, TaskCompleted) and ending.result.is_error,
            message=self._seal_message(lease.key, message),
            parts=self._seal_parts(lease.key, {"ending": encoded, "events": events}),
        )
        return await self.insist(lambda: self._store.write(job))

    async def _insist_at_once(self, job: Callable[[StoreDb], T]) -> T | None:
        """While somebody waits for it. None: the store was not there again in time."""
        with trio.move_on_after(DOUBT_SECONDS):
            return await self.insist(lambda: self._store.write(job), longest_pause=0.4)
        return None

    async def insist(self, attempt: Callable[[], Any], *, longest_pause: float = 5.0) -> Any:
        """Until the store has room, or is there again. Cancel it to give up."""
        pause, slow = 0.1, 0
        while True:
            try:
                return await attempt()
            except StoreDamaged:  # which nobody mends while we wait
                raise
            except NotStored as problem:
                self._log.warning("task.store_unavailable", problem=str(problem))
            except JobTooSlow as problem:
                slow += 1
                if slow == MOST_SLOW:
                    raise
                self._log.warning("task.store_unavailable", problem=str(problem))
            await trio.sleep(pause)
            pause = min(2 * pause, longest_pause)

    # ── values and rows ──────────────────────────────────────────────────────────────────────────────────────────────

    def _belongs(self, row: Row, owner: Owner) -> bool:
        return (
            row["caller"] == owner.caller
            and row["server"] == owner.server
            and row["expires_at"] > self.clock()
        )

    def _snapshot(self, stored: StoredTask) -> Snapshot:
        row, parts = stored.row, self._open_parts(stored.row["id_hash"], stored.parts)
        id_hash, message, ending = row["id_hash"], row["sealed_message"], parts.get("ending")
        return Snapshot(
            id=self._open(id_hash, "id", row["sealed_id"]).decode(),
            server=row["server"],
            tool=row["tool"],
            state=row["state"],
            message=None if message is None else self._open(id_hash, "message", message).decode(),
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            ttl_ms=row["expires_at"] - row["created_at"],
            poll_ms=self.terms.poll_ms,
            version=row["version"],
            tool_failed=bool(row["tool_failed"]),
            questions={
                name: _decode_question(self._open(id_hash, f"question/{name}", sealed))
                for name, sealed in stored.questions.items()
            },
            ending=None if ending is None else _decode_ending(ending),
            events=msgspec.json.decode(parts.get("events", b"[]")),
        )

    def _seal(self, id_hash: str, place: str, value: bytes) -> bytes:
        return self._sealer.seal(value, _bound_to(id_hash, place))

    def _open(self, id_hash: str, place: str, sealed: bytes) -> bytes:
        return self._sealer.open(sealed, _bound_to(id_hash, place))

    def _seal_message(self, id_hash: str, message: str | None) -> bytes | None:
        return None if message is None else self._seal(id_hash, "message", message.encode(errors="replace"))

    def _seal_parts(self, id_hash: str, parts: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {name: self._seal(id_hash, name, value) for name, value in parts.items()}

    def _open_parts(self, id_hash: str, parts: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {name: self._open(id_hash, name, sealed) for name, sealed in parts.items()}

    def _open_answers(self, id_hash: str, answers: Mapping[str, bytes]) -> Answers:
        return {
            name: msgspec.json.decode(self._open(id_hash, f"answer/{name}", sealed))
            for name, sealed in answers.items()
        }


def why_it_failed(ending: Ending) -> str | None:
    """What a task that failed says of itself; a client that shows its status need not fetch the result to know."""
    match ending:
        case TaskFailed(message=message):
            return message[:MESSAGE_CHARACTERS]
        case TaskCompleted(result) if result.is_error:
            return text_of(result)[:MESSAGE_CHARACTERS] or "the tool failed"
        case TaskCompleted():
            return None


def _weight_of(parts: Mapping[str, bytes], answers: Answers) -> int:
    weight = sum(weight_of(parts[name]) for name in ("order", "checkpoint") if name in parts)
    if answers:
        weight += weight_of(_encode(answers))
    return weight if weight > SMALL_BYTES else 0


def _bound_to(id_hash: str, place: str) -> bytes:
    return f"{KEY_PURPOSE}:{id_hash}:{place}".encode()
