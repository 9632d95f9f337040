"""How often a job goes to PostgreSQL and back: ceilings that hold on every machine. What that comes to in time is scripts/scale's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from auth.clients.client_registry import CLI_CLIENT_ID
from auth.grants import login_records
from auth.identity import Identity
from auth.values.database import AuditEntry
from auth.values.identity_model import REFRESH_TOKEN
from server.cluster.postgres.postgres import open_postgres_store
from server.payments.seller.priced_call import Served
from server.store.call_records import call_rows
from server.store.call_records.call_book import CallBook
from server.store.jobs import StoreDb
from server.store.threaded_store import StoreLimits
from tests.auth.identity_fakes import START, logged_in, open_identity, post
from tests.inline_postgres import open_inline_postgres_store
from tests.payments.seller.open_till import a_call, an_offer, till_on
from tests.payments.seller.till_fakes import NOW
from tests.postgres_server import PostgresServer
from tests.store.call_records.records_fakes import ADA, call
from tests.trip_counter import TripCounter, counted

READ = 1
REFRESH = 3
REVOCATION = 5
# Of so many logins of a person that are ended in one go.
LOGINS, LOGINS_ENDED = 12, 6
# For each of what are several jobs.
LOGIN = 24
PAID_CALL = 10
# Of so many calls as are written down in one go.
CALLS, CALLS_WRITTEN = 400, 4

JOBS = 8
PATIENCE_SECONDS = 60


@pytest.fixture
def between(tmp_path: Path, postgres_server: PostgresServer) -> Generator[TripCounter]:
    with counted(tmp_path, postgres_server.folder) as counter:
        yield counter


def going_by(between: TripCounter, parameters: dict[str, str]) -> Callable[..., Any]:
    """Opens a store whose one connection goes by there."""
    return partial(open_inline_postgres_store, {**parameters, **between.parameters})


def held(trips: Sequence[Sequence[str]], ceiling: int) -> None:
    shown = "\n".join(" | ".join(" ".join(each.split())[:60] for each in trip) for trip in trips)
    assert 0 < len(trips) <= ceiling, f"{len(trips)} trips:\n{shown}"


async def sent(identity: Identity, path: str, **form: str) -> dict[str, Any]:
    reply = await identity.handle(post(path, client_id=CLI_CLIENT_ID, **form))
    assert reply is not None
    assert reply.status == 200, reply.body
    return json.loads(reply.body or "{}")


async def test_a_login_a_refresh_and_a_revocation_take_few_trips(
    between: TripCounter, postgres_database: dict[str, str]
) -> None:
    async with open_identity(opened=going_by(between, postgres_database)) as identity:
        asked = between.of("writer")
        await logged_in(identity)
        with asked.counting() as trips:
            tokens = await logged_in(identity)
        held(trips, LOGIN)
        for _ in range(2):  # the first prepares what it asks, which takes no trip of its own
            with asked.counting() as trips:
                tokens = await sent(
                    identity, "/token", grant_type=REFRESH_TOKEN, refresh_token=tokens["refresh_token"]
                )
            held(trips, REFRESH)
        with asked.counting() as trips:
            await sent(identity, "/revoke", token=tokens["refresh_token"])
        held(trips, REVOCATION)


async def test_all_logins_of_a_person_end_in_few_trips_however_many_they_are(
    between: TripCounter, postgres_database: dict[str, str]
) -> None:
    async with open_identity(opened=going_by(between, postgres_database)) as identity:
        for _ in range(LOGINS):
            await logged_in(identity)
        store = identity.parts.store
        (person,) = await store.read(lambda db: db.fetch_all("SELECT DISTINCT subject FROM grants"))
        ends = partial(
            login_records.revoke_of_person, subject=person["subject"], reason="gone", by="owner", now=START
        )
        asked = between.of("writer")
        with asked.counting() as trips:
            assert await store.write(ends) == LOGINS
        held(trips, LOGINS_ENDED)
        rows = await store.read(lambda db: db.fetch_all("SELECT DISTINCT revoked_reason FROM grants"))
        assert rows == [{"revoked_reason": "gone"}]
        told = "SELECT count(*) AS n FROM audit WHERE event = 'grant.revoked'"
        assert await store.read(lambda db: db.fetch_one(told)) == {"n": LOGINS}


async def test_calls_are_written_down_in_few_trips_however_many_they_are(
    between: TripCounter, postgres_database: dict[str, str]
) -> None:
    async with going_by(between, postgres_database)(clock=lambda: NOW) as store:
        asked = between.of("writer")
        for _ in range(2):  # the first prepares what it asks
            book = CallBook()
            # Each by another login.
            book.waiting.extend(call(who=replace(ADA, grant_id=f"grant-{each}")) for each in range(CALLS))
            book.count(CALLS)
            batch = book.take()
            assert batch is not None
            assert len(batch.rows) == CALLS
            with asked.counting() as trips:
                await store.write(partial(call_rows.write, batch=batch, most_rows=1_000_000))
            held(trips, CALLS_WRITTEN)
        rows = await store.read(lambda db: db.fetch_one("SELECT count(*) AS n, max(seq) AS seq FROM calls"))
        assert rows == {"n": 2 * CALLS, "seq": 2 * CALLS}


async def test_a_paid_call_takes_few_trips(between: TripCounter, postgres_database: dict[str, str]) -> None:
    async with going_by(between, postgres_database)(clock=lambda: NOW) as store, till_on(store) as at:
        asked = between.of("writer")
        await at.give(50_000)
        await at.pays(a_call({"q": "first"}), an_offer())
        for number in range(2):
            with asked.counting() as trips:
                served = await at.pays(a_call({"q": f"{number}"}, call_id=f"call_{number}"), an_offer())
                assert isinstance(served, Served)
            held(trips, PAID_CALL)


async def test_a_read_of_one_statement_is_one_trip_and_nobody_waits_for_its_end(
    between: TripCounter, postgres_database: dict[str, str]
) -> None:
    async with going_by(between, postgres_database)(clock=lambda: START) as store:
        asked = between.of("writer")
        for _ in range(3):
            with asked.counting() as trips:
                assert await store.read(lambda db: db.fetch_one("SELECT 1 AS one")) == {"one": 1}
            held(trips, READ)


async def test_jobs_that_share_a_transaction_share_its_beginning_and_its_end(
    between: TripCounter, postgres_database: dict[str, str]
) -> None:
    """Each of them is a savepoint, which takes no trip of its own either."""
    limits = StoreLimits(batch_seconds=PATIENCE_SECONDS, longest_batch_seconds=PATIENCE_SECONDS)
    parameters = {**postgres_database, **between.parameters}
    entered, go = threading.Event(), threading.Event()

    def first(db: StoreDb) -> None:
        db.fetch_one("SELECT 1 AS one")
        entered.set()
        assert go.wait(PATIENCE_SECONDS)

    def one(db: StoreDb, number: int) -> None:
        db.fetch_one("SELECT value FROM meta WHERE key = ?", "a")
        assert db.execute("INSERT INTO meta (key, value) VALUES (?, 'x')", f"k{number}") == 1
        db.audit(AuditEntry(START, "test.done", "user:u", None, None, None, None, "ok", ""))

    with trio.fail_after(PATIENCE_SECONDS):
        async with open_postgres_store(parameters, clock=lambda: START, limits=limits) as store:
            store.chain_audit(b"k")
            await store.write(lambda db: db.begin_audit())
            asked = between.of("writer")
            with asked.counting() as trips:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.write, first)
                    await trio.to_thread.run_sync(entered.wait, PATIENCE_SECONDS)
                    for number in range(JOBS):
                        nursery.start_soon(store.write, partial(one, number=number))
                    await trio.testing.wait_all_tasks_blocked()
                    go.set()
            # Of the first its question, of each two, of all together the commit.
            held(trips, 1 + 2 * JOBS + 1)
            assert sum("COMMIT" in trip for trip in trips) == 1
