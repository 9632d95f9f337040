"""What each test file takes, written down with `--costs FILE`: `scripts/test` forms its groups from that."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import forked


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs", type=Path, help="write what each file takes, in seconds of time and of work, as JSON"
    )


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--costs")) is not None:
        config.pluginmanager.register(_Costs(path))


def _now() -> tuple[float, float]:
    times = os.times()
    worked = times.user + times.system + times.children_user + times.children_system
    return time.monotonic(), worked + sum(forked.WORK)


class _Costs:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, tuple[float, float]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began, worked = _now()
        result = yield
        ended, at_work = _now()
        name = item.nodeid.partition("::")[0]
        wall, cpu = self._found.get(name, (0.0, 0.0))
        self._found[name] = (wall + ended - began, cpu + at_work - worked)
        return result

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._found), "utf-8")
