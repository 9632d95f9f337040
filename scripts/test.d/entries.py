"""What a whole run consists of: commands, and groups of test files that take about as long as each other.

How long each file takes stands in `tests/costs.json`, which `scripts/test --record` writes anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
COSTS: Final = ROOT / "tests" / "costs.json"
PYTHON: Final = str(ROOT / ".venvs" / "test" / "bin" / "python")
# How long a group takes alone. Each has to be begun, and the last ones end beside nothing.
GROUP_SECONDS: Final = 150.0
BEGIN_SECONDS: Final = 2.0
# Costs are measured beside other work, where everything takes longer and so seems to be idle.
LEAST_LOAD: Final = 0.4

# Whose rules stand on what the store promises; tests/store itself runs on both.
ON_POSTGRES: Final = (
    "tests/auth", "tests/calls/tasks", "tests/store/limits", "tests/payments/seller", "tests/agents/mcp/trust", "tests/store/node_messages", "tests/store/call_records", "tests/store/idempotency",
    "tests/transport/admission", "tests/agents/chat/test_conversation_rows.py", "tests/admin", "tests/console/owner", "tests/console/overview", "tests/agents/chat/test_shared_memory.py",
    "tests/certificates/test_shared_certificate.py", "tests/calls/policy/test_policy_and_money.py", "tests/calls/sessions/test_ended_sessions.py", "tests/calls/sessions/test_sessions.py",
)  # fmt: skip
# What scripts/peers installs, by its own names. All but the system's packages is for the tests marked `peers`, and for whole programs.
PEERS: Final = ("system", "node", "python", "payments", "authority", "collector", "gosdk")
# Long, and about how much there is rather than about the engine.
MANY_ROWS: Final = "tests/admin/test_very_many_rows.py::test_very_many"
# scripts/check runs it.
CHECKED: Final = "tests/test_architecture.py"

_FOREIGN: Final = re.compile(r"\bmark\.peers\b")
_BROWSER: Final = re.compile(r"\bmark\.browser\b")
_PAYING: Final = re.compile(r"\b(chain|counter|dollar|houses|reference_facilitator)\b")
_BUILT: Final = re.compile(r'\bmark\.binary\b|\bROOT / "dist"')


class Entry(NamedTuple):
    name: str
    command: Sequence[str]
    needs: frozenset[str] = frozenset()
    seconds: float = 60.0
    load: float = 1.0  # of cores, on the average
    store: str | None = None  # of tests: what they run on
    most: float = 2400.0  # seconds, after which it is ended
    tries: int = 1  # of one that is ended so


class Cost(NamedTuple):
    wall: float
    cpu: float
    short: float = 0.0  # of the work, by tests that are not long
    long: Sequence[str] = ()  # their names


# Of a file that is not on record.
_UNKNOWN: Final = Cost(3.0, 3.0, 1.0)


def commands() -> list[Entry]:
    """Everything but the tests. The steps that install are each other's need where they install the same.

    What takes a core for itself is put down as half of one, or groups of tests would find room before it until the end.
    """
    return [
        *(_download(name, ("scripts/peers", name), load=0.2) for name in PEERS),
        _download("runtime", ("scripts/env", "runtime"), load=0.4),
        Entry("build", ("scripts/build",), frozenset({"runtime"}), seconds=60, load=0.5),
        Entry("wheel", ("scripts/wheel",), frozenset({"build"}), seconds=10, load=0.5),  # which empties dist/
        Entry("check", ("scripts/check",), frozenset({"node"}), seconds=240, load=0.5),
        Entry("conformance", ("scripts/conformance",), frozenset({"node"}), seconds=80, load=0.5),
    ]


def _download(name: str, command: Sequence[str], *, load: float) -> Entry:
    """Describe a step that installs: an answer that never comes to its end holds npm for good, and comes when it is asked for anew."""
    return Entry(name, command, seconds=60, load=load, most=400, tries=3)


def tests(costs: Mapping[str, Cost]) -> list[Entry]:
    """Groups of all test files; those on PostgreSQL and those that need a browser by themselves."""
    text = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in _files()}
    whole = [name for name in text if name.startswith("tests/e2e/") or _FOREIGN.search(text[name])]
    whole.sort(key=lambda name: not _PAYING.search(text[name]))  # beside each other they share a chain
    inside = [name for name in text if name not in whole and name != CHECKED]
    release = {name for name in whole if _BUILT.search(text[name])}
    browser = [name for name in whole if _BROWSER.search(text[name])]
    postgres = [name for name in inside if name.startswith(ON_POSTGRES)]
    # PostgreSQL is one of the system's packages, and most fixtures of stores run on it as well.
    system, peers = frozenset({"system"}), frozenset(PEERS)
    built = peers | {"build", "wheel"}
    not_browser = ("-m", "not browser")
    on_postgres = ("--store", "postgres", "-m", "not slow and not peers", "--deselect", MANY_ROWS)
    return [
        *_groups("inside", inside, costs, needs=system),
        *_groups("whole", [name for name in whole if name not in release], costs, not_browser, needs=peers),
        *_groups("release", sorted(release), costs, not_browser, needs=built),
        *_groups("browser", browser, costs, ("-m", "browser"), needs=built),
        *_groups("postgres", postgres, costs, on_postgres, needs=system),
    ]


def short_tests(costs: Mapping[str, Cost], shares: int) -> list[Entry]:
    """The tests for every edit, in as many groups: in-process, and not on record as long."""
    names = [path.relative_to(ROOT).as_posix() for path in _files()]
    inside = {name: costs.get(name) or _UNKNOWN for name in names if not name.startswith("tests/e2e/")}
    found: list[list[str]] = [[] for _ in range(shares)]
    work = [0.0] * shares
    for name in sorted(inside, key=lambda name: -inside[name].short):
        least = work.index(min(work))
        found[least].append(name)
        work[least] += inside[name].short
    command = (
        PYTHON,
        "-m",
        "pytest",
        "--short",
        "-m",
        "not peers and not browser and not binary and not slow",
    )
    return [
        Entry(f"short-{number}", (*command, *sorted(group)), store="sqlite")
        for number, group in enumerate(found, 1)
    ]


def _files() -> list[Path]:
    return sorted(
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if not {"node_modules", "peers"} & set(path.relative_to(ROOT).parts)
    )


def read_costs() -> dict[str, Cost]:
    if not COSTS.exists():
        return {}
    return {name: Cost(*cost) for name, cost in json.loads(COSTS.read_text("utf-8")).items()}


def write_costs(found: Mapping[str, Cost]) -> None:
    lines = (
        f"{json.dumps(name)}: [{cost.wall:.1f}, {cost.cpu:.1f}, {cost.short:.1f}, {json.dumps(cost.long)}]"
        for name, cost in sorted(found.items())
    )
    COSTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _groups(
    kind: str,
    files: Iterable[str],
    costs: Mapping[str, Cost],
    options: Sequence[str] = (),
    *,
    needs: frozenset[str] = frozenset(),
) -> list[Entry]:
    found: list[Entry] = []
    some: list[str] = []
    for name in files:
        if some and sum(_cost(kind, each, costs).wall for each in (*some, name)) > GROUP_SECONDS:
            found.append(_group(kind, len(found) + 1, some, costs, options, needs))
            some = []
        some.append(name)
    if some:
        found.append(_group(kind, len(found) + 1, some, costs, options, needs))
    return found


def _group(
    kind: str,
    number: int,
    files: Sequence[str],
    costs: Mapping[str, Cost],
    options: Sequence[str],
    needs: frozenset[str],
) -> Entry:
    each = [_cost(kind, name, costs) for name in files]
    wall = BEGIN_SECONDS + sum(cost.wall for cost in each)
    cpu = BEGIN_SECONDS + sum(cost.cpu for cost in each)
    return Entry(
        name=f"{kind}-{number}",
        command=(PYTHON, "-m", "pytest", *options, *files),
        needs=needs,
        seconds=wall,
        load=min(max(cpu / wall, LEAST_LOAD), 1.5),
        store="postgres" if kind == "postgres" else "sqlite",
    )


def _cost(kind: str, name: str, costs: Mapping[str, Cost]) -> Cost:
    """The tests of one file that need a browser, and its run on PostgreSQL, are on record apart."""
    key = f"{kind}:{name}" if kind in ("browser", "postgres") else name
    return costs.get(key) or _UNKNOWN
