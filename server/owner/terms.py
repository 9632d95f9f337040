"""What somebody may have at most, as a form: scopes to tick, a selection of tools, and a day on which it ends.

The form speaks of days in UTC, as all pages do; commands are told how long it is until then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final

import msgspec

from auth.people.guests import GuestTerms
from auth.values import scopes
from auth.values.model import Millis
from auth.values.scopes import Vocabulary
from auth.visit import PageVisit
from server.admin.api_keys import check_selection
from server.admin.control import CommandRefused
from server.admin.people import LONGEST
from server.rights.selection import SelectableNames

TOOLS_CHARACTERS: Final = 1_000
DAY: Final[Millis] = 86_400_000


class ScopeTick(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    words: str
    ticked: bool
    financial: bool
    within: bool = False  # another one includes it


class TermsForm(msgspec.Struct, frozen=True, kw_only=True):
    """As it is shown."""

    ticks: tuple[ScopeTick, ...]
    tools: str
    until: str  # a day as forms have it, 2027-01-31; "": for ever
    problems: Mapping[str, str]  # the name of a field → what is wrong there


def ticks(known: Vocabulary, ticked: Collection[str], *, everything: bool) -> tuple[ScopeTick, ...]:
    """Every scope there is, and one for whatever there will be."""
    found = [
        ScopeTick(
            name=name,
            words=known.words(name),
            ticked=name in ticked,
            financial=known.financial(name),
            within=scopes.covers((other for other in known.names if other != name), name),
        )
        for name in known.names
    ]
    if everything:
        words = "Everything that this server offers, also what comes later and what moves money"
        every = ScopeTick(
            name=scopes.EVERYTHING, words=words, ticked=scopes.EVERYTHING in ticked, financial=True
        )
        found.append(every)
    return tuple(found)


class ReadTerms(msgspec.Struct, frozen=True, kw_only=True):
    """As it came: the arguments of a command, or what is wrong with them."""

    arguments: Mapping[str, object]
    form: TermsForm

    @property
    def problems(self) -> Mapping[str, str]:
        return self.form.problems


def read(
    visit: PageVisit, known: Vocabulary, servers: Sequence[SelectableNames], *, unchanged: str = ""
) -> ReadTerms:
    """`unchanged`: the day on which it ends already; a form that leaves it as it is names no other end."""
    problems: dict[str, str] = {}
    typed = visit.form.get("tools", "").strip()
    until = visit.form.get("until", "").strip()
    arguments: dict[str, object] = {"scope": scopes.join(visit.scopes), "tools": typed}
    ends = read_day(until)
    problems |= bounds_problems(visit, known, servers)
    if until != unchanged:
        if not until:
            arguments["never"] = True
        elif ends is None or ends - visit.now > LONGEST:
            problems["until"] = "That is no day that can be used. Write it like 2027-01-31."
        elif ends <= visit.now:
            problems["until"] = "That day has begun already: the account would be over."
        else:
            arguments["account_ms"] = ends - visit.now
    form = TermsForm(
        ticks=ticks(known, visit.scopes, everything=True), tools=typed, until=until, problems=problems
    )
    return ReadTerms(arguments=arguments, form=form)


def bounds_problems(
    visit: PageVisit, known: Vocabulary, servers: Collection[SelectableNames], *, everything: bool = True
) -> dict[str, str]:
    """What is wrong with the scopes that are ticked, and with the selection of tools."""
    problems: dict[str, str] = {}
    typed, wanted = visit.form.get("tools", "").strip(), scopes.join(visit.scopes)
    if not visit.scopes:
        problems["scope"] = "Leave at least one thing ticked."
    elif wrong := GuestTerms(scope=wanted).check(known, visit.now):
        problems["scope"] = f"{wrong[0]}."
    elif not everything and scopes.EVERYTHING in visit.scopes:
        problems["scope"] = "Tick what it may."
    if len(typed) > TOOLS_CHARACTERS or not typed.isprintable():
        problems["tools"] = f"One line of at most {TOOLS_CHARACTERS} characters."
    else:
        try:
            check_selection(typed, servers)
        except CommandRefused as refusal:
            problems["tools"] = sentence(refusal)
    return problems


def sentence(refusal: CommandRefused, name: str = "\0") -> str:
    """What the terminal would be told, as a sentence; it may begin with somebody's name. Its hints name commands."""
    text = str(refusal)
    return f"{text}." if text.startswith(name) else f"{text[:1].upper()}{text[1:]}."


def read_day(text: str) -> Millis | None:
    """The moment at which a day begins."""
    try:
        begins = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
        return int(begins.timestamp() * 1_000)
    except ValueError:
        return None


def day_of(at: Millis | None) -> str:
    """As a form has it; "" for none."""
    return "" if at is None else datetime.fromtimestamp(at / 1_000, UTC).date().isoformat()
