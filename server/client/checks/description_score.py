"""The score of a server's descriptions, in percent, and what would mend it.

Each rule looks at one thing and has a weight; how much of it is right counts as much of the weight. A rule that has nothing to
look at in a tool does not count. The score of a server is of all its tools together, each with the weight of its rules. Equal
lists score the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from server.client.checks.description_rules import RULES, SERVER_RULES, Finding, Rule, ServerWords, Share


class ToolScore(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    percent: int
    findings: Sequence[Finding]


class ServerScore(msgspec.Struct, frozen=True, kw_only=True):
    percent: int
    findings: Sequence[Finding]  # of the server as a whole
    tools: Sequence[ToolScore]


# What a share is counted in, so that no sum depends on its order.
_PARTS: Final = 1000


def score(
    tools: Sequence[Mapping[str, Any]],
    words: ServerWords | None = None,
    examples: frozenset[str] = frozenset(),
) -> ServerScore:
    """Judge tools. `words` is what the server says of itself, where that is known; `examples` names tools that have one in
    the settings."""
    all_marks = _Marks()
    scored: list[ToolScore] = []
    for tool in tools:
        name = str(tool.get("name"))
        marks = _Marks()
        for rule in RULES:
            marks.add(name, rule, rule.look(tool, name in examples))
        scored.append(ToolScore(tool=name, percent=_percent(marks), findings=marks.findings))
        all_marks.won, all_marks.possible = all_marks.won + marks.won, all_marks.possible + marks.possible
    for rule in SERVER_RULES:
        all_marks.add("", rule, rule.look(tools, words))
    return ServerScore(percent=_percent(all_marks), findings=all_marks.findings, tools=scored)


class _Marks:
    """The marks of a tool, or of a server."""

    def __init__(self) -> None:
        self.won = self.possible = 0
        self.findings: list[Finding] = []

    def add(self, tool: str, rule: Rule[Any], share: Share | None) -> None:
        if share is None:
            return
        self.possible += rule.weight * _PARTS
        self.won += rule.weight * _PARTS * share.right // share.of
        if share.right < share.of:
            self.findings.append(Finding(tool=tool, rule=rule.name, words=share.words, mend=rule.mend))


def _percent(marks: _Marks) -> int:
    """Return a percentage, rounded down: 100 is what has nothing to be mended."""
    return 100 if not marks.possible else 100 * marks.won // marks.possible
