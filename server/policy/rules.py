"""Rules, and what they decide of one call: pure, and the same whether anybody acts on it.

    facts → the first rule that speaks of this tool, these arguments and this caller → allow, deny, ask

A call of which no rule speaks is allowed. A rule of which nobody can say whether it fits, because what it looks at is no text, denies: a
call must not get past a rule by being hard to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from auth.values import scopes
from auth.values.model import Principal, PrincipalKind
from server.mock.conditions import Condition, Undecidable
from server.settings.rules import RuleConfig, Verdict

UNREADABLE: Final = "its arguments hold what is no text, so that no rule can be asked about them"
DENIED: Final = "the owner of this server does not allow it"
ASKED: Final = "the owner of this server wants somebody to agree to it first"


class PolicyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a rule is asked about."""

    tool: str
    arguments: Mapping[str, Any]
    kind: str
    scopes: frozenset[str] = frozenset()
    people: tuple[str, ...] = ()  # what the person behind it is known by
    program: str = ""
    program_id: str = ""


class PolicyDecision(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Verdict
    rule: str = ""  # "" for none
    reason: str = ""
    max_calls: int = 0
    per_session: bool = False


NO_RULE: Final = PolicyDecision(verdict="allow")


class PolicyRule:
    """One `[[server.policy]]`. Raises `BadCondition`."""

    def __init__(self, config: RuleConfig, place: int) -> None:
        assert config.decision is not None
        self.tools: Final = config.tools
        self.name: Final = config.name or f"rule {place}"
        self._condition = Condition(config.when, linear=True)
        self._kinds = frozenset(config.who.kind)
        self._scopes = scopes.parse(config.who.scope)
        self._people = config.who.person
        self._programs = config.who.program
        self.decision: Final = PolicyDecision(
            verdict=config.decision,
            rule=self.name,
            reason=config.reason or {"deny": DENIED, "ask": ASKED}.get(config.decision, ""),
            max_calls=config.max_calls,
            per_session=config.per == "session",
        )

    def speaks_of(self, tool: str) -> bool:
        return names(self.tools, tool)

    def fits(self, facts: PolicyFacts) -> bool:
        """Raises `Undecidable`."""
        if self._kinds and facts.kind not in self._kinds:
            return False
        everything = facts.kind == PrincipalKind.LOCAL.value  # who holds the pipes lacks no scope
        if self._scopes and not everything and scopes.missing(facts.scopes, self._scopes):
            return False
        if self._people and not _is_one_of(facts.people, self._people):
            return False
        if self._programs and not _is_one_of((facts.program, facts.program_id), self._programs):
            return False
        return self._condition.decided(facts.arguments)


def decide(rules: Sequence[PolicyRule], facts: PolicyFacts) -> PolicyDecision:
    """`rules` are those that speak of the tool."""
    for rule in rules:
        try:
            if rule.fits(facts):
                return rule.decision
        except Undecidable:
            return PolicyDecision(verdict="deny", rule=rule.name, reason=UNREADABLE)
    return NO_RULE


def names(globs: Sequence[str], tool: str) -> bool:
    return any(fnmatchcase(tool, glob) for glob in globs)


def facts_of(principal: Principal, tool: str, arguments: Mapping[str, Any]) -> PolicyFacts:
    return PolicyFacts(
        tool=tool,
        arguments=arguments,
        kind=principal.kind.value,
        scopes=principal.scopes,
        people=tuple(name for name in (principal.person, principal.user, principal.subject) if name),
        program=principal.program,
        program_id=principal.client_id or "",
    )


def _is_one_of(names: Sequence[str], globs: Sequence[str]) -> bool:
    return any(name and fnmatchcase(name, glob) for name in names for glob in globs)
