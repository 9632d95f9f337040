"""The account page and the invitation in a real browser: without script, in every size and light, with none, few and many logins.

Pictures go where those of test_pages_in_chromium.py go.
"""

from __future__ import annotations

from functools import partial

import pytest
from playwright.sync_api import Browser, Page, expect

from auth.clients import Registration, add
from auth.model import Client
from tests.auth.browser_fakes import PASSPHRASE, House
from tests.auth.people_fakes import invited, let_in, reset_path
from tests.e2e.test_pages_in_chromium import (
    LIGHTS,
    PICTURES,
    SIZES,
    chromium,
    serving,
    sign_in,
    tab,
)

__all__ = ["chromium"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOUR, DAY = 3_600_000, 86_400_000
PROGRAMS = ("Ostiary on rowan", "Claude Code", "Remote bridge", "An inspector", "codex")


def furnish(house: House, logins: int) -> None:
    """So many logins, the owner's and those of the people who are there, and people in every state."""
    house.owned()
    house.time -= 40 * DAY
    if logins:
        for place, name in enumerate(("bob", "carol-from-the-lab", "Zoë".casefold())):
            house.add_user(f"usr_{place}", name)
        house.store.db.execute("UPDATE users SET last_seen_at = ? WHERE role = 'user'", house.time)
        house.store.db.execute("UPDATE users SET state = 'locked', tools = 'readonly' WHERE id = 'usr_2'")
        house.time += 20 * DAY
        house.add_user("usr_9", "erin", state="disabled", scope="*")
    for place in range(logins):
        house.time += 11 * HOUR
        many = logins > 3
        subject = f"usr_{place % 4}" if many and place % 4 < 3 else house.owner_id
        let_in(
            house,
            subject,
            name=PROGRAMS[place % 5],
            client=house.registered if place % 5 == 2 else None,
            hostname="build-agent-with-a-very-long-name-" * 2 if place == 5 else f"rowan-{place}.lan",
            how="code" if place % 2 else "device",
            redirect_host="claude.ai" if place % 2 else "",
            ip="2001:db8:1234:5678:9abc:def0:1234:5678" if place % 3 else "203.0.113.7",
            scope="mcp:tools" if place % 2 else "mcp mcp:tools financial",
        )
    house.store.db.execute("UPDATE grants SET last_ip = '198.51.100.23' WHERE how = 'code'")
    if logins:
        document(house)
        invited(house, "dora", scope="mcp:tools", expires_at=house.time + 90 * DAY)
        house.store.db.execute(
            "INSERT INTO consents VALUES (?, 'mcp-remote', 'http://127.0.0.1', 'agent', 'mcp:tools', 'h', ?, ?)",
            house.owner_id,
            house.time,
            house.time + 90 * DAY,
        )
    house.time += 3 * HOUR


def document(house: House) -> None:
    """A program that is known by its own address."""
    registration = Registration(
        name="Claude", client_id="tmp", redirect_uris=("https://claude.ai/api/mcp/auth_callback",)
    )
    added = house.store.now(
        partial(add, registration=registration, seed=bytes(32), by="local:0", now=house.time)
    )
    assert added is not None
    house.store.db.execute(
        "UPDATE clients SET kind = 'document', id = 'https://claude.ai/oauth/client.json' WHERE id = 'tmp'"
    )
    row = house.store.db.fetch_one("SELECT * FROM clients WHERE kind = 'document'")
    assert row is not None
    let_in(
        house,
        house.owner_id,
        client=Client.of(row),
        name="",
        hostname="",
        how="code",
        redirect_host="claude.ai",
    )


def look(page: Page, name: str, size: str, light: str) -> None:
    page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, f"{name} scrolls sideways by {wide}px"
    small = page.evaluate(
        "[...document.querySelectorAll('button, .button, .who a, input:not([type=hidden]):not([hidden])')]"
        ".filter(each => each.offsetParent && each.getBoundingClientRect().height < 44).map(each => each.outerHTML)"
    )
    assert not small, f"{name} has controls too small for a thumb: {small}"
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}-{size}-{light}.png", full_page=True)


