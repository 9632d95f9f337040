"""Offers of upstreams that nobody has accepted yet, in a browser: shown as the terminal shows them (`ostiary upstream diff`), and accepted.

An owner accepts what is shown: the form carries the seal of it, and if the upstream says something else by then, nothing is. All that
is not accepted stays withheld; there is nothing to refuse. Whatever would not be seen is shown as its code. A definition that is too large
to be shown to its end is not accepted, here as anywhere (`UpstreamRegistry.acceptable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec

from auth.audit import audit_trail
from auth.pages import account_notices, reauthentication
from auth.pages.html_shell import ago
from auth.pages.page_visit import PageVisit, Parts
from auth.people.browser_sessions import BrowserSession
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from server.admin.control import CommandRefused
from server.admin.upstream_commands import UpstreamAdmin
from server.agents.base.backend import Foreign
from server.console.owner.owner_acts import OwnersStore
from server.console.owner.people_page import sentence, wide
from server.mcp.tool_names import MEND, refusal

if TYPE_CHECKING:
    from server.agents.mcp.trust.definitions import Definition
    from server.agents.mcp.trust.upstream_registry import KnownUpstream

UPSTREAMS: Final = "/account/upstreams"
LOOK: Final = f"{UPSTREAMS}/look"
PURPOSE: Final = "owner upstreams"
# Of a page, at least one definition and at most so many, as long as they are not long together.
DEFINITIONS: Final = 16
CHARACTERS: Final = 200_000
NAMED: Final = 20


class UpstreamRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    what: str
    told: str
    trouble: str
    waiting: int
    some: tuple[str, ...]  # of those that wait
    look: str  # the address at which they are looked at


class ShownDefinition(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    changed: bool
    since: str
    lines: tuple[
        tuple[str, str], ...
    ]  # sign and text; an empty sign where something that is the same was left out
    cut: bool  # the end of what it says now is not shown
    old_cut: bool


class OfferFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Faults in the offers of one server: names that programs refuse, and what is not offered, with why."""

    server: str
    refused: Sequence[str] = ()
    left_out: Sequence[str] = ()

    @property
    def some(self) -> Sequence[str]:
        """The first of what is not offered."""
        return self.left_out[:NAMED]

    @property
    def refusal(self) -> str:
        """The names that are refused, and who refuses them, in a sentence."""
        return refusal(list(self.refused)) if self.refused else ""

    @property
    def summary(self) -> str:
        """The faults in a few words; empty where there are none."""
        count = len(self.left_out)
        said: list[str] = []
        if count:
            said.append(f"{count} {'entry is' if count == 1 else 'entries are'} not offered")
        if self.refused:
            said.append("programs refuse names of its tools")
        return ", and ".join(said)


