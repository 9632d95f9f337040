"""The chain of audit rows (server/store/audit_chain.py): whatever is done to them without the key is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from store_engines import NOW, AnyStore, Open

from auth.values.db import AuditEntry
from server.store import meta
from server.store.audit_chain import AuditChain, Break, Piece, Position
from server.store.jobs import ConstraintFailed, StatementRefused, StoreDb
from server.store.maintenance import PIECE, Retention, sweep

KEY = b"a key of this chain alone"
KEEP = Retention(audit=100)


def entry(number: int, *, at: int = NOW, **changed: Any) -> AuditEntry:
    made = AuditEntry(
        at, "test.done", "user:u", "c", None, "203.0.113.7", 'a "browser"\n', "ok", f"row {number}"
    )
    return made._replace(**changed)


def write(db: StoreDb, first: int, last: int, *, at: int = NOW) -> None:
    for number in range(first, last + 1):
        db.audit(entry(number, at=at))


def walk(db: StoreDb, *, at_most: int = 1_000, key: bytes = KEY) -> Piece:
    """The whole chain in pieces, as one."""
    chain, at, checked, unchained = AuditChain(key), None, 0, 0
    while True:
        piece = chain.walk(db, at, at_most=at_most)
        checked, unchained = checked + piece.checked, unchained + piece.unchained
        if piece.done:
            return Piece(checked=checked, at=piece.at, done=True, broken=piece.broken, unchained=unchained)
        at = piece.at


def do(sql: str, *params: object) -> Callable[[StoreDb], int]:
    return lambda db: db.execute(sql, *params)


@pytest.fixture
async def chained(store: AnyStore) -> AnyStore:
    """Twelve rows, in several batches."""
    store.chain_audit(KEY)
    for first in (1, 4, 7, 10):
        await store.write(partial(write, first=first, last=first + 2))
    return store


@pytest.mark.parametrize("at_most", [1, 5, 12, 13, 1_000])
async def test_a_chain_that_nobody_touched_is_whole_whatever_the_size_of_the_pieces(
    chained: AnyStore, at_most: int
) -> None:
    piece = await chained.read(partial(walk, at_most=at_most))
    assert (piece.checked, piece.broken, piece.at.seq, piece.unchained) == (12, None, 12, 0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at", NOW + 1),
        ("event", "test.undone"),
        ("actor", "user:v"),
        ("client_id", None),
        ("client_id", "d"),
        ("grant_id", ""),
        ("ip", "203.0.113.8"),
        ("user_agent", 'a "browser"'),
        ("outcome", "refused"),
        ("reason", ""),
        ("reason", b"row 5"),  # the same text as another type
        ("mac", ""),
        ("mac", b"x"),
        ("mac", "0" * 64),
        ("mac", "\u00e9"),
    ],
)
async def test_an_altered_row_is_named(chained: AnyStore, column: str, value: object) -> None:
    await chained.write(do(f"UPDATE audit SET {column} = ? WHERE seq = 5", value))
    piece = await chained.read(walk)
    assert piece.broken == Break(seq=5, what="altered")
    assert piece.checked == 4


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        ("DELETE FROM audit WHERE seq = 5", Break(seq=5, what="missing")),
        ("DELETE FROM audit WHERE seq IN (5, 6, 9)", Break(seq=5, what="missing")),
        ("DELETE FROM audit WHERE seq = 1", Break(seq=1, what="missing")),
        ("DELETE FROM audit WHERE seq = 12", Break(seq=12, what="missing")),
        ("DELETE FROM audit WHERE seq > 3", Break(seq=4, what="missing")),
        ("DELETE FROM audit", Break(seq=1, what="missing")),
        ("UPDATE audit SET seq = seq - 1 WHERE seq > 11", Break(seq=12, what="missing")),
        ("UPDATE audit SET seq = 99 WHERE seq = 5", Break(seq=5, what="missing")),
        ("UPDATE audit SET reason = 'x' WHERE seq IN (8, 4, 11)", Break(seq=4, what="altered")),
        ("INSERT INTO audit (seq, at, event, actor, outcome) VALUES (13, 0, 'x', 'y', 'ok')", Break(seq=13, what="added")),
        ("INSERT INTO audit (seq, at, event, actor, outcome) VALUES (0, 0, 'x', 'y', 'ok')", Break(seq=0, what="added")),
        ("INSERT INTO audit (seq, at, event, actor, outcome) VALUES (-4, 0, 'x', 'y', 'ok')", Break(seq=-4, what="added")),
        ("DELETE FROM meta WHERE key = 'audit_chain'", Break(seq=12, what="no record")),
        ("UPDATE meta SET value = '' WHERE key = 'audit_chain'", Break(seq=12, what="record altered")),
        ("UPDATE meta SET value = replace(value, ':12:', ':11:') WHERE key = 'audit_chain'", Break(seq=12, what="record altered")),
    ],
)  # fmt: skip
async def test_what_was_taken_out_put_in_or_cut_off_is_named(
    chained: AnyStore, tampering: str, found: Break
) -> None:
    await chained.write(do("UPDATE sqlite_sequence SET seq = 12 WHERE name = 'audit'"))
    if "seq - 1" in tampering:
        await chained.write(do("DELETE FROM audit WHERE seq = 11"))
        found = Break(seq=11, what="altered")
    await chained.write(do(tampering))
    assert (await chained.read(partial(walk, at_most=4))).broken == found


async def test_two_rows_that_changed_places_are_noticed(chained: AnyStore) -> None:
    def swap(db: StoreDb) -> None:
        for old, new in ((5, 99), (6, 5), (99, 6)):
            db.execute("UPDATE audit SET seq = ? WHERE seq = ?", new, old)

    await chained.write(swap)
    assert (await chained.read(walk)).broken == Break(seq=5, what="altered")


async def test_another_key_finds_nothing_to_be_true(chained: AnyStore) -> None:
    piece = await chained.read(partial(walk, key=b"of somebody else"))
    assert piece.broken == Break(seq=12, what="record altered")
    forged = AuditChain(b"of somebody else")

    def again(
        db: StoreDb,
    ) -> None:  # whoever has the database alone chains everything anew, with a key of his own
        rows = db.fetch_all("SELECT * FROM audit ORDER BY seq")
        db.execute("DELETE FROM audit")
        db.execute("DELETE FROM meta WHERE key = ?", meta.AUDIT_CHAIN)
        for row in rows[:-1]:
            forged.append(db, AuditEntry(*(row[name] for name in AuditEntry._fields)))

    await chained.write(again)
    assert (await chained.read(walk)).broken == Break(seq=11, what="record altered")


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE meta SET value = 'x' WHERE key = 'audit_chain'",
        "UPDATE meta SET value = replace(value, ':12:', ':9:') WHERE key = 'audit_chain'",
        "DELETE FROM meta WHERE key = 'audit_chain'",
    ],
)
async def test_a_record_that_was_altered_is_not_made_good_by_the_next_row(
    chained: AnyStore, tampering: str
) -> None:
    await chained.write(do("DELETE FROM audit WHERE seq > 9"))
    await chained.write(do(tampering))
    await chained.write(partial(write, first=1, last=2))
    await chained.write(partial(write, first=3, last=3))
    piece = await chained.read(walk)
    assert piece.broken is not None
    assert piece.broken.what in ("record altered", "added")
    assert piece.broken.seq in (1, 10)
    stored = await chained.read(lambda db: db.fetch_one("SELECT count(*) AS n FROM audit"))
    assert stored is not None
    assert stored["n"] == 9 + 3  # and nobody was refused for it


async def test_a_job_that_is_undone_leaves_no_gap(chained: AnyStore) -> None:
    def fail(db: StoreDb) -> None:
        write(db, 1, 3)
        raise LookupError

    def clash(db: StoreDb) -> None:
        write(db, 1, 1)
        db.execute("INSERT INTO meta (key, value) VALUES ('audit_chain', 'x')")

    for job, error in ((fail, LookupError), (clash, ConstraintFailed)):
        with pytest.raises(error):
            await chained.write(job)
    await chained.write(partial(write, first=13, last=13))
    piece = await chained.read(walk)
    assert (piece.checked, piece.broken, piece.at.seq) == (13, None, 13)


async def test_the_record_is_read_once_and_from_then_on_only_checked(open_any: Open) -> None:
    async with open_any() as store:
        store.chain_audit(KEY)
        said: list[str] = []
        connection = store._transactions._connection
        await store.write(partial(write, first=1, last=2))
        connection.set_trace_callback(said.append)
        await store.write(partial(write, first=3, last=4))
        await store.write(lambda db: db.execute("DELETE FROM changes"))
        await store.write(partial(write, first=5, last=5))
        connection.set_trace_callback(None)
        assert not [sql for sql in said if sql.startswith("SELECT")]
        assert len([sql for sql in said if sql.startswith("UPDATE meta")]) == 2
        piece = await store.read(walk)
        assert (piece.checked, piece.broken) == (5, None)


async def test_nothing_is_audited_before_the_store_has_its_key(store: AnyStore) -> None:
    with pytest.raises(StatementRefused, match="key"):
        await store.write(partial(write, first=1, last=1))
    assert await store.read(lambda db: db.fetch_all("SELECT * FROM audit")) == []


async def test_rows_of_before_the_chain_are_counted_and_told_from_rows_that_were_put_in(
    store: AnyStore,
) -> None:
    old = "INSERT INTO audit (at, event, actor, outcome) VALUES (?, 'old', 'user:u', 'ok')"
    for number in range(3):
        await store.write(do(old, NOW + number))
    store.chain_audit(KEY)
    await store.write(partial(write, first=1, last=2))
    piece = await store.read(walk)
    assert (piece.checked, piece.unchained, piece.broken, piece.at.seq) == (2, 3, None, 5)
    await store.write(do("UPDATE audit SET mac = 'x' WHERE seq = 2"))
    assert (await store.read(walk)).broken == Break(seq=2, what="added")


# ---------------------------------------------------------------- sweeping


async def swept(store: AnyStore, now: int) -> int:
    result = await sweep(store, owner="boot", clock=lambda: now, retention=KEEP)
    assert result is not None
    return result["audit"]


async def test_the_oldest_rows_are_swept_and_the_rest_still_verifies(store: AnyStore) -> None:
    store.chain_audit(KEY)
    await store.write(partial(write, first=1, last=2 * PIECE + 7, at=NOW))
    await store.write(partial(write, first=1, last=5, at=NOW + 50))
    assert await swept(store, NOW + 99) == 0
    assert await swept(store, NOW + 100) == 2 * PIECE + 7
    piece = await store.read(walk)
    assert (piece.checked, piece.broken, piece.at.seq) == (5, None, 2 * PIECE + 12)
    assert await swept(store, NOW + 150) == 5
    piece = await store.read(walk)
    assert (piece.checked, piece.broken, piece.at.seq) == (0, None, 2 * PIECE + 12)
    await store.write(partial(write, first=1, last=1, at=NOW + 200))
    assert (await store.read(walk)).broken is None


async def test_rows_that_somebody_took_from_the_beginning_do_not_pass_for_swept(chained: AnyStore) -> None:
    assert await swept(chained, NOW + 99) == 0
    await chained.write(do("DELETE FROM audit WHERE seq < 4"))
    assert (await chained.read(walk)).broken == Break(seq=1, what="missing")


async def test_a_row_made_to_look_old_is_not_swept_away_as_evidence(chained: AnyStore) -> None:
    await chained.write(do("UPDATE audit SET at = 0 WHERE seq <= 3"))
    assert await swept(chained, NOW + 99) == 0
    assert (await chained.read(walk)).broken == Break(seq=1, what="altered")


async def test_a_swept_row_that_is_put_back_is_noticed(chained: AnyStore) -> None:
    row = await chained.read(lambda db: db.fetch_one("SELECT * FROM audit WHERE seq = 2"))
    assert row is not None
    await chained.write(partial(write, first=13, last=13, at=NOW + 100))
    assert await swept(chained, NOW + 100) == 12
    marks = ", ".join("?" * len(row))
    await chained.write(do(f"INSERT INTO audit ({', '.join(row)}) VALUES ({marks})", *row.values()))
    assert (await chained.read(walk)).broken == Break(seq=2, what="added")


async def test_a_younger_row_before_older_ones_keeps_them_so_that_there_is_never_a_hole(
    store: AnyStore,
) -> None:
    store.chain_audit(KEY)
    for at in (NOW, NOW + 5_000, NOW):  # a clock that was wrong for a moment
        await store.write(partial(write, first=1, last=1, at=at))
    assert await swept(store, NOW + 100) == 1
    piece = await store.read(walk)
    assert (piece.checked, piece.broken) == (2, None)


async def test_rows_of_before_the_chain_are_swept_too_and_the_chain_stays(store: AnyStore) -> None:
    old = "INSERT INTO audit (at, event, actor, outcome) VALUES (?, 'old', 'user:u', 'ok')"
    for at in (NOW, NOW + 1):
        await store.write(do(old, at))
    assert await swept(store, NOW + 100) == 1  # by whoever has no key
    store.chain_audit(KEY)
    await store.write(partial(write, first=1, last=2, at=NOW + 2))
    assert await swept(store, NOW + 101) == 1
    piece = await store.read(walk)
    assert (piece.checked, piece.unchained, piece.broken) == (2, 0, None)
    assert await swept(store, NOW + 102) == 2
    assert (await store.read(walk)).broken is None


async def test_a_walk_that_is_overtaken_by_the_broom_and_by_new_rows_still_comes_to_the_end(
    chained: AnyStore,
) -> None:
    chain = AuditChain(KEY)
    first = await chained.read(partial(chain.walk, at=None, at_most=4))
    assert (first.checked, first.done, first.at.seq) == (4, False, 4)
    await chained.write(partial(write, first=13, last=15, at=NOW + 100))
    assert await swept(chained, NOW + 100) == 12
    rest = await chained.read(partial(chain.walk, at=first.at, at_most=100))
    assert (rest.checked, rest.done, rest.broken, rest.at.seq) == (3, True, None, 15)


async def test_a_walk_begun_at_a_wrong_place_ends_in_a_break(chained: AnyStore) -> None:
    chain = AuditChain(KEY)
    for at in (Position(seq=3, mac="0" * 64), Position(seq=12, mac=""), Position(seq=50, mac="")):
        piece = await chained.read(partial(chain.walk, at=at, at_most=100))
        assert piece.broken is not None


# ---------------------------------------------------------------- telling of it


async def test_committed_rows_are_told_before_the_writer_goes_on_and_undone_ones_never(
    chained: AnyStore,
) -> None:
    told: list[str] = []
    chained.on_audit(lambda entries: told.extend(each.reason for each in entries))
    await chained.write(partial(write, first=1, last=2))
    assert told == ["row 1", "row 2"]

    def fail(db: StoreDb) -> None:
        write(db, 3, 3)
        raise LookupError

    with pytest.raises(LookupError):
        await chained.write(fail)
    await chained.write(do("DELETE FROM changes"))
    assert told == ["row 1", "row 2"]


async def test_a_listener_that_fails_stops_neither_the_store_nor_the_others(chained: AnyStore) -> None:
    told: list[int] = []

    def broken(entries: object) -> None:
        raise OSError("no room for a log")

    chained.on_audit(broken)
    chained.on_audit(lambda entries: told.append(len(entries)))
    for _ in range(2):
        await chained.write(partial(write, first=1, last=2))
    assert told == [2, 2]


async def test_the_chain_goes_on_in_the_next_process(open_any: Open, request: pytest.FixtureRequest) -> None:
    checked = 0
    for _ in range(3):
        async with open_any() as store:
            store.chain_audit(KEY)
            await store.write(partial(write, first=1, last=4))
            piece = await store.read(walk)
            checked = piece.checked
            assert piece.broken is None
    in_memory = "memory" in request.node.name
    assert checked == (4 if in_memory else 12)
