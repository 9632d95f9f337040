"""What the disk holds after the worst: a process killed in the middle of its work, a disk that takes no more."""

from __future__ import annotations

from pathlib import Path

from store_engines import NOW

from server.store.sqlite import open_store
from server.store.sqlite_connect import connect_writer
from tests.killed_child import running, said_until_killed

CHILD = Path(__file__).with_name("store_child.py")


async def test_killing_the_process_loses_nothing_that_was_acknowledged(directory: Path) -> None:
    database = directory / "ostiary.db"
    acknowledged: set[str] = set()
    for round_number in range(3):
        acknowledged |= set(
            said_until_killed(
                CHILD, "acknowledge", str(database), f"r{round_number}", lines=150 + 70 * round_number
            )
        )

        async with open_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
            for key in sorted(acknowledged):
                assert await store.read(
                    lambda db, key=key: db.fetch_one("SELECT key FROM meta WHERE key = ?", key)
                ), f"{key} was acknowledged and is lost"
    assert len(acknowledged) >= 3 * 150

    connection = connect_writer(database)
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()


def test_a_disk_that_takes_no_more_refuses_writes_while_reads_go_on_and_recovers_by_itself(
    directory: Path,
) -> None:
    # A file size limit: the operating system itself refuses to let the log grow.
    with running(CHILD, "full", str(directory / "ostiary.db"), "") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.split("\n") == ["refused 3", "reads True", "written True", ""]


def test_on_a_full_disk_only_what_ends_something_gets_the_room_that_is_held_for_it(directory: Path) -> None:
    with running(CHILD, "end", str(directory / "ostiary.db"), "") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.splitlines() == ["lent"] * 3 + ["done end-0 end-1 end-alone", "rows 3"]