class UpstreamPages:
    """The pages of upstreams. `offers` tells what is wrong with the offers of each server, whatever agents it has."""

    def __init__(
        self, parts: Parts, admin: UpstreamAdmin, offers: Callable[[], Sequence[OfferFaults]] = tuple
    ) -> None:
        self._offers = offers
        self._parts = parts
        self._admin = admin
        self._find_desk = admin.find_desk

    async def show(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        del session
        desk = self._find_desk()
        rows = [] if desk is None else [_row(each, visit.now) for each in desk.known.values()]
        rows.sort(key=lambda row: (not row.waiting, row.name))
        return wide(visit).page(
            "upstreams.html",
            title="Upstreams",
            rows=rows,
            notice=account_notices.of(visit),
            faults=[each for each in self._offers() if each.summary],
            mend=MEND[0].upper() + MEND[1:] + ".",
        )

    async def look(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        del session
        upstream = self._named(visit.query("name"))
        if upstream is None:
            return _nothing(visit)
        return self._page(visit, upstream, _place(visit.query("at")))

    def _page(self, visit: PageVisit, upstream: KnownUpstream, begin: int, *, problem: str = "") -> WireReply:
        from server.agents.mcp.trust.definitions import seal_of

        waiting = self._waiting(upstream)
        begin = begin if begin < len(waiting) else 0
        those = _as_many_as_fit(waiting[begin:], upstream)
        further = begin + len(those)
        whole = [each for each in those if each.is_whole]
        return wide(visit).page(
            "upstream_waiting.html",
            title=f"What {upstream.key} offers",
            status=409 if problem else 200,
            problem=problem,
            name=str(upstream.key),
            what=upstream.what,
            shown=tuple(_shown(each, upstream, visit.now) for each in those),
            waiting=len(waiting),
            begin=begin,
            count=len(those),
            whole=len(whole),
            seal=seal_of(whole),
            further=_address(upstream, further) if further < len(waiting) else "",
            form_token=visit.token(PURPOSE),
        )

    async def accept(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        if not visit.shows(PURPOSE):
            return visit.stale_form()
        upstream = self._named(visit.form.get("upstream", ""))
        if upstream is None:
            return _nothing(visit)
        begin, count = _place(visit.form.get("begin", "")), _place(visit.form.get("count", ""))
        asked = await reauthentication.ask(
            visit, session, f"to accept what {upstream.key} offers", back=_address(upstream)
        )
        if asked is not None:
            return asked
        shown = self._waiting(upstream)[begin : begin + min(count, DEFINITIONS)]
        those = [each for each in shown if each.is_whole]
        if not those:
            return self._page(visit, upstream, 0, problem="What was shown does not wait any more.")
        arguments = {
            "upstream": str(upstream.key),
            "tools": [f"{each.key.kind}:{each.key.name}" for each in those],
            "seal": visit.form.get("seal", ""),
        }
        admin = msgspec.structs.replace(self._admin, accepting=OwnersStore(self._parts.store, visit))
        try:
            done = await admin.accept(arguments, audit_trail.actor(session.user.id))
        except CommandRefused as refusal:
            return self._page(visit, upstream, begin, problem=f"{sentence(refusal)} Nothing was accepted.")
        count = len(done["accepted"])
        what = f"{count} definition{'' if count == 1 else 's'} of {upstream.key}"
        return account_notices.back(visit, UPSTREAMS, "upstream-accepted", what)

    def _named(self, name: str) -> KnownUpstream | None:
        desk = self._find_desk()
        known = () if desk is None else desk.known.values()
        return next((each for each in known if str(each.key) == name), None)

    def _waiting(self, upstream: KnownUpstream) -> list[Definition]:
        desk = self._find_desk()
        return [] if desk is None else desk.withheld(upstream, None)


def _row(upstream: KnownUpstream, now: Millis) -> UpstreamRow:
    guard, trouble = upstream.guard, upstream.trouble()
    waiting = guard.verdict.blocked
    tools = sum(key.kind == "tool" for key in guard.offered)
    if guard.seen_at is None:
        told = "not reached yet"
    elif guard.mode == "always":
        told = "offers what it likes"
    else:
        told = f"{tools} tool{'' if tools == 1 else 's'}, {len(guard.pins)} definitions accepted"
    if isinstance(upstream.backend, Foreign) and (out := len(upstream.backend.left_out())):
        told += f"; {out} of what it has cannot be offered: below"
    return UpstreamRow(
        name=str(upstream.key),
        what=upstream.what,
        told=told,
        trouble=""
        if trouble is None or trouble.kind == "waits"
        else f"{trouble.words} (since {ago(trouble.since, now)})",
        waiting=len(waiting),
        some=tuple(each.key.name for each in waiting[:NAMED]),
        look=_address(upstream) if waiting else "",
    )


def _as_many_as_fit(waiting: Sequence[Definition], upstream: KnownUpstream) -> list[Definition]:
    those: list[Definition] = []
    room = CHARACTERS
    for each in waiting[:DEFINITIONS]:
        pin = upstream.guard.pins.get(each.key)
        room -= len(each.text) + (0 if pin is None else len(pin.text))
        if those and room < 0:
            break
        those.append(each)
    return those


def _shown(definition: Definition, upstream: KnownUpstream, now: Millis) -> ShownDefinition:
    from server.agents.mcp.trust.definition_differences import difference, near_changes, shown
    from server.agents.mcp.trust.definitions import is_whole

    pin = upstream.guard.pins.get(definition.key)
    old = "" if pin is None else pin.text
    lines = difference(old, definition.text)
    told = [
        ("", "…") if line is None else (line.sign, shown(line.text))
        for line in (near_changes(lines) if old else lines)
    ]
    since = upstream.guard.since(definition.key)
    return ShownDefinition(
        kind=definition.key.kind,
        name=shown(definition.key.name),
        changed=bool(old),
        since=f"accepted {ago(pin.accepted_at, now)}"
        if pin is not None
        else ""
        if since is None
        else f"seen {ago(since, now)}",
        lines=tuple(told),
        cut=not definition.is_whole,
        old_cut=not is_whole(old),
    )


def _address(upstream: KnownUpstream, at: int = 0) -> str:
    query = {"name": str(upstream.key)} | ({"at": str(at)} if at else {})
    return f"{LOOK}?{urlencode(query)}"


def _place(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


def _nothing(visit: PageVisit) -> WireReply:
    return visit.error(
        404,
        "No such upstream",
        "This server has no upstream of that name now.",
        "Start at the list.",
        back=(UPSTREAMS, "Upstreams"),
    )
