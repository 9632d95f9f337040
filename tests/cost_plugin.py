"""What each test file takes, written down with `--costs FILE`: `scripts/test` forms its groups from that. `--short` leaves out what is long."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests import forked

# A test of which one case takes more is long. Time is measured beside other work, where everything takes more of it.
LONG_WORK: Final = 0.05
LONG_TIME: Final = 0.5


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs", type=Path, help="write what each file takes, in seconds of time and of work, as JSON"
    )
    parser.addoption(
        "--costs-on-record",
        type=Path,
        default=Path(__file__).with_name("costs.json"),
        help="what --short reads",
    )
    parser.addoption("--short", action="store_true", help="only tests that are not on record as long")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--costs")) is not None:
        config.pluginmanager.register(_Costs(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--short"):
        record = Path(str(config.getoption("--costs-on-record")))
        long = {name: set(cost[-1]) for name, cost in json.loads(record.read_text("utf-8")).items()}
        left_out = [item for item in items if _function(item) in long.get(_file(item), ())]
        items[:] = [item for item in items if _function(item) not in long.get(_file(item), ())]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Let the collector of garbage leave what is imported alone, and come less often: it took one second of twenty."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[2].partition("[")[0]


def _now() -> tuple[float, float]:
    times = os.times()
    worked = times.user + times.system + times.children_user + times.children_system
    return time.monotonic(), worked + sum(forked.WORK)


class _Cost(NamedTuple):
    time: float = 0.0
    work: float = 0.0
    is_long: bool = False


class _Costs:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, dict[str, _Cost]] = {}  # by file and function

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began, worked = _now()
        result = yield
        ended, at_work = _now()
        took, work = ended - began, at_work - worked
        functions = self._found.setdefault(_file(item), {})
        before = functions.get(_function(item), _Cost())
        is_long = before.is_long or took > LONG_TIME or work > LONG_WORK
        functions[_function(item)] = _Cost(before.time + took, before.work + work, is_long)
        return result

    def pytest_sessionfinish(self) -> None:
        """Write for each file its time and work, the work of what is short, and the names of what is long."""
        found = {
            name: (
                sum(cost.time for cost in functions.values()),
                sum(cost.work for cost in functions.values()),
                sum(cost.work for cost in functions.values() if not cost.is_long),
                sorted(function for function, cost in functions.items() if cost.is_long),
            )
            for name, functions in self._found.items()
        }
        self._path.write_text(json.dumps(found), "utf-8")
