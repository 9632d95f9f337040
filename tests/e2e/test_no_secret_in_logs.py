"""A whole life of the server at log level debug, and then a search of everything that it and its commands wrote.

Every secret that was seen on the way is searched for: as it is, as a form or a URL writes it, and by its telling end alone.
The data directory is searched as well, since nothing secret is to be stored in clear.
"""

from __future__ import annotations

import base64
import http.cookiejar
import json
import re
import signal
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from programs import SOURCE, USER_CODE, WAIT_SECONDS, Program, Server, expire_access_token

pytestmark = pytest.mark.slow

PASSPHRASE = "seven quiet herons / cross & the ford"
WRONG_PASSPHRASE = "seven loud herons / cross & the ford"
WRONG_CODE = "BCDF-GHJK"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass
class Secrets:
    """What must not be found again, by what it is."""

    seen: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, what: str, value: str) -> str:
        assert len(value) >= 8, f"{what} is too short to be searched for"
        self.seen.setdefault(what, set()).add(value)
        return value

    def traces(self) -> Iterator[tuple[str, str]]:
        """Each form in which a secret could have been written down."""
        for what, values in self.seen.items():
            for value in values:
                forms = {
                    value,
                    urllib.parse.quote(value),
                    urllib.parse.quote_plus(value),
                    json.dumps(value)[1:-1],
                }
                if USER_CODE.fullmatch(value):
                    forms.add(value.replace("-", ""))
                if "." in value:  # a token: its signature or MAC is the part that only its holder knows
                    forms.add(value.rpartition(".")[2])
                for form in forms:
                    yield what, form

    def found_in(self, text: str) -> list[str]:
        return sorted({what for what, form in self.traces() if form in text})


class Browser:
    """What a browser does, as far as pages without scripts go. It remembers each cookie and form token as a secret."""

    def __init__(self, origin: str, secrets: Secrets) -> None:
        self._origin = origin
        self._secrets = secrets
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self._jar)
        )
        self.status = 0
        self.page = ""

    def get(self, path: str) -> None:
        self._open(urllib.request.Request(urllib.parse.urljoin(self._origin, path)))

    def send(self, action: str, **fields: str) -> None:
        """Fill in the form of the current page that goes to `action` (the first, or the one with these hidden fields)."""
        hidden = next(
            form
            for form in self.forms(action)
            if all(form.get(name, value) == value for name, value in fields.items())
        )
        data = urllib.parse.urlencode({**hidden, **fields}).encode()
        request = urllib.request.Request(urllib.parse.urljoin(self._origin, action), data=data)
        request.add_header("Origin", self._origin)
        self._open(request)

    def forms(self, action: str) -> list[dict[str, str]]:
        found = re.findall(r'<form[^>]* action="([^"]*)"[^>]*>(.*?)</form>', self.page, re.DOTALL)
        return [
            dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', inside))
            for where, inside in found
            if where == action
        ]

    def _open(self, request: urllib.request.Request) -> None:
        try:
            answer = self._opener.open(request, timeout=WAIT_SECONDS)
        except HTTPError as error:  # a page all the same
            answer = error
        with answer:
            self.status, self.page = answer.status or 0, answer.read().decode()
        for cookie in self._jar:
            self._secrets.add("a session cookie", cookie.value or "")
        for token in re.findall(r'name="form_token" value="([^"]*)"', self.page):
            self._secrets.add("a form token", token)


class Said(NamedTuple):
    status: int
    json: Any


def post(url: str, fields: dict[str, str], *, authorization: str = "") -> Said:
    """A client program posts a form, without cookies."""
    request = urllib.request.Request(url, data=urllib.parse.urlencode(fields).encode())
    if authorization:
        request.add_header("Authorization", authorization)
    try:
        answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=WAIT_SECONDS
        )
    except HTTPError as error:
        answer = error
    with answer:
        body = answer.read()
        return Said(answer.status or 0, json.loads(body) if body else None)


