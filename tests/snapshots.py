"""Whole sentences that people read, in one file for each surface. `pytest --write-snapshots` writes them anew; a review reads what changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).with_name("snapshots")
Snapshot = Callable[[str, str], None]


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
