"""Mutants that are tried: each in a copy of the checkout, with the tests nearest to it, bounded in time.

A test kills a mutant if it fails, or never ends, with it and passes without it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple

from decisions import Mutant, mutants
from nearest import Stage, stages

# For all the tests of a stage.
STAGE_SECONDS: Final = 120.0
# A test that has not ended after three times as long as it takes without the mutant, and this, never will.
HANGING_SECONDS: Final = 20.0
MOST_AT_ONCE: Final = 2
OPTIONS: Final = (
    "-x", "-q", "-p", "no:cacheprovider", "-p", "watch", "-m", "not slow and not peers and not browser and not binary",
)  # fmt: skip
GOOD: Final = (0, 5)  # of pytest: passed; nothing to run
HERE: Final = Path(__file__).resolve().parent


class Verdict(NamedTuple):
    mutant: Mutant
    outcome: str  # killed, survived, not reached
    by: str = ""

    def row(self) -> str:
        mutant = self.mutant
        change = f"{_short(mutant.before)}  →  {_short(mutant.after) or 'nothing'}"
        return f"{self.outcome:<11}  {mutant.file}:{mutant.line}  {mutant.kind}: {change}  {self.by}".rstrip()


class Ended(NamedTuple):
    status: int | None  # None: not in time
    test: str  # the one that failed, else the last that began
    since: float = 0.0  # how many seconds before the end that was


class CannotRun(Exception):
    """Why no mutant can be tried."""


class Over(Exception):
    """The time for all mutants is over, or somebody ended the run."""


class Copy:
    """A checkout of its own, in which one mutant at a time stands."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._watch, self._reached = folder.with_suffix(".watch"), folder.with_suffix(".reached")
        command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        listing = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
        for name in filter(None, listing.split("\0")):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        if (root / ".venvs").exists():
            (folder / ".venvs").symlink_to(root / ".venvs")
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": os.pathsep.join((str(folder), str(HERE))),
            "MUTANT_WATCH": str(self._watch),
        }
        self._running: subprocess.Popen[bytes] | None = None
        self._over = False
        self._without: set[str] = set()  # tests that fail without a mutant, too
        self._edits = 0

    def check(self, file: str) -> None:
        """Make sure that what is imported is the copy."""
        package = file.split("/", 1)[0]
        found = subprocess.run(
            [sys.executable, "-P", "-c", f"import {package}; print(*{package}.__path__)"],
            cwd=self._folder, env=self._environment, capture_output=True, check=False, text=True,
        )  # fmt: skip
        if found.stdout.strip() != str(self._folder / package):
            raise CannotRun(f"the copy of {package} is not what is imported: {found.stdout or found.stderr}")

    def try_out(self, mutant: Mutant) -> Verdict:
        path = self._folder / mutant.file
        source = path.read_bytes()
        self._reached.write_bytes(b"")
        os.utime(self._reached, (0, 0))
        edited = mutant.written(source, f"__import__('os').utime({str(self._reached)!r})")
        in_time = True
        try:
            for stage in stages(self._folder, mutant.file):
                killer = self._killer(stage, path, source, edited)
                if killer:
                    return Verdict(mutant, "killed", killer)
                in_time = in_time and killer is not None
        finally:
            self._put(path, source)
        outcome = "survived" if self._reached.stat().st_mtime else "not reached"
        return Verdict(mutant, outcome, "" if in_time else "not all tests came to their end")

    def end(self) -> None:
        self._over = True
        if self._running is not None:
            _end(self._running)

    def _killer(self, stage: Stage, path: Path, source: bytes, edited: bytes) -> str | None:
        """Which test of the stage notices, empty if none does. None: not all of them ran."""
        while files := [file for file in stage.files if file not in self._without]:
            self._put(path, edited)
            ended = self._tests(files, stage.store, STAGE_SECONDS)
            if ended.status in GOOD:
                return ""
            if ended.status is None and ended.since < HANGING_SECONDS:
                return None  # there was not time enough for all of them
            test = ended.test or files[0]
            self._put(path, source)
            began = time.monotonic()
            fine = self._alone(test, stage.store, STAGE_SECONDS)
            seconds = time.monotonic() - began
            if not fine and ended.test and test not in self._without:
                self._without.add(test)
                continue
            if not fine:
                return None
            if ended.status is not None:
                return test if "::" in test else f"{test} does not load"
            self._put(path, edited)
            if self._alone(test, stage.store, 3 * seconds + HANGING_SECONDS):
                return None
            return f"{test} never ends"
        return ""

    def _put(self, path: Path, source: bytes) -> None:
        """No two texts of a file have the same time, by which Python tells whether it is compiled."""
        path.write_bytes(source)
        self._edits += 1
        os.utime(path, (self._edits, self._edits))

    def _alone(self, test: str, store: str, seconds: float) -> bool:
        """Whether a test passes, or a file of tests loads."""
        if "::" in test:
            return self._tests([test], store, seconds).status == 0
        return self._tests([test], store, seconds, "--collect-only").status in GOOD

    def _tests(self, files: Sequence[str], store: str, seconds: float, *more: str) -> Ended:
        self._watch.write_bytes(b"")
        options = [*OPTIONS, *more, *(("--store", store) if store != "sqlite" else ())]
        for test in sorted(self._without):
            options += ("--deselect", test)
        if self._over:
            raise Over
        self._running = subprocess.Popen(
            [sys.executable, "-P", "-m", "pytest", *options, *files],
            cwd=self._folder, env=self._environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if self._over:  # since
            _end(self._running)
        status: int | None = None
        try:
            status = self._running.wait(seconds)
            since = 0.0
        except subprocess.TimeoutExpired:
            # Before its end, of which pytest may write, too.
            since = time.time() - self._watch.stat().st_mtime
            _end(self._running)
        if self._over:
            raise Over
        lines = self._watch.read_text("utf-8").splitlines()
        failed = [line for line in lines if line.startswith("failed ")]
        return Ended(status, (failed or lines or [" "])[-1].partition(" ")[2], since)


def _end(running: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if running.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, number)
            with suppress(subprocess.TimeoutExpired):
                running.wait(10)


def drawn(root: Path, files: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Mutants by lot, from each package about as many."""
    lot = random.Random(seed)
    packages: dict[str, list[Mutant]] = defaultdict(list)
    for file in sorted(set(files)):
        packages[Path(file).parent.as_posix()] += mutants(file, (root / file).read_bytes())
    order = sorted(packages)
    lot.shuffle(order)
    for name in order:
        lot.shuffle(packages[name])
    rounds = zip_longest(*(packages[name] for name in order))
    return [mutant for each in rounds for mutant in each if mutant is not None][:count]


class Trials:
    def __init__(self, root: Path, folder: Path, *, jobs: int, seconds: float) -> None:
        self._root, self._folder = root, folder
        self._jobs = min(jobs, MOST_AT_ONCE)
        self._until = time.monotonic() + seconds
        self._lock = Lock()
        self._copies: list[Copy] = []
        self._verdicts: list[Verdict] = []
        self._broken: list[Exception] = []

    def run(self, wanted: Sequence[Mutant]) -> list[Verdict]:
        """Try them all, or as many as there is time for; print a row for each at its end."""
        waiting = iter(wanted)
        self._copies = [Copy(self._root, self._folder / f"copy-{number}") for number in range(self._jobs)]
        threads = [Thread(target=self._work, args=(copy, waiting)) for copy in self._copies]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join(max(0.0, self._until - time.monotonic()))
        finally:
            for copy in self._copies:
                copy.end()
            for thread in threads:
                thread.join()
        if self._broken:
            raise self._broken[0]
        return self._verdicts

    def _work(self, copy: Copy, waiting: Iterator[Mutant]) -> None:
        try:
            while not self._broken:
                with self._lock:
                    mutant = next(waiting, None)
                if mutant is None:
                    return
                copy.check(mutant.file)
                verdict = copy.try_out(mutant)
                with self._lock:
                    self._verdicts.append(verdict)
                    print(verdict.row(), flush=True)
        except Over:
            pass
        except Exception as error:
            self._broken.append(error)


def sums(verdicts: Sequence[Verdict]) -> str:
    """How many of each package were killed, as a table."""
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for each in verdicts:
        for name in (Path(each.mutant.file).parent.as_posix(), "all"):
            packages[name][each.outcome] += 1
    names = [*sorted(packages.keys() - {"all"}), "all"]
    lines = [f"{'':<24} {'mutants':>8} {'killed':>8} {'survived':>9} {'not reached':>12}"]
    for name in names:
        found = packages[name]
        lines.append(
            f"{name:<24} {found.total():>8} {found['killed']:>8} {found['survived']:>9} {found['not reached']:>12}"
        )
    return "\n".join(lines)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}…"
