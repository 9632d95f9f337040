"""Whole sentences that people read, in one file for each surface. `pytest --write-snapshots` writes them anew; a review reads what changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).with_name("snapshots")
Snapshot = Callable[[str, str], None]


class ToldOnce:
    """A surface as it is being rendered: what was said, each row once, below what it was first said to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.hidden: dict[str, str] = {}  # what differs each time, and what is said in its place
        self._known: set[str] = set()

    @property
    def text(self) -> str:
        return "\n".join(self.lines).lstrip("\n")

    def begin(self, where: str) -> None:
        """Begin a part, in which everything is said anew."""
        self._known.clear()
        self.lines += ["", f"==== {where}"]

    def note(self, what: str, *rows: str) -> None:
        for hidden, instead in self.hidden.items():
            rows = tuple(row.replace(hidden, instead) for row in rows)
        fresh = [row for row in dict.fromkeys(rows) if row not in self._known]
        self._known.update(fresh)
        self.lines += [f"── {what}", *fresh] if fresh else []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-snapshots", action="store_true", help="write what the surfaces say by now")


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """`snapshot("settings", text)` holds that this is what `tests/snapshots/settings.txt` says."""

    def holds(surface: str, text: str) -> None:
        file = FOLDER / f"{surface}.txt"
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--write-snapshots"):
            FOLDER.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
        kept = file.read_text("utf-8") if file.exists() else ""
        assert text.splitlines() == kept.splitlines(), f"{file.name}: pytest --write-snapshots writes it anew"

    return holds