def basic(client_id: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


# ── the life ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Life(NamedTuple):
    secrets: Secrets
    server_log: str
    terminal_talk: str  # of the commands, without what a command is for
    stored: bytes


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        program, secrets = Program(command=SOURCE, home=Path(folder)), Secrets()
        secrets.add("the passphrase", PASSPHRASE)
        secrets.add("a wrong passphrase", WRONG_PASSPHRASE)
        secrets.add("a wrong code", WRONG_CODE)
        with program.serving("--log-level", "debug", "--log-format", "json") as server:
            browser = Browser(server.url, secrets)
            claim_and_sign_in(program, browser, secrets)
            login_talk = log_in_through_the_page(program, server, browser, secrets)
            call_and_refresh(program, server, secrets)
            a_client_with_a_secret(program, server, secrets)
            a_program_that_registers_itself(server, secrets)
            machines(program, server, secrets)
            misplaced_secrets(program, server, browser)
            program.run("logout", server.endpoint)
            program.run("call", server.endpoint, "echo", "text=late", code=1)
            stored = b"".join(
                file.read_bytes() for file in sorted(program.data_dir.glob("ostiary.db*")) if file.is_file()
            )
            assert server.end(signal.SIGTERM) == 0
            server_log = server.said()
        yield Life(secrets, server_log, login_talk + "".join(program.said), stored)


def claim_and_sign_in(program: Program, browser: Browser, secrets: Secrets) -> None:
    link = program.at_machine("claim")["url"]
    path = urllib.parse.urlsplit(link).path
    secrets.add("the claim token", path.removeprefix("/claim/"))
    browser.get(path)
    choice = {"name": "olivia", "passphrase": PASSPHRASE}
    browser.send(path, **choice, passphrase_again=WRONG_PASSPHRASE)
    assert browser.status == 400
    browser.send(path, **choice, passphrase_again=PASSPHRASE)
    assert (browser.status, "The server is yours" in browser.page) == (200, True)
    browser.get(path)
    assert browser.status == 410  # the link is used up
    browser.get("/welcome")
    browser.send("/signout")
    browser.get("/signin")
    browser.send("/signin", name="olivia", passphrase=WRONG_PASSPHRASE)
    assert browser.status == 400
    # People type it into the wrong field.
    browser.send("/signin", name=PASSPHRASE, passphrase=PASSPHRASE)
    assert browser.status == 400
    browser.send("/signin", name="olivia", passphrase=PASSPHRASE)
    assert (browser.status, "24 hours" in browser.page) == (200, True)


def log_in_through_the_page(program: Program, server: Server, browser: Browser, secrets: Secrets) -> str:
    """`ostiary login` here, the code entered there. What the login said, without the code, which it is for."""
    with program.starting("login", server.endpoint) as login:
        user_code = secrets.add("a user code", login.await_words(USER_CODE)[0])
        browser.get("/device")
        browser.send("/device", user_code=WRONG_CODE)
        assert browser.status == 400
        browser.get(f"/device?user_code={user_code}")
        browser.send("/device", user_code=user_code.lower().replace("-", ""))
        assert "Let this device use" in browser.page
        browser.send("/device/decide", decision="approve", scope="mcp")
        assert (browser.status, "Approved" in browser.page) == (200, True)
        assert login.wait() == 0, login.said()
        # The one place where a secret is meant to be seen; and so the search is seen to find one.
        assert secrets.found_in(login.said()) == ["a user code"]
        return login.said().replace(user_code, "")


def call_and_refresh(program: Program, server: Server, secrets: Secrets) -> None:
    for text in ("first", "second"):
        tokens = program.tokens()
        secrets.add("an access token", tokens["access_token"])
        secrets.add("a refresh token", tokens["refresh_token"])
        assert program.run("call", server.endpoint, "echo", f"text={text}").stdout == f"{text}\n"
        expire_access_token(program)
    secrets.add("an access token", program.run("token", server.endpoint).stdout.strip())
    secrets.add("a refresh token", program.tokens()["refresh_token"])


def a_client_with_a_secret(program: Program, server: Server, secrets: Secrets) -> None:
    """Another client's login: its secret in both places and a wrong one, early polls, a replay, and reuse that ends it."""
    client = program.at_machine("clients", "add", "nightly job", "--secret")
    client_id, secret = client["id"], secrets.add("a client secret", client["client_secret"])
    wrong = secrets.add("a wrong client secret", secret[:-4] + "AAAA")

    def ask(path: str, shown: str = secret, **fields: str) -> Said:
        said = post(server.url + path, fields, authorization=basic(client_id, shown))
        for name in ("access_token", "refresh_token", "device_code", "user_code"):
            if said.json and name in said.json:
                secrets.add(f"another client's {name}", said.json[name])
        return said

    secrets.add("Basic credentials", basic(client_id, secret).removeprefix("Basic "))
    denied = ask("/device_authorization", scope="mcp").json
    program.at_machine("deny", denied["user_code"])
    assert (
        ask("/token", grant_type=DEVICE_CODE, device_code=denied["device_code"]).json["error"]
        == "access_denied"
    )

    asked = ask("/device_authorization", scope="mcp").json
    redeem = {"grant_type": DEVICE_CODE, "device_code": asked["device_code"]}
    assert ask("/token", **redeem).json["error"] == "authorization_pending"
    assert ask("/token", **redeem).json["error"] == "slow_down"
    assert ask("/token", wrong, **redeem).status == 401
    program.at_machine("approve", asked["user_code"], "--yes")
    in_the_form = {**redeem, "client_id": client_id, "client_secret": secret}
    first = post(f"{server.url}/token", in_the_form).json
    secrets.add("another client's access_token", first["access_token"])
    secrets.add("another client's refresh_token", first["refresh_token"])

    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    second = ask("/token", **refresh).json
    assert (
        ask("/token", **refresh).json["refresh_token"] == second["refresh_token"]
    )  # a race of its own processes
    third = ask("/token", grant_type="refresh_token", refresh_token=second["refresh_token"]).json
    assert ask("/token", **refresh).json["error"] == "invalid_grant"  # too old for a race: the login is over
    assert ask("/token", grant_type="refresh_token", refresh_token=third["refresh_token"]).status == 400
    assert ask("/token", **in_the_form).status in (400, 401)  # the code again, and the secret in two places


def a_program_that_registers_itself(server: Server, secrets: Secrets) -> None:
    """With a secret of its own, which it looks at, changes and gives up; and with a wrong token in between."""
    body = {"client_name": "Registrant", "redirect_uris": ["http://127.0.0.1/cb"]}

    def ask(method: str, url: str, said: dict[str, Any] | None = None, token: str = "") -> Said:
        request = urllib.request.Request(url, method=method, data=json.dumps(said).encode() if said else None)
        request.add_header("Content-Type", "application/json")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request, timeout=WAIT_SECONDS
            )
        except HTTPError as error:
            answer = error
        with answer:
            content = answer.read()
            return Said(answer.status or 0, json.loads(content) if content else None)

    made = ask("POST", f"{server.url}/register", body).json
    secrets.add("a secret that was registered", made["client_secret"])
    token = secrets.add("a registration access token", made["registration_access_token"])
    wrong = secrets.add("a wrong registration access token", token[:-4] + "AAAA")
    address = made["registration_client_uri"]
    assert ask("GET", address, token=wrong).status == 401
    assert ask("GET", address, token=token).status == 200
    public = {**body, "client_id": made["client_id"], "token_endpoint_auth_method": "none"}
    assert ask("PUT", address, public, token).status == 200
    again = ask("PUT", address, {**public, "token_endpoint_auth_method": "client_secret_post"}, token).json
    secrets.add("a secret that was registered", again["client_secret"])
    fields = {"client_id": made["client_id"], "client_secret": made["client_secret"], "token": "x"}
    assert post(f"{server.url}/revoke", fields).status == 401
    assert ask("DELETE", address, token=token).status == 204


