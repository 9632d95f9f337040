"""A program signs its person in through a real browser: sign-in, consent, and the way back to the program's own listener.

What only a browser can tell: that it follows our redirects under our own content policy, and what the pages look like. The pages
are served as in test_pages_in_chromium.py; pictures go where that file puts them.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET6
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from auth import clients, pkce
from auth.clients import Registration
from auth.model import AUTHORIZATION_CODE, REFRESH_TOKEN
from auth.scopes import FINANCIAL, Vocabulary
from auth.site import Site
from tests.auth.browser_fakes import PASSPHRASE
from tests.certificates import write_certificate
from tests.e2e.test_pages_in_chromium import CHROMIUM, FLAGS, LIGHTS, PICTURES, SIZES, Server, serving, tab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHALLENGE = pkce.challenge_of("v" * 43)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Callbacks:
    """A program's listener: what it was called with."""

    def __init__(self, host: str, port: int) -> None:
        self.uri = f"http://{host}:{port}/callback"
        self.queries: list[dict[str, list[str]]] = []
        self.referers: list[str | None] = []


class _V6(ThreadingHTTPServer):
    address_family = AF_INET6


@contextmanager
def listening(
    host: str = "127.0.0.1", *, onward: str = "", certificate: tuple[Path, Path] | None = None
) -> Generator[Callbacks]:
    """`onward`: where the program sends its person then."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/callback"):
                got.queries.append(parse_qs(urlsplit(self.path).query))
                got.referers.append(self.headers["referer"])
            if onward:
                self.send_response(302)
                self.send_header("location", onward)
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<h1>Signed in, go back to your terminal</h1>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = (_V6 if host == "[::1]" else ThreadingHTTPServer)(
        (host.strip("[]").replace("localhost", "127.0.0.1"), 0), Handler
    )
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    got = Callbacks(host, server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def register(
    server: Server,
    client_id: str,
    *redirect_uris: str,
    kind: str = "dynamic",
    name: str = "Claude Code (agent)",
) -> str:
    registration = Registration(
        name=name,
        client_id=client_id,
        redirect_uris=redirect_uris,
        grant_types=(AUTHORIZATION_CODE, REFRESH_TOKEN),
    )
    house = server.house
    assert house.store.now(
        partial(
            clients.insert,
            client_id=client_id,
            registration=registration,
            kind=kind,
            hashed=None,
            now=house.time,
        )
    )
    house.time += 2 * 60_000
    return client_id


def link(server: Server, client_id: str, redirect_uri: str, **more: str) -> str:
    request = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "abc~123",
        "scope": "mcp mcp:tools offline_access",
        **more,
    }
    return f"{server.origin}/authorize?{urlencode(request)}"


def sign_in(page: Page) -> None:
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Passphrase").fill(PASSPHRASE)
    page.get_by_role("button", name="Sign in", exact=True).click()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_program_is_let_in_without_javascript_and_the_browser_follows_to_its_listener(
    chromium: Browser, host: str
) -> None:
    with serving() as server, listening(host) as program, tab(chromium) as page:
        server.house.owned()
        client_id = register(server, "cli_claude", f"http://{host}/callback")
        page.goto(link(server, client_id, program.uri))
        expect(page.get_by_text("A program wants to come in as you.")).to_be_visible()
        sign_in(page)
        expect(page.get_by_role("heading", name="Let an unverified program in?")).to_be_visible()
        page.get_by_label("List and call the agent's tools").uncheck()
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()

        (query,) = program.queries
        assert query["state"] == ["abc~123"]
        assert query["iss"] == [server.origin]
        assert program.referers == [None]
        (row,) = server.house.rows("authorization_codes")
        assert row["scope"] == "mcp"


def test_whoever_agreed_before_comes_back_from_sign_in_straight_to_the_program(chromium: Browser) -> None:
    """The form of the sign-in page leads to another site by two redirects: its policy must know."""
    with serving() as server, listening() as program, tab(chromium) as page:
        server.house.owned()
        client_id = register(server, "cli_claude", program.uri)
        page.goto(link(server, client_id, program.uri))
        sign_in(page)
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
        page.context.clear_cookies()
        page.goto(link(server, client_id, program.uri))
        sign_in(page)
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
        assert len(program.queries) == 2


def test_a_program_may_send_its_person_on_to_a_page_on_the_web(chromium: Browser, tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "localhost")
    context = chromium.new_context(java_script_enabled=False, ignore_https_errors=True)
    with serving() as server, listening("localhost", certificate=certificate) as web:
        onward = web.uri.replace("http:", "https:").replace("callback", "thanks")
        with listening(onward=onward) as program:
            server.house.owned()
            page = context.new_page()
            page.goto(link(server, register(server, "cli_claude", program.uri), program.uri))
            sign_in(page)
            page.get_by_role("button", name="Allow").click()
            expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
            assert page.url == onward
            assert len(program.queries) == 1
        context.close()


def test_pressing_enter_on_the_consent_page_denies_and_the_program_is_told(chromium: Browser) -> None:
    with serving() as server, listening() as program, tab(chromium) as page:
        server.house.owned()
        page.goto(link(server, register(server, "cli_claude", program.uri), program.uri))
        sign_in(page)
        expect(page.get_by_role("button", name="Deny").first).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
        assert program.queries[0]["error"] == ["access_denied"]
        assert server.house.rows("authorization_codes") == []


def test_allow_and_the_address_to_copy_are_not_there_at_first(chromium: Browser) -> None:
    with serving() as server, tab(chromium, javascript=True) as page:
        server.house.owned()
        uri = "http://localhost:1/callback"
        page.goto(link(server, register(server, "cli_claude", uri), uri))
        sign_in(page)
        for button in (".arm button", "button.late"):
            arm = f"document.querySelector('{button}').getAnimations()[0]"
            seen = f"getComputedStyle(document.querySelector('{button}')).visibility"
            assert page.evaluate(f"{arm}.pause(), {arm}.currentTime = 1900, {seen}") == "hidden"
            assert page.evaluate(f"{arm}.currentTime = 2001, {seen}") == "visible"


@pytest.mark.parametrize("javascript", [False, True])
def test_a_program_on_another_machine_is_let_in_by_a_copied_address(
    chromium: Browser, javascript: bool
) -> None:
    with serving() as server, tab(chromium, javascript=javascript) as page:
        server.house.owned()
        uri = "http://localhost:1455/callback"
        page.goto(link(server, register(server, "cli_claude", "http://localhost/callback"), uri))
        sign_in(page)
        page.get_by_role("button", name="My program runs on another machine").click()
        expect(page.get_by_role("heading", name="One step left")).to_be_visible()
        address = page.get_by_label("Address").input_value()
        assert address.startswith(uri + "?code=")
        copy = page.get_by_role("button", name="Copy the address")
        if javascript:
            page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.origin)
            copy.click()
            expect(page.get_by_role("button", name="Copied")).to_be_visible()
            assert page.evaluate("navigator.clipboard.readText()") == address
        else:
            expect(copy).to_be_hidden()


def test_an_application_with_its_own_scheme_is_called(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        server.house.owned()
        uri = "cursor://anysphere.cursor-mcp/oauth/callback"
        page.goto(link(server, register(server, "cli_cursor", uri), uri))
        sign_in(page)
        with page.expect_request(lambda request: request.url.endswith("/authorize/decide")) as posted:
            page.get_by_role("button", name="Allow").click()
        # The browser has no such application here; that it was asked for one is seen in the answer it was not kept from.
        assert posted.value.method == "POST"
        (row,) = server.house.rows("authorization_codes")
        assert row["redirect_uri"] == uri


@pytest.mark.parametrize("light", LIGHTS)
@pytest.mark.parametrize("size", SIZES)
def test_every_page_of_a_programs_login_fits_its_screen(chromium: Browser, size: str, light: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    servers = {"agent": "/mcp", "archive": "/archive/mcp"}
    with serving(servers=servers) as server, tab(chromium, size=size, light=light, javascript=True) as page:
        house = server.house.owned()
        known = Vocabulary((FINANCIAL,))
        site = Site(issuer=server.origin, loopback=True, servers=servers, scopes=known)
        house.parts = replace(house.parts, site=site)

        def look(name: str, heading: str) -> None:
            expect(page.get_by_role("heading", name=heading)).to_be_visible()
            page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide == 0, f"{name} scrolls sideways by {wide}px"
            small = page.evaluate(
                "[...document.querySelectorAll('button, .button, input:not([type=hidden]):not([hidden]):not([type=checkbox]), label.tick')]"
                ".filter(each => !each.hidden && each.getBoundingClientRect().height < 44).map(each => each.outerHTML)"
            )
            assert not small, f"{name} has controls too small for a thumb: {small}"
            page.screenshot(path=PICTURES / f"{name}-{size}-{light}.png", full_page=True)

        local = "http://localhost:58229/callback"
        page.goto(link(server, "gone", local))
        look("authorize-unknown", "This sign-in cannot go on")
        page.goto(link(server, register(server, "cli_claude", local), local))
        look("signin-for-program", "Sign in")
        sign_in(page)
        look("consent-unverified-local", "Let an unverified program in?")
        page.screenshot(path=PICTURES / f"consent-first-screen-{size}-{light}.png")
        for box in page.get_by_role("checkbox").all():
            box.uncheck()
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_role("alert")).to_be_visible()
        look("consent-nothing-ticked", "Let an unverified program in?")
        page.get_by_role("checkbox").first.check()
        page.get_by_role("button", name="My program runs on another machine").click()
        look("sent", "One step left")

        document = "https://claude.ai/oauth/claude-code-client-metadata"
        register(server, document, local, kind="document", name="Claude Code")
        house.parts = replace(house.parts, documents=_Found())
        page.goto(link(server, document, local, scope="mcp financial"))
        look("consent-verified-local", "Let claude.ai in?")
        web = "https://claude.ai/api/mcp/auth_callback"
        page.goto(link(server, register(server, "cli_web", web, name="C" * 90), web))
        look("consent-unverified-web", "Let an unverified program in?")
        app = "cursor://anysphere.cursor-mcp/oauth/callback"
        page.goto(
            link(
                server,
                register(server, "house-cursor", app, kind="registered", name="Cursor of the house"),
                app,
            )
        )
        look("consent-registered", "Let Cursor of the house in?")


class _Found:
    async def ensure(self, client_id: str, *, network: str, signed_in: bool, now: int) -> None:
        del client_id, network, signed_in, now
