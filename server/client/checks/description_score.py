"""How well the tools of a server are described, in percent, and what would mend it.

Each rule looks at one thing and has a weight; how much of it is right counts as much of the weight. A rule that has nothing to look at in a
tool does not count. The score of a server is of all its tools together, each with the weight of its rules. The same list scores the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from server.client.checks.description_rules import RULES, SERVER_RULES, Finding, ServerWords, Share


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
    """`words` is what the server says of itself, where that is known; `examples` names tools that have one in the settings."""
    scored: list[ToolScore] = []
    won = possible = 0
    for tool in tools:
        name = str(tool.get("name"))
        findings: list[Finding] = []
        tool_won = tool_possible = 0
        for rule in RULES:
            share = rule.look(tool, name in examples)
            if share is None:
                continue
            tool_possible += rule.weight * _PARTS
            tool_won += _earned(rule.weight, share)
            if share.right < share.of:
                findings.append(_finding(name, rule.name, share, rule.mend))
        scored.append(ToolScore(tool=name, percent=_percent(tool_won, tool_possible), findings=findings))
        won, possible = won + tool_won, possible + tool_possible
    about: list[Finding] = []
    for rule in SERVER_RULES:
        share = rule.look(tools, words)
        if share is None:
            continue
        possible += rule.weight * _PARTS
        won += _earned(rule.weight, share)
        if share.right < share.of:
            about.append(_finding("", rule.name, share, rule.mend))
    return ServerScore(percent=_percent(won, possible), findings=about, tools=scored)


def _finding(tool: str, rule: str, share: Share, mend: str) -> Finding:
    return Finding(tool=tool, rule=rule, words=share.words, mend=mend)


def _earned(weight: int, share: Share) -> int:
    return weight * _PARTS * share.right // share.of


def _percent(won: int, possible: int) -> int:
    """Rounded down: 100 is what has nothing to be mended."""
    return 100 if not possible else 100 * won // possible
