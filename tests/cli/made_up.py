"""A machine whose server is made up: what commands say there, run in this process."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from server.cli import local, run
from server.cli.terminal import CliError
from tests.snapshots import ToldOnce

NOW: Final = 1_800_000_000_000


class MadeUpMachine:
    """A machine on which a server runs that says what a test wants, and somebody who types commands there."""

    def __init__(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.home, self._capsys = home, capsys
        self._answers: Mapping[str, Any] = {}
        self.told = ToldOnce()
        self.told.hidden[str(home)] = "~"
        for name in [each for each in os.environ if each.startswith("OSTIARY_")]:
            monkeypatch.delenv(name)
        for name, value in {
            "HOME": str(home),
            "OSTIARY_CONFIG_HOME": str(home / "config"),
            "OSTIARY_DATA_DIR": "data",
            "OSTIARY_PORT": "1",  # nobody listens there, whatever else runs on this machine
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(home)
        monkeypatch.setattr(time, "time", lambda: NOW / 1000)
        real = local.ask

        def ask(name: str, arguments: Mapping[str, Any] | None = None, **where: Any) -> Any:
            if not self._answers:
                return real(name, arguments, **where)
            if name not in self._answers:
                raise CliError("this server knows no such question")
            return self._answers[name]

        monkeypatch.setattr(local, "ask", ask)

    def note(self, what: str, words: str, **answers: Any) -> None:
        """Add what a command says, without what it said before and without its columns. `answers` are the server's; without any, none runs."""
        self._answers = answers
        assert run(words.split()) in (0, 1, 2)
        said = self._capsys.readouterr()
        assert "internal error" not in said.err
        text = said.out + re.sub("(?m)^(?=.)", "! ", said.err)
        text = re.sub(r"until \d+ \w+ \d+ [\d:]+", "until DAY", text)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "MOMENT", text)
        rows = re.split(
            r"\n+(?!  hint: )", re.sub(r"(?<=\S)  +|^ {8,}", "  ", text.strip(), flags=re.MULTILINE)
        )
        self.told.note(what, *rows)
