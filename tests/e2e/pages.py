"""What a document shows, so that a test can do it: its blocks by language, commands as they are typed, and answers in which `…` is anything."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from programs import ROOT, WAIT_SECONDS, Program

ANYTHING = "…"


@dataclass(frozen=True)
class DocumentPage:
    name: str  # in docs/

    @cached_property
    def blocks(self) -> list[tuple[str, str]]:
        """Language and text, in their order."""
        text = (ROOT / "docs" / self.name).read_text("utf-8")
        return re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    def of(self, language: str) -> list[str]:
        return [text for found, text in self.blocks if found == language]

    def typed(self, language: str = "sh") -> list[tuple[str, str]]:
        """Each command with the block after it, which is its answer."""
        return [
            (text, self.blocks[place + 1][1] if place + 1 < len(self.blocks) else "")
            for place, (found, text) in enumerate(self.blocks)
            if found == language
        ]


def in_a_shell(line: str, program: Program, **environment: str) -> str:
    """What it prints."""
    done = subprocess.run(
        ("bash", "-euo", "pipefail", "-c", line),
        cwd=program.home,
        env=program.environment(**environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def differs(shown: Any, said: Any, where: str = "") -> str:
    """Where what was said is not as it is shown; empty for nowhere. An object may have more than is shown of it."""
    if shown == ANYTHING:
        return ""
    if isinstance(shown, dict) and isinstance(said, dict):
        ours, theirs = cast("dict[str, Any]", shown), cast("dict[str, Any]", said)
        return next(
            (
                found
                for key, value in ours.items()
                if (
                    found := differs(value, theirs[key], f"{where}.{key}")
                    if key in theirs
                    else f"{where}.{key} is missing"
                )
            ),
            "",
        )
    if isinstance(shown, list) and isinstance(said, list):
        ours_, theirs_ = cast("list[Any]", shown), cast("list[Any]", said)
        if len(ours_) != len(theirs_):
            return f"{where} has {len(theirs_)} entries: {theirs_}"
        return next(
            (
                found
                for place, value in enumerate(ours_)
                if (found := differs(value, theirs_[place], f"{where}[{place}]"))
            ),
            "",
        )
    if isinstance(shown, str) and isinstance(said, str):
        pattern = re.escape(shown).replace(ANYTHING, ".*?")
        return "" if re.fullmatch(pattern, said, re.DOTALL) else f"{where} is {said!r}, and not {shown!r}"
    return "" if shown == said and type(shown) is type(said) else f"{where} is {said!r}, and not {shown!r}"
