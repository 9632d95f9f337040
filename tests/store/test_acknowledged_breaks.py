"""Breaks of the trail and of the ledger that somebody has acknowledged (server/store/acknowledged_breaks.py), by the commands of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from store_engines import NOW, SQLITE_ENGINES, AnyStore, Open

from auth.values.database import AuditEntry
from server.admin.audit_commands import AuditAdmin
from server.admin.control import CommandRefused
from server.admin.ledger_commands import LedgerCommands
from server.store import keyfile, meta_rows
from server.store.acknowledged_breaks import MOST_GAPS
from server.store.jobs import Position, StoreDb
from server.store.maintenance import sweep
from server.store.retention import Retention
from tests.inline_postgres import open_inline_postgres_store

KEY, LEDGER_KEY = b"of the trail", b"of the ledger"
BY, NOTE = "local:0", "ticket 7"
# What somebody does who can write to the database, and has no key. The newest of the rows has the number 12.
WAYS = {
    "altered": ("UPDATE audit SET reason = 'x' WHERE seq = 5",),
    "another mac": ("UPDATE audit SET mac = 'x' WHERE seq = 5",),
    "missing": ("DELETE FROM audit WHERE seq IN (4, 5)",),
    "newest missing": ("DELETE FROM audit WHERE seq > 10",),
    "newest altered": ("UPDATE audit SET mac = 'x' WHERE seq = 12",),
    "several": (
        "UPDATE audit SET actor = 'x' WHERE seq IN (3, 4, 9)",
        "DELETE FROM audit WHERE seq = 7",
    ),
    "record": ("UPDATE meta SET value = '3:0:0::1:a:0:0 b' WHERE key = 'audit_chain'",),
    "record gone": ("DELETE FROM meta WHERE key = 'audit_chain'",),
    "wiped": ("DELETE FROM audit", "DELETE FROM meta"),
    "blanked": (
        "UPDATE audit SET reason = 'x', mac = '' WHERE seq > 3",
        "DELETE FROM meta WHERE key = 'audit_chain'",
    ),
}
ADDED = (
    "INSERT INTO audit (seq, at, event, actor, outcome, reason, mac) VALUES (13, 0, 'x', 'x', 'ok', '', 'x')"
)


def write(db: StoreDb, first: int, last: int) -> None:
    for number in range(first, last + 1):
        db.audit(AuditEntry(NOW, "test.done", "user:u", None, None, None, None, "ok", f"row {number}"))


def post(db: StoreDb) -> None:
    said = NOW, "charge", "wallet:user:u", "revenue:s/t", 1, "USD", "user:u:", None, None, "s", "t"
    db.post((*said, None, None, None, "v1", None, ""))


async def run(store: AnyStore, *statements: str) -> None:
    for sql in statements:
        await store.write(lambda db, sql=sql: db.execute(sql))


def trail(store: AnyStore, heads: Sequence[Position] = ()) -> AuditAdmin:
    return AuditAdmin(
        store=store,
        clock=lambda: NOW,
        subkey=lambda _: KEY,
        committed_head=store.audit_head,
        written_heads=lambda: heads,
    )


def ledger(store: AnyStore) -> LedgerCommands:
    return LedgerCommands(
        store=store,
        clock=lambda: NOW,
        subkey=lambda _: LEDGER_KEY,
        committed_head=store.ledger_head,
        written_heads=lambda: (),
    )


async def alarm(store: AnyStore) -> dict[str, Any] | None:
    return (await trail(store).verify({}, BY))["broken"]


async def acknowledge(store: AnyStore, note: str = NOTE) -> Any:
    return await trail(store).acknowledge({"note": note}, BY)


async def fill(store: AnyStore) -> None:
    """With twelve rows."""
    store.chain_audit(KEY)
    store.chain_ledger(LEDGER_KEY)
    await store.write(partial(keyfile.bind_key, fingerprint="of the key"))
    await store.write(partial(write, first=1, last=12))


@pytest.fixture
async def chained(store: AnyStore) -> AnyStore:
    await fill(store)
    return store


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_acknowledged_is_no_alarm_and_stays_on_record(chained: AnyStore, way: str) -> None:
    await run(chained, *WAYS[way])
    assert await alarm(chained) is not None
    done = await acknowledge(chained)
    assert (done["by"], done["at"], done["note"]) == (BY, NOW, NOTE)
    for number in (20, 21):  # also with what is written from then on
        found = await trail(chained).verify({}, BY)
        assert (found["broken"], found["acknowledged"]) == (None, done)
        assert await trail(chained).noticed() is None
        await chained.write(partial(write, first=number, last=number))
    rows = await chained.read(
        lambda db: db.fetch_all("SELECT actor, reason FROM audit WHERE event = 'audit.acknowledged'")
    )
    assert [row["actor"] for row in rows] == [BY]
    assert NOTE in rows[0]["reason"]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("UPDATE audit SET reason = 'y' WHERE seq = 15", {"seq": 15, "what": "altered"}),
        ("DELETE FROM audit WHERE seq = 15", {"seq": 15, "what": "missing"}),
        ("DELETE FROM audit WHERE seq IN (4, 5)", {"seq": 4, "what": "missing"}),
        ("UPDATE audit SET actor = 'y' WHERE seq = 9", {"seq": 9, "what": "altered"}),
        ("DELETE FROM audit WHERE seq < 14", {"seq": 1, "what": "missing"}),
        ("DELETE FROM meta WHERE key = 'audit_chain'", {"seq": 16, "what": "no record"}),
    ],
)
async def test_a_new_break_is_an_alarm_again_until_it_is_acknowledged_too(
    chained: AnyStore, sql: str, found: dict[str, Any]
) -> None:
    await run(chained, *WAYS["several"], *WAYS["record"])
    await acknowledge(chained)
    assert await alarm(chained) is None
    await chained.write(partial(write, first=16, last=16))
    await run(chained, sql)
    assert await alarm(chained) == found
    await chained.write(partial(write, first=17, last=17))
    assert await alarm(chained) is not None
    await acknowledge(chained, "ticket 8")
    assert await alarm(chained) is None
    await run(chained, *WAYS["record"])
    assert await alarm(chained) is not None


async def test_a_row_that_was_acknowledged_and_is_changed_once_more_is_an_alarm(chained: AnyStore) -> None:
    await run(chained, *WAYS["altered"])
    await acknowledge(chained)
    await run(chained, "UPDATE audit SET reason = 'y' WHERE seq = 5")
    assert await alarm(chained) == {"seq": 5, "what": "altered"}


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM meta WHERE key = 'audit_acknowledged'",
        "UPDATE meta SET value = replace(value, 'ticket', 'tocket') WHERE key = 'audit_acknowledged'",
    ],
)
async def test_without_its_seal_nothing_is_acknowledged(chained: AnyStore, sql: str) -> None:
    await run(chained, *WAYS["record"])
    await acknowledge(chained)
    await run(chained, sql)
    found = await trail(chained).verify({}, BY)
    assert (found["broken"]["what"], found["acknowledged"]) == ("record altered", None)
    assert await trail(chained).noticed() is not None


async def test_a_row_of_somebody_else_at_the_end_is_acknowledged_after_the_next_start(
    open_any: Open, engine: str
) -> None:
    if engine == "inline-memory":
        pytest.skip("it does not outlive its store")
    async with open_any() as store:
        await fill(store)
        await run(store, ADDED)
        assert await alarm(store) == {"seq": 13, "what": "added"}
        if engine in SQLITE_ENGINES:  # where the number of the next row is taken
            with pytest.raises(CommandRefused, match="added") as refused:
                await acknowledge(store)
            assert "start" in (refused.value.hint or "")
    async with open_any() as store:
        store.chain_audit(KEY)
        await store.write(partial(write, first=1, last=1))
        await acknowledge(store)
        assert await alarm(store) is None


async def test_where_nothing_is_wrong_nothing_is_acknowledged(chained: AnyStore) -> None:
    assert await acknowledge(chained) is None
    assert await chained.read(partial(meta_rows.get, key=meta_rows.AUDIT_ACKNOWLEDGED)) is None


@pytest.mark.parametrize("note", ["", " ", "two\nlines", "x" * 201])
async def test_a_reason_is_asked_for(chained: AnyStore, note: str) -> None:
    await run(chained, *WAYS["altered"])
    with pytest.raises(CommandRefused, match="note"):
        await acknowledge(chained, note)
    assert await alarm(chained) is not None


async def test_a_trail_of_which_nearly_nothing_is_right_is_not_acknowledged(chained: AnyStore) -> None:
    await chained.write(partial(write, first=1, last=MOST_GAPS))
    await run(chained, "UPDATE audit SET reason = 'x'")
    with pytest.raises(CommandRefused, match=str(MOST_GAPS)):
        await acknowledge(chained)
    assert await alarm(chained) == {"seq": 1, "what": "altered"}


async def test_the_sweep_keeps_what_was_acknowledged_and_all_behind_it(chained: AnyStore) -> None:
    await run(chained, *WAYS["altered"])
    await acknowledge(chained)
    keep = Retention(audit=100)
    await sweep(chained, owner="test", clock=lambda: NOW + 200, retention=keep)
    first = await chained.read(lambda db: db.fetch_all("SELECT min(seq) AS seq FROM audit"))
    assert first[0]["seq"] == 5
    assert await alarm(chained) is None


async def test_at_the_next_start_it_is_acknowledged_still(open_any: Open, engine: str) -> None:
    if engine == "inline-memory":
        pytest.skip("it does not outlive its store")
    async with open_any() as store:
        await fill(store)
        await run(store, *WAYS["blanked"])
        await acknowledge(store)
        head = store.audit_head()
    assert head is not None
    async with open_any() as store:
        store.chain_audit(KEY, [head])
        await store.write(partial(write, first=1, last=1))
        assert (await trail(store, [head]).verify({}, BY))["broken"] is None
        assert await trail(store).noticed() is None
    async with open_any() as store:
        store.chain_audit(KEY, [Position(seq=head.seq, mac="of another")])
        await store.write(partial(write, first=1, last=1))
        assert await trail(store).noticed() is not None


async def test_of_two_that_share_a_database_each_takes_what_the_other_has_acknowledged(
    postgres_database: dict[str, str],
) -> None:
    def opened() -> Any:
        return open_inline_postgres_store(postgres_database, clock=lambda: NOW)

    async with opened() as one, opened() as other:
        await fill(one)
        other.chain_audit(KEY)
        for number, (finds, tells) in enumerate(((one, other), (other, one), (one, other))):
            await finds.write(partial(write, first=1, last=2))
            await tells.write(partial(write, first=1, last=2))
            await run(finds, *WAYS["record"])
            await tells.write(partial(write, first=1, last=2))  # which finds out
            assert await trail(finds).noticed() is not None
            await acknowledge(finds, f"ticket {number}")
            for each in (finds, tells, finds):
                await each.write(partial(write, first=1, last=1))
                assert await alarm(each) is None
        told = await one.read(
            lambda db: db.fetch_all("SELECT count(*) AS n FROM audit WHERE event = 'audit.altered'")
        )
        assert told == [{"n": 3}]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE movements SET note = 'x' WHERE seq = 2",
        "DELETE FROM movements WHERE seq = 2",
        "DELETE FROM meta WHERE key = 'ledger_chain'",
    ],
)
async def test_a_break_of_the_ledger_is_acknowledged_in_the_trail(chained: AnyStore, sql: str) -> None:
    for _ in range(3):
        await chained.write(post)
    await run(chained, sql)

    async def broken() -> dict[str, Any] | None:
        at: Any = None
        while True:
            piece = await ledger(chained).check({"at": at}, BY)
            if piece["broken"] is not None:
                return piece["broken"]
            if (at := piece["at"]) is None:
                return None

    await chained.write(post)
    assert await broken() is not None
    done = await ledger(chained).acknowledge({"note": NOTE}, BY)
    assert (await broken(), done["by"]) == (None, BY)
    assert (await ledger(chained).check({}, BY))["acknowledged"] == done
    await chained.write(post)
    assert await broken() is None
    assert await alarm(chained) is None
    told = "SELECT actor FROM audit WHERE event = 'ledger.acknowledged'"
    assert await chained.read(lambda db: db.fetch_all(told)) == [{"actor": BY}]
