"""What somebody may have at most, as a form: a choice of scopes (scope_choices.py), a selection of tools, and a day on which it ends.

The form speaks of days in UTC, as all pages do; commands are told how long it is until then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final

import msgspec

from auth.pages.page_visit import PageVisit
from auth.values import scopes
from auth.values.identity_model import Millis
from auth.values.scopes import Vocabulary
from server.admin.api_key_commands import check_selection
from server.admin.control import CommandRefused
from server.admin.people_commands import LONGEST
from server.console.owner import scope_choices
from server.console.owner.scope_choices import ChoiceForm, ReadChoice
from server.settings.tool_selection import SelectableNames

TOOLS_CHARACTERS: Final = 1_000
DAY: Final[Millis] = 86_400_000


class TermsForm(msgspec.Struct, frozen=True, kw_only=True):
    """As it is shown."""

    may: ChoiceForm
    tools: str
    until: str  # a day as forms have it, 2027-01-31; "": for ever
    problems: Mapping[str, str]  # the name of a field → what is wrong there


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
    typed = visit.form.get("tools", "").strip()
    until = visit.form.get("until", "").strip()
    may = scope_choices.read(visit, known, lasting=True)
    arguments: dict[str, object] = {"scope": scopes.join(may.names), "tools": typed}
    ends = read_day(until)
    problems = bounds_problems(may, typed, servers)
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
        may=scope_choices.showing_again(known, may, lasting=True), tools=typed, until=until, problems=problems
    )
    return ReadTerms(arguments=arguments, form=form)


def bounds_problems(may: ReadChoice, typed: str, servers: Collection[SelectableNames]) -> dict[str, str]:
    """What is wrong with the choice of scopes, and with the selection of tools as it was typed."""
    problems = {"scope": may.problem} if may.problem else {}
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
