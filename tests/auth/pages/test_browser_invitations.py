"""Invitations and reset links in a browser (auth/pages/invitation_pages.py)."""

from __future__ import annotations

import pytest
import trio
from msgspec.structs import replace

from auth.people import one_time_links
from tests.auth.browser_fakes import PASSPHRASE, PUBLIC, Browser, House, header, live_sessions, location
from tests.auth.people_fakes import invited, reset_path

DAY = 86_400_000
NEW = "seven quiet otters swimming"


async def take(browser: Browser, path: str, passphrase: str = PASSPHRASE, again: str | None = None) -> None:
    await browser.get(path)
    await browser.submit(path, passphrase=passphrase, passphrase_again=again or passphrase)


async def test_an_invited_person_chooses_a_passphrase_and_is_in() -> None:
    house = House().owned()
    browser, path = (
        Browser(house),
        invited(house, "Bob".lower(), scope="mcp:tools", expires_at=house.time + DAY),
    )
    await browser.get(path)
    assert "Welcome, bob" in browser.words and "alice invites you" in browser.words
    assert "You may List and call" in browser.words
    assert "Open until" in browser.words
    await take(browser, path)
    assert (
        "Welcome, bob" in browser.words
        and "signed in" in browser.words
        and "connect the program" in browser.words
    )
    other = Browser(house)
    await other.sign_in("bob", PASSPHRASE)
    assert "24 hours" in other.words
    bob = house.rows("users")[1]
    assert (bob["state"], bob["last_seen_at"]) == ("enabled", house.time)


async def test_an_invitation_works_once() -> None:
    house = House().owned()
    path = invited(house)
    first, second = Browser(house), Browser(house)
    await second.get(path)
    await take(first, path)
    page = await second.submit(path, passphrase=NEW, passphrase_again=NEW)
    assert page.status == 410
    assert (await second.get(path)).status == 410
    assert house.hashed == 1, "a used link costs no hash"
    await second.sign_in("bob", NEW)
    assert "do not go together" in second.words


async def test_of_parallel_claims_of_one_invitation_one_wins() -> None:
    house = House().owned()
    path = invited(house)
    browsers = [Browser(house) for _ in range(8)]
    for browser in browsers:
        await browser.get(path)
    waiting: list[trio.Event] = []
    hash_at_once = house.parts.hashing.hash_passphrase

    class Together:
        """Lets nobody out until all are hashed: each has passed its first look at the link."""

        async def __call__(self, passphrase: str, salt: bytes) -> str:
            event = trio.Event()
            waiting.append(event)
            if len(waiting) == len(browsers):
                for each in waiting:
                    each.set()
            await event.wait()
            return await hash_at_once(passphrase, salt)

    house.parts = replace(house.parts, hashing=replace(house.parts.hashing, hash_passphrase=Together()))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for place, browser in enumerate(browsers):
                nursery.start_soon(_submit, browser, path, f"the passphrase of {place}")
    assert sorted(browser.page.status for browser in browsers) == [303] + [410] * 7
    assert house.audited("user.joined") == ["ok"] + ["refused"] * 7
    assert len(live_sessions(house)) == 1


async def _submit(browser: Browser, path: str, passphrase: str) -> None:
    await browser.submit(path, follow=False, passphrase=passphrase, passphrase_again=passphrase)


