"""Running entries beside each other, the longest first, so that all cores have work and none has too much."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from entries import ROOT, Entry

POLL_SECONDS: Final = 0.1
# Beyond the cores: what is on record was measured beside other work, and something always waits.
SLACK: Final = 0.5


class Ended(NamedTuple):
    entry: Entry
    status: int
    seconds: float
    said: Path


class _Running(NamedTuple):
    entry: Entry
    process: subprocess.Popen[bytes]
    began: float
    said: Path


class Schedule:
    """Runs each entry once what it needs has ended, well or not: a step that fails does not hide what the next ones would say."""

    def __init__(
        self,
        entries: Sequence[Entry],
        folder: Path,
        environment: Mapping[str, str],
        cores: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        # What others wait for comes first.
        needed = frozenset[str]().union(*(entry.needs for entry in entries))
        self._waiting = sorted(entries, key=lambda each: (each.name not in needed, -each.seconds))
        self._unfinished = {entry.name for entry in entries}
        self._running: list[_Running] = []
        self._folder = folder
        self._environment = dict(environment)
        self._most = cores + SLACK
        self._now = now

    def run(self, ended: Callable[[Ended], None]) -> None:
        """Tell of each as it ends. Nothing that was begun outlives this."""
        try:
            while self._waiting or self._running:
                self._begin()
                time.sleep(POLL_SECONDS)
                for each in list(self._running):
                    late = self._now() - each.began > each.entry.most
                    if late and each.process.poll() is None:
                        self._kill(each)
                    if each.process.poll() is None:
                        continue
                    self._running.remove(each)
                    if late and each.entry.tries > 1:
                        print(f"── {each.entry.name}: no end after {each.entry.most:.0f} s, begun anew")
                        self._waiting.insert(0, each.entry._replace(tries=each.entry.tries - 1))
                        continue
                    self._unfinished.discard(each.entry.name)
                    took = self._now() - each.began
                    ended(Ended(each.entry, each.process.returncode, took, each.said))
        finally:
            for each in self._running:
                os.killpg(each.process.pid, signal.SIGTERM)
            for each in self._running:
                each.process.wait()

    def _kill(self, late: _Running) -> None:
        with late.said.open("ab") as said:
            said.write(f"\nended: it took more than {late.entry.most:.0f} s\n".encode())
        os.killpg(late.process.pid, signal.SIGKILL)
        late.process.wait()

    def _begin(self) -> None:
        for entry in list(self._waiting):
            if entry.needs & self._unfinished:
                continue
            load = sum(each.entry.load for each in self._running)
            if self._running and load + entry.load > self._most:
                continue
            self._waiting.remove(entry)
            said = self._folder / f"{entry.name}.said"
            with said.open("wb") as output:
                process = subprocess.Popen(
                    entry.command,
                    cwd=ROOT,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._running.append(_Running(entry, process, self._now(), said))
            print(f"── {entry.name} …", flush=True)
            sys.stdout.flush()
