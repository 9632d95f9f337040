from __future__ import annotations

import re

import pytest

from auth.people import browser_sessions
from tests.auth.browser_fakes import (
    LOOPBACK,
    PASSPHRASE,
    PUBLIC,
    Browser,
    House,
    cookie_of,
    header,
    live_sessions,
    location,
    session_row,
    values,
)

MINUTE, HOUR = 60_000, 60 * 60_000


async def test_on_https_the_cookie_is_host_bound_and_hsts_is_set() -> None:
    house = House(PUBLIC, loopback=False).owned()
    browser = Browser(house)
    await browser.get("/signin")
    page = await browser.submit("/signin", follow=False, name="alice", passphrase=PASSPHRASE)
    cookie, known = values(page, "set-cookie")
    assert re.fullmatch(
        r"__Host-ostiary-known=[^;]+; Path=/; Max-Age=7776000; HttpOnly; SameSite=Strict; Secure", known
    )
    name, *attributes = [part.strip() for part in cookie.split(";")]
    assert name.startswith("__Host-ostiary=")
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=Lax", "Max-Age=604800"} == set(attributes)
    page = await browser.get("/device")
    assert header(page, "strict-transport-security")


async def test_on_http_loopback_the_cookie_is_plain_and_there_is_no_hsts() -> None:
    house = House(LOOPBACK).owned()
    browser = Browser(house)
    page = await browser.sign_in()
    assert set(browser.jar) == {"ostiary"}
    assert header(page, "strict-transport-security") is None
    assert "Secure" not in browser_sessions.set_cookie("x", secure=False, keep=True)[1]


async def test_the_cookie_is_256_bits_and_only_its_hash_is_stored() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    assert len(cookie_of(browser)) == 43
    assert session_row(house, browser) is not None
    assert cookie_of(browser) not in "\n".join(house.store.db.database.dump())


async def test_signing_in_changes_the_cookie_so_that_a_planted_one_opens_nothing() -> None:
    house = House().owned()
    victim, thief = Browser(house), Browser(house)
    await thief.get("/signin")
    victim.jar = dict(thief.jar)
    await victim.sign_in()
    assert cookie_of(victim) != cookie_of(thief)
    await thief.get("/device")
    assert "Sign in" in thief.words
    assert len(live_sessions(house)) == 1


async def test_signing_in_again_ends_the_session_that_the_browser_had() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await browser.get("/device")
    old = dict(browser.jar)
    house.time += 13 * HOUR  # idle: the form of the old cookie still fits, the session does not
    await browser.get("/device")
    await browser.submit("/signin", name="alice", passphrase=PASSPHRASE)
    assert browser.jar != old
    assert len(live_sessions(house)) == 1


async def test_a_session_is_idle_after_twelve_hours() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    house.time += 12 * HOUR - MINUTE
    await browser.get("/device")
    assert "Enter the code" in browser.words
    house.time += 12 * HOUR - MINUTE
    await browser.get("/device")
    assert "Enter the code" in browser.words
    house.time += 12 * HOUR
    await browser.get("/device")
    assert "Sign in" in browser.words


async def test_a_session_ends_after_seven_days_however_busy() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    for _ in range(27):
        house.time += 6 * HOUR
        await browser.get("/device")
        assert "Enter the code" in browser.words
    house.time += 6 * HOUR
    await browser.get("/device")
    assert "Sign in" in browser.words


async def test_looking_at_pages_writes_at_most_once_a_minute() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    writes = house.store.writes
    for _ in range(10):
        await browser.get("/device")
    assert house.store.writes == writes


@pytest.mark.parametrize("state", ["disabled", "locked"])
async def test_a_disabled_user_is_out_at_once(state: str) -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    house.store.db.execute("UPDATE users SET state = ?", state)
    await browser.get("/device")
    assert "Sign in" in browser.words


async def test_signing_out_ends_the_session_on_the_server_too() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    kept = dict(browser.jar)
    await browser.submit("/signout")
    assert "Sign in" in browser.words
    assert not live_sessions(house)
    assert house.audited("user.signed_out") == ["ok"]
    browser.jar = kept
    await browser.get("/device")
    assert "Sign in" in browser.words


async def test_nobody_is_signed_out_by_a_link() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    page = await browser.get("/signout")
    assert page.status == 405 and header(page, "allow") == "POST"
    assert live_sessions(house)


