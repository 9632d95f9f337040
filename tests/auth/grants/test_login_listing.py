"""Everybody's logins in pages (auth/administration/login_listing.py): as few as ever, and very many; and that no page of them looks through the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from auth.administration import login_listing
from auth.administration.login_listing import LoginPage
from auth.values.database import Db
from tests.auth.identity_fakes import DAY, START, Clock, logged_in, open_identity
from tests.sealing import by_hand

FEW, MANY, EACH = 30, 90, 7


def filled(db: Db, *, count: int) -> None:
    """Logins like the one that there is, used in another order than they were made in; every tenth has ended."""
    row = db.fetch_one("SELECT * FROM grants")
    assert row is not None
    for number in range(count):
        over = START if number % 10 == 9 else None
        login = {
            **row, "id": f"grt_{number:020}", "created_at": START - number, "last_used_at": START - (number * 37) % count,
            "hostname": f"host-{number % EACH}", "revoked_at": over,
        }  # fmt: skip
        marks = ", ".join("?" * len(login))
        by_hand(f"INSERT INTO grants ({', '.join(login)}) VALUES ({marks})", *login.values())(db)


def walked(db: Db, *, like: str = "", limit: int = EACH) -> list[LoginPage]:
    pages, at = list[LoginPage](), None
    while True:
        found = login_listing.page(db, START, limit=limit, before=at, like=like)
        pages.append(found)
        assert len(pages) <= 200
        at = found.go_on
        if at is None:
            return pages


def ids(pages: Sequence[LoginPage]) -> list[str]:
    return [each.grant.id for page in pages for each in page.logins]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_listing, "ORDERED", 40)
    monkeypatch.setattr(login_listing, "STRETCH", 12)


async def test_few_are_listed_once_each_and_those_used_last_come_first(small: None) -> None:
    async with open_identity(clock=Clock(START)) as identity:
        await logged_in(identity)
        await identity.parts.store.write(partial(filled, count=FEW))
        pages = await identity.parts.store.read(walked)
        found = ids(pages)
        assert all(page.by_use for page in pages)
        assert len(found) == len(set(found)) == FEW - FEW // 10 + 1
        used = [each.grant.last_used_at for page in pages for each in page.logins]
        assert used == sorted(used, reverse=True)


async def test_of_very_many_each_is_listed_once_and_the_newest_come_first(small: None) -> None:
    async with open_identity(clock=Clock(START)) as identity:
        await logged_in(identity)
        await identity.parts.store.write(partial(filled, count=MANY))
        pages = await identity.parts.store.read(walked)
        found = ids(pages)
        assert not any(page.by_use for page in pages)
        assert len(found) == len(set(found)) == MANY - MANY // 10 + 1
        made = [each.grant.created_at for page in pages for each in page.logins]
        assert made == sorted(made, reverse=True)


async def test_a_search_among_very_many_goes_on_from_stretch_to_stretch_and_misses_none(small: None) -> None:
    async with open_identity(clock=Clock(START)) as identity:
        await logged_in(identity)
        await identity.parts.store.write(partial(filled, count=MANY))
        pages = await identity.parts.store.read(partial(walked, like="HOST-3"))
        wanted = [n for n in range(MANY) if n % EACH == 3 and n % 10 != 9]
        assert ids(pages) == [f"grt_{n:020}" for n in wanted]
        nobody = await identity.parts.store.read(partial(walked, like="nobody"))
        assert ids(nobody) == []
        assert len(nobody) > 1


async def test_as_many_as_are_counted_and_that_there_are_more(small: None) -> None:
    async with open_identity(clock=Clock(START)) as identity:
        await logged_in(identity)
        await identity.parts.store.write(partial(filled, count=MANY))
        living = MANY - MANY // 10 + 1
        count = partial(login_listing.count, now=START)
        assert await identity.parts.store.read(partial(count, at_most=10)) == (10, True)
        assert await identity.parts.store.read(partial(count, at_most=living)) == (living, False)
        assert await identity.parts.store.read(
            partial(login_listing.count, now=START + 400 * DAY, at_most=living)
        ) == (0, False)
