from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from shim_child import SHIM, Child, Serve


@pytest.fixture
def children() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(tmp_path: Path, children: ExitStack) -> Serve:
    """Serves a file with this text; its first line has been heard, and is `ready`."""

    def start(text: str, *options: str, **more: Any) -> Child:
        file = tmp_path / "agent.py"
        file.write_text(textwrap.dedent(text), "utf-8")
        child = children.enter_context(Child(file, *options, **more))
        first = child.hear()
        assert first["event"] == "ready", first
        return child

    return start


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Let this process import `ostiary`, and forget it afterwards, with the files of the test."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path, str(SHIM)])
    yield
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name.partition(".")[0] == "ostiary" or file.startswith(str(tmp_path)):
            del sys.modules[name]