async def test_a_person_has_at_most_twenty_browsers_and_the_least_used_goes() -> None:
    house = House().owned()
    browsers: list[Browser] = []
    for place in range(22):
        house.time += MINUTE
        browsers.append(Browser(house, ip=f"203.0.{place}.1"))
        await browsers[-1].sign_in()
    assert len(live_sessions(house)) == 20
    assert session_row(house, browsers[1]) is None
    assert session_row(house, browsers[2]) is not None


# ---------------------------------------------------------------- reading the cookie


VALUE = "a" * 43


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (f"ostiary={VALUE}", VALUE),
        (f"other=1; ostiary={VALUE}; more=2", VALUE),
        (f"other=1, ostiary={VALUE}", VALUE),
        (f"ostiary={VALUE}; ostiary={VALUE}", VALUE),
        (f"ostiary={VALUE}; ostiary={'b' * 43}", None),
        (f"ostiary={VALUE}b", None),
        ("ostiary=", None),
        ("ostiary=../../../../../../../../../../etc/passwd-----", None),
        (f"__Host-ostiary={VALUE}", None),
        (f"xostiary={VALUE}", None),
        ("", None),
    ],
)
def test_a_cookie_is_read_only_if_there_is_one_of_our_shape(sent: str, read: str | None) -> None:
    assert browser_sessions.read_cookie({"cookie": sent}, secure=False) == read


def test_a_plain_cookie_is_worth_nothing_on_https() -> None:
    assert browser_sessions.read_cookie({"cookie": f"ostiary={VALUE}"}, secure=True) is None
    assert browser_sessions.read_cookie({"cookie": f"__Host-ostiary={VALUE}"}, secure=True) == VALUE


# ---------------------------------------------------------------- forged forms


@pytest.mark.parametrize("path", ["/signin", "/device", "/device/decide", "/signout", "/claim/x"])
async def test_a_form_without_its_token_does_nothing(path: str) -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    before = "\n".join(house.store.db.database.dump())
    for token in ("", "0" * 64, "\ud800", "x" * 2_000):
        page = await browser.post(
            path, ("form_token", token), ("user_code", "BCDFGHJK"), ("decision", "approve")
        )
        assert page.status == 403
    assert "\n".join(house.store.db.database.dump()) == before


async def test_a_token_of_another_browser_does_not_fit() -> None:
    house = House().owned()
    thief, victim = Browser(house), Browser(house)
    await thief.get("/signin")
    token = dict(thief.fields("/signin"))["form_token"]
    await victim.get("/signin")
    page = await victim.post("/signin", ("form_token", token), ("name", "alice"), ("passphrase", PASSPHRASE))
    assert page.status == 403
    assert house.verified == 0


async def test_a_token_of_another_form_does_not_fit() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await browser.get("/device")
    token = dict(browser.fields("/device"))["form_token"]
    assert (await browser.post("/signout", ("form_token", token))).status == 403
    assert live_sessions(house)


async def test_without_a_cookie_no_form_is_taken() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.get("/signin")
    fields = browser.fields("/signin")
    browser.jar.clear()
    assert (await browser.post("/signin", *fields)).status == 403


@pytest.mark.parametrize(
    ("site", "origin", "status"),
    [
        ("same-origin", "null", 303),
        ("same-origin", LOOPBACK, 303),
        ("same-origin", None, 303),
        ("none", None, 303),
        (None, LOOPBACK, 303),
        (None, None, 303),
        ("cross-site", None, 403),
        ("cross-site", "null", 403),
        ("same-site", "null", 403),
        ("same-site", LOOPBACK, 403),
        ("same-origin", "http://localhost:3000", 403),
        (None, "https://evil.example", 403),
        (None, "http://localhost", 403),
        ("nonsense", None, 403),
    ],
)
async def test_a_form_must_come_from_our_own_page(site: str | None, origin: str | None, status: int) -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    fields = browser.fields("/signout")
    headers = {} if origin is None else {"origin": origin}
    sent = {"origin": None, **headers}
    page = await browser.post("/signout", *fields, site=site, follow=False, headers=sent)  # type: ignore[arg-type]
    assert page.status == status
    if status == 303:
        assert location(page) == "/signin"


@pytest.mark.parametrize(
    "fields",
    [
        (("name", "alice"), ("name", "bob")),
        (("name", "x" * 3_000),),
        tuple((f"field{place}", "") for place in range(65)),
    ],
)
async def test_a_form_that_none_of_our_pages_sends_is_refused(fields: tuple[tuple[str, str], ...]) -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.get("/signin")
    assert (await browser.post("/signin", *fields)).status == 400
    assert house.verified == 0