@pytest.mark.parametrize("light", LIGHTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("logins", [0, 3, 40])
def test_the_account_fits_its_screen(chromium: Browser, size: str, light: str, logins: int) -> None:
    with serving() as server, tab(chromium, size=size, light=light, javascript=True) as page:
        furnish(server.house, logins)
        sign_in(page, server)
        server.house.time += 5 * 60_000
        for _ in range(2 if logins else 0):
            with tab(chromium) as other:
                sign_in(other, server)
        page.goto(server.origin + "/account")
        look(page, f"account-{logins}", size, light)


@pytest.mark.parametrize("light", LIGHTS)
@pytest.mark.parametrize("size", SIZES)
def test_the_pages_of_links_and_proofs_fit_their_screen(chromium: Browser, size: str, light: str) -> None:
    with serving() as server, tab(chromium, size=size, light=light, javascript=True) as page:
        house = server.house
        furnish(house, 3)
        page.goto(
            server.origin
            + invited(house, "frida", scope="mcp:tools", tools="readonly", expires_at=house.time + 30 * DAY)
        )
        look(page, "invite", size, light)
        page.get_by_label("Passphrase", exact=True).fill("one that is long")
        page.get_by_label("The same passphrase again").fill("one that differs")
        page.get_by_role("button", name="Come in").click()
        look(page, "invite-differs", size, light)
        page.goto(server.origin + reset_path(house))
        look(page, "reset", size, light)
        page.goto(server.origin + "/invite/" + "x" * 32)
        look(page, "invite-over", size, light)
        sign_in(page, server)
        page.goto(server.origin + "/account/passphrase")
        look(page, "passphrase", size, light)
        page.goto(server.origin + "/account")
        house.time += HOUR
        page.get_by_role("button", name="Disable bob").click()
        look(page, "prove", size, light)
        page.get_by_label("Passphrase").fill(PASSPHRASE)
        page.get_by_role("button", name="Go on").click()
        look(page, "account-done", size, light)


def test_an_invited_person_comes_in_and_ends_a_login_without_script(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        house = server.house.owned()
        page.goto(server.origin + invited(house, "bob"))
        expect(page.get_by_role("heading", name="Welcome, bob")).to_be_visible()
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_label("The same passphrase again").fill(PASSPHRASE)
        page.get_by_role("button", name="Come in").click()
        expect(page.get_by_role("status")).to_contain_text("You are signed in on this browser")
        (bob,) = (row["id"] for row in house.rows("users") if row["name"] == "bob")
        login = let_in(house, bob)
        page.get_by_role("link", name="bob").click()
        page.get_by_role("button", name="End Ostiary on rowan").click()
        expect(page.get_by_role("status")).to_contain_text("That login was ended")
        (row,) = house.rows("grants")
        assert (row["id"], row["revoked_at"]) == (login, house.time)


def test_a_page_on_another_port_cannot_end_a_login(chromium: Browser) -> None:
    with serving() as server, serving() as neighbour, tab(chromium, javascript=True) as page:
        house = server.house.owned()
        login = let_in(house, house.owner_id)
        sign_in(page, server)
        token = page.locator('form[action="/account/logins/end"] [name=form_token]').get_attribute("value")
        neighbour.pages["/trap"] = (
            f'<form method="post" action="{server.origin}/account/logins/end">'
            f'<input name="form_token" value="{token}"><input name="login" value="{login}"><button>win</button></form>'
        )
        page.goto(neighbour.origin + "/trap")
        page.get_by_role("button", name="win").click()
        expect(page.get_by_role("heading", name="This form came from another site")).to_be_visible()
        assert house.rows("grants")[0]["revoked_at"] is None
