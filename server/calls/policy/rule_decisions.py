"""Rules, and what they decide of one call: pure, and the same whether anybody acts on it.

    facts → the first rule that speaks of this tool, these arguments and this caller → allow, deny, ask

A call of which no rule speaks is allowed. A rule of which nobody can say whether it fits, because what it looks at is no text, denies: a
call must not get past a rule by being hard to read. Neither must it get past a budget by the type of an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from auth.values import scopes
from auth.values.identity_model import Principal, PrincipalKind
from server.agents.mock.scenario_conditions import Condition, Doubt, Undecidable
from server.settings.rule_settings import RuleConfig, Verdict

UNREADABLE: Final = "its arguments hold what is no text, so that no rule can be asked about them"
ANOTHER_TYPE: Final = (
    "an argument has another type than a rule compares it with; give it in the type that the schema names"
)
DENIED: Final = "the owner of this server does not allow it"
_SCHEME: Final = "https://"  # of all ids that are addresses
ASKED: Final = "the owner of this server wants somebody to agree to it first"


class InDoubt(ValueError):
    """An argument whose type leaves open whether a rule with a budget fits: to count the call could let it in, and not to count it lets
    it past."""


class PolicyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a rule is asked about."""

    tool: str
    arguments: Mapping[str, Any]
    kind: str
    scopes: frozenset[str] = frozenset()
    people: tuple[str, ...] = ()  # what the person behind it is known by
    programs: tuple[
        str, ...
    ] = ()  # what the program, or the key, is certainly known by; its id may be compared as a whole alone
    program_id: str = ""
    claims_to_be: str = ""  # what the program says that it is called


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
        self._condition = condition_of(config)
        self.reads_arguments: Final = bool(config.when)  # UNSET is as good as nothing
        # Beside it, a rule that allows so many calls alone knows of which calls it is in doubt.
        self._perhaps = (
            _condition(config, "fits") if config.decision == "allow" and config.max_calls else None
        )
        self._kinds = frozenset(config.who.kind)
        self._scopes = scopes.parse(config.who.scope)
        self._people = config.who.person
        self._programs = config.who.program
        self._claims = config.who.claims_to_be
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
        """Return whether it speaks of this call. Raises `Undecidable`, `InDoubt`."""
        if self._kinds and facts.kind not in self._kinds:
            return False
        everything = facts.kind == PrincipalKind.LOCAL.value  # who holds the pipes lacks no scope
        if self._scopes and not everything and scopes.missing(facts.scopes, self._scopes):
            return False
        if self._people and not _is_one_of(facts.people, self._people):
            return False
        if self._programs and not self.names_program(facts):
            return False
        if self._claims and not _is_one_of((facts.claims_to_be,), self._claims):
            return False
        if self._condition.decided(facts.arguments):
            return True
        if self._perhaps is not None and self._perhaps.decided(facts.arguments):
            raise InDoubt
        return False

    def names_claim(self, facts: PolicyFacts) -> bool:
        """Return whether it names a program that only says that it is called so, and so does not speak of it."""
        return (
            bool(self._programs)
            and _is_one_of((facts.claims_to_be,), self._programs)
            and not self.names_program(facts)
        )

    def names_program(self, facts: PolicyFacts) -> bool:
        # An id that was made up at random matches no wildcard: who registers often enough would have any few letters in theirs.
        return facts.program_id in self._programs or any(
            program_matches(name, glob) for name in facts.programs for glob in self._programs
        )


def condition_of(config: RuleConfig) -> Condition:
    """Read `when`. Another type than it compares with lets no call through: neither by a rule that allows, nor past one that does not.
    Raises `BadCondition`."""
    return _condition(config, "fails" if config.decision == "allow" else "fits")


def _condition(config: RuleConfig, doubt: Doubt) -> Condition:
    return Condition(config.when, linear=True, doubt=doubt)


def decide(rules: Sequence[PolicyRule], facts: PolicyFacts) -> PolicyDecision:
    """Return what is to be done. `rules` are those that speak of the tool."""
    for rule in rules:
        try:
            if rule.fits(facts):
                return rule.decision
        except Undecidable:
            return PolicyDecision(verdict="deny", rule=rule.name, reason=UNREADABLE)
        except InDoubt:
            return PolicyDecision(verdict="deny", rule=rule.name, reason=ANOTHER_TYPE)
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
        programs=principal.known_as,
        program_id=program_id_of(principal),
        claims_to_be=claimed_name(principal),
    )


def program_id_of(principal: Principal) -> str:
    """Return the id of the caller's client. The address of a document counts where it is proven: it is in `known_as` then."""
    client_id = principal.client_id or ""
    return client_id if not _is_address(client_id) or client_id in principal.known_as else ""


def claimed_name(principal: Principal) -> str:
    """Return the name that the caller's program gave itself; "" where somebody else gave it one."""
    return "" if principal.program in principal.known_as else principal.program


def program_matches(name: str, glob: str) -> bool:
    """Match a name, or an address part by part: a wildcard for the host never reaches into the path. A glob without a path is for
    all paths."""
    if not _is_address(name):
        return fnmatchcase(name, glob)
    if not _is_address(glob):
        return False
    (host, path), (hosts, paths) = _parts(name), _parts(glob)
    return fnmatchcase(host, hosts) and (not paths or fnmatchcase(path, paths))


def _is_address(text: str) -> bool:
    return text.startswith(_SCHEME)


def _parts(address: str) -> tuple[str, str]:
    host, _, path = address.removeprefix(_SCHEME).partition("/")
    return host, path


def _is_one_of(names: Sequence[str], globs: Sequence[str]) -> bool:
    return any(name and fnmatchcase(name, glob) for name in names for glob in globs)
