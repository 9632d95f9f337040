"""The program as it is, but that it is another version: with a number of its own, and with migrations that none has yet.

usage: other_version.py VERSION STEPS [ARGUMENT…]

`STEPS`: none, `adds`, or `adds,takes`. The first adds to the schema what a program that does not know it can do without; the second takes that
away again, and says of itself that nobody goes on beside it. What is released as one version after the other is here one file. Run by
test_versions_side_by_side.py, which gives it the code of the version before in PYTHONPATH as well.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import server
from server.store import migrate

STEPS: Mapping[str, str] = {
    "adds": "-- additive\nCREATE TABLE colours (name TEXT PRIMARY KEY);"
    " ALTER TABLE users ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';"
    " ALTER TABLE grants ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';"
    " ALTER TABLE tasks ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';"
    " ALTER TABLE wallets ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';"
    " ALTER TABLE nodes ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';"
    " CREATE INDEX users_by_colour ON users (colour);",
    "takes": "DROP INDEX users_by_colour; ALTER TABLE users DROP COLUMN colour;",
}


def be_version(number: str, steps: str) -> None:
    server.__version__ = number
    found = [*migrate.packaged_migrations()]
    for name in steps.split(",") if steps != "none" else ():
        found.append(migrate.Migration(len(found) + 1, name, STEPS[name]))
    migrate.packaged_migrations = lambda: tuple(found)


if __name__ == "__main__":
    be_version(sys.argv[1], sys.argv[2])
    from server.cli import run  # from here on everybody asks for what is set above

    sys.exit(run(sys.argv[3:]))
