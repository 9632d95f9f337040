"""Machines of a document's walk, as folders of this one: each is somebody's home, and what is typed there is run as it is written.

A few programs stand in for what only real machines have: `sudo` (whoever runs the tests owns all of it), `scp` (from one folder to
another) and `systemctl` (which writes down what it was told, for the test to do).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from programs import ROOT, WAIT_SECONDS, Background

# `install -o USER` is for the user of a package that need not be here.
SUDO = """#!/bin/bash
if [ "$1" = -u ]; then shift 2; fi
words=()
for word in "$@"; do [ "$word" = postgres ] && word=$OWNER; words+=("$word"); done
exec "${words[@]}"
"""
SCP = """#!/bin/bash
set -e
options=() files=()
for word in "$@"; do
  case $word in
    -*) options+=("$word") ;;
    *:*) cd "$MACHINES/${word%%:*}"; for file in ${word#*:}; do files+=("$PWD/$file"); done; cd "$OLDPWD" ;;
    *) files+=("$word") ;;
  esac
done
exec cp "${options[@]}" "${files[@]}"
"""
SYSTEMCTL = """#!/bin/bash
echo "$*" >> "$MACHINES/systemctl"
"""


@dataclass(frozen=True, kw_only=True)
class Machines:
    folder: Path
    command: Sequence[str]  # what `ostiary` is
    owner: str  # of what `sudo` makes for a service
    environment: Mapping[str, str]  # further variables of everybody

    def prepare(self) -> None:
        (self.folder / "bin").mkdir()
        programs = {"sudo": SUDO, "scp": SCP, "systemctl": SYSTEMCTL}
        programs["ostiary"] = f'#!/bin/sh\nexec {join(self.command)} "$@"\n'
        for name, text in programs.items():
            program = self.folder / "bin" / name
            program.write_text(text, "utf-8")
            program.chmod(0o755)

    def home(self, machine: str) -> Path:
        home = self.folder / machine
        home.mkdir(exist_ok=True)
        return home

    def told_systemctl(self) -> list[str]:
        """Since it was last asked."""
        told = self.folder / "systemctl"
        lines = told.read_text("utf-8").splitlines() if told.exists() else []
        told.unlink(missing_ok=True)
        return lines

    def type(self, machine: str, text: str, *, code: int = 0) -> str:
        """What is shown of it."""
        done = subprocess.run(
            ("bash", "-euo", "pipefail", "-c", text), cwd=self.home(machine), env=self._around(machine), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{machine}$ {text}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def typing(self, machine: str, line: str) -> Generator[Background]:
        """What runs on; ended with the block at the latest."""
        log = self.home(machine) / f"log-{len(list(self.home(machine).glob('log-*')))}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ("bash", "-c", f"exec {line}"), cwd=self.home(machine), env=self._around(machine),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        background = Background(process=process, log=log)
        try:
            yield background
        finally:
            background.end()

    def _around(self, machine: str) -> dict[str, str]:
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home(machine)),
            "TMPDIR": str(self.folder),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT),
            "MACHINES": str(self.folder),
            "OWNER": self.owner,
            **self.environment,
        }