def machines(program: Program, server: Server, secrets: Secrets) -> None:
    """One with a secret that is made anew, one that signs, and a token that is asked about."""
    grant = ("--grant", "client_credentials")
    job = program.at_machine("clients", "add", "job", "--secret", "--introspect", *grant)
    secrets.add("a machine's secret", job["client_secret"])
    shown = program.at_machine("clients", "rotate-secret", job["id"])["client_secret"]
    authorization = basic(job["id"], secrets.add("a machine's secret", shown))
    answer = post(f"{server.url}/token", {"grant_type": "client_credentials"}, authorization=authorization)
    token = secrets.add("a machine's access token", answer.json["access_token"])
    asked = post(f"{server.url}/introspect", {"token": token}, authorization=authorization)
    assert asked.json["active"] is True

    key = ECKey.generate_key("P-256")
    (program.home / "public.pem").write_bytes(key.as_pem(private=False))
    signer = program.at_machine(
        "clients", "add", "signer", *grant, "--public-key", str(program.home / "public.pem")
    )
    now = int(time.time())
    claims = {"iss": signer["id"], "sub": signer["id"], "aud": server.url, "jti": "once", "exp": now + 60}
    assertion = secrets.add("an assertion", jwt.encode({"alg": "ES256"}, claims, key, algorithms=["ES256"]))
    fields = {
        "grant_type": "client_credentials",
        "client_assertion": assertion,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    }
    assert [post(f"{server.url}/token", fields).status for _ in range(2)] == [200, 401]


