"""The rows of tasks: every change of state is one conditional statement, so that whoever comes second changes nothing. Jobs.

What a task is about arrives sealed and leaves sealed (calls/tasks/sealed_tasks.py). A change by whoever runs a task shows its lease: owner and
fence are conditions of the same UPDATE. It does not ask whether the lease has expired, because a fence that was not raised
proves that nobody took over: a machine that slept loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from server.store import task_leases
from server.store.jobs import Row, StoreDb
from server.store.task_leases import Lease, LeasedTable

# As the partial index has it, to the letter: otherwise SQLite does not use it.
RUNNING: Final = "state IN ('working', 'input_required')"

_SHOWN: Final = (
    "id_hash, sealed_id, sealed_message, server, tool, caller, face, state, tool_failed, version, created_at, updated_at,"
    " expires_at"
)


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    id_hash: str
    sealed_id: bytes
    server: str
    tool: str
    caller: str
    face: str
    replays: bool
    created_at: int
    expires_at: int
    parts: Mapping[str, bytes]


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks there may be: at work, and altogether, of one caller and of all."""

    running: int
    running_overall: int
    kept: int
    kept_overall: int
    kept_bytes: int  # of one person, by whichever programs: another client id costs nothing


class StoredTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as one snapshot of the database has it."""

    row: Row
    parts: Mapping[str, bytes]
    questions: Mapping[str, bytes]  # outstanding ones only
    answers: Mapping[str, bytes]  # empty unless they were asked for


class AbandonedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that another process left behind. With a lease it may be run again; without, it has been ended."""

    lease: Lease | None
    stored: StoredTask


class TasksFull(Enum):
    CALLER = "caller"
    SERVER = "server"


def insert(
    db: StoreDb, task: NewTask, *, owner: str, lease_until: int, caps: Caps, now: int, again: bool = False
) -> Lease | TasksFull:
    """The task, with the lease of whoever is about to run it; or why there is no room. `again`: it may be there already."""
    lease = Lease(LeasedTable.TASKS, task.id_hash, owner, 1)
    if again and _count(db, "id_hash = ?", task.id_hash):
        return lease
    if full := _full(db, task.caller, caps, now):
        return full
    size = sum(map(len, task.parts.values()))
    if _bytes_of(db, person_of(task.caller), now) + size > caps.kept_bytes:
        return TasksFull.CALLER
    db.execute(
        "INSERT INTO tasks (id_hash, sealed_id, server, tool, caller, face, state, tool_failed, replays, runs, version,"
        " created_at, updated_at, expires_at, owner, lease_until, fence)"
        " VALUES (?, ?, ?, ?, ?, ?, 'working', 0, ?, 0, 1, ?, ?, ?, ?, ?, 1)",
        task.id_hash, task.sealed_id, task.server, task.tool, task.caller, task.face, int(task.replays),
        task.created_at, task.created_at, task.expires_at, owner, lease_until,
    )  # fmt: skip
    _put_parts(db, task.id_hash, task.parts)
    return lease


def unmake(db: StoreDb, id_hash: str, *, owner: str) -> None:
    """One of which nobody was told, if it was written, and nobody has taken it over."""
    db.execute("DELETE FROM tasks WHERE id_hash = ? AND owner = ? AND fence = 1", id_hash, owner)


def _full(db: StoreDb, caller: str, caps: Caps, now: int) -> TasksFull | None:
    if _count(db, f"{RUNNING} AND caller = ?", caller) >= caps.running:
        return TasksFull.CALLER
    if _count(db, "caller = ? AND expires_at > ?", caller, now) >= caps.kept:
        return TasksFull.CALLER
    if _count(db, RUNNING) >= caps.running_overall or _count(db, "expires_at > ?", now) >= caps.kept_overall:
        return TasksFull.SERVER
    return None


