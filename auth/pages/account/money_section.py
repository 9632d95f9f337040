"""Money on You: what somebody has and what moved of it, a voucher to redeem, and caps that they set themselves; for the owner, what was earned.

The server's cashier (`Parts.cashier`) knows what money is; where nothing costs anything there is none, and no section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, cast

import msgspec

from auth.audit import audit_trail
from auth.grants import login_records as grants
from auth.grants.login_records import LoginRecord
from auth.pages import account_notices, navigation
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then, signed_in
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import User
from auth.values.cashier import ANY_LOGIN, ANY_TOOL, CapPeriod, Cashier, CashierRefusal, MoneyHeld, MoneyTaken
from auth.values.database import Db
from auth.values.entropy import SEED_BYTES
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis, PrincipalKind

PURPOSE: Final = "account money"
PERIODS: Final[Mapping[str, str]] = {"day": "a day", "month": "a month", "ever": "in all"}
# Of somebody's own logins, those that a cap can be chosen for here.
LOGINS: Final = 100
_ANY: Final[Mapping[str, str]] = {ANY_LOGIN: "Any one login", ANY_TOOL: "Any one tool"}
CAP_FIELDS: Final = ("login", "period", "amount")
TYPED: Final = 60  # characters of an amount or a voucher: nobody needs as many


class CapRow(msgspec.Struct, frozen=True, kw_only=True):
    login: str
    period: str
    name: str
    words: str
    spent: str
    own: bool


class LoginChoice(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str


class MoneySection(msgspec.Struct, frozen=True, kw_only=True):
    held: MoneyHeld
    caps: tuple[CapRow, ...]
    logins: tuple[LoginChoice, ...]
    periods: Mapping[str, str]
    form_token: str
    problem: str = ""
    about: str = ""  # which form the problem is about: voucher, cap
    typed: Mapping[str, str] = MappingProxyType({})  # there; of a voucher nothing, which is as good as money


class EarningsSection(msgspec.Struct, frozen=True):
    taken: MoneyTaken


async def look_at_earnings(visit: PageVisit, session: BrowserSession) -> EarningsSection | None:
    cashier = visit.parts.cashier
    if cashier is None or session.user.role != "owner":
        return None
    return EarningsSection(await cashier.taken(visit.now))


async def look(
    visit: PageVisit,
    session: BrowserSession,
    *,
    problem: str = "",
    about: str = "",
    typed: Mapping[str, str] = MappingProxyType({}),
) -> MoneySection | None:
    cashier = visit.parts.cashier
    if cashier is None:
        return None
    found, logins = await visit.read(_read, cashier=cashier, person=session.user.id, now=visit.now)
    names = {login.grant.id: login.named for login in logins}
    return MoneySection(
        held=found,
        caps=tuple(
            CapRow(
                login=cap.login,
                period=cap.period,
                name=_whose(cap.login, names),
                words=cap.words,
                spent=cap.spent,
                own=cap.own,
            )
            for cap in found.caps
        ),
        logins=tuple(LoginChoice(id=login_id, name=name) for login_id, name in names.items()),
        periods=PERIODS,
        form_token=visit.token(PURPOSE),
        problem=problem,
        about=about,
        typed=typed,
    )


def _read(db: Db, *, cashier: Cashier, person: str, now: Millis) -> tuple[MoneyHeld, list[LoginRecord]]:
    found = grants.sessions(db, now, subject=person, limit=LOGINS)
    logins = [login for login in found if login.grant.principal_kind == PrincipalKind.USER]
    return cashier.look(db, person, [login.grant.id for login in logins], now), logins


def _whose(login: str, names: Mapping[str, str]) -> str:
    if login in _ANY:
        return _ANY[login]
    return names.get(login, "A login that ended") if login else "Everything of yours"


# ── the buttons ──────────────────────────────────────────────────────────────────────────────────────────────────────


@signed_in(navigation.YOU)
async def redeem(visit: PageVisit, session: BrowserSession) -> WireReply:
    job = partial(_redeem, typed=visit.form.get("voucher", "")[:TYPED], seed=visit.parts.entropy(SEED_BYTES))
    return await _acted(visit, session, job, did="voucher-redeemed", about="voucher")


def _redeem(db: Db, *, cashier: Cashier, user: User, typed: str, seed: bytes, now: Millis) -> bool:
    return bool(cashier.redeem(db, user.id, typed, seed=seed, now=now))


@signed_in(navigation.YOU)
async def cap(visit: PageVisit, session: BrowserSession) -> WireReply:
    job = partial(_cap, typed=visit.form.get("amount", "")[:TYPED], **_which(visit))
    return await _acted(visit, session, job, did="cap-set", about="cap")


def _cap(db: Db, *, cashier: Cashier, user: User, login: str, period: str, typed: str, now: Millis) -> bool:
    if period not in PERIODS or not _is_theirs(db, login, user):
        return False
    cashier.cap(db, user.id, login, typed, cast("CapPeriod", period), by=user.id, now=now)
    return True


@signed_in(navigation.YOU)
async def uncap(visit: PageVisit, session: BrowserSession) -> WireReply:
    return await _acted(visit, session, partial(_uncap, **_which(visit)), did="cap-removed", about="cap")


def _uncap(db: Db, *, cashier: Cashier, user: User, login: str, period: str, now: Millis) -> bool:
    if period not in PERIODS or not _is_theirs(db, login, user):
        return False
    return cashier.uncap(db, user.id, login, cast("CapPeriod", period), by=user.id, now=now)


def _which(visit: PageVisit) -> dict[str, str]:
    return {name: visit.form.get(name, "") for name in ("login", "period")}


async def _acted(
    visit: PageVisit, session: BrowserSession, job: Callable[..., bool], *, did: str, about: str
) -> WireReply:
    """Run a job, and say what was done; of what the cashier refuses, show the form again."""
    cashier = visit.parts.cashier
    if cashier is None:
        return redirect(sign_in_then(navigation.YOU))
    if not visit.shows(PURPOSE):
        return visit.stale_form()
    job = partial(_as_person, job=job, cashier=cashier, cookie=visit.cookie, now=visit.now)
    try:
        done = await visit.write(audit_trail.asked_from(job, visit.who))
    except CashierRefusal as refusal:
        typed = {name: visit.form.get(name, "")[:TYPED] for name in CAP_FIELDS if about == "cap"}
        section = await look(visit, session, problem=str(refusal), about=about, typed=typed)
        return visit.page("money.html", title="Your money", status=400, it=section)
    return account_notices.back(visit, navigation.YOU, did if done else "gone")


def _as_person(db: Db, *, job: Callable[..., bool], cashier: Cashier, cookie: str, now: Millis) -> bool:
    session = browser_sessions.find(db, cookie, now)
    return session is not None and job(db, cashier=cashier, user=session.user, now=now)


def _is_theirs(db: Db, login: str, user: User) -> bool:
    if not login:
        return True
    row = db.fetch_one("SELECT principal_kind, subject FROM grants WHERE id = ?", login)
    return row is not None and row["principal_kind"] == PrincipalKind.USER and row["subject"] == user.id
