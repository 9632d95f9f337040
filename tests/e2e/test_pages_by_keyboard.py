"""The pages without a pointer, enlarged, without movement, and in somebody's own colours.

Each walk uses Tab, Enter and Space alone. The time of an animation is wound by hand, so that nothing here waits or is timed.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from auth.values import scopes
from tests.auth.browser_fakes import PASSPHRASE
from tests.auth.people_fakes import invited
from tests.e2e.chromium import fill_in, serving, sign_in, tab
from tests.e2e.page_states import LOCAL, SERVERS, V6, furnish, link, register

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIND = "at => document.getAnimations().forEach(each => { each.pause(); each.currentTime = at; })"
FINISH = "document.getAnimations().forEach(each => each.finish())"
HERE = """() => {
  const here = document.activeElement, style = getComputedStyle(here);
  if (here === document.body) return null;
  const name = here.getAttribute("aria-label") || here.labels?.[0]?.innerText || here.innerText;
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const box = here.getBoundingClientRect();
  const shown = box.width > 0 && box.height > 0 && box.top < innerHeight && box.bottom > 0;
  return {name: name.split("\\n")[0], visible: seen && shown};
}"""

HEAD = ["Ostiary", "alice", "Sign out", "Overview", "Access", "People", "You"]
USE, TOOLS = scopes.MCP.words, scopes.TOOLS.words


def here(page: Page) -> str | None:
    """What has the focus, which has to be seen."""
    found: dict[str, Any] | None = page.evaluate(HERE)
    if found is None:
        return None
    assert found["visible"], f"{found['name']} has the focus, and nobody sees it"
    return found["name"]


def round_trip(page: Page) -> list[str]:
    """Everything that Tab leads to, from what has the focus now until that comes again."""
    stops: list[str] = []
    which = "[...document.querySelectorAll('*')].indexOf(document.activeElement)"
    start = page.evaluate(which)
    while len(stops) < 100:
        page.keyboard.press("Tab")
        stop = here(page)
        if stop is not None:
            stops.append(stop)
        if page.evaluate(which) == start:
            return stops
    raise AssertionError(f"Tab never comes back: {stops}")


def go_to(page: Page, name: str) -> None:
    """Tab until it has the focus."""
    for _ in range(100):
        if here(page) == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to {name}")


def test_signing_in(chromium_shell: Browser) -> None:
    with serving() as server, tab(chromium_shell, size="desk") as page:
        server.house.owned()
        page.goto(server.origin + "/signin")
        assert here(page) == "Name"
        page.keyboard.type("alice")
        page.keyboard.press("Tab")
        page.keyboard.type("not the right one")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        assert here(page) == "Passphrase"
        expect(page.get_by_label("Passphrase")).to_have_accessible_description(
            re.compile("name and passphrase")
        )
        page.keyboard.type(PASSPHRASE)
        page.keyboard.press("Tab")
        assert here(page) == "Sign in"
        page.keyboard.press("Space")
        expect(page.get_by_role("banner").get_by_role("link", name="alice", exact=True)).to_be_visible()


def test_accepting_an_invitation(chromium_shell: Browser) -> None:
    with serving() as server, tab(chromium_shell, size="desk") as page:
        page.goto(server.origin + invited(server.house.owned(), "bob"))
        page.keyboard.press("Tab")
        assert here(page) == "Ostiary"
        go_to(page, "Passphrase")
        page.keyboard.type("one that is long enough")
        go_to(page, "The same passphrase again")
        page.keyboard.type("but not the same again")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        assert here(page) == "The same passphrase again"
        expect(page.get_by_label("The same passphrase again")).to_have_accessible_description(
            re.compile("two passphrases differ")
        )
        page.keyboard.press("Shift+Tab")
        assert here(page) == "Passphrase"
        page.keyboard.type(PASSPHRASE)
        go_to(page, "The same passphrase again")
        page.keyboard.type(PASSPHRASE)
        page.keyboard.press("Tab")
        assert here(page) == "Come in"
        page.keyboard.press("Enter")
        expect(page.get_by_text("Welcome, bob.")).to_be_visible()


def test_letting_a_device_in(chromium_shell: Browser) -> None:
    with serving() as server, tab(chromium_shell, size="desk", javascript=True) as page:
        server.house.owned()
        sign_in(page, server)
        page.goto(server.origin + "/account/access")
        go_to(page, "The code that it shows")
        page.keyboard.type("bbbb-bbbb")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Code")).to_be_focused()
        page.get_by_label("Code").press("Control+a")
        page.keyboard.type(server.house.ask(ip="127.0.0.1"))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Let this device use")).to_be_visible()
        page.evaluate(WIND, 1_900)
        assert here(page) == "Deny"
        assert round_trip(page) == [*HEAD, USE, "Deny"]
        page.evaluate(FINISH)
        assert round_trip(page) == ["Approve", *HEAD, USE, "Deny"]
        go_to(page, USE)
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        assert here(page) == TOOLS, (
            "what was included comes to be seen, ticked, with what included it taken away"
        )
        go_to(page, "Approve")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Approved")).to_be_visible()
        assert server.house.device_row()["granted_scope"] == "mcp:tools"


def test_letting_a_program_in(chromium_shell: Browser) -> None:
    with serving() as server, tab(chromium_shell, size="desk", javascript=True) as page:
        server.house.owned()
        page.goto(link(server, register(server, "cli_claude", LOCAL), LOCAL))
        fill_in(page)
        expect(page.get_by_role("heading", name="Let an unverified program")).to_be_visible()
        page.evaluate(WIND, 1_900)
        assert here(page) == "Deny"
        assert round_trip(page) == [*HEAD, USE, "Deny"]
        page.evaluate(FINISH)
        allow, elsewhere, *others = round_trip(page)
        assert [allow, *others] == ["Allow", *HEAD, USE, "Deny"] and "another machine" in elsewhere
        for box in (USE, TOOLS):
            go_to(page, box)
            page.keyboard.press("Space")
        go_to(page, "Allow")
        page.keyboard.press("Space")
        expect(page.get_by_role("alert")).to_be_focused()
        page.evaluate(FINISH)
        go_to(page, TOOLS)
        page.keyboard.press("Space")
        go_to(page, elsewhere)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="One step left")).to_be_visible()
        (code,) = server.house.rows("authorization_codes")
        assert code["scope"] == "mcp:tools"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_enter_in_a_form_that_lets_somebody_in_sends_nothing_before_its_button_is_there_nor_after(
    chromium_shell: Browser, elsewhere: bool
) -> None:
    """A browser presses a form's first button for Enter in any field, whether or not that button is to be seen."""
    with serving() as server, tab(chromium_shell, size="desk", javascript=True) as page:
        house = server.house.owned()
        sign_in(page, server)
        house.time += 61_000
        page.goto(f"{server.origin}/device?user_code={house.ask(ip=V6 if elsewhere else '127.0.0.1')}")
        page.evaluate(WIND, 100)
        if elsewhere:  # as a program that keeps passphrases would
            page.get_by_label("Your passphrase").fill(PASSPHRASE)
            page.get_by_label("Your passphrase").press("Enter")
        page.get_by_role("checkbox").first.press("Enter")
        page.goto(link(server, register(server, "cli_claude", LOCAL), LOCAL))
        page.evaluate(WIND, 100)
        page.get_by_role("checkbox").first.press("Enter")
        page.evaluate(FINISH)
        page.get_by_role("checkbox").first.press("Enter")
        page.goto(server.origin + "/account")
        assert house.device_row()["state"] == "pending"
        assert house.rows("authorization_codes") == []
        assert [each.path for each in server.requests if each.method == "POST"] == ["/signin"]


