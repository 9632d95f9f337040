"""The pages in a real browser: the whole way from claim link to approval, without JavaScript, and what only a browser does with our
HTML, cookies and headers. What every page looks like is in test_pages_accessible.py.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.auth.browser_fakes import PASSPHRASE
from tests.e2e.chromium import serving, sign_in, tab

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_an_owner_claims_enters_a_code_and_approves_without_javascript(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        page.goto(server.origin + server.house.claim_path())
        page.get_by_label("Name").fill("alice")
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_label("The same passphrase again").fill(PASSPHRASE)
        page.get_by_role("button", name="Claim this server").click()
        expect(page.get_by_role("heading", name="The server is yours, alice")).to_be_visible()

        page.get_by_role("link", name="Enter a code").click()
        page.get_by_label("Code").fill(server.house.ask(ip="127.0.0.1").lower())
        page.get_by_role("button", name="Continue").click()
        page.get_by_label("Use this agent: everything it offers").uncheck()
        page.get_by_role("button", name="Approve").click()

        expect(page.get_by_role("heading", name="Approved")).to_be_visible()
        row = server.house.device_row()
        assert (row["state"], row["granted_scope"]) == ("approved", "mcp:tools")


def test_the_link_with_the_code_leads_through_sign_in_to_the_confirm_page(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        server.house.owned()
        code = server.house.ask(ip="127.0.0.1")
        page.goto(f"{server.origin}/device?user_code={code}")
        page.get_by_label("Name").fill("alice")
        page.get_by_label("Passphrase").fill(PASSPHRASE)
        page.get_by_role("button", name="Sign in").click()

        expect(page.get_by_role("heading", name="Let this device use")).to_be_visible()
        expect(page.get_by_text(code, exact=True)).to_be_visible()


def test_pressing_enter_on_the_confirm_page_denies(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        server.house.owned()
        sign_in(page, server)
        page.goto(f"{server.origin}/device?user_code={server.house.ask(ip='127.0.0.1')}")
        expect(page.get_by_role("button", name="Deny").first).to_be_focused()
        page.keyboard.press("Enter")

        expect(page.get_by_role("heading", name="Denied")).to_be_visible()
        assert server.house.device_row()["state"] == "denied"


def test_approve_is_not_there_at_first_for_pointer_or_keyboard(chromium: Browser) -> None:
    with serving() as server, tab(chromium, javascript=True) as page:
        server.house.owned()
        sign_in(page, server)
        page.goto(f"{server.origin}/device?user_code={server.house.ask(ip='127.0.0.1')}")
        # The clock of the animation is the page's own, so it is wound by hand and nothing is timed.
        arm = "document.querySelector('.arm button').getAnimations()[0]"
        seen = "getComputedStyle(document.querySelector('.arm button')).visibility"
        assert page.evaluate(f"{arm}.pause(), {arm}.currentTime = 1900, {seen}") == "hidden"
        assert page.evaluate(f"{arm}.currentTime = 2001, {seen}") == "visible"


def test_chromium_sends_what_the_form_check_reads_and_keeps_the_plain_cookie_on_loopback(
    chromium: Browser,
) -> None:
    with serving() as server, tab(chromium) as page:
        server.house.owned()
        sign_in(page, server)
        posted = next(request for request in server.requests if request.method == "POST")
        assert posted.headers["sec-fetch-site"] == "same-origin"
        assert posted.headers["origin"] in ("null", server.origin)
        assert "referer" not in posted.headers
        kept = {cookie.get("name"): cookie for cookie in page.context.cookies()}
        assert kept["ostiary"].get("sameSite") == "Lax"
        assert all(cookie.get("httpOnly") and not cookie.get("secure") for cookie in kept.values())


def test_a_page_on_another_port_can_neither_send_our_forms_nor_frame_our_pages(chromium: Browser) -> None:
    with serving() as server, serving() as neighbour, tab(chromium, javascript=True) as page:
        server.house.owned()
        sign_in(page, server)
        code = server.house.ask(ip="127.0.0.1")
        page.goto(f"{server.origin}/device?user_code={code}")
        stolen = page.locator("#approve").evaluate(
            "form => [...new FormData(form)].map(([name, value]) => [name, value])"
        )
        # Another port of this host is "same site": the cookie goes along, and only Sec-Fetch-Site tells.
        neighbour.pages["/trap"] = _page(server.origin + "/device/decide", stolen)
        page.goto(neighbour.origin + "/trap")
        page.get_by_role("button", name="win a prize").click()
        expect(page.get_by_role("heading", name="This form came from another site")).to_be_visible()
        assert "cookie" in server.requests[-1].headers
        assert server.house.device_row()["state"] == "pending"

        neighbour.pages["/frame"] = f'<iframe src="{server.origin}/device"></iframe>'
        page.goto(neighbour.origin + "/frame")
        assert not page.frames[1].get_by_role("heading", name="Enter the code").count()


def _page(action: str, fields: list[list[str]]) -> str:
    hidden = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in fields)
    return f'<form method="post" action="{action}">{hidden}<button>win a prize</button></form>'
