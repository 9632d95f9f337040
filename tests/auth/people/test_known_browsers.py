"""Browsers that came before: strangers who guess at a name do not lock its owner out of them."""

from __future__ import annotations

import pytest

from auth.pages.device_confirmation import PROVEN_RECENTLY
from auth.people import known_browsers
from auth.people.user_accounts import PER_ACCOUNT
from tests.auth.browser_fakes import ELSEWHERE, PASSPHRASE, Browser, House
from tests.auth.people_fakes import guess_until_closed


async def test_a_stranger_who_guesses_at_a_name_does_not_keep_its_owner_from_proving_themselves() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await guess_until_closed(house)
    house.time += PROVEN_RECENTLY + 1
    page = await browser.look_at(house.ask(ip=ELSEWHERE))
    assert page.status == 200
    approved = await browser.submit("/device/decide#approve", passphrase=PASSPHRASE)
    assert approved.status == 200, browser.words
    assert house.device_row()["state"] == "approved"
    house.time += 60_000
    await browser.get("/account/passphrase")
    changed = {"new_passphrase": "another fine passphrase", "new_passphrase_again": "another fine passphrase"}
    await browser.submit("/account/passphrase", {"passphrase": PASSPHRASE, **changed})
    assert "Your passphrase was changed" in browser.words


async def test_a_stranger_who_guesses_at_a_name_does_not_keep_its_owner_out_of_a_browser_of_theirs() -> None:
    house = House().owned()
    browser, elsewhere = Browser(house), Browser(house, ip=ELSEWHERE)
    await browser.sign_in()
    await browser.submit("/signout")
    await guess_until_closed(house)
    assert (await browser.sign_in()).status == 200
    assert (await elsewhere.sign_in()).status == 429


async def test_a_known_browser_has_no_more_tries_than_any_and_uses_up_nobody_elses() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await browser.submit("/signout")
    answers: list[int] = []
    for _ in range(PER_ACCOUNT.tries + 1):
        house.time += max(PER_ACCOUNT.delays)
        answers.append((await browser.sign_in("alice", "not the passphrase")).status)
    assert answers == [400] * PER_ACCOUNT.tries + [429]
    assert (await Browser(house, ip=ELSEWHERE).sign_in()).status == 200


def altered(cookie: str) -> str:
    return cookie[:-1] + ("0" if cookie[-1] != "0" else "1")


def of_alice(house: House, cookie: str) -> str:
    return cookie.replace("usr_bob", house.owner_id)


def later(cookie: str) -> str:
    user, since, rest = cookie.split(".", 2)
    return f"{user}.{int(since) + 1}.{rest}"


@pytest.mark.parametrize("forge", ["as it is", "altered", "of alice", "later", "empty"])
async def test_what_says_that_a_browser_is_known_counts_for_its_own_account_only_and_cannot_be_made_up(
    forge: str,
) -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    browser = Browser(house)
    await browser.sign_in("bob")
    await browser.submit("/signout")
    ((name, cookie),) = browser.known.items()
    browser.known[name] = {
        "as it is": cookie,
        "altered": altered(cookie),
        "of alice": of_alice(house, cookie),
        "later": later(cookie),
        "empty": "",
    }[forge]
    await guess_until_closed(house)
    assert (await browser.sign_in("alice")).status == 429


async def test_a_browser_is_known_for_ninety_days_and_no_cookie_beside_it_takes_that_away() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await browser.submit("/signout")
    known = dict(browser.known)
    house.time += known_browsers.LASTS - 600_000
    await guess_until_closed(house)
    browser.known = {"planted": "x", " ostiary-known": "made up", **known}
    assert (await browser.sign_in()).status == 200
    house.time += 1_200_000
    await browser.submit("/signout")
    await guess_until_closed(house)
    browser.known = known
    assert (await browser.sign_in()).status == 429
