"""What a hostile reader of the people's side found: strangers who lock others out, and what outlives a lock."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from auth.device.confirm import PROVEN_RECENTLY
from auth.people import guests as people
from auth.people import known_browsers, users
from auth.people.users import PER_ACCOUNT
from auth.policy import DevicePolicy
from auth.requester import clean
from tests.auth.browser_fakes import ELSEWHERE, PASSPHRASE, Browser, House
from tests.auth.people_fakes import invited, let_in, reset_path

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


@pytest.mark.parametrize(
    ("kind", "event"),
    [("claim", "owner.claimed"), ("invite", "user.joined"), ("reset", "user.passphrase_reset")],
)
async def test_a_form_for_a_link_that_does_not_work_costs_no_hash_and_leaves_a_row(
    kind: str, event: str
) -> None:
    house = House()
    path = {"claim": house.claim_path, "invite": partial(invited, house)}.get(kind, lambda: "")()
    if kind == "reset":
        path = reset_path(house.owned())
    browser = Browser(house)
    await browser.get(path)
    house.store.db.execute("DELETE FROM one_time_links")
    page = await browser.submit(path, name="eve", passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    assert (page.status, house.hashed, house.audited(event)) == (410, 0, ["refused"])


async def test_an_approval_that_the_policy_forbids_is_written_down() -> None:
    house = House().owned()
    policy = replace(house.parts.policy, device=DevicePolicy(approve_from="same-network"))
    house.parts = replace(house.parts, policy=policy)
    browser = Browser(house)
    await browser.sign_in()
    await browser.look_at(house.ask(ip=ELSEWHERE))
    assert (await browser.submit("/device/decide#approve")).status == 403
    assert house.audited("device.approved") == ["refused"]
    assert house.rows("audit")[-1]["reason"].endswith("not from here")


@pytest.mark.parametrize(
    ("claimed", "shown"),
    [
        ("a" + "\u0301" * 60 + "b", "a" + "\u0301" * 4 + "b"),
        ("\u3164\u2800\u115f", ""),
        ("one\u3164\u2800two", "one two"),
        ("q\u0323\u0307 Việt ไม้ל\u05b8", "q\u0323\u0307 Việt ไม้ל\u05b8"),
        ("tab\there\x00\u202egone", "tab heregone"),
    ],
)
def test_what_a_stranger_claims_can_neither_cover_its_surroundings_nor_pass_for_nothing(
    claimed: str, shown: str
) -> None:
    assert clean(claimed, 80) == shown


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
