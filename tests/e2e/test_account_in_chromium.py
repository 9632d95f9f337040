"""The account page and the invitation in a real browser: without script, and asked by another site. What they look like is in
test_pages_accessible.py.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.auth.browser_fakes import PASSPHRASE
from tests.auth.people_fakes import invited, let_in
from tests.e2e.chromium import serving, sign_in, tab

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_an_invited_person_comes_in_and_ends_a_login_without_script(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        house = server.house.owned()
        page.goto(server.origin + invited(house, "bob"))
        expect(page.get_by_role("heading", name="Welcome, bob")).to_be_visible()
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_label("The same passphrase again").fill(PASSPHRASE)
        page.get_by_role("button", name="Come in").click()
        expect(page.get_by_role("status")).to_contain_text("signed in on this browser")
        (bob,) = (row["id"] for row in house.rows("users") if row["name"] == "bob")
        login = let_in(house, bob)
        page.get_by_role("link", name="Access").click()
        page.get_by_role("button", name="End Ostiary on rowan").click()
        expect(page.get_by_role("status")).to_contain_text(
            "Your login of Ostiary on rowan on rowan.lan was ended"
        )
        (row,) = house.rows("grants")
        assert (row["id"], row["revoked_at"]) == (login, house.time)


def test_a_page_on_another_port_cannot_end_a_login(chromium: Browser) -> None:
    with serving() as server, serving() as neighbour, tab(chromium, javascript=True) as page:
        house = server.house.owned()
        login = let_in(house, house.owner_id)
        sign_in(page, server)
        page.goto(server.origin + "/account/access")
        token = page.locator('form[action="/account/logins/end"] [name=form_token]').get_attribute("value")
        neighbour.pages["/trap"] = (
            f'<form method="post" action="{server.origin}/account/logins/end">'
            f'<input name="form_token" value="{token}"><input name="login" value="{login}"><button>win</button></form>'
        )
        page.goto(neighbour.origin + "/trap")
        page.get_by_role("button", name="win").click()
        expect(page.get_by_role("heading", name="from another site")).to_be_visible()
        assert house.rows("grants")[0]["revoked_at"] is None