async def test_an_invitation_runs_out_to_the_millisecond_also_under_an_open_form() -> None:
    house = House().owned()
    path = invited(house, lifetime=DAY)
    browser = Browser(house)
    await browser.get(path)
    house.time += DAY
    page = await browser.submit(path, passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    assert page.status == 410 and house.hashed == 0
    assert "ask whoever sent it" in browser.words


async def test_looking_at_an_invitation_uses_nothing_up_and_writes_nothing() -> None:
    house = House().owned()
    path = invited(house)
    writes = house.store.writes
    for _ in range(3):
        page = await Browser(house).get(path)
        assert page.status == 200
        assert header(page, "referrer-policy") == "no-referrer"
    assert house.store.writes == writes


async def test_the_name_cannot_be_chosen_by_who_holds_the_link() -> None:
    house = House().owned()
    browser, path = Browser(house), invited(house)
    await browser.get(path)
    await browser.submit(
        path, passphrase=PASSPHRASE, passphrase_again=PASSPHRASE, name="alice", username="eve"
    )
    assert [row["name"] for row in house.rows("users")] == ["alice", "bob"]


async def test_a_name_in_any_script_is_shown_as_it_is() -> None:
    house = House().owned()
    browser, path = Browser(house), invited(house, "żółw-おう")
    await take(browser, path)
    assert "żółw-おう" in browser.words
    await Browser(house).sign_in("ŻÓŁW-おう")
    assert house.audited("user.signed_in") == ["ok"]


@pytest.mark.parametrize(
    ("passphrase", "again", "sentence"),
    [("short", "short", "at least 12"), (PASSPHRASE, PASSPHRASE + "!", "differ"), ("", "", "at least 12")],
)
async def test_what_cannot_be_a_passphrase_is_said_and_the_link_still_works(
    passphrase: str, again: str, sentence: str
) -> None:
    house = House().owned()
    browser, path = Browser(house), invited(house)
    await take(browser, path, passphrase, again)
    assert browser.page.status == 400 and sentence in browser.words
    assert house.hashed == 0
    await take(browser, path)
    assert "You are signed in" in browser.words


async def test_a_form_without_its_token_or_of_another_link_is_refused() -> None:
    house = House().owned()
    browser = Browser(house)
    path, other = invited(house), invited(house, "carol")
    await browser.get(path)
    token = dict(browser.fields(path))["form_token"]
    fields = (("passphrase", PASSPHRASE), ("passphrase_again", PASSPHRASE))
    assert (await browser.post(path, *fields)).status == 403
    assert (await browser.post(other, ("form_token", token), *fields)).status == 403
    assert (await browser.post(path, ("form_token", token), *fields, site="cross-site")).status == 403
    assert house.hashed == 0


@pytest.mark.parametrize("kind", [one_time_links.INVITE, one_time_links.RESET])
@pytest.mark.parametrize("token", ["x", "x" * 32, "%00", "a" * 500, "ü"])
async def test_a_made_up_link_is_over(kind: str, token: str) -> None:
    house = House().owned()
    invited(house)
    assert (await Browser(house).get(f"/{kind}/{token}")).status == 410


async def test_one_network_may_send_thirty_forms_in_ten_minutes_and_then_none_is_hashed() -> None:
    house = House().owned()
    path = invited(house)
    statuses: list[int] = []
    for _ in range(31):
        browser = Browser(house)
        await browser.get(path)
        page = await browser.submit(path, passphrase="short", passphrase_again="short", follow=False)
        statuses.append(page.status)
    assert statuses == [400] * 30 + [429]
    browser = Browser(house)
    await browser.get(path)
    page = await browser.submit(path, passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    assert page.status == 429 and house.hashed == 0
    elsewhere = Browser(house, ip="198.51.100.77")
    await take(elsewhere, path)
    assert "You are signed in" in elsewhere.words


# ---------------------------------------------------------------- a new passphrase


async def test_a_reset_link_sets_a_passphrase_and_ends_every_other_browser() -> None:
    house = House().owned()
    old = Browser(house)
    await old.sign_in()
    browser, path = Browser(house), reset_path(house)
    assert path.startswith("/reset/")
    await browser.get("/account/you")
    assert "Sign in" in browser.words
    await take(browser, path, NEW)
    assert "Your passphrase was changed" in browser.words
    page = await old.get("/account/you", follow=False)
    assert (page.status, location(page)) == (303, "/signin?next=/account/you")
    await old.sign_in("alice", PASSPHRASE)
    assert "do not go together" in old.words
    await old.sign_in("alice", NEW)
    assert "24 hours" in old.words
    assert (await Browser(house).get(path)).status == 410
    assert house.audited("user.passphrase_reset") == ["ok"]


async def test_a_reset_link_lives_half_an_hour_and_is_over_once_the_account_is_disabled() -> None:
    house = House().owned()
    path = reset_path(house)
    house.store.db.execute("UPDATE users SET state = 'disabled'")
    assert (await Browser(house).get(path)).status == 410
    house.store.db.execute("UPDATE users SET state = 'enabled'")
    house.time += one_time_links.LIFETIME - 1
    assert (await Browser(house).get(path)).status == 200
    house.time += 1
    assert (await Browser(house).get(path)).status == 410


async def test_signing_in_by_a_link_makes_a_new_cookie() -> None:
    house = House(PUBLIC, loopback=False).owned()
    browser, path = Browser(house), invited(house)
    await browser.get(path)
    planted = dict(browser.jar)
    await take(browser, path)
    assert browser.jar != planted
    assert [*browser.jar] == ["__Host-ostiary"]
