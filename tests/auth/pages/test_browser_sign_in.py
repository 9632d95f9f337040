from __future__ import annotations

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from auth.pages import sign_in_page
from auth.pages.sign_in_page import landing_of
from auth.people import user_accounts
from tests.auth.browser_fakes import PASSPHRASE, PUBLIC, Browser, House, header, live_sessions, location

MINUTE = 60_000


async def guess(house: House, name: str = "alice", *, ip: str = "198.51.100.1") -> Browser:
    browser = Browser(house, ip=ip)
    await browser.sign_in(name, "not the passphrase")
    return browser


async def test_the_right_passphrase_signs_in_and_leads_to_the_account() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in("ALICE")
    assert "24 hours" in browser.words
    assert "alice" in browser.words and "Sign out" in browser.words
    assert house.audited("user.signed_in") == ["ok"]
    assert len(live_sessions(house)) == 1


async def test_a_code_in_the_link_survives_signing_in() -> None:
    house = House().owned()
    code = house.ask()
    browser = Browser(house)
    await browser.get(f"/device?user_code={code.lower().replace('-', '%20')}")
    assert "Sign in first" in browser.words
    await browser.submit("/signin", name="alice", passphrase=PASSPHRASE)
    assert "Let this device use" in browser.words and code in browser.words


async def test_a_wrong_passphrase_a_wrong_name_and_a_disabled_account_get_one_answer_and_one_hash_each() -> (
    None
):
    answers: list[tuple[int, str]] = []
    for name, state in (("alice", "enabled"), ("nobody", "enabled"), ("bob", "disabled"), ("bob", "locked")):
        house = House().owned()
        house.add_user("usr_bob", "bob", state=state)
        browser = Browser(house)
        passphrase = PASSPHRASE if name == "bob" else "not the passphrase"
        await browser.sign_in(name, passphrase)
        assert house.verified_against == ["plain:" + PASSPHRASE if name == "alice" else user_accounts.NOBODY]
        assert house.audited("user.signed_in") == ["refused"]
        assert not live_sessions(house)
        answers.append((browser.page.status, browser.words.replace(name, "NAME")))
    assert len(set(answers)) == 1
    assert sign_in_page.WRONG in answers[0][1]


async def test_an_unclaimed_owner_cannot_sign_in_and_is_told_how_to_claim() -> None:
    house = House()
    browser = Browser(house)
    await browser.get("/signin")
    assert "ostiary claim" in browser.words
    assert "Passphrase" not in browser.words, "there is nobody who could sign in"
    house.add_user("usr_bob", "bob")
    await browser.sign_in("owner", PASSPHRASE)
    assert browser.page.status == 400
    assert "ostiary claim" in browser.words


async def test_the_form_comes_back_with_the_name_and_without_the_passphrase() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in('"><script>alert(1)</script>', "not the passphrase")
    assert "<script>" not in browser.text
    await browser.sign_in("alice", "not the passphrase")
    fields = dict(browser.fields("/signin"))
    assert fields["name"] == "alice" and fields["passphrase"] == ""


# ---------------------------------------------------------------- throttling


async def test_five_wrong_passphrases_close_the_account_for_a_quarter_of_an_hour_whatever_the_address() -> (
    None
):
    house = House().owned()
    for address in range(5):
        assert (await guess(house, ip=f"198.51.{address}.1")).page.status == 400
        house.time += MINUTE
    assert house.verified == 5
    browser = Browser(house, ip="203.0.113.200")
    page = await browser.sign_in()
    assert page.status == 429
    assert header(page, "retry-after") == str(14 * 60)
    assert "again in 14 minutes" in browser.words
    assert house.verified == 5, "a closed account costs no hash"
    house.time += 14 * MINUTE
    await browser.sign_in()
    assert "24 hours" in browser.words


async def test_the_wait_grows_after_the_third_wrong_passphrase() -> None:
    house = House().owned()
    for _ in range(2):
        assert (await guess(house)).page.status == 400
    for wait in ("5", "30", "900"):
        assert (await guess(house)).page.status == 400
        assert header((await guess(house)).page, "retry-after") == wait
        house.time += int(wait) * 1_000 - 1
        assert (await guess(house)).page.status == 429
        house.time += 1
    assert house.verified == 5


async def test_parallel_guesses_are_counted_before_they_are_hashed() -> None:
    house = House().owned()
    inside, peak = 0, 0
    everybody = trio.Event()

    class Slow:
        async def __call__(self, passphrase: str, phc: str) -> bool:
            nonlocal inside, peak
            inside += 1
            peak = max(peak, inside)
            await everybody.wait()
            return False

    house.parts = replace(house.parts, hashing=replace(house.parts.hashing, verify_passphrase=Slow()))
    browsers = [Browser(house, ip=f"198.51.{place}.1") for place in range(40)]
    for browser in browsers:
        await browser.get("/signin")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for browser in browsers:
                nursery.start_soon(_submit, browser)
            await trio.testing.wait_all_tasks_blocked()
            everybody.set()
    assert peak == 3, "the fourth guess of one moment has to wait"
    assert sorted(browser.page.status for browser in browsers) == [400] * 3 + [429] * 37


async def _submit(browser: Browser) -> None:
    await browser.submit("/signin", name="alice", passphrase="not the passphrase")


