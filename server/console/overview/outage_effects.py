"""Whom an agent hits that is out of order, and how many calls fail, in words. It loads next to nothing, so that a terminal can say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class AgentHit(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that failed since it began, and whose: those with the most first, as the owner knows them."""

    calls: int = 0
    people: tuple[str, ...] = ()
    others: int = 0  # besides those who are named


def told_hit(hit: AgentHit) -> dict[str, Any]:
    return {"calls": hit.calls, "people": list(hit.people), "others": hit.others}


def lasting(millis: int) -> str:
    """For how long, as `ostiary status` says it: the largest unit that says enough."""
    seconds = max(0, millis // 1_000)
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size or (seconds >= size and unit != "minute"):
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds} second{'' if seconds == 1 else 's'}"


def percent(failed: int, calls: int) -> str:
    """Say in two digits how many of a hundred failed: `100` only where all did."""
    found = 100 * failed / calls
    if found < 0.01:
        return "under 0.01"
    return f"{found:.2g}" if found < 99 else "100" if failed == calls else "99"


def hit_in_words(hit: AgentHit) -> str:
    """`3 calls failed, of vera and 2 others`; empty where there were none."""
    if not hit.calls:
        return ""
    names = [*hit.people]
    if hit.others:
        names.append(f"{hit.others} other{'' if hit.others == 1 else 's'}")
    whose = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
    return f"{hit.calls} call{'' if hit.calls == 1 else 's'} failed" + (f", of {whose}" if whose else "")


def hit_as_told(told: Mapping[str, Any]) -> str:
    """The same of what `told_hit` made, as another program has it; empty where it knows nothing of it."""
    people = tuple(str(each) for each in told.get("people") or ())
    return hit_in_words(AgentHit(calls=told.get("calls") or 0, people=people, others=told.get("others") or 0))
