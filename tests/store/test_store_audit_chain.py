"""The chain of audit rows (server/store/audit_chain.py): whatever is done to them without the key is found, and named."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from store_engines import NOW, SQLITE_ENGINES, AnyStore, Open

from auth.values.database import AuditEntry
from server.store import keyfile, meta_rows
from server.store.audit_chain import AuditChain
from server.store.chains import Break, Piece, Record
from server.store.jobs import ConstraintFailed, Position, StatementRefused, StoreDb, StoreError
from server.store.maintenance import sweep
from server.store.retention import PIECE, Retention
from server.store.store_engine import CommitInDoubt, EngineConnection

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
    chain, at, checked, swept = AuditChain(key), None, 0, 0
    while True:
        piece = chain.walk(db, at, at_most=at_most)
        checked, swept = checked + piece.checked, swept + piece.swept
        if piece.done:
            return replace(piece, checked=checked, swept=swept)
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
    assert (piece.checked, piece.broken, piece.at.seq, piece.swept) == (12, None, 12, 0)


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
    chained: AnyStore, engine: str, tampering: str, found: Break
) -> None:
    if engine in SQLITE_ENGINES:
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
        db.execute("DELETE FROM meta WHERE key = ?", meta_rows.AUDIT_CHAIN)
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
    assert (await chained.read(walk)).broken == Break(seq=10, what="missing")
    stored = await chained.read(lambda db: db.fetch_one("SELECT count(*) AS n FROM audit"))
    assert stored is not None
    assert stored["n"] == 9 + 1 + 3  # nobody was refused for it, and one row says that it was found


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


class Overheard:
    """A connection, and whoever is told before each statement."""

    def __init__(self, connection: EngineConnection, tell: Callable[[str], None]) -> None:
        self._connection = connection
        self._tell = tell

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        self._tell(sql)
        return self._connection.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        """What only PostgreSQL's has; of it what is run."""
        found = getattr(self._connection, name)

        def heard(sql: str, *more: Any) -> Any:
            self._tell(sql)
            return found(sql, *more)

        return heard if name in ("later", "one_row_later") else found


