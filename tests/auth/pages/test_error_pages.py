"""Errors on pages: who is signed in stays to be seen, what is harmless looks so, and there is one way out."""

from __future__ import annotations

import pytest

from auth.pages import html_shell
from auth.pages.page_visit import way_out
from auth.values.http_messages import WireReply, WireRequest
from tests.auth.browser_fakes import Browser, House, cookie_of, location
from tests.auth.routed_pages import ask, site_for


async def nowhere(house: House, browser: Browser) -> WireReply:
    cookie = f"{next(iter(browser.jar))}={cookie_of(browser)}" if browser.jar else ""
    headers = {"accept": "text/html", "cookie": cookie}
    request = WireRequest(method="GET", path="/nowhere", headers=headers, origin=house.origin, ip="127.0.0.1")
    return await ask(site_for(house.parts), request)


async def test_an_error_knows_who_reads_it() -> None:
    house = House().owned()
    browser = Browser(house)
    assert b"Sign out" not in (await nowhere(house, browser)).body
    await browser.sign_in()
    page = await nowhere(house, browser)
    assert page.status == 404 and b"Sign out" in page.body and b"alice" in page.body
    for path, status in (("/claim/" + "x" * 32, 410), ("/signout", 405)):
        assert (await browser.get(path)).status == status
        assert "Sign out" in browser.words


@pytest.mark.parametrize(
    ("status", "mark"),
    [(400, "stop"), (403, "stop"), (404, "lost"), (405, "lost"), (410, "lost"), (429, "wait"), (500, "stop"), (503, "wait")],
)  # fmt: skip
def test_what_is_harmless_does_not_look_like_an_attack(status: int, mark: str) -> None:
    frame = html_shell.frame_for("https://agent.example", bytes(16))
    text = html_shell.error_page(
        status, "Title", "It happened.", "Do this.", frame, reference="01AB"
    ).body.decode()
    assert f'class="seal {mark}"' in text
    assert ("01AB" in text) is (mark == "stop")


async def test_a_form_that_was_open_too_long_is_nobodys_attack() -> None:
    browser = Browser(House().owned())
    page = await browser.post("/signin", ("name", "alice"))
    assert page.status == 403 and 'class="seal lost"' in browser.text
    assert 'href="/signin"' in browser.text
    page = await browser.post("/signin", ("name", "alice"), site="cross-site")
    assert page.status == 403 and 'class="seal stop"' in browser.text


async def test_a_page_that_only_a_proof_leads_to_leads_back_to_the_account_when_it_is_loaded_again() -> None:
    browser = Browser(House().owned())
    await browser.sign_in()
    assert location(await browser.get("/account/passkeys/new", follow=False)) == "/account"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/account/logins/end", "/account"),
        ("/signout", "/signin"),
        ("/device/decide", "/device"),
        ("/x", "/"),
    ],
)
def test_the_way_out_leads_to_where_somebody_was(path: str, place: str) -> None:
    assert way_out(path)[0] == place


async def test_whoever_has_to_wait_is_told_until_when() -> None:
    browser = Browser(House().owned())
    await browser.sign_in()
    for _ in range(6):
        await browser.look_at("BBBB-BBBB")
    assert browser.page.status == 429
    assert "You can try again in 15 minutes, at 14:28 UTC." in browser.words
