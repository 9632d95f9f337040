"""Logins: a million of them, half of one person who owns the server and let machines log in again and again, half of ten thousand others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any, Final

from guest import Guest
from house import House, Tables
from pair import Ground, Served, compare_starts, fill, served

from auth.grants.refresh_tokens import ChainLink, write
from auth.keys import refresh_token_keys as refresh_keys
from auth.people import browser_sessions
from auth.values.requester import Requester

MANY: Final = 1_000_000
FEW: Final = 1_000
LIVING: Final = 490  # of the owner: nearly as many as one person may have
EACH: Final = 50  # of anybody else
DAY: Final = 24 * 3_600_000
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
SOMEBODY: Final = 7
PERSON: Final = ("id", "name", "role", "state", "scope", "created_at")


def person(number: int, now: int) -> tuple[object, ...]:
    return (f"usr_{number}", f"person-{number}", "user", "enabled", "*", now)


class Entrance:
    """The owner, and somebody else, signed in with a browser."""

    def __init__(self) -> None:
        self._cookies = {
            whose: browser_sessions.cookie_from(os.urandom(32)) for whose in ("owner", "somebody")
        }

    def open(self, house: House, tables: Tables) -> None:
        del house
        now = time.time_ns() // 1_000_000
        who = Requester(origin="", ip="127.0.0.1", network="127.0.0.1", user_agent="")
        somebody = person(SOMEBODY, now)
        tables.execute("UPDATE users SET state = 'enabled' WHERE role = 'owner'")
        if tables.fetch_one("SELECT 1 AS there FROM users WHERE id = ?", somebody[0]) is None:
            tables.fill("users", PERSON, [somebody])
        (owner,) = tables.rows("SELECT id FROM users WHERE role = 'owner'")
        for whose, user in (("owner", owner["id"]), ("somebody", str(somebody[0]))):
            browser_sessions.begin(
                tables, cookie=self._cookies[whose], replaces=None, user_id=user, who=who, now=now
            )  # pyright: ignore[reportArgumentType]

    def page(self, served: Served, path: str, *, whose: str = "owner") -> None:
        served.guest.page(path, self._cookies[whose])


class Logins:
    """What is known of the rows of one house: refresh tokens of others' logins, each to be used once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._draw = Random(count)
        self.tokens: list[str] = []
        self.entrance = Entrance()

    def fill(self, house: House, tables: Tables) -> None:
        (model,) = tables.rows("SELECT * FROM grants")
        owner, now = model["subject"], time.time_ns() // 1_000_000
        mine = self._count // 2
        people = (self._count - mine) // EACH
        ids = ["grt_" + "".join(self._draw.choices(LETTERS, k=20)) for _ in range(self._count)]
        tables.fill("users", PERSON, (person(number, now) for number in range(people)))
        varied = (
            "id", "subject", "hostname", "created_at", "rotated_at", "last_used_at", "idle_until", "expires_at", "revoked_at",
            "revoked_reason",
        )  # fmt: skip

        def rows() -> Iterator[tuple[Any, ...]]:
            for number, login in enumerate(ids):
                is_mine, used = number < mine, now - self._draw.randrange(20 * DAY)
                subject = owner if is_mine else f"usr_{(number - mine) % people}"
                over = used if is_mine and number >= LIVING else None
                reason = None if over is None else "another login took its place"
                yield (
                    login, subject, f"host-{number % 1000}", used - self._draw.randrange(20 * DAY), used, used, used + 30 * DAY,
                    used + 60 * DAY, over, reason,
                )  # fmt: skip

        tables.copies("grants", model, varied, rows())
        self.entrance.open(house, tables)
        seal_key = house.subkey(tables)(refresh_keys.SEAL_PURPOSE)
        keys = [refresh_keys.unseal(row, seal_key) for row in refresh_keys.rows(tables)]  # pyright: ignore[reportArgumentType]
        newest = max(keys, key=lambda one: one.version)
        others = ids[mine:]
        self.tokens = [
            write(newest, ChainLink(grant_id=login, counter=model["counter"]))
            for login in self._draw.sample(others, min(len(others), 400))
        ]