def person_of(caller: str) -> str:
    """`kind:subject:` of a caller, whose client comes after it; `anonymous` has none."""
    kind, _, rest = caller.partition(":")
    subject, client, _ = rest.partition(":")
    return f"{kind}:{subject}:" if client else caller


def _bytes_of(db: StoreDb, person: str, now: int) -> int:
    row = db.fetch_one(
        "SELECT SUM(LENGTH(p.sealed)) AS n FROM tasks t JOIN task_parts p ON p.id_hash = t.id_hash"
        " WHERE t.caller >= ? AND t.caller < ? AND t.expires_at > ?",
        person,
        person + "\U0010ffff",
        now,
    )
    return 0 if row is None else row["n"] or 0


def _count(db: StoreDb, condition: str, *params: object) -> int:
    row = db.fetch_one(f"SELECT count(*) AS n FROM tasks WHERE {condition}", *params)
    return 0 if row is None else row["n"]


def note(
    db: StoreDb,
    lease: Lease,
    *,
    now: int,
    message: bytes | None = None,
    parts: Mapping[str, bytes],
    replays: bool | None = None,
    anew: bool = False,
) -> int | None:
    """Something happened to a running task: its new version, or None if it is not this lease's to write any more.
    `anew`: it has got further, so what it was begun again for does not count."""
    changed = db.execute(
        "UPDATE tasks SET sealed_message = COALESCE(?, sealed_message), replays = COALESCE(?, replays),"
        " runs = CASE WHEN ? = 1 THEN 0 ELSE runs END, version = version + 1, updated_at = ?"
        f" WHERE id_hash = ? AND owner = ? AND fence = ? AND {RUNNING}",
        message, None if replays is None else int(replays), int(anew), now, lease.key, lease.owner, lease.fence,
    )  # fmt: skip
    if not changed:
        return None
    _put_parts(db, lease.key, parts)
    return _version(db, lease.key)


def ask(
    db: StoreDb,
    lease: Lease,
    *,
    now: int,
    questions: Mapping[str, bytes],
    message: bytes | None,
    parts: Mapping[str, bytes],
) -> int | None:
    """The task waits for answers, unless all were given already: asked again after a restart, a question keeps its answer."""
    if not _still(db, lease):
        return None
    for name, question in questions.items():
        db.execute(
            "INSERT INTO task_questions (id_hash, name, question) VALUES (?, ?, ?)"
            " ON CONFLICT (id_hash, name) DO UPDATE SET question = excluded.question"
            " WHERE task_questions.answer IS NULL",
            lease.key, name, question,
        )  # fmt: skip
    _put_parts(db, lease.key, parts)
    _settle_waiting(db, lease.key, now=now, message=message, extra=", replays = 1")
    return _version(db, lease.key)


def answer(db: StoreDb, id_hash: str, *, now: int, answers: Mapping[str, bytes]) -> int:
    """How many of them were awaited. With the last outstanding one the task is at work again."""
    row = db.fetch_one(f"SELECT 1 AS running FROM tasks WHERE id_hash = ? AND expires_at > ? AND {RUNNING}", id_hash, now)  # fmt: skip
    if row is None:
        return 0
    given = sum(
        db.execute(
            "UPDATE task_questions SET answer = ? WHERE id_hash = ? AND name = ? AND answer IS NULL",
            sealed, id_hash, name,
        )
        for name, sealed in answers.items()
    )  # fmt: skip
    if given:
        _settle_waiting(db, id_hash, now=now, message=None, extra=", runs = 0")
    return given


def _settle_waiting(db: StoreDb, id_hash: str, *, now: int, message: bytes | None, extra: str) -> None:
    db.execute(
        "UPDATE tasks SET state = CASE WHEN EXISTS"
        " (SELECT 1 FROM task_questions AS q WHERE q.id_hash = tasks.id_hash AND q.answer IS NULL)"
        " THEN 'input_required' ELSE 'working' END,"
        " sealed_message = COALESCE(?, sealed_message),"
        f" version = version + 1, updated_at = ?{extra} WHERE id_hash = ? AND {RUNNING}",
        message, now, id_hash,
    )  # fmt: skip


