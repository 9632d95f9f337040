"""What somebody may do, as a form: a plain choice, or behind *advanced* each scope by itself.

What a choice comes to is said by `choices` alone, along the tiers of tools (server/calls/rights/tiers.py): what looks things up, what changes
things too, what moves money too. A form posts which choice was made, and never what that comes to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Final

import msgspec

from auth.administration.guest_accounts import GuestTerms
from auth.pages.page_visit import PageVisit
from auth.values import scopes
from auth.values.scopes import Vocabulary

TICKED: Final = "ticked"  # is posted where none of them is chosen, and the boxes count
TICKED_WORDS: Final = "Only what is ticked here"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    value: str  # as it is posted
    words: str
    tells: str
    names: tuple[str, ...]  # of scopes
    money: bool = False


class ScopeTick(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    words: str
    ticked: bool
    financial: bool
    parts: tuple[ScopeTick, ...]  # it includes them


class ChoiceForm(msgspec.Struct, frozen=True, kw_only=True):
    """As it is shown."""

    choices: tuple[Choice, ...]
    chosen: str  # the value of a choice, `TICKED`, or "" where one has still to be made
    ticks: tuple[ScopeTick, ...]
    opened: bool  # what stands behind *advanced*
    boxes: str  # tells which of them were ticked as the form was shown
    by_box: str = TICKED
    by_box_words: str = TICKED_WORDS


class ReadChoice(msgspec.Struct, frozen=True, kw_only=True):
    """As it came."""

    names: tuple[str, ...]
    problem: str  # what is wrong with it; "": nothing
    chosen: str
    ticked: tuple[str, ...]


def choices(known: Vocabulary, *, lasting: bool) -> tuple[Choice, ...]:
    """Everything that can be chosen, the narrowest first. `lasting`: of a ceiling, whose everything holds what is added later."""
    own = [known.words(name) for name in known.ordinary if name != scopes.MCP.name]
    return (
        Choice(
            value="read",
            words="Look things up",
            tells="Tools that only look things up, resources and prompts.",
            names=(scopes.READ.name, scopes.RESOURCES.name),
        ),
        Choice(
            value="change",
            words="Look things up and change things",
            tells="Also tools that change things; none that moves money."
            + (f" Besides: {', '.join(own)}." if own else ""),
            names=known.ordinary,
        ),
        Choice(
            value="everything",
            words="Everything",
            tells=f"Also tools that move money{', and whatever this server comes to offer' if lasting else ''}.",
            names=(scopes.EVERYTHING,) if lasting else scopes.widest(known.names),
            money=True,
        ),
    )


def showing(
    known: Vocabulary, names: Collection[str], *, lasting: bool, ceiling: str = scopes.EVERYTHING
) -> ChoiceForm:
    """The form for what is in force. `ceiling`: nothing beyond it is offered."""
    offered = _offered(known, lasting, ceiling)
    chosen = next((each.value for each in offered if _reach(each.names) == _reach(names)), TICKED)
    return _form(known, offered, chosen, names, ceiling)


def showing_again(
    known: Vocabulary, read: ReadChoice, *, lasting: bool, ceiling: str = scopes.EVERYTHING
) -> ChoiceForm:
    """The form as it was sent, which something is wrong with."""
    offered = _offered(known, lasting, ceiling)
    chosen = read.chosen if read.chosen in (TICKED, *(each.value for each in offered)) else ""
    ticked = [name for name in read.ticked if name != scopes.EVERYTHING]
    return _form(known, offered, chosen, ticked, ceiling, opened=bool(chosen and read.problem))


def read(visit: PageVisit, known: Vocabulary, *, lasting: bool) -> ReadChoice:
    """What was posted, as scopes. Boxes that were changed beside a choice are asked about: they would count for nothing."""
    chosen, ticked = visit.form.get("may", ""), visit.scopes
    choice = next((each for each in choices(known, lasting=lasting) if each.value == chosen), None)
    if choice is not None:
        names, problem = choice.names, ""
        if _digest(ticked) != visit.form.get("boxes", ""):
            problem = f"Boxes were changed under “Advanced”, which count only with “{TICKED_WORDS}”. Choose which is meant."
    elif chosen == TICKED:
        names, problem = ticked, _wrong_with(ticked, known, visit.now)
    else:
        names, problem = (), "Choose one of these."
    return ReadChoice(names=names, problem=problem, chosen=chosen, ticked=ticked)


def _wrong_with(ticked: tuple[str, ...], known: Vocabulary, now: int) -> str:
    if not ticked:
        return "Leave at least one thing ticked."
    if scopes.EVERYTHING in ticked:
        return "Tick what it may."
    wrong = GuestTerms(scope=scopes.join(ticked)).check(known, now)
    return f"{wrong[0]}." if wrong else ""


def _offered(known: Vocabulary, lasting: bool, ceiling: str) -> tuple[Choice, ...]:
    found = choices(known, lasting=lasting)
    return tuple(each for each in found if scopes.within(each.names, ceiling))


def _form(
    known: Vocabulary,
    offered: tuple[Choice, ...],
    chosen: str,
    names: Collection[str],
    ceiling: str,
    *,
    opened: bool = False,
) -> ChoiceForm:
    there = tuple(name for name in known.names if scopes.within((name,), ceiling))
    ticked = scopes.widest(there if scopes.EVERYTHING in names else [name for name in there if name in names])
    return ChoiceForm(
        choices=offered,
        chosen=chosen,
        ticks=_ticks(known, there, ticked),
        opened=opened or chosen == TICKED or not offered,
        boxes=_digest(ticked),
    )


def _ticks(known: Vocabulary, names: tuple[str, ...], ticked: Collection[str]) -> tuple[ScopeTick, ...]:
    return tuple(
        ScopeTick(
            name=name,
            words=known.words(name),
            ticked=name in ticked,
            financial=known.financial(name),
            parts=_ticks(known, tuple(each for each in names if each.startswith(f"{name}:")), ticked),
        )
        for name in scopes.widest(names)
    )


def _reach(names: Collection[str]) -> frozenset[str]:
    """What these come to, whatever they are called: `mcp mcp:tools` is `mcp`."""
    if scopes.EVERYTHING in names:
        return frozenset((scopes.EVERYTHING,))
    return frozenset(scopes.widest(tuple(names)))


def _digest(names: Collection[str]) -> str:
    return hashlib.sha256(" ".join(sorted(names)).encode()).hexdigest()