class Round:
    """Logins of somebody else's, each from its refresh to its end: step by step, each at its turn."""

    def __init__(self, served: Served, logins: Logins) -> None:
        self._guest, self._tokens = served.guest, iter(logins.tokens)
        self._held: list[dict[str, str]] = []

    def refresh(self) -> None:
        self._held.append(self._guest.refresh(next(self._tokens)))

    def call(self) -> None:
        tokens = self._held.pop(0)
        self._guest.call(tokens["access_token"])
        self._held.append(tokens)

    def revoke(self) -> None:
        self._guest.revoke(self._held.pop()["refresh_token"])


def measure(ground: Ground) -> None:
    sheet, few_count, many_count = ground.sheet, FEW, ground.many(MANY)
    sheet.begin(f"logins: {few_count:,} → {many_count:,}")
    few, many = (ground.house(name, "") for name in ("logins_few", "logins_many"))
    known = {few.folder.name: Logins(few_count), many.folder.name: Logins(many_count)}
    for house in (few, many):
        with house.serving(core=ground.cores.server) as server:
            Guest(server, house.home.path).log_in()
        fill(house, known[house.folder.name].fill)
    compare_starts(ground, few, many)
    with served(ground, few, many) as (little, much):
        sheet.add("resident", little.resident_mib(), much.resident_mib(), "MiB")
        _logins(ground, little, much, known)
        _pages(ground, little, much, known)
        _machine(ground, little, much)
        sheet.add("resident, afterwards", little.resident_mib(), much.resident_mib(), "MiB")


def _logins(ground: Ground, little: Served, much: Served, known: dict[str, Logins]) -> None:
    times = ground.times(151)
    compare = partial(ground.sheet.compare, times=times)
    of_few, of_many = (Round(each, known[each.house.folder.name]) for each in (little, much))
    compare("refresh, of any of them", of_few.refresh, of_many.refresh)
    compare("its first call: the token verified, its login read", of_few.call, of_many.call)
    compare("its next call", of_few.call, of_many.call)
    compare("revocation", of_few.revoke, of_many.revoke)
    ground.sheet.compare(
        "login of the owner: code, yes, tokens",
        little.guest.log_in,
        much.guest.log_in,
        times=ground.times(41),
    )


def _pages(ground: Ground, little: Served, much: Served, known: dict[str, Logins]) -> None:
    def page(served: Served, path: str, whose: str) -> None:
        known[served.house.folder.name].entrance.page(served, path, whose=whose)

    for what, path, whose in (
        ("page Access of the owner, with everybody's logins", "/account/access", "owner"),
        ("the same, searched for a person", "/account/access?q=person-3", "owner"),
        ("the same, searched in vain", "/account/access?q=nobody-of-this-name", "owner"),
        ("page Access of somebody else", "/account/access", "somebody"),
        ("page You", "/account/you", "owner"),
        ("Overview", "/account", "owner"),
        ("page People", "/account/people", "owner"),
        ("page of one person", f"/account/people/usr_{SOMEBODY}", "owner"),
    ):
        ground.sheet.compare(
            what, partial(page, little, path, whose), partial(page, much, path, whose), times=ground.times(11)
        )


def _machine(ground: Ground, little: Served, much: Served) -> None:
    name = f"person-{SOMEBODY}"
    for what, command, arguments in (
        ("ostiary status", "status", dict[str, str]()),
        ("ostiary sessions --user, of somebody", "sessions", {"user": name}),
        ("ostiary sessions --user, of the owner", "sessions", {"user": "owner"}),
        ("ostiary revoke --user: how many", "sessions.count", {"user": "owner"}),
        ("ostiary users show", "users", {"name": name}),
        ("ostiary clients", "clients", {}),
    ):
        ground.sheet.compare(
            what,
            partial(little.guest.ask, command, **arguments),
            partial(much.guest.ask, command, **arguments),
            times=ground.times(11),
        )
