"""The pages in a real browser: what the tests that look at them share.

A few lines of http.server stand between Chromium and the page handler, so that those tests see what a browser does with our
HTML, cookies and headers and nothing of the rest of the server. The browser itself is the fixture `chromium` in conftest.py; for how
pages look, it is `chromium_shell`.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import trio
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect, sync_playwright

from auth.values import http_messages
from tests.auth.browser_fakes import PASSPHRASE, House
from tests.auth.routed_pages import RoutedPages

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
# The same engine, from the same package's source, without all that is around a page: a page costs half of it. Enough for how pages look.
SHELL = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or CHROMIUM
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = os.environ.get("SCREENSHOTS")
SIZES = {"phone": (360, 740), "desk": (1280, 860)}
PATIENCE_MS = 60_000  # a bound, not an expectation
expect.set_options(timeout=PATIENCE_MS)  # it has one of its own, of five seconds


class Server:
    """The pages on a loopback port. `ip` is where its visitors are said to come from."""

    def __init__(self, house: House, origin: str) -> None:
        self.house = house
        self.origin = origin
        self.ip = "127.0.0.1"
        self.requests: list[http_messages.WireRequest] = []
        self.replies: list[http_messages.WireReply] = []
        self.pages: dict[str, str] = {}  # somebody else's, on this port
        self.otherwise: Callable[[http_messages.WireRequest], http_messages.WireReply] = self.foreign
        self.routed = RoutedPages()
        self.lock = threading.Lock()

    def answer(self, request: http_messages.WireRequest) -> http_messages.WireReply:
        with self.lock:  # the memory store is one connection
            reply = trio.run(self.routed.answer, request, self.house.parts) or self.otherwise(request)
            self.requests.append(request)
            self.replies.append(reply)
        return reply

    def foreign(self, request: http_messages.WireRequest) -> http_messages.WireReply:
        body = self.pages.get(request.path, "").encode()
        return http_messages.WireReply(headers=(("content-type", "text/html"),), body=body)


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
                http_messages.WireRequest(
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
        thread.join(60)


@contextmanager
def launching() -> Generator[Callable[[str], Browser]]:
    """Launch a browser by its file, each once: by one driver, for beside it there can be no other."""
    with sync_playwright() as playwright, ExitStack() as running:

        @cache
        def launch(executable: str) -> Browser:
            browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
            running.callback(browser.close)
            return browser

        yield launch


@contextmanager
def tab(
    chromium: Browser, *, size: str = "phone", light: str = "light", javascript: bool = False, **more: Any
) -> Generator[Page]:
    width, height = SIZES[size]
    looks: dict[str, Any] = {
        "viewport": {"width": width, "height": height},
        "color_scheme": "dark" if light == "dark" else "light",
        "device_scale_factor": 2 if size == "phone" else 1,
        "has_touch": size == "phone",
        **more,
    }
    context: BrowserContext = chromium.new_context(java_script_enabled=javascript, **looks)
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


def picture(page: Page, name: str, **how: Any) -> None:
    """Keep a picture of the page in the folder $SCREENSHOTS; without one, none is taken."""
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png", **how)


class Devices:
    """The authenticators of one browser. At most one of a kind is there at a time, as with real ones built in."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self._session.send("WebAuthn.enable")
        self.id = ""

    def plug_in(self, *, verifies: bool = True) -> str:
        options: dict[str, Any] = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": verifies,
            "automaticPresenceSimulation": True,
        }
        made = self._session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        self.id = made["authenticatorId"]
        return self.id

    def unplug(self) -> None:
        self._session.send("WebAuthn.removeVirtualAuthenticator", {"authenticatorId": self.id})

    def recognise(self, *, somebody: bool) -> None:
        """Whether the person passes the device's own check."""
        self._session.send(
            "WebAuthn.setUserVerified", {"authenticatorId": self.id, "isUserVerified": somebody}
        )

    def credentials(self) -> list[dict[str, Any]]:
        return self._session.send("WebAuthn.getCredentials", {"authenticatorId": self.id})["credentials"]


def sign_in(page: Page, server: Server) -> None:
    page.goto(server.origin + "/signin")
    fill_in(page)
    expect(page.get_by_role("navigation", name="Your pages")).to_be_visible()


def fill_in(page: Page, name: str = "alice", passphrase: str = PASSPHRASE) -> None:
    """The sign-in page that is open."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Passphrase").fill(passphrase)
    page.get_by_role("button", name="Sign in", exact=True).click()
