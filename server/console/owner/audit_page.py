"""The audit trail in a browser: rows by person, kind and time, page by page, and whether it is as it was written.

Rows are read in the stretches of auth/audit/audit_search.py, so many of them for a page: where what is looked for is rare, a page may say how far it looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from auth.audit import audit_names, audit_search
from auth.audit.audit_actors import shown_actor
from auth.audit.audit_events import KINDS, words_of
from auth.audit.audit_names import AuditNames
from auth.audit.audit_search import AuditFilter
from auth.pages.html_shell import moment_in_full
from auth.pages.page_visit import PageVisit, Parts
from auth.people import user_accounts
from auth.people.browser_names import browser_name
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import UnfitEntry
from auth.values.database import Db, Row
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE
from server.admin.audit_commands import AuditAdmin
from server.console.owner import terms_form
from server.console.owner.people_page import wide

AUDIT: Final = "/account/audit"
VERIFY: Final = f"{AUDIT}/verify"
PURPOSE: Final = "owner audit"
SHOWN: Final = 50
STRETCHES: Final = 10  # of the table, for one page
WHO_CHARACTERS: Final = 200
DAY_CHARACTERS: Final = 20
# Of the check, for one page: each answer has gone through some 20 000 rows.
ANSWERS: Final = 20
AGAIN: Final = MINUTE


class TrailRow(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    who: str
    what: str
    event: str
    refused: bool
    program: str
    ip: str
    browser: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """A search, as typed."""

    who: str
    kind: str
    outcome: str
    since: str
    until: str

    @classmethod
    def of(cls, visit: PageVisit) -> _Asked:
        kind, outcome = visit.query("kind"), visit.query("outcome")
        return cls(
            who=visit.query("who").strip()[:WHO_CHARACTERS],
            kind=kind if kind in KINDS else "",
            outcome=outcome if outcome in ("ok", "refused") else "",
            since=visit.query("since")[:DAY_CHARACTERS],
            until=visit.query("until")[:DAY_CHARACTERS],
        )

    def address(self, at: int | None = None) -> str:
        query = {
            name: value
            for name, value in (
                ("who", self.who),
                ("kind", self.kind),
                ("outcome", self.outcome),
                ("since", self.since),
                ("until", self.until),
                ("at", "" if at is None else str(at)),
            )
            if value
        }
        return AUDIT + (f"?{urlencode(query)}" if query else "")


class TrailVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check."""

    good: bool
    words: str
    at: str
    all: bool = True  # of the rows


class TrailPages:
    """One check runs at a time, and one a minute: each goes through very many rows, and every owner is shown what the last one came to."""

    def __init__(self, parts: Parts, audit: AuditAdmin) -> None:
        self._parts = parts
        self._audit = audit
        self._verdict: TrailVerdict | None = None
        self._begun_at: Millis | None = None
        self._checking = False

    async def verify(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        if not visit.shows(PURPOSE):
            return visit.stale_form()
        if self._checking:
            return await self.show(visit, session, note="It is being checked already. Look again shortly.")
        if self._begun_at is not None and 0 <= visit.now - self._begun_at < AGAIN:
            return await self.show(visit, session, note="It is checked once a minute at most.")
        self._checking, self._begun_at = True, visit.now
        try:
            self._verdict = await self._check(visit, session)
        finally:
            self._checking = False
        return await self.show(visit, session)

    async def show(self, visit: PageVisit, session: BrowserSession, *, note: str = "") -> WireReply:
        del session
        asked = _Asked.of(visit)
        actor = await self._parts.store.read(partial(_actor, typed=asked.who))
        since, until = terms_form.read_day(asked.since), terms_form.read_day(asked.until)
        wanted = AuditFilter(
            since=since,
            until=None if until is None else until + terms_form.DAY,
            events=KINDS[asked.kind].events,
            actor=actor,
            outcome=asked.outcome or None,
        )
        at = _number(visit.query("at"))
        rows, go_on = ([], None) if actor == "" else await self._rows(wanted, at)
        names = await self._parts.store.read(
            partial(audit_names.names_of, entries=[audit_names.entry_of(row) for row in rows])
        )
        altered, known = await self._audit.noticed(), await self._audit.acknowledged()
        return wide(visit).page(
            "audit.html",
            title="Audit trail",
            rows=[_row(row, each) for row, each in zip(rows, names, strict=True)],
            asked=asked,
            kinds={key: kind.words for key, kind in KINDS.items()},
            nobody=actor == "",
            odd=[day for day, found in ((asked.since, since), (asked.until, until)) if day and found is None],
            older="" if go_on is None else asked.address(go_on),
            newest=asked.address() if at is not None else "",
            noticed="" if altered is None else f"row {altered.seq}: {altered.what}",
            acknowledged="" if known is None else _acknowledged(known),
            verdict=self._verdict,
            note=note,
            form_token=visit.token(PURPOSE),
        )

    async def _rows(self, wanted: AuditFilter, at: int | None) -> tuple[list[Row], int | None]:
        """Read a page of them, newest first, and where the next one begins."""
        found: list[Row] = []
        for _ in range(STRETCHES):
            page = await self._parts.store.read(
                partial(
                    audit_search.page, wanted=wanted, oldest_first=False, at=at, at_most=SHOWN - len(found)
                )
            )
            found += page.rows
            at = page.go_on
            if at is None or len(found) >= SHOWN:
                break
        return found, at

    async def _check(self, visit: PageVisit, session: BrowserSession) -> TrailVerdict:
        """Check whether the trail is as it was written, and say so in words."""
        checked, at, on = 0, None, moment_in_full(visit.now)
        for _ in range(ANSWERS):
            told: Mapping[str, Any] = await self._audit.verify({"at": at}, session.user.id)
            checked += told["checked"]
            at = told["at"]
            if told["broken"] is not None:
                broken = told["broken"]
                words = f"The trail is not as it was written, at row {broken['seq']}: {broken['what']}."
                return TrailVerdict(good=False, words=words, at=on)
            if told["done"]:
                lost = f" {told['head_lost']}." if told["head_lost"] else ""
                return TrailVerdict(
                    good=not lost, words=f"All {checked:,} rows are as they were written.{lost}", at=on
                )
        words = f"The first {checked:,} rows are as they were written. There are more than are checked here."
        return TrailVerdict(good=True, words=words, at=on, all=False)


def _acknowledged(known: Mapping[str, Any]) -> str:
    who, when = shown_actor(known["by"]), moment_in_full(known["at"])
    return f"up to row {known['up_to']}; {who} acknowledged that, {when}: {known['note']}"


def _actor(db: Db, *, typed: str) -> str | None:
    """Return the actor as rows have it: of a person's name, or one that is written out, as `local:0`. None: anybody; "": nobody is like that."""
    if not typed:
        return None
    name = user_accounts.fit_name(typed)
    user = None if isinstance(name, UnfitEntry) else user_accounts.named(db, name)
    if user is not None:
        return f"user:{user.id}"
    return typed if ":" in typed or typed == "anonymous" else ""


def _row(row: Row, names: AuditNames) -> TrailRow:
    client = row["client_id"] or ""
    actor = row["actor"]
    return TrailRow(
        at=moment_in_full(row["at"]),
        who=shown_actor(actor, person=names.person, program=names.program),
        what=words_of(row["event"]),
        event=row["event"],
        refused=row["outcome"] == "refused",
        program="" if actor == f"client:{client}" else names.program or client,
        ip=row["ip"] or "",
        browser=browser_name(row["user_agent"]) if row["user_agent"] else "",
        why=names.why,
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