def misplaced_secrets(program: Program, server: Server, browser: Browser) -> None:
    """Where they do not belong: in queries, paths, schemes and fields that nobody reads."""
    tokens = program.tokens()
    access, refresh = tokens["access_token"], tokens["refresh_token"]
    browser.get(f"/mcp?access_token={access}")
    assert browser.status == 401
    browser.get(
        f"/device?user_code={urllib.parse.quote(WRONG_CODE)}&passphrase={urllib.parse.quote(PASSPHRASE)}"
    )
    for authorization in (
        f"Bearer {access}x",
        f"Bearer {refresh}",
        f"Token {access}",
        basic(access, refresh),
    ):
        assert post(f"{server.url}/revoke", {"token": access[:-1]}, authorization=authorization).status in (
            200,
            400,
            401,
        )
        with suppress(json.JSONDecodeError):
            post(server.endpoint, {"access_token": access}, authorization=authorization)
    assert post(f"{server.url}/token", {"grant_type": access, "client_id": refresh}).status in (400, 401)


# ── the search ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_log_tells_of_the_whole_life(life: Life) -> None:
    """Else the search below would be of an empty file."""
    events = [json.loads(line) for line in life.server_log.splitlines() if line.startswith("{")]
    assert {"server.started", "http.request", "tool.called", "server.stopped"} <= {
        event["event"] for event in events
    }
    paths = {event["path"] for event in events if event["event"] == "http.request"}
    assert {
        "/claim/***",
        "/signin",
        "/device",
        "/device/decide",
        "/token",
        "/device_authorization",
        "/revoke",
        "/register",
        "/introspect",
        "/mcp",
    } <= paths
    # A call that went well has a request line at debug alone.
    assert any(event.get("path") == "/mcp" and event.get("status") == 200 for event in events)
    assert len(life.secrets.seen) >= 15


@pytest.mark.requirement("safety.no-secrets")
def test_no_secret_is_in_the_servers_log_at_any_level(life: Life) -> None:
    assert life.secrets.found_in(life.server_log) == []


def test_no_secret_is_in_what_commands_say(life: Life) -> None:
    assert life.secrets.found_in(life.terminal_talk) == []


@pytest.mark.requirement("safety.no-secrets")
def test_no_secret_is_stored_in_clear(life: Life) -> None:
    assert b"olivia" in life.stored  # this is the database, and not compressed
    assert life.secrets.found_in(life.stored.decode("latin-1")) == []
