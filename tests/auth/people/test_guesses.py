"""Guessing at a passphrase: from inside of a session, and what the trail says of it."""

from __future__ import annotations

from auth.people.user_accounts import PER_ACCOUNT
from tests.auth.browser_fakes import Browser, House
from tests.auth.people_fakes import STRANGER, guess_until_closed


async def test_who_holds_a_session_can_guess_no_more_often_than_anybody_else() -> None:
    house = House().owned()
    browser, twin = Browser(house), Browser(house, ip=STRANGER)
    await browser.sign_in()
    twin.jar = dict(browser.jar)
    answers: list[int] = []
    for tried in range(2 * PER_ACCOUNT.tries):
        house.time += max(PER_ACCOUNT.delays)
        thief = twin if tried % 2 else browser
        await thief.get("/account/passphrase")
        page = await thief.submit(
            "/account/passphrase",
            passphrase="not the passphrase",
            new_passphrase="another fine passphrase",
            new_passphrase_again="another fine passphrase",
        )
        answers.append(page.status)
    assert answers == [400] * PER_ACCOUNT.tries + [429] * PER_ACCOUNT.tries
    assert house.verified == 1 + PER_ACCOUNT.tries


async def test_the_trail_says_when_the_tries_at_an_account_were_closed() -> None:
    house = House().owned()
    await guess_until_closed(house)
    reasons = [row["reason"] for row in house.rows("audit") if row["event"] == "user.signed_in"]
    assert reasons == [
        *["wrong name or passphrase"] * (PER_ACCOUNT.tries - 1),
        "wrong name or passphrase, and no more tries for now",
    ]
