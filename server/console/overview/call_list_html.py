"""Calls as HTML: a row of them, as the Overview and the page of calls show it, and that page. Everything that a caller, an agent or a program has
said is escaped; nothing of it is markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup

from auth.pages.html_shell import ago
from auth.values.identity_model import Millis
from auth.values.requester import clean, shown
from server.console.overview.call_figures import is_failure
from server.console.overview.calls_page import OUTCOMES, FoundCalls, WantedCalls

NOTHING: Final = Markup("")
NAME: Final = 128  # characters of what somebody calls something
REASON: Final = 300


def calls(
    wanted: WantedCalls, found: FoundCalls, *, go_on: str, owner: bool, now: Millis, several: bool
) -> Markup:
    """`go_on`: where the next page begins, as its address has it."""
    fields = [
        *([("person", "Person", wanted.person)] if owner else []),
        ("program", "Program or key", wanted.program),
        *([("server", "Server", wanted.server)] if several else []),
        ("tool", "Tool", wanted.tool),
    ]
    inputs = joined(
        Markup(
            '<div><label for="{name}">{label}</label><input type="text" id="{name}" name="{name}" value="{value}" autocomplete="off" maxlength="200"></div>'
        ).format(name=name, label=label, value=clean(value, 200))
        for name, label, value in fields
    )
    choices = {"": "anything", "failures": "any failure", **OUTCOMES}
    options = joined(
        Markup('<option value="{}"{}>{}</option>').format(
            value, Markup(" selected") if value == wanted.outcome else NOTHING, words
        )
        for value, words in choices.items()
    )
    form = Markup(
        '<form method="get" action="/account/calls" role="search"><div class="line">{}<div class="wider"><label for="outcome">Outcome</label>'
        '<select id="outcome" name="outcome">{}</select></div><button class="quiet" type="submit">Search</button></div></form>'
    ).format(inputs, options)
    if found.rows:
        rows = joined(call_row(each, now=now, several=several, owner=owner) for each in found.rows)
        listed = Markup('<ul class="rows calls">{}</ul>').format(rows)
    elif not go_on:
        listed = Markup('<p class="soft">No call matches.</p>')
    else:
        listed = Markup('<p class="soft">None of those that were looked at matches.</p>')
    passed = sum(int(each["passed_over"]) for each in found.rows)
    if passed and owner:  # of all callers together
        listed += Markup(
            '<p class="soft small">{} more were too many at once to have rows of their own; the figures count all.</p>'
        ).format(number(passed))
    older = NOTHING
    if go_on:
        path = calls_path(
            person=wanted.person, program=wanted.program, server=wanted.server, tool=wanted.tool,
            outcome=wanted.outcome, at=go_on,
        )  # fmt: skip
        older = Markup('<p class="after"><a class="button quiet" href="{}">Older calls</a></p>').format(path)
    return Markup(
        '<h1>{}</h1>{}{}{}<p class="small after"><a href="/account">Back to the overview</a></p>'
    ).format("Calls" if owner else "Your calls", form, listed, older)


def call_row(row: Mapping[str, Any], *, now: Millis, several: bool, owner: bool) -> Markup:
    """One call: what, what came of it and why, and then whose and when."""
    tool = shown(row["tool"], NAME)
    if several:
        tool = f"{shown(row['server'], NAME)}/{tool}"
    failed = is_failure(row["outcome"])
    whom, program = who(row["kind"], row["person"], row["program"]), shown(row["program"], NAME)
    whose = [*([whom] if owner else []), *([program] if program and program != whom else [])]
    outcome = OUTCOMES.get(row["outcome"], row["outcome"])
    reason = shown(row["reason"], REASON)
    return Markup(
        '<li><div><strong><bdi>{}</bdi></strong> <span class="tag{}">{}</span></div><div class="more">{}'
        '<small>{}{}, <time datetime="{}">{}</time></small><small class="id">{}</small></div></li>'
    ).format(
        tool,
        Markup(" bad") if failed else NOTHING,
        outcome,
        Markup('<small class="may"><bdi>{}</bdi></small>').format(reason) if reason else NOTHING,
        Markup("{}, ").format(Markup(" · ").join(Markup("<bdi>{}</bdi>").format(each) for each in whose)) if whose else NOTHING,
        took(row["ms"]),
        iso(row["at"]),
        f"{ago(row['at'], now)} ({clock(row['at'])} UTC)",
        clean(row["call_id"], NAME),
    )  # fmt: skip


def who(kind: str, person: str, program: str) -> str:
    """Whoever called, as the owner knows them."""
    if person:
        return shown(person, NAME)
    if kind == "anonymous":
        return "callers without a login"
    return shown(program, NAME) or ("further callers" if not kind else "a machine")


def calls_path(**wanted: str) -> str:
    query = urlencode({name: value for name, value in wanted.items() if value}, errors="replace")
    return f"/account/calls?{query}" if query else "/account/calls"


def joined(parts: Iterable[Markup]) -> Markup:
    return NOTHING.join(parts)


def number(count: int) -> str:
    return f"{count:,}".replace(",", "\u202f")


def took(ms: float) -> str:
    if ms < 10:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1000:.1f} s"


def clock(at: Millis) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M:%S}"


def iso(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
