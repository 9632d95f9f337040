from __future__ import annotations

import re

import pytest
import trio
from msgspec.structs import replace

from auth.people import one_time_links
from tests.auth.browser_fakes import (
    LOOPBACK,
    PASSPHRASE,
    PUBLIC,
    Browser,
    House,
    header,
    live_sessions,
    values,
)

HALF_AN_HOUR = 30 * 60_000


async def claim(browser: Browser, path: str, **typed: str) -> None:
    await browser.get(path)
    fields: dict[str, str | tuple[str, ...]] = {
        "name": "Alice",
        "passphrase": PASSPHRASE,
        "passphrase_again": PASSPHRASE,
        **typed,
    }
    await browser.submit(path, typed=fields)


async def test_a_command_on_a_page_begins_as_it_is_typed_where_the_server_runs() -> None:
    house, browser = House(), Browser(House())
    browser.house = house
    house.parts = replace(house.parts, site=replace(house.parts.site, program="~/door/scripts/ostiary"))
    await claim(browser, house.claim_path())
    assert f"~/door/scripts/ostiary login {LOOPBACK}/mcp" in browser.words


async def test_the_owner_claims_the_server_and_is_signed_in() -> None:
    house, browser = House(), Browser(House())
    browser.house = house
    await claim(browser, house.claim_path())
    assert "The server is yours, alice" in browser.words
    assert f"ostiary login {LOOPBACK}/mcp" in browser.words
    (user,) = house.rows("users")
    assert (user["name"], user["state"], user["passphrase_hash"]) == (
        "alice",
        "enabled",
        "plain:" + PASSPHRASE,
    )
    assert house.audited("owner.claimed") == ["ok"]
    assert house.rows("changes")[-1]["entity_id"] == house.owner_id
    await browser.get("/device")
    assert "Enter the code" in browser.words


async def test_the_whole_way_works_with_real_hashes() -> None:
    house = House(real_hashing=True)
    browser = Browser(house)
    await claim(browser, house.claim_path())
    assert house.rows("users")[0]["passphrase_hash"].startswith("$argon2id$")
    other = Browser(house)
    await other.sign_in("alice", PASSPHRASE)
    assert "24 hours" in other.words


async def test_looking_at_the_link_uses_nothing_up() -> None:
    house, path = House(), ""
    path = house.claim_path()
    for _ in range(3):
        page = await Browser(house).get(path)
        assert page.status == 200
        assert header(page, "referrer-policy") == "no-referrer"
    writes = house.store.writes
    await Browser(house).get(path)
    assert house.store.writes == writes


async def test_the_link_works_once() -> None:
    house = House()
    path = house.claim_path()
    await claim(Browser(house), path)
    late = Browser(house)
    assert (await late.get(path)).status == 410
    assert "no longer works" in late.words and "ostiary claim" in late.words


async def test_of_parallel_claims_one_wins() -> None:
    house = House()
    path = house.claim_path()
    browsers = [Browser(house) for _ in range(8)]
    for browser in browsers:
        await browser.get(path)
    barrier: list[trio.Event] = []
    hash_at_once = house.parts.hashing.hash_passphrase

    class Together:
        """Lets nobody out until all have been hashed: every claim has passed its first look at the link."""

        async def __call__(self, passphrase: str, salt: bytes) -> str:
            event = trio.Event()
            barrier.append(event)
            if len(barrier) == len(browsers):
                for each in barrier:
                    each.set()
            await event.wait()
            return await hash_at_once(passphrase, salt)

    house.parts = replace(house.parts, hashing=replace(house.parts.hashing, hash_passphrase=Together()))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for place, browser in enumerate(browsers):
                nursery.start_soon(_submit, browser, path, f"user{place}")
    assert house.hashed == 8
    assert sorted(browser.page.status for browser in browsers) == [303] + [410] * 7
    assert house.audited("owner.claimed") == ["ok"] + ["refused"] * 7, "each that lost is written down"
    assert len(live_sessions(house)) == 1


async def _submit(browser: Browser, path: str, name: str) -> None:
    await browser.submit(path, follow=False, name=name, passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)


async def test_a_link_lives_half_an_hour() -> None:
    house = House()
    path = house.claim_path()
    house.time += HALF_AN_HOUR - 1
    assert (await Browser(house).get(path)).status == 200
    browser = Browser(house)
    await browser.get(path)
    house.time += 1
    page = await browser.submit(path, name="alice", passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    assert page.status == 410
    assert house.hashed == 0


async def test_a_new_link_ends_the_one_before() -> None:
    house = House()
    first, second = house.claim_path(), house.claim_path()
    assert (await Browser(house).get(first)).status == 410
    assert (await Browser(house).get(second)).status == 200
    assert house.audited("claim.link_made") == ["ok", "ok"]


@pytest.mark.parametrize("token", ["x", "x" * 32, "%00", "a" * 500, "..", "\u00fc"])
async def test_a_made_up_link_is_over(token: str) -> None:
    house = House()
    house.claim_path()
    assert (await Browser(house).get(f"/claim/{token}")).status == 410


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"name": "a b"}, "letters, digits"),
        ({"name": ""}, "Choose a name"),
        ({"passphrase": "short", "passphrase_again": "short"}, "at least 12"),
        ({"passphrase_again": PASSPHRASE + "!"}, "differ"),
    ],
)
async def test_what_cannot_be_used_is_said_and_the_link_still_works(
    typed: dict[str, str], sentence: str
) -> None:
    house = House()
    browser, path = Browser(house), house.claim_path()
    await claim(browser, path, **typed)
    assert browser.page.status == 400
    assert sentence in browser.words
    assert 'role="alert"' in browser.text
    assert PASSPHRASE not in browser.text
    assert house.hashed == 0
    await claim(browser, path)
    assert "The server is yours" in browser.words


async def test_a_name_that_somebody_has_is_refused_and_the_link_still_works() -> None:
    house = House()
    house.add_user("usr_2", "alice")
    browser, path = Browser(house), house.claim_path()
    await claim(browser, path)
    assert "has this name already" in browser.words
    await claim(browser, path, name="anna")
    assert "The server is yours, anna" in browser.words


async def test_only_the_hash_of_the_token_is_stored_and_no_page_but_its_own_names_it() -> None:
    house = House()
    browser, path = Browser(house), house.claim_path()
    token = path.removeprefix("/claim/")
    assert len(token) == 32
    await claim(browser, path)
    assert token not in browser.text
    assert token not in "\n".join(house.store.db.database.dump())


async def test_a_link_needs_all_its_random_bytes() -> None:
    with pytest.raises(ValueError):
        one_time_links.token_from(b"short")


async def test_the_form_of_one_link_does_not_open_another() -> None:
    house = House()
    browser = Browser(house)
    old = house.claim_path()
    await browser.get(old)
    fields = dict(browser.fields(old))
    new = house.claim_path()
    page = await browser.post(
        new, ("form_token", fields["form_token"]), ("name", "eve"), ("passphrase", PASSPHRASE)
    )
    assert page.status == 403


async def test_the_welcome_page_is_for_those_who_are_signed_in() -> None:
    house = House(PUBLIC, loopback=False).owned()
    browser = Browser(house)
    await browser.get("/welcome")
    assert "Sign in" in browser.words
    await browser.submit("/signin", name="alice", passphrase=PASSPHRASE)
    assert f"ostiary login {PUBLIC}/mcp" in browser.words
    assert all(re.match("__Host-ostiary=", one) for one in values(browser.page, "set-cookie"))
