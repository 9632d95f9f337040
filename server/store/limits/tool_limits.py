"""Bounds of tools: how often each caller may call one, and how many times on a day. Decided after it is known who calls what, and told as
an answer that a model can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from server.lib.counted import counted
from server.lib.rates.rates import parse_quota, parse_rate, whole_seconds
from server.lib.rates.usage_table import RateTable, UsedRates
from server.store.limits.daily_quotas import Quotas
from server.store.limits.restraint_counts import LimitKind, Restraint

_MINUTE: Final = 60
_HOUR: Final = 3600


class BoundRules(msgspec.Struct, frozen=True):
    """The bounds of one tool as the settings have them, "" for none."""

    limit: str = ""  # of each caller
    limit_all: str = ""  # of all together
    quota: str = ""


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a call was not made, and when it may be."""

    limit: LimitKind
    seconds: int
    text: str
    allowed: str = ""  # as the settings have it


class _Bound(msgspec.Struct, frozen=True):
    rate: UsedRates | None
    rate_of_all: UsedRates | None
    quota: int


class ToolBounds:
    """The bounds of the tools of one server. `quota`: of all its tools together."""

    def __init__(
        self,
        server: str,
        tools: Mapping[str, BoundRules],
        *,
        quota: str = "",
        quotas: Quotas | None,
        restraint: Restraint,
    ) -> None:
        """Read the rules. `quotas`: needed where there is any."""
        self._server = server
        self.quota: Final = parse_quota(quota)  # of all tools together; 0 for none
        self._quotas = quotas
        self._restraint = restraint
        self._rules = {name: rules for name, rules in tools.items() if rules != BoundRules()}
        self._bounds = {
            name: _Bound(_table(rules.limit), _table(rules.limit_all), parse_quota(rules.quota))
            for name, rules in self._rules.items()
        }

    def succeed(self, before: ToolBounds) -> None:
        """Take the place of others: whoever was counted there by the same rule is counted on."""
        for name, rules in self._rules.items():
            if before._rules.get(name) == rules:
                self._bounds[name] = before._bounds[name]
        if before._quotas is not None and before._quota_rules() != self._quota_rules():
            before._quotas.let_go()

    def _quota_rules(self) -> Mapping[str, str]:
        return {name: rules.quota for name, rules in self._rules.items() if rules.quota}

    def words(self, tool: str) -> str:
        """Return what one caller may call of a tool, as the settings have it; "" where nothing bounds it."""
        bound = self._bounds.get(tool)
        if bound is None:
            return ""
        rates = [(bound.rate, ""), (bound.rate_of_all, " by all callers together")]
        said = [f"{rate.rate.text}{whom}" for rate, whom in rates if rate is not None]
        if bound.quota:
            said.append("once a day" if bound.quota == 1 else f"{bound.quota} times a day")
        return ", ".join(said)

    def holds(self, tool: str) -> bool:
        """Return whether there is any bound for a tool."""
        return self.quota > 0 or tool in self._bounds

    async def use(self, tool: str, who: str, *, known: bool = True) -> Denied | None:
        """Count one call of this caller. None: it may be made. `known`: see `CountedCallers`. Waits only for a quota, and seldom. Raises
        `StoreUnavailable`."""
        bound = self._bounds.get(tool)
        if bound is not None and bound.rate is not None and (wait := bound.rate.use(f"{tool} {who}")):
            self._restraint.note(who, "tool")
            return _too_often(tool, bound.rate.rate.text, whole_seconds(wait))
        of_all = None if bound is None else bound.rate_of_all
        if bound is not None and of_all is not None and (wait := of_all.use(tool)):
            if bound.rate is not None:
                bound.rate.give_back(f"{tool} {who}")
            self._restraint.note(who, "tool")
            return _too_many_callers(tool, of_all.rate.text, whole_seconds(wait))
        quotas = self._quotas
        if quotas is None:
            return None
        own = 0 if bound is None else bound.quota
        counted = quotas.callers.name(who, known=known)
        if own and (seconds := await quotas.take(self._subject(tool, counted), own)):
            self._restraint.note(who, "quota")
            return _used_up(f"of {tool}", own, seconds)
        if self.quota and (seconds := await self._take_of_all(tool, counted, own)):
            self._restraint.note(who, "quota")
            return _used_up("at this server", self.quota, seconds)
        return None

    def put_back(self, tool: str, who: str, *, known: bool = True) -> None:
        """Give back the quota of a call that came to nothing. How often somebody asked stays what it was."""
        if self._quotas is None:
            return
        who = self._quotas.callers.name(who, known=known)
        bound = self._bounds.get(tool)
        if bound is not None and bound.quota:
            self._quotas.put_back(self._subject(tool, who))
        if self.quota:
            self._quotas.put_back(self._subject("", who))

    async def _take_of_all(self, tool: str, who: str, own: int) -> int:
        assert self._quotas is not None
        seconds = 1
        try:
            seconds = await self._quotas.take(self._subject("", who), self.quota)
        finally:
            if seconds and own:  # it will not be made
                self._quotas.put_back(self._subject(tool, who))
        return seconds

    def _subject(self, tool: str, who: str) -> str:
        """Return the name of a meter. No server has a name with a slash, and no tool a blank."""
        return f"quota:{self._server}/{tool} {who}"


def busy(why: str, seconds: int) -> Denied:
    return Denied(
        limit="busy",
        seconds=seconds,
        text=f"This call was not made: the agent is busy, {why}. Call it again in {told(seconds)}.",
    )


def _table(text: str) -> RateTable | None:
    found = parse_rate(text)
    return None if found is None else RateTable(found)


def _too_often(tool: str, allowed: str, seconds: int) -> Denied:
    text = (
        f"This call was not made: you have called {tool} too often, {allowed} is the limit. Call it again in"
        f" {told(seconds)}; until then calls of it are refused like this one."
    )
    return Denied(limit="tool", seconds=seconds, text=text, allowed=allowed)


def _too_many_callers(tool: str, allowed: str, seconds: int) -> Denied:
    text = (
        f"This call was not made: {tool} is called too often just now, {allowed} is the limit of all its callers together."
        f" Call it again in {told(seconds)}."
    )
    return Denied(limit="tool", seconds=seconds, text=text, allowed=allowed)


def _used_up(of_what: str, limit: int, seconds: int) -> Denied:
    text = f"This call was not made: your {used_up(limit, f'a day {of_what}', seconds)}; calling again before that does not help."
    return Denied(limit="quota", seconds=seconds, text=text, allowed=f"{limit}/day")


def used_up(limit: int, of_what: str, seconds: int) -> str:
    """Return that so many calls were made and when there are more, as the end of a sentence."""
    are, new = ("is", "is a new one") if limit == 1 else ("are", "are new ones")
    return f"{counted(limit, 'call')} {of_what} {are} used up. There {new} at 00:00 UTC, in {told(seconds)}"


def told(seconds: int) -> str:
    """Return a time as words, such as `"12 seconds"` or `"3 minutes"`: rounded up, so that whoever waits so long has waited enough."""
    for size, word in ((_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds > 2 * size:
            count = -(-seconds // size)
            return f"{count} {word}s"
    return counted(seconds, "second")
