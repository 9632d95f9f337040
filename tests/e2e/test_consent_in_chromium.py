"""A program signs its person in through a real browser: sign-in, consent, and the way back to the program's own listener.

What only a browser can tell: that it follows our redirects under our own content policy. What the pages look like is in
test_pages_accessible.py.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET6
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.chromium import fill_in, serving, tab
from tests.e2e.page_states import link, register
from tests.made_certificates import write_certificate

pytestmark = [pytest.mark.browser, pytest.mark.slow]


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
        thread.join(60)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_program_is_let_in_without_javascript_and_the_browser_follows_to_its_listener(
    chromium: Browser, host: str
) -> None:
    with serving() as server, listening(host) as program, tab(chromium) as page:
        server.house.owned()
        client_id = register(server, "cli_claude", f"http://{host}/callback")
        page.goto(link(server, client_id, program.uri))
        expect(page.get_by_text("use this server as you")).to_be_visible()
        fill_in(page)
        expect(page.get_by_role("heading", name="Let an unverified program")).to_be_visible()
        page.get_by_label("Use this agent: everything").uncheck()
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()

        (query,) = program.queries
        assert query["state"] == ["abc~123"]
        assert query["iss"] == [server.origin]
        assert program.referers == [None]
        (row,) = server.house.rows("authorization_codes")
        assert row["scope"] == "mcp:tools"


def test_whoever_agreed_before_comes_back_from_sign_in_straight_to_the_program(chromium: Browser) -> None:
    """The form of the sign-in page leads to another site by two redirects: its policy must know."""
    with serving() as server, listening() as program, tab(chromium) as page:
        server.house.owned()
        client_id = register(server, "cli_claude", program.uri)
        # One that shows a secret for its codes: anybody could pretend to be a public one.
        server.house.store.db.execute(
            "UPDATE clients SET auth_method = 'client_secret_post', secret_hash = 'x'"
        )
        page.goto(link(server, client_id, program.uri))
        fill_in(page)
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
        page.context.clear_cookies()
        page.goto(link(server, client_id, program.uri))
        fill_in(page)
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
        assert len(program.queries) == 2


def test_an_address_that_nobody_vouches_for_is_reached_by_its_link_alone(chromium: Browser) -> None:
    with serving() as server, tab(chromium) as page:
        server.house.owned()
        client_id = register(
            server, "cli_stranger", "https://a-program-with-a-rather-long-name.example/callback"
        )
        page.set_viewport_size({"width": 360, "height": 640})
        page.goto(
            link(
                server, client_id, "https://a-program-with-a-rather-long-name.example/callback", prompt="none"
            )
        )
        expect(page.get_by_role("heading", name="This sign-in cannot go on")).to_be_visible()
        back = page.get_by_role("link", name="Back to https://a-program-with-a-rather-long-name.example")
        assert (back.get_attribute("href") or "").startswith(
            "https://a-program-with-a-rather-long-name.example/callback?error=login_required"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_program_may_send_its_person_on_to_a_page_on_the_web(chromium: Browser, tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "localhost")
    context = chromium.new_context(java_script_enabled=False, ignore_https_errors=True)
    with serving() as server, listening("localhost", certificate=certificate) as web:
        onward = web.uri.replace("http:", "https:").replace("callback", "thanks")
        with listening(onward=onward) as program:
            server.house.owned()
            page = context.new_page()
            page.goto(link(server, register(server, "cli_claude", program.uri), program.uri))
            fill_in(page)
            page.get_by_role("button", name="Allow").click()
            expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
            assert page.url == onward
            assert len(program.queries) == 1
        context.close()


def test_pressing_enter_on_the_consent_page_denies_and_the_program_is_told(chromium: Browser) -> None:
    with serving() as server, listening() as program, tab(chromium) as page:
        server.house.owned()
        page.goto(link(server, register(server, "cli_claude", program.uri), program.uri))
        fill_in(page)
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
        fill_in(page)
        for button in (".arm button", "button.late"):
            # A click does not wait for the page that it leads to.
            page.locator(button).wait_for(state="attached")
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
        fill_in(page)
        page.get_by_role("button", name="on another machine").click()
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
        fill_in(page)
        with page.expect_request(lambda request: request.url.endswith("/authorize/decide")) as posted:
            page.get_by_role("button", name="Allow").click()
        # The browser has no such application here; that it was asked for one is seen in the answer it was not kept from.
        assert posted.value.method == "POST"
        (row,) = server.house.rows("authorization_codes")
        assert row["redirect_uri"] == uri
