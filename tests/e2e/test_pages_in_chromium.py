"""The pages in a real browser: the whole way from claim link to approval, without JavaScript, and what only a browser does with our
HTML, cookies and headers. What every page looks like is in test_pages_accessible.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from tests.auth.browser_fakes import PASSPHRASE
from tests.auth.offering_fakes import a_support_desk
from tests.e2e.chromium import Server, picture, serving, sign_in, tab
from tests.e2e.page_states import LOCAL, SERVERS, V6, WEB, link, register

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
        page.get_by_label("Use this agent").uncheck()
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


def test_approve_is_not_there_at_first_for_pointer_or_keyboard(chromium_shell: Browser) -> None:
    with serving() as server, tab(chromium_shell, javascript=True) as page:
        server.house.owned()
        sign_in(page, server)
        page.goto(f"{server.origin}/device?user_code={server.house.ask(ip='127.0.0.1')}")
        # The clock of the animation is the page's own, so it is wound by hand and nothing is timed.
        arm = "document.querySelector('.arm button').getAnimations()[0]"
        seen = "getComputedStyle(document.querySelector('.arm button')).visibility"
        assert page.evaluate(f"{arm}.pause(), {arm}.currentTime = 1900, {seen}") == "hidden"
        assert page.evaluate(f"{arm}.currentTime = 2001, {seen}") == "visible"


FIRST_SCREENS = {"laptop": (1366, 650), "desk": (1280, 800), "phone": (390, 664)}
HOSTILE = "Your own terminal, which you know " * 6

# What of the page can be seen as it is now: not beyond the window, and not behind anything else.
SEEN = """query => [...document.querySelectorAll(query)].map(each => {
  const box = each.getBoundingClientRect();
  const corners = [[box.left + 2, box.top + 2], [box.left + 2, box.bottom - 2], [box.left + box.width / 2, box.top + box.height / 2]];
  return corners.every(([x, y]) => { const top = document.elementFromPoint(x, y); return top && (each.contains(top) || top.contains(each)) });
})"""
FINISH = "document.getAnimations().forEach(each => each.finish())"
YES = ".arm button"


def _asked(server: Server, page: Page) -> Iterator[str]:
    """The pages that decide, as they open: with everyday words, and with the longest that a program can send."""
    house = server.house.owned()
    many = [f"add_thing_number_{number}" for number in range(40)]
    house.parts = replace(house.parts, offerings=a_support_desk("pay_refund", *many))
    sign_in(page, server)
    page.goto(f"{server.origin}/device?user_code={house.ask(ip='127.0.0.1')}")
    yield "confirm"
    house.time += 61_000
    code = house.ask(ip=V6, hostname="build-" * 30, user_agent="x" * 200, client_name=HOSTILE)
    page.goto(f"{server.origin}/device?user_code={code}")
    yield "confirm-hostile"
    page.goto(link(server, register(server, "cli_claude", LOCAL), LOCAL))
    yield "consent"
    page.goto(link(server, register(server, "cli_hostile", WEB, name=HOSTILE), WEB, scope="mcp financial"))
    yield "consent-hostile"


@pytest.mark.parametrize("javascript", [False, True])
@pytest.mark.parametrize("size", FIRST_SCREENS)
def test_a_page_that_decides_opens_with_who_asks_and_how_far_it_goes(
    chromium_shell: Browser, size: str, javascript: bool
) -> None:
    width, height = FIRST_SCREENS[size]
    with (
        serving(servers=SERVERS) as server,
        tab(
            chromium_shell,
            javascript=javascript,
            viewport={"width": width, "height": height},
            device_scale_factor=1,
        ) as page,
    ):
        for name in _asked(server, page):
            page.evaluate(FINISH)
            picture(page, f"opened/{name}-{size}")
            assert page.evaluate("scrollY") == 0, name
            assert page.evaluate(SEEN, "h1") == [True], name
            assert page.evaluate(SEEN, ".facts dt")[:2] == [True, True], name
            assert page.evaluate(SEEN, ".facts dd")[:2] == [True, True], name
            expect(page.locator(".facts dt").nth(0)).to_have_text("Who")
            expect(page.locator(".facts dt").nth(1)).to_have_text("Asks for")
            expect(page.locator(".facts dd").nth(1)).to_contain_text("42 change things")
            # Deny is there at once. Approve has its place, and cannot be pressed there.
            assert page.evaluate(SEEN, ".bar button") == [True], name
            assert page.evaluate(SEEN, ".asleep") == [True], name
            assert page.evaluate(SEEN, YES) == [False], name
            place = page.locator(".asleep").bounding_box()
            assert place is not None
            page.mouse.dblclick(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
            page.evaluate("scrollTo(0, 1e6)")
            picture(page, f"opened/{name}-{size}-end")
            assert page.evaluate(SEEN, YES) == [True], name
            assert page.evaluate(SEEN, ".bar button") == [True], name
            assert page.evaluate(SEEN, ".asleep") == [False], name
        assert [each.path for each in server.requests if each.method == "POST"] == ["/signin"]


MENU = """() => [...document.querySelectorAll('header .brand, header nav')].map(each => {
  const {x, y, width} = each.getBoundingClientRect();
  // The scroll bar, which this browser does not show, is there on a short page, too.
  return [x, y, width, getComputedStyle(document.documentElement).overflowY];
})"""
WIDTHS = (360, 480, 672, 700, 800, 900, 1280)


def _menus(page: Page) -> dict[int, object]:
    """Where the mark and the menu are, in windows of several widths."""
    found = dict[int, object]()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        found[width] = page.evaluate(MENU)
        picture(page, f"menu/{page.title().split(' ')[0]}-{width}")
    return found


def test_the_menu_stays_where_it_is_from_the_code_to_the_end_however_it_ends(
    chromium_shell: Browser,
) -> None:
    with serving(servers=SERVERS) as server, tab(chromium_shell) as page:
        house = server.house.owned()
        sign_in(page, server)
        page.goto(f"{server.origin}/device")
        menus = [("code", _menus(page))]
        for ending, heading in (("Approve", "Approved"), ("Deny", "Denied"), ("late", "")):
            page.goto(f"{server.origin}/device?user_code={house.ask(ip='127.0.0.1')}")
            menus.append(("confirm", _menus(page)))
            house.time += 3_600_000 if ending == "late" else 0
            page.get_by_role("button", name="Approve" if ending == "Approve" else "Deny").first.click()
            expect(page.get_by_role("heading", name=heading).first).to_be_visible()
            menus.append((ending, _menus(page)))
        page.goto(link(server, register(server, "cli_claude", LOCAL), LOCAL))
        menus.append(("consent", _menus(page)))
        house.store.db.execute("DELETE FROM clients WHERE id = 'cli_claude'")
        page.get_by_role("button", name="Deny").first.click()
        expect(page.get_by_role("alert")).to_be_visible()
        menus.append(("consent to nobody", _menus(page)))
        assert [name for name, menu in menus if menu != menus[0][1]] == []
        assert "scroll" in str(menus[0])


@pytest.mark.parametrize("size", FIRST_SCREENS)
def test_yes_comes_into_reach_only_past_all_that_it_gives(chromium_shell: Browser, size: str) -> None:
    """However far somebody scrolls: as long as a permission is still below the window, or behind the bar, there is nothing to press."""
    width, height = FIRST_SCREENS[size]
    with (
        serving(servers=SERVERS) as server,
        tab(chromium_shell, javascript=True, viewport={"width": width, "height": height}) as page,
    ):
        for name in _asked(server, page):
            page.evaluate(FINISH)
            last = "document.querySelector('fieldset > :last-child').getBoundingClientRect().bottom"
            bar = "document.querySelector('.bar').getBoundingClientRect().top"
            for _ in range(200):
                if page.evaluate(
                    f"document.querySelector('{YES}').getBoundingClientRect().top < innerHeight"
                ):
                    break
                page.evaluate("scrollBy(0, 20)")
            else:
                raise AssertionError("it never comes")
            assert page.evaluate(f"{last} <= {bar}"), name


@pytest.mark.parametrize("part", ["#deny", "#:~:text=It%20may"])
def test_a_link_that_somebody_sent_opens_the_page_at_its_top(chromium: Browser, part: str) -> None:
    with serving() as server, tab(chromium, viewport={"width": 390, "height": 664}) as page:
        server.house.owned()
        sign_in(page, server)
        page.goto(f"{server.origin}/device?user_code={server.house.ask(ip='127.0.0.1')}{part}")
        assert page.evaluate("scrollY") == 0


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
        expect(page.get_by_role("heading", name="another site")).to_be_visible()
        assert "cookie" in server.requests[-1].headers
        assert server.house.device_row()["state"] == "pending"

        neighbour.pages["/frame"] = f'<iframe src="{server.origin}/device"></iframe>'
        page.goto(neighbour.origin + "/frame")
        assert not page.frames[1].get_by_role("heading", name="Enter the code").count()


def _page(action: str, fields: list[list[str]]) -> str:
    hidden = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in fields)
    return f'<form method="post" action="{action}">{hidden}<button>win a prize</button></form>'
