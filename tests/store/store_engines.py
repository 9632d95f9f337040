"""The engines that the store's suite runs on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeAlias

from server.store.inline import InlineStore, open_inline_store
from server.store.sqlite import SqliteStore, open_store

NOW: Final = 1_800_000_000_000

AnyStore: TypeAlias = "SqliteStore | InlineStore"
Open: TypeAlias = Callable[[], AbstractAsyncContextManager[AnyStore]]

ENGINES: Final = ("threads", "inline-file", "inline-memory")


def opener(engine: str, directory: Path) -> Open:
    """Opens a store of this engine. Those in a file find the same database at each opening."""
    path, backups = directory / "ostiary.db", directory / "backups"
    opens: dict[str, Open] = {
        "threads": lambda: open_store(path, clock=lambda: NOW, backups=backups),
        "inline-file": lambda: open_inline_store(path, clock=lambda: NOW, backups=backups),
        "inline-memory": lambda: open_inline_store(clock=lambda: NOW),
    }
    return opens[engine]
