"""A whole run: everything that CI runs. What fails in the tests is run once more, alone, if it is few."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import raced
from entries import PYTHON, ROOT, Cost, Entry, commands, read_costs, short_tests, tests, write_costs
from raced import Raced
from schedule import Ended, Schedule

# A machine that stops for a moment is no fault of the product. More than a few failures are.
ONCE_MORE: Final = 5
CORES: Final = os.cpu_count() or 2
NOTHING_TO_RUN: Final = 5  # pytest's status
_COUNT: Final = re.compile(r"(\d+) (passed|failed|skipped|errors?|deselected|xfailed)")


class Whole:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.monotonic()
        self._broken: list[str] = []
        self._failures: list[Raced] = []
        self._counts: Counter[str] = Counter()
        self._lines: list[str] = []
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._environment = environment
        self._costs = read_costs()

    def run(self, *, record: bool) -> int:
        self._begin([*commands(), *(self._kept(each) for each in tests(self._costs))])
        if record:
            self._record()
        return self._end(self._once_more())

    def run_short(self) -> int:
        """The tests for every edit. What fails there was just edited, so nothing is run once more."""
        self._begin(short_tests(self._costs, CORES))
        return self._end([])

    def _begin(self, entries: Sequence[Entry]) -> None:
        Schedule(entries, self._folder, self._environment, CORES).run(self._ended)

    def _end(self, passed_alone: Sequence[Raced]) -> int:
        print("\n" + "\n".join(self._lines))
        print(", ".join(f"{count} {what}" for what, count in sorted(self._counts.items())))
        for name in self._broken:
            print(f"FAILED: {name}")
        print(f"total {time.monotonic() - self._began:.0f} s: {'FAILED' if self._broken else 'passed'}")
        for each in passed_alone:
            print(
                f"!!! FAILED ONCE, PASSED ALONE: {each.test} ({each.store}): look at it (what it said is above)"
            )
        return 1 if self._broken else 0

    def _kept(self, entry: Entry) -> Entry:
        """With a cache of its own that keeps what failed, and what each file cost."""
        cache, costs = self._folder / entry.name, self._folder / f"{entry.name}.costs"
        return entry._replace(
            command=(*entry.command, "--durations=3", "-o", f"cache_dir={cache}", "--costs", str(costs))
        )

    def _ended(self, ended: Ended) -> None:
        entry, status = ended.entry, ended.status
        said = ended.said.read_text("utf-8", "replace")
        summary = ""
        if entry.store:
            summary = next((line for line in reversed(said.splitlines()) if _COUNT.match(line)), "")
            for count, what in _COUNT.findall(summary):
                self._counts[what] += int(count)
        good = status == 0 or (entry.store is not None and status == NOTHING_TO_RUN)
        line = f"{entry.name:<14} {'ok' if good else 'FAILED':>6} {ended.seconds:5.0f} s  {summary}"
        self._lines.append(line)
        print(f"── {line}", flush=True)
        if good:
            return
        print(said, flush=True)
        failed = self._failed(entry) if entry.store and status == 1 else []
        if failed:
            self._failures += failed
        else:
            self._broken.append(entry.name)

    def _failed(self, entry: Entry) -> list[Raced]:
        assert entry.store is not None
        names = self._folder / entry.name / "v" / "cache" / "lastfailed"
        if not names.exists():
            return []
        return [Raced(entry.store, name) for name in json.loads(names.read_text("utf-8"))]

    def _once_more(self) -> list[Raced]:
        """Those that pass alone, of those that failed; the others are broken, and so is one that is on record."""
        if len(self._failures) > ONCE_MORE:
            print(f"── {len(self._failures)} tests failed, too many to run them once more")
            self._broken += [each.test for each in self._failures]
            return []
        known, passed = raced.on_record(), list[Raced]()
        for each in self._failures:
            print(f"── once more, alone: {each.test} ({each.store})", flush=True)
            command = (PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "--store", each.store, each.test)
            done = subprocess.run(
                command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, check=False
            )
            if done.returncode:
                self._broken.append(each.test)
            elif each in known:
                self._broken.append(f"{each.test} ({each.store}): it is in tests/raced.txt, and failed again")
            else:
                passed.append(each)
                print(f"── a row of tests/raced.txt: {raced.record(each)}")
        return passed

    def _record(self) -> None:
        found: dict[str, Cost] = {}
        for file in sorted(self._folder.glob("*.costs")):
            kind = file.name.partition("-")[0]
            for name, cost in json.loads(file.read_text("utf-8")).items():
                if kind in ("browser", "postgres"):
                    found[f"{kind}:{name}"] = Cost(*cost[:2])
                else:
                    found[name] = Cost(*cost)
        write_costs(found)


def main() -> int:
    def end(signum: int, frame: object) -> NoReturn:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, end)
    with tempfile.TemporaryDirectory(prefix="ostiary-whole-") as folder:
        whole = Whole(Path(folder))
        return whole.run_short() if "quick" in sys.argv else whole.run(record="--record" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