async def test_twenty_failures_close_a_network_for_every_name() -> None:
    house = House().owned()
    for place in range(20):
        # IPv6: one subscriber's /64 is one network
        browser = await guess(house, f"name{place}", ip=f"2001:db8:1:2::{place:x}")
        assert browser.page.status == 400
    assert (await guess(house, "somebody", ip="2001:db8:1:2:ffff::1")).page.status == 429
    assert (await guess(house, "somebody", ip="2001:db8:1:3::1")).page.status == 400


async def test_forty_good_sign_ins_in_ten_minutes_close_nothing_and_leave_no_tries() -> None:
    house = House().owned()
    for _ in range(40):
        assert (await Browser(house).sign_in()).status == 200
    assert house.rows("attempts") == []


async def test_a_good_sign_in_takes_back_its_own_tries_and_no_others() -> None:
    house = House().owned()
    for place in range(20):
        assert (await guess(house, f"name{place}")).page.status == 400
        neighbour = Browser(house, ip="198.51.100.1")
        assert (await neighbour.sign_in()).status == (200 if place < 19 else 429)
    assert (await guess(house, "somebody")).page.status == 429


async def test_an_unknown_name_is_throttled_like_a_known_one_and_is_not_stored() -> None:
    house = House().owned()
    for _ in range(3):
        await guess(house, "correct.horse.battery")
    assert (await guess(house, "correct.horse.battery")).page.status == 429
    assert "correct.horse" not in "\n".join(house.store.db.database.dump())


async def test_an_account_that_is_disabled_while_its_passphrase_is_hashed_stays_out() -> None:
    house = House().owned()
    house.before_verifying = lambda: house.store.db.execute("UPDATE users SET state = 'disabled'")
    browser = Browser(house)
    await browser.sign_in()
    assert sign_in_page.WRONG in browser.words
    assert not live_sessions(house)


async def test_a_passphrase_that_is_changed_while_the_old_one_is_hashed_no_longer_signs_in() -> None:
    house = House().owned()
    house.before_verifying = lambda: house.store.db.execute("UPDATE users SET passphrase_hash = 'plain:new'")
    browser = Browser(house)
    await browser.sign_in()
    assert sign_in_page.WRONG in browser.words
    assert not live_sessions(house)


# ---------------------------------------------------------------- where it leads


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/device/../../evil",
        "/device//evil.example",
        "/device@evil.example",
        " //evil.example",
        "\t//evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "http:/device",
        "/device#@evil.example",
        "/device;evil",
        "/signout",
        "/mcp",
        "",
        "device",
        "?user_code=BCDF-GHJK",
        "/" * 1_000,
    ],
)
async def test_signing_in_never_leads_out_of_the_house(wanted: str) -> None:
    assert landing_of(wanted) == "/account"
    house = House().owned()
    browser = Browser(house)
    await browser.get("/signin")
    page = await browser.submit("/signin", follow=False, name="alice", passphrase=PASSPHRASE, next=wanted)
    assert location(page) == "/account"


@pytest.mark.parametrize(
    ("wanted", "led"),
    [
        ("/", "/"),
        ("/welcome", "/welcome"),
        ("/account", "/account"),
        ("/account?did=joined", "/account"),
        ("/device", "/device"),
        ("/device?" + "a=b&" * 500, "/device"),
        ("/device?user_code=bcdf ghjk", "/device?user_code=BCDF-GHJK"),
        ("/device?user_code=BCDFGHJK&next=//evil.example", "/device?user_code=BCDF-GHJK"),
        ("/device?user_code=<script>", "/device"),
        ("/device?user_code=BCDF-GHJK%0d%0aset-cookie:a=b", "/device"),
        ("/welcome?x=//evil.example", "/welcome"),
    ],
)
def test_a_known_page_is_put_together_anew(wanted: str, led: str) -> None:
    assert landing_of(wanted) == led


async def test_who_is_signed_in_already_is_led_on() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    page = await browser.get("/signin?next=/welcome", follow=False)
    assert (page.status, location(page)) == (303, "/welcome")


@pytest.mark.parametrize(
    "path", ["/signin", "/device", "/welcome", "/claim/abc", "/invite/abc", "/reset/abc", "/account"]
)
async def test_off_loopback_plain_http_is_refused_before_anything_is_asked(path: str) -> None:
    house = House("http://agent.example", loopback=False).owned()
    browser = Browser(house)
    page = await browser.get(path)
    assert page.status == 400
    assert "needs https" in browser.words
    assert "<input" not in browser.text
    assert not browser.jar and header(page, "strict-transport-security") is None
    page = await browser.post(path, ("name", "alice"), ("passphrase", PASSPHRASE))
    assert page.status == 400 and house.verified == 0


async def test_a_public_site_does_not_trust_a_loopback_name_either() -> None:
    house = House(PUBLIC, loopback=False).owned()
    house.origin = "http://127.0.0.1:8420"
    assert (await Browser(house).get("/signin")).status == 400


async def test_a_loopback_site_that_is_called_by_another_name_needs_https() -> None:
    house = House().owned()
    house.origin = "http://192.168.1.5:8420"
    assert (await Browser(house).get("/signin")).status == 400
