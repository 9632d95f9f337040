"""Caps: what a login, a wallet, or a wallet at one tool may spend, by the settings and by what somebody set for themselves. Jobs.

Where several count, each does: the tightest refuses. A cap that is set later counts from then on. Calls that a plan, free calls or a trial
cover come by no cap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from auth.values.identity_model import Millis
from server.lib.money.amounts import Micros, parse, shown
from server.settings.money_settings import CapsConfig
from server.store.jobs import StoreDb
from server.store.limits.usage_meters import PeriodKind, Raised, lower, period_at, raise_meter, read_meter

# A subject has a cap for each period at most, so this is more than there can be.
_MOST_ROWS: Final = 9
_OF: Final[Mapping[str, str]] = {"day": "a day", "month": "a month", "ever": "in all"}


class CapRules(msgspec.Struct, frozen=True, kw_only=True):
    """`[payments.caps]`, understood; None: no bound."""

    per_call: Micros | None = None
    per_login: Micros | None = None
    per_day: Micros | None = None
    per_month: Micros | None = None
    per_tool: Micros | None = None

    @classmethod
    def of(cls, config: CapsConfig) -> CapRules:
        written: dict[str, Any] = {name: getattr(config, name) for name in config.__struct_fields__}
        return cls(**{name: parse(text) for name, text in written.items() if text})


class CapExceeded(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal, with which nothing was counted. `reason` is for programs, `words` for whoever reads it."""

    words: str
    cap: Micros
    left: Micros
    reason: Literal["spend_cap_exceeded"] = "spend_cap_exceeded"


def login_subject(grant_id: str) -> str:
    return f"login:{grant_id}"


def wallet_subject(wallet: str) -> str:
    return f"wallet:{wallet}"


def tool_subject(wallet: str, tool: str) -> str:
    """Name a wallet at one tool. `tool` as offers name it: server/tool."""
    return f"wallet:{wallet}/tool:{tool}"


def spend(
    db: StoreDb,
    rules: CapRules,
    amount: Micros,
    *,
    tool: str,
    wallet: str | None,
    login: str | None,
    now: Millis,
) -> tuple[Raised, ...] | CapExceeded:
    """Count an amount, if it is within every cap, and return the meters. `tool` as offers name it, `login`: the grant's id, of a login or
    a key."""
    if rules.per_call is not None and amount > rules.per_call:
        words = (
            f"this call costs {shown(amount)}, and no call here may cost more than {shown(rules.per_call)}"
        )
        return CapExceeded(words=words, cap=rules.per_call, left=rules.per_call)
    raised: list[Raised] = []
    for (subject, period), limit in _limits(db, rules, tool=tool, wallet=wallet, login=login).items():
        at = period_at(period, now)
        one = raise_meter(db, subject, at, amount, limit)
        if one is None:
            lower(db, raised)
            left = max(limit - read_meter(db, subject, at), 0)
            return CapExceeded(words=_words(amount, subject, period, limit, left), cap=limit, left=left)
        raised.append(one)
    return tuple(raised)


def _limits(
    db: StoreDb, rules: CapRules, *, tool: str | None, wallet: str | None, login: str | None
) -> Mapping[tuple[str, PeriodKind], Micros]:
    found: dict[tuple[str, PeriodKind], Micros] = {}
    subjects: list[str] = []
    if login is not None:
        subjects.append(login_subject(login))
        _tighten(found, subjects[-1], "ever", rules.per_login)
    if wallet is not None:
        subjects.append(wallet_subject(wallet))
        _tighten(found, subjects[-1], "day", rules.per_day)
        _tighten(found, subjects[-1], "month", rules.per_month)
        if tool is not None:
            subjects.append(tool_subject(wallet, tool))
            _tighten(found, subjects[-1], "day", rules.per_tool)
    if subjects:
        places = ", ".join("?" * len(subjects))
        sql = f"SELECT subject, period, amount FROM spend_caps WHERE subject IN ({places}) LIMIT {_MOST_ROWS}"
        for row in db.fetch_all(sql, *subjects):
            _tighten(found, row["subject"], row["period"], row["amount"])
    return found


def _tighten(
    found: dict[tuple[str, PeriodKind], Micros], subject: str, period: PeriodKind, limit: Micros | None
) -> None:
    if limit is not None:
        found[subject, period] = min(limit, found.get((subject, period), limit))


def _words(amount: Micros, subject: str, period: PeriodKind, limit: Micros, left: Micros) -> str:
    who = "this login" if subject.startswith("login:") else "you"
    where = " on this tool" if "/tool:" in subject else ""
    return (
        f"this call costs {shown(amount)}, and {who} may spend {shown(limit)} {_OF[period]}{where}, of which"
        f" {shown(left)} is left"
    )


# ── those that somebody sets ─────────────────────────────────────────────────────────────────────────────────────────


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    period: PeriodKind
    amount: Micros
    set_by: str
    set_at: Millis


def set_cap(db: StoreDb, subject: str, period: PeriodKind, amount: Micros, *, by: str, now: Millis) -> None:
    """Set a cap in the place of one that is there for the same. 0 lets nothing be spent."""
    sql = (
        "INSERT INTO spend_caps (subject, period, amount, set_by, set_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (subject, period) DO UPDATE SET amount = excluded.amount, set_by = excluded.set_by, set_at = excluded.set_at"
    )
    db.execute(sql, subject, period, amount, by, now)


def drop_cap(db: StoreDb, subject: str, period: PeriodKind) -> bool:
    return db.execute("DELETE FROM spend_caps WHERE subject = ? AND period = ?", subject, period) == 1


def caps_of(db: StoreDb, subject: str) -> list[Cap]:
    found = db.fetch_all("SELECT * FROM spend_caps WHERE subject = ? ORDER BY period", subject)
    return [msgspec.convert(row, Cap) for row in found]


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────────


class CapStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A cap that counts, whoever set it, and how much of it is used up."""

    subject: str
    period: PeriodKind
    limit: Micros
    spent: Micros

    @property
    def words(self) -> str:
        """The cap in words: `$5.00 a day`."""
        return f"{shown(self.limit)} {_OF[self.period]}"


def standing(
    db: StoreDb, rules: CapRules, *, wallet: str | None, login: str | None, now: Millis
) -> list[CapStanding]:
    """List the caps of a wallet, and of one login. A job that reads."""
    limits = _limits(db, rules, tool=None, wallet=wallet, login=login)
    found: list[CapStanding] = []
    for (subject, period), limit in limits.items():
        spent = read_meter(db, subject, period_at(period, now))
        found.append(CapStanding(subject=subject, period=period, limit=limit, spent=spent))
    return found
