"""What a hostile reader of the people's side found: strangers who lock others out, and what outlives a lock."""

from __future__ import annotations

from functools import partial

from auth import people, users
from auth.confirm import PROVEN_RECENTLY
from auth.users import PER_ACCOUNT
from tests.auth.browser_fakes import ELSEWHERE, PASSPHRASE, Browser, House
from tests.auth.people_fakes import let_in

STRANGER = "192.0.2.66"


async def guess_until_closed(house: House, name: str = "alice") -> None:
    stranger = Browser(house, ip=STRANGER)
    for _ in range(PER_ACCOUNT.tries):
        house.time += max(PER_ACCOUNT.delays)
        assert (await stranger.sign_in(name, "not the passphrase")).status == 400
    assert (await stranger.sign_in(name, "not the passphrase")).status == 429


def add_row(house: House, table: str, **values: object) -> None:
    """What is not named and must be something is "x"."""
    must = [row["name"] for row in house.store.db.fetch_all(f"PRAGMA table_info({table})") if row["notnull"]]
    row = {**dict.fromkeys(must, "x"), **values}
    house.store.db.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *row.values()
    )


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


async def test_what_was_agreed_to_but_not_redeemed_does_not_outlive_a_lock() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    bob = Browser(house)
    await bob.sign_in("bob")
    await bob.look_at(house.ask())
    await bob.submit("/device/decide#approve")
    assert house.device_row()["state"] == "approved"
    login = let_in(house, "usr_bob")
    add_row(house, "consents", user_id="usr_bob", client_id="mcp-remote", expires_at=house.time * 2)
    add_row(house, "authorization_codes", subject="usr_bob", client_id="mcp-remote", state="live")
    for verb in ("lock", "unlock"):
        outcome = house.store.now(partial(people.switch, verb=verb, name="bob", by="local:0", now=house.time))
        assert isinstance(outcome, users.User)
    assert house.device_row()["state"] == "denied"
    assert not house.rows("consents")
    assert not house.rows("authorization_codes")
    (grant,) = (row for row in house.rows("grants") if row["id"] == login)
    assert grant["revoked_at"] is not None