def answers_to(db: StoreDb, lease: Lease, names: Collection[str]) -> Mapping[str, bytes] | None:
    """Those given so far; None if the task is not this lease's any more."""
    return _answers(db, lease.key, names) if _still(db, lease) else None


def _answers(db: StoreDb, id_hash: str, names: Collection[str] | None = None) -> Mapping[str, bytes]:
    among = "" if names is None else f" AND name IN ({', '.join('?' * len(names))})"
    rows = db.fetch_all(
        f"SELECT name, answer FROM task_questions WHERE id_hash = ? AND answer IS NOT NULL{among}",
        id_hash, *(names or ()),
    )  # fmt: skip
    return {row["name"]: row["answer"] for row in rows}


def finish(
    db: StoreDb,
    lease: Lease,
    *,
    now: int,
    state: str,
    tool_failed: bool,
    message: bytes | None,
    parts: Mapping[str, bytes],
) -> bool:
    """The end of the work. False: somebody cancelled it before, or it is not this lease's any more."""
    ended = db.execute(
        "UPDATE tasks SET state = ?, tool_failed = ?, sealed_message = COALESCE(?, sealed_message), updated_at = ?,"
        " version = version + 1, owner = NULL, lease_until = 0"
        f" WHERE id_hash = ? AND owner = ? AND fence = ? AND {RUNNING}",
        state, int(tool_failed), message, now, lease.key, lease.owner, lease.fence,
    )  # fmt: skip
    if not ended:
        return False
    _put_parts(db, lease.key, parts)
    _drop_what_only_a_run_needs(db, lease.key)
    return True


def cancel(db: StoreDb, id_hash: str, *, now: int, message: bytes) -> bool:
    """Whoever runs it finds its fence overtaken. False: it had ended before."""
    ended = db.execute(
        "UPDATE tasks SET state = 'cancelled', sealed_message = ?, updated_at = ?, version = version + 1,"
        f" owner = NULL, lease_until = 0, fence = fence + 1 WHERE id_hash = ? AND {RUNNING}",
        message, now, id_hash,
    )  # fmt: skip
    if not ended:
        return False
    _drop_what_only_a_run_needs(db, id_hash)
    return True


def keep(db: StoreDb, held: Sequence[Lease], *, until: int) -> Mapping[str, int]:
    """Renew what is still held: the version of each. What is missing was cancelled or taken over."""
    kept: dict[str, int] = {}
    for lease in held:
        renewed = db.execute(
            "UPDATE tasks SET lease_until = CASE WHEN lease_until > ? THEN lease_until ELSE ? END"
            f" WHERE id_hash = ? AND owner = ? AND fence = ? AND {RUNNING}",
            until, until, lease.key, lease.owner, lease.fence,
        )  # fmt: skip
        if renewed:
            kept[lease.key] = _version(db, lease.key)
    return kept


def find_orphans(db: StoreDb, *, now: int, limit: int) -> Sequence[str]:
    rows = db.fetch_all(
        f"SELECT id_hash FROM tasks WHERE {RUNNING} AND lease_until <= ? ORDER BY lease_until, id_hash LIMIT ?",
        now, limit,
    )  # fmt: skip
    return [row["id_hash"] for row in rows]


