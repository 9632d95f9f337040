from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from shim_child import Child, Serve


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
