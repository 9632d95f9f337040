"""SQLite as an engine of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from server.store.sqlite_errors import translate
from server.store.store_engine import Begun, StoreEngine

# How many steps of SQLite's machine run between two looks at the clock: some tenths of a millisecond.
_STEPS_BETWEEN_LOOKS: Final = 10_000


def _watch(connection: sqlite3.Connection, is_late: Callable[[], bool], note_begun: Begun) -> None:
    del note_begun  # a transaction begins when it is told to
    connection.set_progress_handler(is_late, _STEPS_BETWEEN_LOOKS)


SQLITE: Final = StoreEngine(
    errors=(sqlite3.Error, sqlite3.Warning),
    translate=translate,
    lost=(),  # there is one writer
    shared=False,
    begin_write="BEGIN IMMEDIATE",
    begin_read="BEGIN",
    commit_telling="COMMIT",  # there are no others
    out_of_reach=None,
    only_reading=("PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
    watch=_watch,
    foresee=None,
    foresee_for_all=None,
    later=None,
    one_row_later=None,
)