def take_over(
    db: StoreDb,
    id_hash: str,
    *,
    owner: str,
    now: int,
    millis: int,
    max_runs: int,
    message: bytes,
    ending: bytes,
) -> AbandonedTask | None:
    """Take an orphan, if it still is one. One that cannot be run again fails at once, with `ending`.

    Only what was at work when its process died may have been what it died of, and is bounded by `max_runs`. What was given back,
    or waited for somebody, outlives any number of restarts."""
    row = db.fetch_one(
        f"SELECT state, replays, runs, expires_at, owner FROM tasks WHERE id_hash = ? AND {RUNNING}", id_hash
    )
    if row is None:
        return None
    lease = task_leases.take(db, LeasedTable.TASKS, id_hash, owner=owner, now=now, millis=millis)
    if lease is None:
        return None
    suspect = row["state"] == "working" and row["owner"] is not None
    if row["replays"] and row["expires_at"] > now and not (suspect and row["runs"] >= max_runs):
        if suspect:
            db.execute("UPDATE tasks SET runs = runs + 1 WHERE id_hash = ?", id_hash)
    else:
        finish(
            db,
            lease,
            now=now,
            state="failed",
            tool_failed=False,
            message=message,
            parts={"ending": ending},
        )
        lease = None
    stored = fetch(db, id_hash, parts=("order", "checkpoint", "events"), answered=True)
    return None if stored is None else AbandonedTask(lease=lease, stored=stored)


def fetch(db: StoreDb, id_hash: str, *, parts: Collection[str], answered: bool = False) -> StoredTask | None:
    row = db.fetch_one(f"SELECT {_SHOWN} FROM tasks WHERE id_hash = ?", id_hash)
    if row is None:
        return None
    marks = ", ".join("?" * len(parts))
    sql = f"SELECT name, sealed FROM task_parts WHERE id_hash = ? AND name IN ({marks})"
    found = db.fetch_all(sql, id_hash, *parts) if parts else []
    outstanding = db.fetch_all(
        "SELECT name, question FROM task_questions WHERE id_hash = ? AND answer IS NULL", id_hash
    )
    return StoredTask(
        row=row,
        parts={part["name"]: part["sealed"] for part in found},
        questions={each["name"]: each["question"] for each in outstanding},
        answers=_answers(db, id_hash) if answered else {},
    )


def page(
    db: StoreDb, *, caller: str, server: str, after: tuple[int, str] | None, now: int, limit: int
) -> Sequence[Row]:
    """One caller's tasks, newest first, from after the one that was made then."""
    where, params = "", ()
    if after is not None:
        where, params = " AND (created_at < ? OR (created_at = ? AND id_hash < ?))", (after[0], *after)
    return db.fetch_all(
        f"SELECT {_SHOWN} FROM tasks WHERE caller = ? AND server = ? AND expires_at > ?{where}"
        " ORDER BY created_at DESC, id_hash DESC LIMIT ?",
        caller, server, now, *params, limit,
    )  # fmt: skip


def _still(db: StoreDb, lease: Lease) -> bool:
    sql = f"SELECT 1 AS held FROM tasks WHERE id_hash = ? AND owner = ? AND fence = ? AND {RUNNING}"
    return db.fetch_one(sql, lease.key, lease.owner, lease.fence) is not None


def _version(db: StoreDb, id_hash: str) -> int:
    row: Mapping[str, Any] | None = db.fetch_one("SELECT version FROM tasks WHERE id_hash = ?", id_hash)
    return 0 if row is None else row["version"]


def _put_parts(db: StoreDb, id_hash: str, parts: Mapping[str, bytes]) -> None:
    for name, sealed in parts.items():
        db.execute(
            "INSERT INTO task_parts (id_hash, name, sealed) VALUES (?, ?, ?)"
            " ON CONFLICT (id_hash, name) DO UPDATE SET sealed = excluded.sealed",
            id_hash, name, sealed,
        )  # fmt: skip


def _drop_what_only_a_run_needs(db: StoreDb, id_hash: str) -> None:
    """Nobody will run it again, so what was asked for and answered is not kept any longer than needed."""
    db.execute("DELETE FROM task_parts WHERE id_hash = ? AND name IN ('order', 'checkpoint')", id_hash)
    db.execute("DELETE FROM task_questions WHERE id_hash = ?", id_hash)
