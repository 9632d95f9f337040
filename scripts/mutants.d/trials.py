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
from threading import Event, Lock, Thread
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


class CannotRun(Exception):
    """Why no mutant can be tried."""


class Copy:
    """A checkout of its own, in which one mutant at a time stands."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._watch, self._reached = folder.with_suffix(".watch"), folder.with_suffix(".reached")
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in (
            subprocess.run(listing, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        ):
            if name and (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        if (root / ".venvs").exists():
            (folder / ".venvs").symlink_to(root / ".venvs")
        paths = (folder, HERE)
        self._environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        } | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "MUTANT_WATCH": str(self._watch)}
        self._running: subprocess.Popen[bytes] | None = None
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
        reached = f"__import__('os').utime({str(self._reached)!r})"
        edited = mutant.written(source, reached)
        cut = False
        for stage in stages(self._folder, mutant.file):
            while True:
                self._put(path, edited)
                ended = self._tests(stage, STAGE_SECONDS)
                if ended.status in GOOD:
                    break
                self._put(path, source)
                began = time.monotonic()
                passes = self._alone(ended.test or stage.files[0], stage.store, STAGE_SECONDS)
                seconds = time.monotonic() - began
                if not passes and ended.test not in self._without:
                    self._without.add(ended.test)
                    continue
                if ended.status is None:
                    self._put(path, edited)
                    if self._alone(ended.test or stage.files[0], stage.store, 3 * seconds + HANGING_SECONDS):
                        cut = True
                        break
                self._put(path, source)
                what = "" if "::" in ended.test else " does not load" if ended.status else ""
                return Verdict(
                    mutant, "killed", f"{ended.test}{what}{' never ends' if ended.status is None else ''}"
                )
        self._put(path, source)
        outcome = "survived" if self._reached.stat().st_mtime else "not reached"
        return Verdict(mutant, outcome, "not all tests ran in time" if cut else "")

    def end(self) -> None:
        running = self._running
        if running is not None:
            _end(running)

    def _put(self, path: Path, source: bytes) -> None:
        """No two texts of a file have the same time, by which Python tells whether it is compiled."""
        path.write_bytes(source)
        self._edits += 1
        os.utime(path, (self._edits, self._edits))

    def _alone(self, test: str, store: str, seconds: float) -> bool:
        """Whether a test passes, or a file of tests loads."""
        more = () if "::" in test else ("--collect-only",)
        return self._tests(Stage([test], store), seconds, *more).status == 0

    def _tests(self, stage: Stage, seconds: float, *more: str) -> Ended:
        self._watch.write_bytes(b"")
        store = ("--store", stage.store) if stage.store != "sqlite" else ()
        without = [word for test in sorted(self._without) for word in ("--deselect", test)]
        self._running = subprocess.Popen(
            [sys.executable, "-P", "-m", "pytest", *OPTIONS, *store, *more, *without, *stage.files],
            cwd=self._folder, env=self._environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        status: int | None = None
        try:
            status = self._running.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(self._running)
        lines = self._watch.read_text("utf-8").splitlines()
        failed = [line for line in lines if line.startswith("failed ")]
        return Ended(status, (failed or lines or [" "])[-1].partition(" ")[2])


def _end(running: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        with suppress(subprocess.TimeoutExpired):
            running.wait(10)
            return


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
        self._over, self._lock = Event(), Lock()
        self._copies: list[Copy] = []
        self._verdicts: list[Verdict] = []
        self._broken: list[BaseException] = []

    def run(self, wanted: Sequence[Mutant]) -> list[Verdict]:
        """Try them all, or as many as there is time for; print a row for each at its end."""
        waiting = iter(wanted)
        self._copies = [Copy(self._root, self._folder / f"copy-{number}") for number in range(self._jobs)]
        threads = [Thread(target=self._work, args=(copy, waiting)) for copy in self._copies]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self._over.set()
            for copy in self._copies:
                copy.end()
            for thread in threads:
                thread.join()
        if self._broken:
            raise self._broken[0]
        return self._verdicts

    def _work(self, copy: Copy, waiting: Iterator[Mutant]) -> None:
        try:
            while time.monotonic() < self._until and not self._over.is_set():
                with self._lock:
                    mutant = next(waiting, None)
                if mutant is None:
                    return
                copy.check(mutant.file)
                verdict = copy.try_out(mutant)
                with self._lock:
                    if not self._over.is_set():
                        self._verdicts.append(verdict)
                        print(verdict.row(), flush=True)
        except BaseException as error:
            self._broken.append(error)
            self._over.set()


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