def test_ending_a_login_on_the_account_page(chromium_shell: Browser) -> None:
    with serving(servers=SERVERS) as server, tab(chromium_shell, size="desk") as page:
        furnish(server, 3)
        sign_in(page, server)
        page.goto(server.origin + "/account/access")
        page.keyboard.press("Tab")
        stops = [here(page), *round_trip(page)]
        assert stops[:16] == [
            *HEAD,
            "Audit trail",
            "Upstreams",
            "The code that it shows",
            "Continue",
            "End Claude",
            "End Remote bridge",
            "End Claude Code",
            "End Ostiary on rowan",
            "End Nightly report",
        ]
        assert stops[16:18] == ["Make one", "End the key home-assistant"]
        assert stops[18] is not None
        assert stops[18].startswith("End the key a script")
        assert stops[-2:] == ["Forget Remote bridge", HEAD[0]]
        assert len(set(stops[:-1])) == len(stops[:-1]), "two buttons that a listener cannot tell apart"
        go_to(page, "End Remote bridge")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("Your login of Remote bridge")


@pytest.mark.parametrize("reduced", [False, True])
def test_approve_comes_after_two_seconds_and_to_whoever_wants_no_movement_too(
    chromium_shell: Browser, reduced: bool
) -> None:
    motion = "reduce" if reduced else "no-preference"
    with serving() as server, tab(chromium_shell, javascript=True, reduced_motion=motion) as page:
        server.house.owned()
        sign_in(page, server)
        page.goto(f"{server.origin}/device?user_code={server.house.ask(ip='127.0.0.1')}")
        arm = "document.querySelector('.arm button').getAnimations()[0]"
        seen = "getComputedStyle(document.querySelector('.arm button')).visibility"
        assert page.evaluate(f"{arm}.pause(), {arm}.currentTime = 1900, {seen}") == "hidden"
        assert page.evaluate(f"{arm}.currentTime = 2001, {seen}") == "visible"
        moving = "document.getAnimations().filter(each => each.animationName === 'fill').length"
        assert page.evaluate(moving) == (0 if reduced else 1)


