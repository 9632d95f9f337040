"""What is written into the audit trail, and what is only counted (auth/audit/audit_trail.py)."""

from __future__ import annotations

import pytest

from auth.audit import audit_trail
from auth.values.database import Db
from auth.values.limits_and_lifetimes import REFUSALS_PER_MINUTE
from tests.auth.identity_fakes import MINUTE, START, PlainDb

MORE = "audit.refusals"


@pytest.fixture
def db() -> PlainDb:
    return PlainDb()


def refuse(
    db: Db, count: int, *, at: int = START, actor: str = "anonymous", grant_id: str | None = None
) -> None:
    for number in range(count):
        ip = f"2001:db8:{number:x}::1"  # each from a network of its own
        audit_trail.record(
            db, at=at, event="client.refused", actor=actor, outcome="refused", grant_id=grant_id, ip=ip
        )


def written(db: PlainDb, event: str) -> int:
    return db.count("audit", "event = ?", event)


def test_refusals_of_nobody_in_particular_have_a_budget_over_all_networks_and_the_rest_is_one_row_a_minute(
    db: PlainDb,
) -> None:
    for actor in ("anonymous", "client:ostiary-cli"):
        db.run(lambda db, actor=actor: refuse(db, REFUSALS_PER_MINUTE, actor=actor))
    assert (written(db, "client.refused"), written(db, MORE)) == (REFUSALS_PER_MINUTE, 0)
    db.run(lambda db: refuse(db, 1, at=START + MINUTE))
    assert (written(db, "client.refused"), written(db, MORE)) == (REFUSALS_PER_MINUTE + 1, 1)
    (row,) = db.fetch_all("SELECT * FROM audit WHERE event = ?", MORE)
    assert row["reason"].startswith(f"and {REFUSALS_PER_MINUTE} more")
    assert (row["outcome"], row["actor"], row["grant_id"]) == ("refused", "anonymous", None)
    db.run(lambda db: refuse(db, REFUSALS_PER_MINUTE - 1, at=START + MINUTE))
    db.run(lambda db: refuse(db, 1, at=START + 2 * MINUTE))
    assert written(db, MORE) == 1  # as many as there was room for


def test_what_concerns_a_person_or_a_login_and_what_was_done_is_always_written(db: PlainDb) -> None:
    db.run(lambda db: refuse(db, REFUSALS_PER_MINUTE + 5))
    db.run(lambda db: refuse(db, 3, actor="user:u"))
    db.run(lambda db: refuse(db, 3, actor="client:c", grant_id="g"))
    db.run(lambda db: audit_trail.record(db, at=START, event="test.done"))
    assert written(db, "client.refused") == REFUSALS_PER_MINUTE + 6
    assert written(db, "test.done") == 1


def test_a_flood_that_has_ended_is_told_of_without_another_refusal_and_once(db: PlainDb) -> None:
    db.run(lambda db: refuse(db, REFUSALS_PER_MINUTE + 5))
    for at, settled, told in ((START, True, 0), (START + MINUTE, False, 1), (START + MINUTE, True, 1)):
        assert db.run(lambda db, at=at: audit_trail.is_settled(db, at)) is settled
        db.run(lambda db, at=at: audit_trail.settle(db, at))
        assert written(db, MORE) == told
    db.run(lambda db: refuse(db, 1, at=START + 2 * MINUTE))
    assert written(db, MORE) == 1


def test_a_clock_that_is_set_back_begins_a_minute_of_its_own(db: PlainDb) -> None:
    db.run(lambda db: refuse(db, REFUSALS_PER_MINUTE + 5))
    db.run(lambda db: refuse(db, 1, at=START - MINUTE))
    assert (written(db, "client.refused"), written(db, MORE)) == (REFUSALS_PER_MINUTE + 1, 1)
