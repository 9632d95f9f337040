"""The official conformance suite, run leg by leg against our own fixture server, and its verdict as one table.

`scripts/conformance` is the command. There is no list of failures to be expected: a failed check, a warning, or a scenario
that did not run at all fails the run. The suite is pinned in tests/peers; its own output is kept below .work/conformance.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.conformance.fixture_server import passing_on, serving
from tests.e2e.programs import NODE_BIN, ROOT, SOURCE, needed

SUITE = NODE_BIN.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
KEPT = ROOT / ".work" / "conformance"
# A bound on a suite that hangs; a leg takes a few seconds.
RUN_SECONDS = 300.0

TASK_SCENARIOS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)


# By way of another server.
BEHIND = (
    *(("--suite", "all", "--spec-version", version) for version in ("2025-11-25", "2026-07-28")),
    *(("--scenario", name) for name in TASK_SCENARIOS),
)
# In a session it is the first request that says whether there is a task, so none can begin after a question.
BEHIND_IN_SESSIONS = tuple(run for run in BEHIND if "tasks-mrtr-composition" not in run)


@dataclass(frozen=True, kw_only=True)
class Leg:
    title: str
    runs: Sequence[Sequence[str]]  # options of one call of the suite each
    scenarios: int  # how many must have run
    era: str = ""  # the server is reached by way of another, which speaks to it in this era
    abreast: int = 1  # calls at once: those that mostly sleep, and change nothing that the others look at


LEGS: Mapping[str, Leg] = MappingProxyType(
    {
        "A": Leg(
            title="all of 2025-11-25",
            runs=(("--suite", "all", "--spec-version", "2025-11-25"),),
            scenarios=33,
        ),
        "B": Leg(
            title="all of 2026-07-28",
            runs=(("--suite", "all", "--spec-version", "2026-07-28"),),
            scenarios=40,
        ),
        "C": Leg(
            title="the tasks extension",
            runs=tuple(("--scenario", name) for name in TASK_SCENARIOS),
            scenarios=10,
            abreast=4,
        ),
        "D": Leg(
            title="2025-06-18 and 2025-03-26",
            runs=tuple(("--suite", "all", "--spec-version", version) for version in ("2025-06-18", "2025-03-26")),
            scenarios=28,
        ),
        "R": Leg(
            title="what 2025-11-25 and 2026-07-28 require",
            runs=tuple(("--requirements", version) for version in ("2025-11-25", "2026-07-28")),
            scenarios=83,
        ),
        "G": Leg(title="all of these by way of another server, stateless", runs=BEHIND, scenarios=83, era="stateless", abreast=4),
        "H": Leg(title="all of these by way of another server, with a handshake", runs=BEHIND_IN_SESSIONS, scenarios=82, era="handshake", abreast=4),
        "I": Leg(title="all of these by way of another server, in the era of each client", runs=BEHIND, scenarios=83, era="auto", abreast=4),
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Verdict:
    leg: str
    scenario: str
    checks: Sequence[Mapping[str, Any]]

    def having(self, status: str) -> list[Mapping[str, Any]]:
        return [check for check in self.checks if check["status"] == status]

    @property
    def word(self) -> str:
        if self.having("FAILURE"):
            return "FAIL"
        if self.having("WARNING"):
            return "warn"
        return "ok" if self.having("SUCCESS") else "skip"


def main(arguments: Sequence[str]) -> int:
    options = read_arguments(arguments)
    began = time.monotonic()
    KEPT.parent.mkdir(exist_ok=True)
    # A folder of this run, should there be others at the same time.
    folder = Path(tempfile.mkdtemp(prefix="conformance-", dir=KEPT.parent))
    verdicts: list[Verdict] = []
    complaints: list[str] = []
    try:
        with server_at(options, folder) as url:
            for name in options.leg or LEGS:
                with way_to(url, LEGS[name].era, options, folder) as place:
                    found, wrong = run_leg(name, place, options, folder)
                verdicts += found
                complaints += wrong
    except AssertionError as problem:  # the server did not start, or did not end; or the suite is not there
        complaints.append(str(problem))
    shutil.rmtree(KEPT, ignore_errors=True)
    folder.rename(KEPT)
    print_table(verdicts)
    print_reasons(verdicts)
    for name in options.leg or LEGS:
        print(summary(name, [verdict for verdict in verdicts if verdict.leg == name], options.scenario))
    for complaint in complaints:
        print(f"error: {complaint}")
    bad = complaints or not verdicts or any(verdict.word in ("FAIL", "warn") for verdict in verdicts)
    print(
        f"{'FAILED' if bad else 'passed'} in {time.monotonic() - began:.0f} s; details in {KEPT.relative_to(ROOT)}"
    )
    return 1 if bad else 0


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/conformance", description="The official MCP conformance suite."
    )
    parser.add_argument(
        "--leg", action="append", choices=LEGS, help="only this leg; may be given several times"
    )
    parser.add_argument("--scenario", help="only this scenario, where the leg has it")
    parser.add_argument("--executable", metavar="PATH", help="the finished file instead of the source")
    parser.add_argument("--url", help="a server that runs already, instead of ours")
    parser.add_argument("--verbose", action="store_true", help="what the suite says while it runs, too")
    return parser.parse_args(arguments)


@contextmanager
def server_at(options: argparse.Namespace, kept: Path) -> Generator[str]:
    if options.url:
        yield options.url
        return
    with home_of(kept, "server") as home, serving(home, command_of(options)) as server:
        yield server.endpoint


@contextmanager
def way_to(url: str, era: str, options: argparse.Namespace, kept: Path) -> Generator[str]:
    """The server itself, or one in front of it."""
    if not era:
        yield url
        return
    with home_of(kept, f"front-{era}") as home, passing_on(home, url, era, command_of(options)) as server:
        yield server.endpoint


def command_of(options: argparse.Namespace) -> Sequence[str]:
    return (str(Path(options.executable).resolve()),) if options.executable else SOURCE


@contextmanager
def home_of(kept: Path, name: str) -> Generator[Path]:
    """For as long as it runs; its log is kept."""
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            for log in Path(folder).glob("log-*"):
                shutil.copy(log, kept / f"{name}-{log.name}")


def run_leg(name: str, url: str, options: argparse.Namespace, kept: Path) -> tuple[list[Verdict], list[str]]:
    """What the leg found, and what is wrong about the run itself."""
    leg = LEGS[name]
    runs = [only(run, options.scenario) if options.scenario else run for run in leg.runs]

    def one(number: int) -> subprocess.CompletedProcess[str] | None:
        run = runs[number]
        return None if run is None else run_suite(url, run, kept / f"{name}{number}")

    with ThreadPoolExecutor(leg.abreast) as pool:
        ended = list(pool.map(one, range(len(runs))))
    verdicts: list[Verdict] = []
    complaints: list[str] = []
    for number, done in enumerate(ended):
        if done is None:
            continue
        if options.verbose:
            print(f"── {name}: {' '.join(done.args)}\n{done.stdout}{done.stderr}")
        found = read_verdicts(name, kept / f"{name}{number}")
        verdicts += found
        # A scenario that a revision does not have is refused by name; the other legs may have it.
        explained = options.scenario or any(verdict.having("FAILURE") for verdict in found)
        if done.returncode and not explained:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
            complaints.append(f"leg {name}: the suite ended with {done.returncode}, no check failed:\n{said}")
    if not options.scenario and len(verdicts) < leg.scenarios:
        complaints.append(f"leg {name}: {len(verdicts)} of {leg.scenarios} scenarios ran")
    return verdicts, complaints


def only(run: Sequence[str], scenario: str) -> Sequence[str] | None:
    """The run for one scenario, which the suite takes instead of a set; None where it is another or the set is frozen."""
    match run:
        case ("--suite", _, *version):
            return ("--scenario", scenario, *version)
        case ("--scenario", name) if name == scenario:
            return run
        case _:
            return None


def run_suite(url: str, run: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    node = needed(NODE_BIN / "node", "scripts/peers")
    return subprocess.run(
        (str(node), str(needed(SUITE, "scripts/peers")), "server", "--url", url, *run, "-o", str(folder)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


def read_verdicts(leg: str, folder: Path) -> list[Verdict]:
    """From `server-NAME-TIMESTAMP/checks.json` each."""
    found: list[Verdict] = []
    for file in sorted(folder.glob("server-*/checks.json")):
        scenario = file.parent.name.removeprefix("server-")[: -len("-2026-01-01T00-00-00-000Z")]
        found.append(Verdict(leg=leg, scenario=scenario, checks=json.loads(file.read_text("utf-8"))))
    return found


def print_table(verdicts: Sequence[Verdict]) -> None:
    legs = [name for name in LEGS if any(verdict.leg == name for verdict in verdicts)]
    width = max((len(verdict.scenario) for verdict in verdicts), default=0)
    print(f"{'scenario'.ljust(width)}  " + "  ".join(name.ljust(4) for name in legs))
    for scenario in sorted({verdict.scenario for verdict in verdicts}):
        cells = (worst([v.word for v in verdicts if (v.leg, v.scenario) == (leg, scenario)]) for leg in legs)
        print(f"{scenario.ljust(width)}  " + "  ".join(cell.ljust(4) for cell in cells).rstrip())
    print()


def worst(words: Sequence[str]) -> str:
    return next((word for word in ("FAIL", "warn", "ok", "skip") if word in words), "")


def print_reasons(verdicts: Sequence[Verdict]) -> None:
    said: set[tuple[str, str, str]] = set()
    for verdict in verdicts:
        for check in verdict.having("FAILURE") + verdict.having("WARNING"):
            reason = check.get("errorMessage") or check.get("description") or ""
            if (verdict.scenario, check["id"], reason) in said:
                continue
            said.add((verdict.scenario, check["id"], reason))
            print(f"{check['status']} {verdict.leg} {verdict.scenario}: {check['id']}\n    {reason}")
    if said:
        print()


def summary(name: str, verdicts: Sequence[Verdict], scenario: str | None) -> str:
    leg = LEGS[name]
    good = sum(verdict.word != "FAIL" for verdict in verdicts)
    counted = {
        status: sum(len(verdict.having(status)) for verdict in verdicts)
        for status in ("SUCCESS", "FAILURE", "WARNING")
    }
    of = len(verdicts) if scenario else max(len(verdicts), leg.scenarios)
    checks = f"{counted['SUCCESS']} checks passed, {counted['FAILURE']} failed, {counted['WARNING']} warned"
    return f"{name}  {good}/{of}  {checks}  ({leg.title})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