@pytest.mark.parametrize("width", [320, 640])
def test_enlarged_to_twice_and_to_four_times_nothing_is_lost(chromium_shell: Browser, width: int) -> None:
    """WCAG 1.4.10: 1280 px at 400 % are 320; at 200 %, 640."""
    with serving(servers=SERVERS) as server, tab(chromium_shell, javascript=True) as page:
        house = server.house
        page.set_viewport_size({"width": width, "height": 256})
        page.goto(server.origin + house.claim_path())
        _fits(page)
        furnish(server, 3)
        sign_in(page, server)
        _fits(page)
        code = house.ask(ip=V6, hostname="build-" * 30, client_name="A" * 300, user_agent="x" * 200)
        page.goto(f"{server.origin}/device?user_code={code}")
        _fits(page)
        page.goto(link(server, register(server, "cli_claude", LOCAL), LOCAL))
        _fits(page)
        if width == 640:  # text alone at twice its size (1.4.4), as browsers let people set it
            page.evaluate("document.documentElement.style.fontSize = '200%'")
            _fits(page)


def _fits(page: Page) -> None:
    page.evaluate(FINISH)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, page.title()
    outside = page.evaluate(
        """[...document.querySelectorAll("main *")].filter(each => each.checkVisibility())
        .filter(each => { const box = each.getBoundingClientRect(); return box.width > 1 && (box.left < 0 || box.right > innerWidth); })
        .map(each => each.outerHTML.slice(0, 200))"""
    )
    assert not outside, outside


def test_in_somebodys_own_colours_every_control_has_an_edge(chromium_shell: Browser) -> None:
    with serving() as server, tab(chromium_shell, javascript=True, forced_colors="active") as page:
        server.house.owned()
        sign_in(page, server)
        page.goto(f"{server.origin}/device?user_code={server.house.ask(ip=V6)}")
        page.evaluate(FINISH)
        assert page.evaluate("matchMedia('(forced-colors: active)').matches")
        edgeless = page.evaluate(
            """[...document.querySelectorAll("button:not(.link), .button, .note, .ticket, .tag, input:not([type=hidden])")]
            .filter(each => each.checkVisibility() && each.type !== "checkbox")
            .filter(each => { const s = getComputedStyle(each); return s.borderStyle === "none" || s.borderWidth === "0px"
              || s.borderColor === "rgba(0, 0, 0, 0)"; }).map(each => each.outerHTML.slice(0, 120))"""
        )
        assert not edgeless, edgeless
        expect(page.get_by_role("button", name="Approve")).to_be_visible()
