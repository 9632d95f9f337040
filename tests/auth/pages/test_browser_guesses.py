"""How often a code may be guessed, proven by count."""

from __future__ import annotations

import pytest
import trio

from auth.pages.user_code_entry import NO_CODE_AT_ALL, NO_SUCH_CODE
from tests.auth.browser_fakes import Browser, House, header

SECOND, MINUTE = 1_000, 60_000


async def signed_in(house: House, name: str = "alice", *, ip: str = "203.0.113.7") -> Browser:
    browser = Browser(house, ip=ip)
    await browser.sign_in(name)
    return browser


def wrong(place: int) -> str:
    letters = "BCDFGHJKLMNPQRSTVWXZ"
    return "BBBBB" + letters[place // 400 % 20] + letters[place // 20 % 20] + letters[place % 20]


async def guesses(browser: Browser, count: int, *, start: int = 0) -> list[int]:
    return [(await browser.look_at(wrong(start + place))).status for place in range(count)]


async def test_a_session_has_five_wrong_codes_and_then_not_even_the_right_one_works() -> None:
    house = House().owned()
    browser = await signed_in(house)
    assert await guesses(browser, 5) == [400] * 5
    page = await browser.look_at(house.ask())
    assert page.status == 429
    assert header(page, "retry-after") == "900"
    assert "again in 15 minutes" in browser.words and "Let this device use" not in browser.words


async def test_every_wrong_code_is_written_down_and_the_one_that_closes_entry_says_so() -> None:
    house = House().owned()
    browser = await signed_in(house)
    await guesses(browser, 7)
    rows = [row for row in house.rows("audit") if row["event"] == "device.code_entered"]
    *first, last = (row["reason"] for row in rows)
    assert first == ["no such code"] * 4 and last.endswith("closed")
    assert {(row["outcome"], row["actor"], row["ip"]) for row in rows} == {
        ("refused", f"user:{house.owner_id}", "203.0.113.7")
    }


async def test_entry_stays_closed_for_a_quarter_of_an_hour_after_the_last_wrong_code() -> None:
    house = House().owned()
    browser = await signed_in(house)
    for place in range(5):
        house.time += 2 * MINUTE
        await browser.look_at(wrong(place))
    house.time += 15 * MINUTE - 1
    assert (await browser.look_at(house.ask())).status == 429
    house.time += 1
    assert (await browser.look_at(house.ask())).status == 200
    assert await guesses(browser, 6, start=5) == [400] * 5 + [429]


async def test_an_account_has_ten_wrong_codes_however_many_sessions_it_opens() -> None:
    house = House().owned()
    statuses: list[int] = []
    for place in range(4):
        browser = await signed_in(house, ip=f"203.0.{place}.7")
        statuses += await guesses(browser, 4, start=place * 10)
    assert statuses == [400] * 10 + [429] * 6


async def test_the_server_looks_up_sixty_wrong_codes_a_minute_whoever_asks() -> None:
    house = House().owned()
    statuses: list[int] = []
    for place in range(16):
        house.add_user(f"usr_{place}", f"user{place}")
        browser = await signed_in(house, f"user{place}", ip=f"198.51.{place}.7")
        statuses += await guesses(browser, 4, start=place * 10)
    assert statuses == [400] * 60 + [429] * 4
    house.time += MINUTE
    assert (await (await signed_in(house)).look_at(house.ask())).status == 200


async def test_parallel_guesses_cannot_pass_together() -> None:
    house = House().owned()
    browser = await signed_in(house)
    await browser.get("/device")
    token = dict(browser.fields("/device"))["form_token"]
    statuses: list[int] = []

    async def one(place: int) -> None:
        twin = Browser(house)
        twin.jar = dict(browser.jar)
        page = await twin.post("/device", ("form_token", token), ("user_code", wrong(place)))
        statuses.append(page.status)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for place in range(50):
                nursery.start_soon(one, place)
    assert sorted(statuses) == [400] * 5 + [429] * 45


async def test_codes_in_links_count_like_typed_ones() -> None:
    house = House().owned()
    browser = await signed_in(house)
    statuses = [(await browser.get(f"/device?user_code={wrong(place)}")).status for place in range(6)]
    assert statuses == [400] * 5 + [429]


async def test_right_codes_are_not_counted() -> None:
    house = House().owned()
    browser = await signed_in(house)
    code = house.ask()
    for _ in range(20):
        assert (await browser.look_at(code)).status == 200


async def test_what_cannot_be_a_code_is_no_guess() -> None:
    house = House().owned()
    browser = await signed_in(house)
    for typed in ("", "BCDF", "AEIO-UAEI", "BCDF-GHJK-LMNP", "☃" * 8, "\x00"):
        assert (await browser.look_at(typed)).status == 400
        assert NO_CODE_AT_ALL in browser.words
    assert not [row for row in house.rows("attempts") if row["bucket"].startswith("entry")]


@pytest.mark.parametrize(("typed", "wrong"), [("bcda-ghjk", "none of them is A"), ("BCDF-GHJ", "this has 7")])
async def test_what_is_wrong_with_a_code_is_said_and_what_was_typed_stays(typed: str, wrong: str) -> None:
    browser = await signed_in(House().owned())
    await browser.look_at(typed)
    assert wrong in browser.words
    assert dict(browser.fields("/device"))["user_code"] == typed


async def test_unknown_expired_denied_approved_and_used_codes_get_one_answer_and_only_who_guesses_is_counted() -> (
    None
):
    house = House().owned()
    answers: set[tuple[int, str]] = set()
    for state in ("unknown", "expired", "denied", "approved", "used"):
        code = house.ask(ip=f"192.0.2.{len(answers)}")
        house.time += 5 * SECOND
        if state == "unknown":
            code = "ZZZZ-ZZZZ"
        elif state == "expired":
            house.store.db.execute("UPDATE device_codes SET expires_at = ?", house.time)
        else:
            house.store.db.execute("UPDATE device_codes SET state = ?", state)
        browser = await signed_in(house, ip=f"203.0.{house.time % 200}.7")
        before = len(house.rows("attempts"))
        page = await browser.look_at(code)
        # Whoever opens an old link again has not guessed.
        assert len(house.rows("attempts")) == before + (3 if state == "unknown" else 0)
        assert NO_SUCH_CODE in browser.words
        answers.add((page.status, browser.words.replace(code, "CODE")))
        house.store.db.execute("DELETE FROM device_codes")
    assert len(answers) == 1
    (only,) = answers
    assert only[0] == 400
