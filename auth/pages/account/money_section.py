"""Money on You: what somebody has and what moved of it, a voucher to redeem, and caps that they set themselves, of all they have or
of one login. And for the owner, what was earned.

What money is, the server's cashier knows (`Parts.cashier`); where nothing costs anything there is none, and no section.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Literal, Protocol, cast

import msgspec

from auth.audit import audit_trail
from auth.grants import login_records as grants
from auth.grants.login_records import LoginRecord
from auth.pages import account_notices, navigation
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit
from auth.pages.user_code_entry import sign_in_then
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


class MoneyStep(Protocol):
    async def __call__(self, visit: PageVisit, cashier: Cashier) -> str:
        """What the page says then. Raises `CashierRefusal`."""
        ...


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


async def look(visit: PageVisit, session: BrowserSession) -> MoneySection | None:
    return await _section(visit, session)


async def look_at_earnings(visit: PageVisit, session: BrowserSession) -> EarningsSection | None:
    cashier = visit.parts.cashier
    if cashier is None or session.user.role != "owner":
        return None
    return EarningsSection(await cashier.taken(visit.now))


async def _section(
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
    found, logins = await visit.parts.store.read(
        partial(_read, cashier=cashier, person=session.user.id, now=visit.now)
    )
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


async def redeem(visit: PageVisit) -> WireReply:
    async def act(visit: PageVisit, cashier: Cashier) -> str:
        job = partial(
            _redeem,
            cashier=cashier,
            cookie=visit.cookie,
            typed=visit.form.get("voucher", "")[:TYPED],
            seed=visit.parts.entropy(SEED_BYTES),
            now=visit.now,
        )
        return (
            "voucher-redeemed"
            if await visit.parts.store.write(audit_trail.asked_from(job, visit.who))
            else "gone"
        )

    return await _acted(visit, act, about="voucher")


def _redeem(db: Db, *, cashier: Cashier, cookie: str, typed: str, seed: bytes, now: Millis) -> str | None:
    user = _person(db, cookie, now)
    return None if user is None else cashier.redeem(db, user.id, typed, seed=seed, now=now)


async def cap(visit: PageVisit) -> WireReply:
    async def act(visit: PageVisit, cashier: Cashier) -> str:
        job = partial(
            _cap,
            cashier=cashier,
            cookie=visit.cookie,
            login=visit.form.get("login", ""),
            period=visit.form.get("period", ""),
            typed=visit.form.get("amount", "")[:TYPED],
            now=visit.now,
        )
        return {"set": "cap-set", "gone": "gone"}[
            await visit.parts.store.write(audit_trail.asked_from(job, visit.who))
        ]

    return await _acted(visit, act, about="cap")


def _cap(
    db: Db, *, cashier: Cashier, cookie: str, login: str, period: str, typed: str, now: Millis
) -> Literal["set", "gone"]:
    user = _person(db, cookie, now)
    if user is None or period not in PERIODS or not _is_theirs(db, login, user):
        return "gone"
    written = cast("CapPeriod", period)
    cashier.cap(db, user.id, login, typed, written, by=user.id, now=now)
    return "set"


async def uncap(visit: PageVisit) -> WireReply:
    async def act(visit: PageVisit, cashier: Cashier) -> str:
        job = partial(
            _uncap,
            cashier=cashier,
            cookie=visit.cookie,
            login=visit.form.get("login", ""),
            period=visit.form.get("period", ""),
            now=visit.now,
        )
        return (
            "cap-removed" if await visit.parts.store.write(audit_trail.asked_from(job, visit.who)) else "gone"
        )

    return await _acted(visit, act, about="cap")


def _uncap(db: Db, *, cashier: Cashier, cookie: str, login: str, period: str, now: Millis) -> bool:
    user = _person(db, cookie, now)
    if user is None or period not in PERIODS or not _is_theirs(db, login, user):
        return False
    return cashier.uncap(db, user.id, login, cast("CapPeriod", period), by=user.id, now=now)


async def _acted(visit: PageVisit, act: MoneyStep, *, about: str) -> WireReply:
    session, cashier = await visit.session(), visit.parts.cashier
    if session is None or cashier is None:
        return redirect(sign_in_then(navigation.YOU))
    visit = visit.of(session)
    if not visit.shows(PURPOSE):
        return visit.stale_form()
    try:
        return account_notices.back(visit, navigation.YOU, await act(visit, cashier))
    except CashierRefusal as refusal:
        typed = {name: visit.form.get(name, "")[:TYPED] for name in CAP_FIELDS if about == "cap"}
        section = await _section(visit, session, problem=str(refusal), about=about, typed=typed)
        return visit.page("money.html", title="Your money", status=400, it=section)


def _person(db: Db, cookie: str, now: Millis) -> User | None:
    session = browser_sessions.find(db, cookie, now)
    return None if session is None else session.user


def _is_theirs(db: Db, login: str, user: User) -> bool:
    if not login:
        return True
    row = db.fetch_one("SELECT principal_kind, subject FROM grants WHERE id = ?", login)
    return row is not None and row["principal_kind"] == PrincipalKind.USER and row["subject"] == user.id
