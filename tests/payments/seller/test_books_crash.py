"""A process killed while it charges: the books are right, and no charge that was acknowledged is gone or booked twice."""

from __future__ import annotations

from pathlib import Path

from tests.engine_under_test import place_of, written
from tests.killed_child import said_until_killed
from tests.payments.seller.books_fakes import checked, open_books_at

CHILD = Path(__file__).with_name("books_child.py")
CHARGES = "SELECT seq, charge_id FROM movements WHERE kind = 'charge' ORDER BY seq"


async def test_killed_at_any_moment_the_books_are_right_and_whoever_was_answered_was_charged_once(
    tmp_path: Path,
) -> None:
    place, said = place_of(tmp_path / "ostiary.db"), list[str]()
    for number in range(5):
        said += said_until_killed(CHILD, written(place), str(number), lines=30 + 41 * number)
        async with open_books_at(place) as store:
            await store.write(lambda db: db.begin_ledger())
            found = await checked(store)
            assert found.is_right, (found.findings, found.broken)
            booked = await store.read(lambda db: db.fetch_all(CHARGES))
            alarms = await store.read(
                lambda db: db.fetch_all("SELECT seq FROM audit WHERE event = 'ledger.altered'")
            )
            assert alarms == []
        there = [f"{row['seq']} {row['charge_id']}" for row in booked]
        assert set(said) <= set(there)
        assert len({line.split()[1] for line in there}) == len(there)
