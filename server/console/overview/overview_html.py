"""The Overview as HTML. Everything that a caller, an agent or a program has said is escaped; nothing of it is markup.

No script, and no style but the sheet's: sections in the order in which an owner looks, lists that fold on a phone, one table.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from auth.pages.html_shell import address, ago, day, in_words, prose
from auth.values.identity_model import Millis
from auth.values.requester import shown
from server.console.overview import charts
from server.console.overview.call_figures import (
    CallerFigures,
    DayFigures,
    DoorFigures,
    ToolFigures,
)
from server.console.overview.call_list_html import (
    NAME,
    NOTHING,
    REASON,
    call_row,
    calls_path,
    joined,
    number,
    took,
    who,
)
from server.console.overview.node_list_html import all_nodes, troubled_nodes
from server.console.overview.outage_effects import hit_in_words, lasting, percent
from server.console.overview.outages import AgentOutage
from server.console.overview.overview_values import OverviewFigures


def urgent(found: OverviewFigures, *, deny_token: str) -> Markup:
    """What stands first; what was earned comes after it."""
    return joined((_needs(found, deny_token), _day(found.day, owner=found.owner)))


def further(found: OverviewFigures) -> Markup:
    parts = (
        _balance(found.balance),
        _callers(found),
        _failures(found),
        _tools(found),
        all_nodes(found.nodes, found.now),
        _door(found.door),
    )
    return joined(parts)


# ── needs you ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _needs(found: OverviewFigures, deny_token: str) -> Markup:
    agents = joined(_outage(each, found.now) for each in found.outages)
    notes = [
        *(f"Payments: {found.payments}. On the server, `ostiary ledger unsettled` lists them." for _ in (1,) if found.payments),
        *(f"{_sentence(found.certificate)}." for _ in (1,) if found.certificate),
    ]  # fmt: skip
    warned = joined(
        Markup('<div class="note amber"><p>{}</p></div>').format(prose(shown(each, 500))) for each in notes
    ) + joined(
        Markup(
            '<div class="note amber"><p><bdi>{}</bdi>: {}. <a href="/account/upstreams">Look at it</a></p></div>'
        ).format(upstream, prose(shown(words, 500)))
        for upstream, words in found.to_accept
    )
    rows = [
        *(_waiting(each, found.now, deny_token) for each in found.needs.waiting),
        *(_invited(each.name, each.until) for each in found.needs.invitations),
        *(_ending(each.name, each.person, each.ends_at, found) for each in found.needs.keys),
    ]
    more = found.needs.waiting_count - len(found.needs.waiting)
    listed = Markup('<ul class="rows">{}</ul>').format(joined(rows)) if rows else NOTHING
    if more > 0:
        listed += Markup(
            '<p class="soft small">And {} more logins wait; <code>ostiary pending</code> lists them.</p>'
        ).format(more)
    warned = troubled_nodes(found.nodes) + warned
    if not (agents or warned or rows):
        if not found.owner:
            return NOTHING
        listed = Markup('<div class="note good"><p>Nothing waits for you. Every agent is in order, as far as is known.</p></div>')  # fmt: skip
    return _section("Needs you", agents + warned + listed)


def _outage(each: AgentOutage, now: Millis) -> Markup:
    """Which, why, since when, and whom it hits: in that order, above everything else."""
    if each.kind == "begins":
        return Markup('<div class="note"><p><strong>{}</strong> {}.</p></div>').format(
            shown(each.name, NAME), shown(each.words, REASON)
        )
    hit = hit_in_words(each.hit)
    link = Markup(' <a href="{}">Which calls?</a>').format(calls_path(server=each.server, outcome="failures"))
    return Markup(
        '<div class="note error"><p><strong><bdi>{}</bdi> has been out of order for {}</strong></p><p>{}</p><p>{}{}</p></div>'
    ).format(
        shown(each.name, NAME),
        lasting(now - each.since),
        _sentence(shown(each.words, REASON)),
        f"{hit}." if hit else "No call has failed of it.",
        link if hit else NOTHING,
    )


def _waiting(ask: Any, now: Millis, token: str) -> Markup:
    name = shown(ask.client_name or ask.registered_name, NAME) or "a program without a name"
    machine = shown(ask.hostname, NAME)
    return Markup(
        '<li><div><strong><bdi>{}</bdi></strong> <span class="tag warn">waits for approval</span></div>'
        '<div class="more"><small>{}asked {} from <bdi>{}</bdi></small>'
        '<small>Let it in with the code that it shows: <a href="/device">enter the code</a></small></div>'
        '<form method="post" action="/account/logins/deny"><input type="hidden" name="form_token" value="{}">'
        '<input type="hidden" name="request" value="{}"><button class="quiet slim" type="submit" aria-label="Deny {}">Deny</button></form></li>'
    ).format(
        name,
        Markup("on <bdi>{}</bdi> as it claims, ").format(machine) if machine else NOTHING,
        ago(ask.created_at, now),
        address(ask.ip),
        token,
        ask.id,
        name,
    )


def _invited(name: str, until: Millis | None) -> Markup:
    said = f"the link works until {day(until)}" if until is not None else "the link ran out"
    return Markup(
        '<li><div><strong><bdi>{}</bdi></strong> <span class="tag">invited</span></div>'
        '<div class="more"><small>has not joined yet; {}</small></div></li>'
    ).format(shown(name, NAME), said)


def _ending(name: str, person: str, ends_at: Millis, found: OverviewFigures) -> Markup:
    whose = Markup(" of <bdi>{}</bdi>").format(shown(person, NAME)) if person and found.owner else NOTHING
    return Markup(
        '<li><div><strong><bdi>{}</bdi></strong> <span class="tag warn">key ends soon</span></div>'
        '<div class="more"><small>an API key{}; it ends in {}</small></div></li>'
    ).format(shown(name, NAME), whose, in_words(max(0, ends_at - found.now)))


# ── the last 24 hours ────────────────────────────────────────────────────────────────────────────────────────────────


def _day(found: DayFigures, *, owner: bool) -> Markup:
    title = "Last 24 hours" if owner else "Your last 24 hours"
    before = (
        f"The day before: {_calls(found.calls_before)}, {_failed(found.failed_before, found.calls_before)}."
    )
    if not found.calls:
        said = f"No calls. {before}" if found.calls_before else "No calls."
        return _section(title, Markup('<p class="soft">{}</p>').format(said))
    slowest = NOTHING
    if found.slowest is not None:
        slowest = Markup(" Slowest: <bdi>{}</bdi>, 95% of its calls within {}.").format(
            shown(found.slowest.tool, NAME), took(found.slowest.p95)
        )
    body = Markup('<p class="sum"><strong>{}</strong> {}{}</p><p class="soft small">{}{}</p>{}').format(
        number(found.calls),
        "call, " if found.calls == 1 else "calls, ",
        Markup('<span class="{}">{}</span>').format(
            "bad" if found.failed else "soft", _failed(found.failed, found.calls)
        ),
        before,
        slowest,
        charts.by_the_hour(found.hours),
    )
    return _section(title, body)


def _balance(balance: str) -> Markup:
    if not balance:
        return NOTHING
    return _section("Your balance", Markup('<p class="sum"><strong>{}</strong></p>').format(balance))


# ── who ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _callers(found: OverviewFigures) -> Markup:
    title = "Who" if found.owner else "Your programs"
    if not found.callers:
        return _section(
            title,
            Markup('<p class="soft">Nobody has called yet. <a href="/connect">Connect a program</a></p>'),
        )
    rows = joined(_caller(each, found) for each in found.callers)
    return _section(title, Markup('<ul class="rows">{}</ul>').format(rows))


def _caller(each: CallerFigures, found: OverviewFigures) -> Markup:
    whom, program = who(each.kind, each.person, each.program), shown(each.program, NAME)
    named = Markup("<strong><bdi>{}</bdi></strong>").format(whom if found.owner else program or whom)
    if found.owner and program and program != whom:
        named += Markup(" <bdi>{}</bdi>").format(program)
    if each.called_at is not None:
        last = f"last call {ago(each.called_at, found.now)}"
    else:
        last = f"last call between {_hour(each.called_in or 0)}"
    place = Markup(" from <bdi>{}</bdi>").format(address(each.place)) if each.place else NOTHING
    person = each.person or each.program or ("anonymous" if each.kind == "anonymous" else "")
    path = calls_path(person=person if found.owner else "", program=each.program)
    if not each.calls:
        count = Markup('<small class="soft">no calls in 24 hours</small>')
    else:
        bad = Markup(', <span class="bad">{} failed</span>').format(number(each.failed)) if each.failed else NOTHING  # fmt: skip
        count = Markup('<small class="may">{} in 24 hours{}</small>').format(_calls(each.calls), bad)
    return Markup(
        '<li><div>{}</div><div class="more">{}<small>{}{}</small></div>'
        '<a class="button quiet slim" href="{}" aria-label="Calls of {}">Calls</a></li>'
    ).format(named, count, last, place, path, f"{whom}, {program}" if program != whom else whom)


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _failures(found: OverviewFigures) -> Markup:
    title = "Last failures"
    if not found.failures:
        return _section(title, Markup('<p class="soft">No call has failed lately.</p>'))
    rows = joined(
        call_row(each, now=found.now, several=found.several, owner=found.owner) for each in found.failures
    )
    more = Markup('<p class="small"><a href="{}">All calls that failed</a></p>').format(
        calls_path(outcome="failures")
    )
    return _section(title, Markup('<ul class="rows calls">{}</ul>{}').format(rows, more))


# ── tools, and the door ──────────────────────────────────────────────────────────────────────────────────────────────


def _tools(found: OverviewFigures) -> Markup:
    title = "Tools" if found.owner else "Tools that you called"
    if not found.tools:
        return _section(title, Markup('<p class="soft">There are none.</p>')) if found.owner else NOTHING
    rows = joined(_tool(each, found) for each in found.tools)
    return _section(
        title,
        Markup(
            '<table class="moves timed"><thead><tr><th scope="col">in 24 hours</th><th scope="col" class="amount">calls</th>'
            '<th scope="col" class="amount">failed</th><th scope="col" class="amount half">half within</th>'
            '<th scope="col" class="amount">95% within</th></tr></thead><tbody>{}</tbody></table>'
        ).format(rows),
    )


def _tool(each: ToolFigures, found: OverviewFigures) -> Markup:
    name = shown(each.tool, NAME)
    if found.several:
        name = f"{shown(each.server, NAME)}/{name}"
    used = "never called" if each.called_at is None else f"last call {ago(each.called_at, found.now)}"
    broken = _breakable(name)
    label = Markup('<bdi>{}</bdi><small class="soft under">{}</small>').format(broken, used)
    if not each.calls:
        return Markup(
            '<tr class="soft"><td>{}</td><td class="amount">0</td><td class="amount"></td><td class="amount half"></td><td class="amount"></td></tr>'
        ).format(label)
    failed = Markup('<span class="bad">{}</span>').format(number(each.failed)) if each.failed else "0"
    return Markup(
        '<tr><td><a href="{}">{}</a>{}</td><td class="amount">{}</td><td class="amount">{}</td><td class="amount half">{}</td>'
        '<td class="amount">{}</td></tr>'
    ).format(
        calls_path(server=each.server if found.several else "", tool=each.tool),
        Markup("<bdi>{}</bdi>").format(broken),
        Markup('<small class="soft under">{}</small>').format(used),
        number(each.calls),
        failed,
        took(each.p50),
        took(each.p95),
    )


def _door(found: DoorFigures | None) -> Markup:
    if found is None:
        return NOTHING
    facts = [
        (found.wrong_codes, "wrong code", "wrong codes"),
        (found.wrong_sign_ins, "refused sign-in", "refused sign-ins"),
        (found.others, "other refusal", "other refusals"),
        (found.new_programs, "new program", "new programs"),
    ]
    said = [f"{number(count)} {one if count == 1 else many}" for count, one, many in facts if count]
    body = Markup("<p>{} in 24 hours.</p>").format(", ".join(said).capitalize()) if said else Markup('<p class="soft">Nobody was turned away in the last 24 hours.</p>')  # fmt: skip
    return _section(
        "At the door",
        body
        + Markup(
            '<p class="soft small">The <a href="/account/audit?outcome=refused">audit trail</a> has every refusal.</p>'
        ),
    )


# ── ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _section(title: str, body: Markup) -> Markup:
    return Markup("<section><h2>{}</h2>{}</section>").format(title, body)


def _breakable(name: str) -> Markup:
    """A column is narrow on a phone: a long name breaks between its words, not in one."""
    return Markup(re.sub("[_/.-]+", r"\g<0><wbr>", str(escape(name))))


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _calls(count: int) -> str:
    return f"{number(count)} call{'' if count == 1 else 's'}"


def _failed(failed: int, calls: int) -> str:
    return f"{number(failed)} failed ({percent(failed, calls)}%)" if failed else "none failed"


def _hour(at: Millis) -> str:
    begin = datetime.fromtimestamp(at / 1000, UTC)
    end = datetime.fromtimestamp(at / 1000 + 3600, UTC)
    return f"{begin:%H:%M} and {end:%H:%M} UTC"
