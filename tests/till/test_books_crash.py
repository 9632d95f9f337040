"""A process killed while it charges: the books are right, and no charge that was acknowledged is gone or booked twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.engine_under_test import Place, place_of, written
from tests.till.books_fakes import checked, open_books_at

CHILD = Path(__file__).with_name("books_child.py")
CHECKOUT = Path(__file__).parents[2]
CHARGES = "SELECT seq, charge_id FROM movements WHERE kind = 'charge' ORDER BY seq"


def run_until_killed(place: Place, number: int, lines: int) -> list[str]:
    """What was acknowledged before the end."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), written(place), str(number)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={"PYTHONPATH": str(CHECKOUT)},
    ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += [line for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -9
    return [line.strip() for line in said]


async def test_killed_at_any_moment_the_books_are_right_and_whoever_was_answered_was_charged_once(
    tmp_path: Path,
) -> None:
    place, said = place_of(tmp_path / "ostiary.db"), list[str]()
    for number in range(5):
        said += run_until_killed(place, number, 30 + 41 * number)
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
