"""The pages in a real browser: the whole way from claim link to approval, without JavaScript, in every size and light.

A few lines of http.server stand between Chromium and the page handler, so that this file sees what a browser does with our
HTML, cookies and headers and nothing of the rest of the server. Pictures go to $SCREENSHOTS (default .work/screenshots).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from auth import entry, wire
from tests.auth.browser_fakes import PASSPHRASE, House

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = Path(os.environ.get("SCREENSHOTS") or ".work/screenshots")
SIZES = {"phone": (360, 740), "desk": (1280, 860)}
LIGHTS = ("light", "dark")
PATIENCE_MS = 10_000


class Server:
    """The pages on a loopback port. `ip` is where its visitors are said to come from."""

    def __init__(self, house: House, origin: str) -> None:
        self.house = house
        self.origin = origin
        self.ip = "127.0.0.1"
        self.requests: list[wire.Request] = []
        self.pages: dict[str, str] = {}  # somebody else's, on this port
        self.lock = threading.Lock()

    def answer(self, request: wire.Request) -> wire.Reply:
        with self.lock:  # the memory store is one connection
            self.requests.append(request)
            reply = asyncio.run(entry.handle(request, self.house.parts))
        foreign = wire.Reply(
            headers=(("content-type", "text/html"),), body=self.pages.get(request.path, "").encode()
        )
        return reply or foreign


@contextmanager
def serving(**options: Any) -> Generator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply()

        def do_POST(self) -> None:
            self.reply()

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            path, _, query = self.path.partition("?")
            answered = served.answer(
                wire.Request(
                    method=self.command,
                    path=path,
                    query=tuple(parse_qsl(query)),
                    form=tuple(parse_qsl(body, keep_blank_values=True)),
                    headers={name.lower(): value for name, value in self.headers.items()},
                    origin=f"http://{self.headers['host']}",
                    ip=served.ip,
                )
            )
            self.send_response(answered.status)
            for name, value in answered.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(answered.body)))
            self.end_headers()
            self.wfile.write(answered.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    origin = f"http://127.0.0.1:{listener.server_port}"
    served = Server(House(origin, **options), origin)
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join(5)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def tab(
    chromium: Browser, *, size: str = "phone", light: str = "light", javascript: bool = False
) -> Generator[Page]:
    width, height = SIZES[size]
    context: BrowserContext = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if light == "dark" else "light",
        java_script_enabled=javascript,
        device_scale_factor=2 if size == "phone" else 1,
        has_touch=size == "phone",
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    try:
        yield page
    finally:
        context.close()
    # A blocked style, a refused form: what Chromium says of our policy on our own pages is a fault.
    blocked = [text for text in complaints if "Content Security Policy" in text and "Framing" not in text]
    assert not blocked, blocked


def sign_in(page: Page, server: Server) -> None:
    page.goto(server.origin + "/signin")
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Passphrase").fill(PASSPHRASE)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="What has access")).to_be_visible()


def test_an_owner_claims_enters_a_code_and_approves_without_javascript(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        page.goto(server.origin + server.house.claim_path())
        page.get_by_label("Name").fill("alice")
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_label("The same passphrase again").fill(PASSPHRASE)
        page.get_by_role("button", name="Claim this server").click()
        expect(page.get_by_role("heading", name="The door is yours, alice")).to_be_visible()

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

        expect(page.get_by_role("heading", name="Let this device in?")).to_be_visible()
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
        (cookie,) = page.context.cookies()
        assert (cookie.get("name"), cookie.get("httpOnly"), cookie.get("secure"), cookie.get("sameSite")) == (
            "ostiary",
            True,
            False,
            "Lax",
        )


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


@pytest.mark.parametrize("light", LIGHTS)
@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits_its_screen(chromium: Browser, size: str, light: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with (
        serving(servers={"agent": "/mcp", "archive": "/archive/mcp"}) as server,
        tab(chromium, size=size, light=light, javascript=True) as page,
    ):
        house = server.house

        def look(name: str) -> None:
            page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide == 0, f"{name} scrolls sideways by {wide}px"
            small = page.evaluate(
                "[...document.querySelectorAll('button, .button, input:not([type=hidden]):not([hidden]):not([type=checkbox]), label.tick')]"
                ".filter(each => each.getBoundingClientRect().height < 44).map(each => each.outerHTML)"
            )
            assert not small, f"{name} has controls too small for a thumb: {small}"
            page.screenshot(path=PICTURES / f"{name}-{size}-{light}.png", full_page=True)

        page.goto(server.origin + "/signin")
        look("signin-unclaimed")
        link = server.origin + house.claim_path()
        page.goto(link)
        look("claim")
        house.owned()
        page.goto(server.origin + "/claim/" + "x" * 32)
        look("link-is-over")

        page.goto(server.origin + "/signin")
        page.get_by_label("Name").fill("alice")
        page.get_by_label("Passphrase").fill("not the right one")
        page.get_by_role("button", name="Sign in").click()
        look("signin-wrong")
        sign_in(page, server)
        look("account")
        page.goto(server.origin + "/device")
        look("device")
        page.goto(server.origin + "/welcome")
        look("welcome")

        page.goto(server.origin + "/device")
        page.get_by_label("Code").fill("BBBB-BBBB")
        page.get_by_role("button", name="Continue").click()
        look("device-wrong")
        page.goto(f"{server.origin}/device?user_code={house.ask(ip='127.0.0.1')}")
        look("confirm")
        page.screenshot(path=PICTURES / f"confirm-first-screen-{size}-{light}.png")
        assert page.evaluate("scrollY") == 0, "the code and the warning must be what is seen first"
        page.get_by_role("button", name="Approve").click()
        look("approved")

        house.time += 61_000
        server.ip = "203.0.113.7"
        code = house.ask(
            ip="2001:db8:1234:5678:9abc:def0:1234:5678",
            client=house.registered,
            client_name="A" * 300,
            hostname="build-" * 30,
            user_agent="node/22.11.0 " + "x" * 300,
        )
        house.time += 3 * 60_000
        page.goto(f"{server.origin}/device?user_code={code}")
        look("confirm-elsewhere")
        page.get_by_label("Your passphrase").fill("not the right one")
        page.get_by_role("button", name="Approve").click()
        look("confirm-elsewhere-wrong")
        second = page.context.new_page()
        second.goto(f"{server.origin}/device?user_code={code}")
        second.get_by_role("button", name="Deny").last.click()
        expect(second.get_by_role("heading", name="Denied")).to_be_visible()
        page.get_by_role("button", name="Deny").last.click()
        look("already-denied")
        page.goto(f"{server.origin}/device?user_code={house.ask(ip='203.0.113.8')}")
        page.get_by_role("button", name="Deny").last.click()
        look("denied")
        for _ in range(5):
            page.goto(server.origin + "/device")
            page.get_by_label("Code").fill("BBBB-BBBB")
            page.get_by_role("button", name="Continue").click()
        look("too-many")