async def test_the_record_is_read_once_and_from_then_on_only_checked(
    open_any: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_any() as store:
        store.chain_audit(KEY)
        said: list[str] = []
        connection = store._transactions._connection
        await store.write(partial(write, first=1, last=2))
        monkeypatch.setattr(store._transactions, "_connection", Overheard(connection, said.append))
        await store.write(partial(write, first=3, last=4))
        await store.write(lambda db: db.execute("DELETE FROM changes"))
        await store.write(partial(write, first=5, last=5))
        monkeypatch.setattr(store._transactions, "_connection", connection)
        assert not [sql for sql in said if sql.startswith("SELECT")]
        assert len([sql for sql in said if sql.startswith("UPDATE meta")]) == 2
        piece = await store.read(walk)
        assert (piece.checked, piece.broken) == (5, None)


async def test_nothing_is_audited_before_the_store_has_its_key(store: AnyStore) -> None:
    with pytest.raises(StatementRefused, match="key"):
        await store.write(partial(write, first=1, last=1))
    assert await store.read(lambda db: db.fetch_all("SELECT * FROM audit")) == []


# ---------------------------------------------------------------- by somebody who can write the database, and has no key

WIPED = ("DELETE FROM audit", "DELETE FROM meta")  # the fingerprint of the key as well
BLANKED = (
    "UPDATE audit SET reason = 'x', mac = '' WHERE seq > 3",
    "DELETE FROM meta WHERE key = 'audit_chain'",
)


async def record_of(store: AnyStore) -> str:
    text = await store.read(partial(meta_rows.get, key=meta_rows.AUDIT_CHAIN))
    assert text is not None
    return text


async def bind(store: AnyStore, heads: Sequence[Position] = ()) -> list[AuditEntry]:
    """As a server does at its start; what it noticed."""
    told: list[AuditEntry] = []
    store.on_audit(told.extend)
    store.chain_audit(KEY, heads)
    await store.write(partial(keyfile.bind_key, fingerprint="of the key"))
    return told


@pytest.mark.parametrize(
    ("tampering", "found"),
    [(WIPED, Break(seq=1, what="missing")), (BLANKED, Break(seq=4, what="altered"))],
)
async def test_a_trail_that_was_wiped_or_written_anew_is_noticed_with_the_next_decision_and_ever_after(
    store: AnyStore, tampering: Sequence[str], found: Break
) -> None:
    told = await bind(store)
    await store.write(partial(write, first=1, last=12))
    for sql in tampering:
        await store.write(do(sql))
    told.clear()
    await store.write(partial(write, first=13, last=13))
    assert [(each.event, each.outcome) for each in told] == [
        ("audit.altered", "refused"),
        ("test.done", "ok"),
    ]
    assert told[0].reason.endswith("was removed")
    assert told[1].reason == "row 13"
    await store.write(partial(write, first=14, last=15))
    assert [each.event for each in told[2:]] == ["test.done"] * 2
    piece = await store.read(walk)
    assert piece.broken == found


async def test_an_end_that_was_cut_off_with_an_older_record_put_back_is_noticed_by_the_running_server(
    store: AnyStore,
) -> None:
    told = await bind(store)
    await store.write(partial(write, first=1, last=9))
    older = await record_of(store)  # as the log of the database holds it for a while
    await store.write(partial(write, first=10, last=12))
    await store.write(do("DELETE FROM audit WHERE seq > 9"))
    await store.write(do("UPDATE meta SET value = ? WHERE key = 'audit_chain'", older))
    assert (await store.read(walk)).broken is None  # it is true by itself
    told.clear()
    await store.write(partial(write, first=13, last=13))
    assert [each.event for each in told] == ["audit.altered", "test.done"]
    assert "put back to an older one; row 12 was the last" in told[0].reason
    assert (await store.read(walk)).broken == Break(seq=10, what="missing")
    head = store.audit_head()
    assert head is not None
    assert head.seq == 14


@pytest.mark.parametrize("tampering", ["wiped", "blanked", "cut", "record", "added"])
async def test_what_was_done_while_no_server_ran_is_noticed_at_its_start(
    open_any: Open, request: pytest.FixtureRequest, tampering: str
) -> None:
    if "memory" in request.node.name:
        return  # ends with its process
    async with open_any() as store:
        assert await bind(store) == []
        await store.write(partial(write, first=1, last=9))
        older = await record_of(store)
        await store.write(partial(write, first=10, last=12))
        head = store.audit_head()
        assert head is not None
    async with open_any() as store:
        assert await bind(store, [head]) == []
        statements = {
            "wiped": WIPED,
            "blanked": BLANKED,
            "cut": (
                "DELETE FROM audit WHERE seq > 9",
                f"UPDATE meta SET value = '{older}' WHERE key = 'audit_chain'",
            ),
            "record": ("UPDATE meta SET value = 'x' WHERE key = 'audit_chain'",),
            "added": ("INSERT INTO audit (seq, at, event, actor, outcome) VALUES (13, 0, 'x', 'y', 'ok')",),
        }
        for sql in statements[tampering]:
            await store.write(do(sql))
    async with open_any() as store:
        (found,) = await bind(store, [head])
        assert found.event == "audit.altered"
        # Once: the head that counts now is the one with the row that says so.
        (after,) = [store.audit_head()]
        assert after is not None
    async with open_any() as store:
        assert await bind(store, [after]) == []
        assert (await store.read(walk)).broken is not None


async def test_a_bound_database_without_its_record_was_robbed_of_it_and_one_that_is_bound_now_begins(
    open_any: Open, request: pytest.FixtureRequest
) -> None:
    async with open_any() as store:
        assert await bind(store) == []
        assert (await store.read(walk)).broken is None  # the record is there before any row
        await store.write(do("DELETE FROM meta WHERE key = 'audit_chain'"))
        assert (await store.read(walk)).broken == Break(seq=0, what="no record")
    if "memory" in request.node.name:
        return
    async with open_any() as store:
        assert [each.event for each in await bind(store)] == ["audit.altered"]


async def test_of_two_heads_one_is_enough_and_a_swept_one_is_as_good(chained: AnyStore) -> None:
    chain = AuditChain(KEY)
    mac = await chained.read(lambda db: db.fetch_one("SELECT mac FROM audit WHERE seq = 7"))
    assert mac is not None
    there = Position(seq=7, mac=mac["mac"])
    another, later = Position(seq=7, mac="0" * 64), Position(seq=13, mac="0" * 64)
    for heads, found in (
        ([], None),
        ([there], None),
        ([another, there], None),
        ([there, later], None),
        ([another], Break(seq=7, what="another")),
        ([later], Break(seq=13, what="cut off")),
    ):
        assert await chained.read(partial(chain.holds, heads=heads)) == found
    await chained.write(partial(write, first=13, last=13, at=NOW + 100))
    assert await swept(chained, NOW + 100) == 12
    assert await chained.read(partial(chain.holds, heads=[there])) is None
    floor = Position(seq=12, mac="0" * 64)
    assert await chained.read(partial(chain.holds, heads=[floor])) == Break(seq=12, what="another")


def test_a_record_that_is_sealed_and_of_another_version_is_none() -> None:
    chain = AuditChain(KEY)
    assert chain.opened(chain.sealed(Record(head=3, head_mac="ab"))) == Record(head=3, head_mac="ab")
    for text in ("1:0:0::3:ab:0", "2:0::3:ab:0", "", "2:0::x:ab:0:0"):
        assert chain.opened(f"{text} {chain.seal('record', text)}") is None


@pytest.mark.parametrize("counts", ["+", "++", "+-", "-+", "+--", "-+-+--+-", "++--"])
async def test_commits_of_which_nobody_was_told_how_they_ended_are_no_tampering(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch, counts: str
) -> None:
    """One after the other: some of them count, and some do not."""
    told = await bind(store)
    await store.write(partial(write, first=1, last=2))
    transactions = store._transactions
    connection = transactions._connection
    left = list(counts)

    def tell(sql: str) -> None:
        if sql != "COMMIT" or not left:
            return
        connection.execute(sql if left.pop(0) == "+" else "ROLLBACK")
        raise (
            sqlite3.OperationalError("disk I/O error")
            if isinstance(connection, sqlite3.Connection)
            else CommitInDoubt
        )

    monkeypatch.setattr(transactions, "_connection", Overheard(connection, tell))
    while left:
        with suppress(StoreError):  # a file's store tries again by itself
            await store.write(partial(write, first=3, last=3))
    monkeypatch.setattr(transactions, "_connection", connection)
    await store.write(partial(write, first=4, last=4))
    assert {each.event for each in told} == {"test.done"}
    assert (await store.read(walk)).broken is None


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


def stranger(number: int, *, at: int = NOW, actor: str = "anonymous") -> AuditEntry:
    return entry(number, at=at, event="client.refused", actor=actor, outcome="refused")


def sweep_refusals(db: StoreDb, before: int) -> int:
    return db.sweep_refusals(before=before, at_most=2)


async def test_refusals_of_strangers_are_swept_out_of_the_middle_and_the_rest_still_verifies(
    store: AnyStore,
) -> None:
    store.chain_audit(KEY)
    kept = (
        entry(3),
        stranger(4, actor="user:u"),
        stranger(5)._replace(grant_id="g"),
        stranger(6)._replace(outcome="ok"),
    )
    rows = (
        stranger(1),
        stranger(2, actor="client:c"),
        *kept,
        stranger(7),
        stranger(8, at=NOW + 60),
        entry(9),
    )
    await store.write(lambda db: [db.audit(each) for each in rows])
    keep = Retention(audit=100, audit_refusals=50)

    async def swept_by(now: int) -> int:
        result = await sweep(store, owner="boot", clock=lambda: now, retention=keep)
        assert result is not None
        return result["audit_refusals"]

    async def left() -> list[tuple[int, str, str]]:
        found = await store.read(lambda db: db.fetch_all("SELECT * FROM audit ORDER BY seq"))
        return [(row["seq"], row["event"], row["reason"]) for row in found]

    assert await swept_by(NOW + 49) == 0
    assert await swept_by(NOW + 50) == 3
    assert await left() == [
        (2, "audit.swept", "2 refusals of nobody in particular, from row 1"),
        *((seq, each.event, each.reason) for seq, each in enumerate(kept, 3)),
        (7, "audit.swept", "1 refusal of nobody in particular, from row 7"),
        (8, "client.refused", "row 8"),
        (9, "test.done", "row 9"),
    ]
    for at_most in (1, 3, 100):
        piece = await store.read(partial(walk, at_most=at_most))
        assert (piece.broken, piece.at.seq, piece.swept, piece.swept_at) == (None, 9, 1, NOW)
    assert await swept_by(NOW + 110) == 1  # which follows one that stands for others
    assert (await store.read(walk)).broken is None


async def test_neighbours_that_are_swept_one_after_the_other_become_one_row(store: AnyStore) -> None:
    store.chain_audit(KEY)
    await store.write(lambda db: db.audit(entry(0)))
    for number in range(1, 7):
        refused = stranger(number, at=NOW + number)
        await store.write(lambda db, refused=refused: db.audit(refused))
    await store.write(lambda db: db.audit(entry(7)))
    for number in range(1, 7):
        job = partial(sweep_refusals, before=NOW + number)
        assert await store.write(job) == 1
    found = await store.read(lambda db: db.fetch_all("SELECT seq, first, reason FROM audit ORDER BY seq"))
    reason = "6 refusals of nobody in particular, from row 2"
    assert found[1] == {"seq": 7, "first": 2, "reason": reason}
    assert [row["seq"] for row in found] == [1, 7, 8]
    piece = await store.read(walk)
    assert (piece.checked, piece.swept, piece.broken) == (3, 5, None)
    assert await swept(store, NOW + 1_000) == 3
    assert (await store.read(walk)).broken is None


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        ("DELETE FROM audit WHERE seq = 4", Break(seq=3, what="missing")),
        ("UPDATE audit SET first = 2 WHERE seq = 4", Break(seq=3, what="altered")),
        ("UPDATE audit SET first = 4 WHERE seq = 4", Break(seq=3, what="missing")),
        ("UPDATE audit SET first = NULL WHERE seq = 4", Break(seq=3, what="missing")),
        ("UPDATE audit SET first = 'x' WHERE seq = 4", Break(seq=3, what="altered")),
        ("UPDATE audit SET seal = NULL WHERE seq = 4", Break(seq=4, what="altered")),
        ("UPDATE audit SET seal = mac WHERE seq = 4", Break(seq=4, what="altered")),
        ("UPDATE audit SET mac = seal WHERE seq = 4", Break(seq=4, what="altered")),
        ("UPDATE audit SET reason = 'x' WHERE seq = 4", Break(seq=4, what="altered")),
        ("UPDATE audit SET first = 5, seal = '' WHERE seq = 5", Break(seq=5, what="altered")),
        ("DELETE FROM audit WHERE seq = 5", Break(seq=5, what="missing")),
    ],
)
async def test_a_row_that_stands_for_others_is_as_safe_as_any(
    store: AnyStore, engine: str, tampering: str, found: Break
) -> None:
    if "first = 'x'" in tampering and engine not in SQLITE_ENGINES:
        return  # no number can be made a text there
    store.chain_audit(KEY)
    rows = (entry(1), entry(2), stranger(3), stranger(4), entry(5), entry(6))
    await store.write(lambda db: [db.audit(each) for each in rows])
    assert await store.write(lambda db: db.sweep_refusals(before=NOW, at_most=9)) == 2
    assert (await store.read(walk)).broken is None
    await store.write(do(tampering))
    assert (await store.read(walk)).broken == found


async def test_a_refusal_that_was_altered_is_not_swept_away_as_evidence(store: AnyStore) -> None:
    store.chain_audit(KEY)
    await store.write(lambda db: [db.audit(each) for each in (entry(1), stranger(2), stranger(3), entry(4))])
    await store.write(do("UPDATE audit SET outcome = 'refused', actor = 'anonymous' WHERE seq = 1"))
    await store.write(do("UPDATE audit SET ip = 'x' WHERE seq = 3"))
    assert await store.write(lambda db: db.sweep_refusals(before=NOW, at_most=9)) == 0
    assert (await store.read(walk)).broken == Break(seq=1, what="altered")


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
