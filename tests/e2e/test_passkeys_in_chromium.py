"""Passkeys in a real browser: Chromium's own authenticator answers what our pages ask, and only a browser's idea of an origin,
of a relying party and of our content policy decides. The pages are served as in chromium.py, under `localhost`; what they look like
is in test_pages_accessible.py.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, expect

from auth.people import one_time_links
from tests.auth.browser_fakes import PASSPHRASE
from tests.e2e.chromium import Devices, Server, serving, tab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ELSEWHERE = "198.51.100.9"


@contextmanager
def at_localhost(chromium: Browser, **look: str) -> Generator[tuple[Server, Page, Devices]]:
    with serving() as server, tab(chromium, javascript=True, **look) as page:
        server.origin = server.origin.replace("127.0.0.1", "localhost")
        yield server, page, Devices(page.context.new_cdp_session(page))


def claim(server: Server, page: Page) -> None:
    page.goto(server.origin + server.house.claim_path())
    page.get_by_label("Name").fill("alice")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="The server is yours, alice")).to_be_visible()


def sign_out(page: Page) -> None:
    page.get_by_role("button", name="Sign out", exact=True).first.click()
    expect(page.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()


def add_another(page: Page, server: Server, name: str) -> None:
    page.goto(server.origin + "/account/you")
    page.get_by_role("button", name="Add a passkey").click()
    page.get_by_label("What to call it").fill(name)
    page.get_by_role("button", name="Make a passkey").click()
    expect(page.get_by_text("The passkey was added")).to_be_visible()


def test_a_passkey_from_claim_to_approving_a_device_elsewhere(chromium: Browser) -> None:
    with at_localhost(chromium) as (server, page, devices):
        house = server.house
        devices.plug_in()
        claim(server, page)
        (credential,) = devices.credentials()
        assert (credential["rpId"], credential["isResidentCredential"]) == ("localhost", True)
        assert house.rows("users")[0]["passphrase_hash"] is None

        sign_out(page)
        page.get_by_role("button", name="Sign in with a passkey").click()
        expect(page.get_by_role("banner").get_by_role("link", name="alice", exact=True)).to_be_visible()
        page.goto(server.origin + "/account/you")
        expect(page.get_by_text("your only way in")).to_be_visible()

        devices.unplug()
        devices.plug_in()
        add_another(page, server, "Blue key")
        expect(page.get_by_role("button", name="Remove the passkey Blue key")).to_be_visible()

        house.time += 61_000
        page.goto(f"{server.origin}/device?user_code={house.ask(ip=ELSEWHERE)}")
        expect(page.get_by_text("another network", exact=False).first).to_be_visible()
        page.get_by_role("button", name="Approve with your passkey").click()
        expect(page.get_by_role("heading", name="Approved")).to_be_visible()
        assert house.device_row()["state"] == "approved"
        assert [row["sign_count"] > 0 for row in house.rows("passkeys")] == [True, True]

        page.goto(server.origin + "/account/you")
        page.get_by_role("button", name="Remove the passkey Blue key").click()
        expect(page.get_by_text("The passkey was removed here")).to_be_visible()
        expect(page.get_by_text("your only way in")).to_be_visible()
        assert len(house.rows("passkeys")) == 1


def test_an_invitation_is_accepted_with_a_passkey(chromium: Browser) -> None:
    with at_localhost(chromium) as (server, page, devices):
        house = server.house.owned()
        house.add_user("usr_bob", "bob", state="invited")
        house.store.db.execute("UPDATE users SET passphrase_hash = NULL WHERE id = 'usr_bob'")
        token = one_time_links.token_from(house.entropy(one_time_links.TOKEN_BYTES))
        make = partial(
            one_time_links.make, kind=one_time_links.INVITE, user_id="usr_bob", token=token, now=house.time
        )
        house.store.now(make)
        devices.plug_in()
        page.goto(server.origin + one_time_links.path_of(token, one_time_links.INVITE))
        page.get_by_role("button", name="Use a passkey").click()
        expect(page.get_by_text("Welcome, bob.")).to_be_visible()
        assert [row["user_id"] for row in house.rows("passkeys")] == ["usr_bob"]


def test_a_device_that_does_not_recognise_its_person_says_so_and_the_passphrase_stays(
    chromium: Browser,
) -> None:
    with at_localhost(chromium) as (server, page, devices):
        devices.plug_in(verifies=False)
        page.goto(server.origin + server.house.claim_path())
        page.get_by_label("Name").fill("alice")
        page.get_by_role("button", name="Use a passkey").click()
        expect(page.get_by_role("status")).to_contain_text("That did not work")
        expect(page.get_by_role("button", name="Use a passkey")).to_be_focused()
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_label("The same passphrase again").fill(PASSPHRASE)
        page.get_by_role("button", name="Claim this server").click()
        expect(page.get_by_role("heading", name="The server is yours, alice")).to_be_visible()


def test_a_passkey_that_this_device_has_already_is_not_made_twice(chromium: Browser) -> None:
    with at_localhost(chromium) as (server, page, devices):
        devices.plug_in()
        claim(server, page)
        page.goto(server.origin + "/account/you")
        page.get_by_role("button", name="Add a passkey").click()
        page.get_by_label("What to call it").press("Enter")
        expect(page.get_by_role("status")).to_contain_text("holds a passkey for this account already")


def test_the_whole_way_is_there_for_the_keyboard(chromium: Browser) -> None:
    with at_localhost(chromium) as (server, page, devices):
        devices.plug_in()
        claim(server, page)
        sign_out(page)
        page.get_by_role("button", name="Sign in with a passkey").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("banner").get_by_role("link", name="alice", exact=True)).to_be_visible()


def test_without_javascript_only_the_passphrase_is_offered(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        page.goto(server.origin.replace("127.0.0.1", "localhost") + server.house.claim_path())
        expect(page.get_by_role("button", name="Use a passkey")).to_be_hidden()
        expect(page.get_by_text("or choose a passphrase")).to_be_hidden()
        expect(page.get_by_role("button", name="Claim this server")).to_be_visible()


def test_at_an_address_in_digits_the_page_leads_to_where_passkeys_work(chromium: Browser) -> None:
    with at_localhost(chromium) as (server, page, devices):
        devices.plug_in()
        page.goto(server.origin.replace("localhost", "127.0.0.1") + server.house.claim_path())
        expect(page.get_by_role("button", name="Use a passkey")).to_have_count(0)
        page.get_by_role("link", name="Open this page there").click()
        page.get_by_label("Name").fill("alice")
        page.get_by_role("button", name="Use a passkey").click()
        expect(page.get_by_role("heading", name="The server is yours, alice")).to_be_visible()
