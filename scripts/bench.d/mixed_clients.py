"""Clients of a server that runs for long: each does one thing after another, of all that there is to do, and knows what must come.

What comes instead is unexpected, and is told at the end.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from threading import Event, Lock
from typing import Any

import httpx2
from caller import WAIT_SECONDS, Answer, Caller, Lost
from durability_clients import CLI, TASKS
from logins import DEVICE_CODE
from restartable_server import HOST, Mortal
from targets import Broken
from wire import call_parts

from server.admin import control

LEGACY = "2025-11-25"
OWNER, PASSPHRASE = "olivia", "four calm herons wading"
MOST_LOGINS = 3  # of one patron; the oldest is ended when another one comes
TOO_OFTEN = (
    429  # what the limits on wrong codes, registrations and sign-ins of one name, or of all together, answer
)
SHOWN = 5


@dataclass
class Tally:
    """What was answered, of everybody."""

    requests: int = 0
    statuses: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    unexpected: list[str] = field(default_factory=list[str])
    _lock: Lock = field(default_factory=Lock)

    def note(self, kind: str, status: str, problem: str) -> None:
        with self._lock:
            self.requests += 1
            self.statuses.setdefault(kind, Counter())[status] += 1
            if problem:
                self.unexpected.append(f"{time.strftime('%H:%M:%S')} {kind}: {problem}")


class Pace:
    """How long everybody waits between two things: changed by whoever looks at what it costs."""

    def __init__(self) -> None:
        self.seconds = 0.05

    def correct(self, share: float, wanted: float) -> None:
        self.seconds = min(5.0, max(0.0005, self.seconds * (1.3 if share > wanted else 0.9)))


class Unexpected(Exception):
    """Noted already: whatever was to follow is not done."""


@dataclass(kw_only=True)
class Held:
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)


class Patron:
    def __init__(self, server: Mortal, dice: Random, tally: Tally, pace: Pace, over: Event) -> None:
        self.problem: BaseException | None = None
        self._server, self._dice, self._tally, self._pace, self._over = server, dice, tally, pace, over
        self._caller = Caller(HOST, server.port, dice)
        self._logins: list[Held] = []
        self._number = 0
        # How often each is done, in proportion.
        self._habits: dict[Callable[[], None], int] = {
            self._call: 60,
            self._call_python: 15,
            self._refresh: 12,
            self._wrong_token: 8,
            self._wrong_code: 2,
            self._come: 2,
            self._session: 3,
            self._stream: 2,
            self._subscription: 2,
            self._task: 2,
            self._register: 1,
            self._fail_to_sign_in: 1,
        }

    def run(self) -> None:
        """For a thread."""
        try:
            self._come()
            while not self._over.is_set():
                (habit,) = self._dice.choices(list(self._habits), weights=list(self._habits.values()))
                try:
                    habit()
                except Unexpected:
                    self._caller.close()
                self._over.wait(self._pace.seconds)
        except BaseException as problem:  # told by whoever started the thread
            self.problem = problem
        finally:
            self._caller.close()

    # ------------------------------------------------------------ asking

    def _expect(self, kind: str, ask: Callable[[], Answer], *statuses: int) -> Answer:
        """Raises `Unexpected` for any other status, and where no answer came."""
        try:
            answer = ask()
        except Lost as lost:
            self._tally.note(kind, "no answer", str(lost))
            raise Unexpected from lost
        fine = answer.status in statuses
        self._tally.note(kind, str(answer.status), "" if fine else f"{answer.status} {answer.body[:300]!r}")
        if not fine:
            raise Unexpected
        return answer

    def _said(self, kind: str, answer: Answer, text: str) -> None:
        if text.encode() not in answer.body:
            self._tally.note(kind, "another text", f"{answer.body[:300]!r}")
            raise Unexpected

    def _held(self) -> Held:
        return self._dice.choice(self._logins)

    def _tool(self, kind: str, tool: str, text: str) -> None:
        call = {"name": tool, "arguments": {"text": text}}
        token = self._held().access_token
        answer = self._expect(
            kind, lambda: self._caller.call("tools/call", call, token=token, name=tool), 200
        )
        self._said(kind, answer, text)

    # ------------------------------------------------------------ what is done

    def _call(self) -> None:
        self._tool("call", "echo", f"hello {self._dice.random()}")

    def _call_python(self) -> None:
        self._tool("call of a Python agent", "again", f"hello {self._dice.random()}")

    def _refresh(self) -> None:
        held = self._held()
        form = {**CLI, "grant_type": "refresh_token", "refresh_token": held.refresh_token}
        tokens = self._expect("refresh", lambda: self._caller.form("/token", form), 200).json
        held.access_token, held.refresh_token = tokens["access_token"], tokens["refresh_token"]

    def _wrong_token(self) -> None:
        token = self._held().access_token
        wrong = token[:-8] + token[-8:][::-1] + "x"
        call = {"name": "echo", "arguments": {"text": "no"}}
        self._expect(
            "wrong token", lambda: self._caller.call("tools/call", call, token=wrong, name="echo"), 401
        )

    def _wrong_code(self) -> None:
        code = "".join(self._dice.choices("abcdefghijklmnopqrstuvwxyz234567", k=52))
        form = {**CLI, "grant_type": DEVICE_CODE, "device_code": code}
        self._expect("wrong code", lambda: self._caller.form("/token", form), 400, TOO_OFTEN)

    def _come(self) -> None:
        """Log in, and end the oldest login where there are many."""
        codes = self._expect("login", lambda: self._caller.form("/device_authorization", CLI), 200, TOO_OFTEN)
        if codes.status == TOO_OFTEN:
            return
        found = control.ask(self._server.data, "find", {"code": codes.json["user_code"]}).result
        control.ask(self._server.data, "approve", {"id": found["id"]})
        form = {**CLI, "grant_type": DEVICE_CODE, "device_code": codes.json["device_code"]}
        tokens = self._expect("login", lambda: self._caller.form("/token", form), 200).json
        self._logins.append(Held(access_token=tokens["access_token"], refresh_token=tokens["refresh_token"]))
        if len(self._logins) > MOST_LOGINS:
            self._leave(self._logins.pop(0))

    def _leave(self, held: Held) -> None:
        form = {**CLI, "token": held.refresh_token}
        self._expect("revocation", lambda: self._caller.form("/revoke", form), 200)
        call = {"name": "echo", "arguments": {"text": "late"}}
        self._expect(
            "call after it",
            lambda: self._caller.call("tools/call", call, token=held.access_token, name="echo"),
            401,
        )

    def _session(self) -> None:
        """One of the handshake era. Every second one is never ended."""
        token, client = self._held().access_token, {"name": "soak", "version": "1"}
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client}
        begun = self._legacy("session", token, "", "initialize", hello, 200)
        session = begun.headers.get("Mcp-Session-Id", "")
        self._legacy("session", token, session, "notifications/initialized", {}, 202)
        call = {"name": "echo", "arguments": {"text": "hello in a session"}}
        self._said(
            "session", self._legacy("session", token, session, "tools/call", call, 200), "hello in a session"
        )
        if self._dice.random() < 0.5:
            headers = self._legacy_headers(token, session)
            self._expect("session", lambda: self._caller.ask("DELETE", "/mcp", headers), 200, 204)

    def _stream(self) -> None:
        """Progress, to its end or left in the middle."""
        call = {
            "name": "countdown",
            "arguments": {"from": 5, "seconds": 0.05},
            "_meta": {"progressToken": 1},
        }
        self._follow("stream", "tools/call", call, "countdown", whole=self._dice.random() < 0.5)

    def _subscription(self) -> None:
        wanted = {"notifications": {"toolsListChanged": True}}
        self._follow("subscription", "subscriptions/listen", wanted, "", whole=False)

    def _follow(self, kind: str, method: str, params: dict[str, Any], name: str, *, whole: bool) -> None:
        headers, body = call_parts(method, params, name=name, token=self._held().access_token)
        if whole:
            answer = self._expect(kind, lambda: self._caller.ask("POST", "/mcp", headers, body), 200)
            self._said(kind, answer, "Counted down from 5")
            return
        try:
            response = self._caller.begin("POST", "/mcp", headers, body)
            event = next((line for line in response if line.startswith(b"data: {")), b"")
        except (OSError, http.client.HTTPException, Lost) as error:
            self._tally.note(kind, "no answer", repr(error))
            raise Unexpected from error
        finally:
            self._caller.close()
        fine = response.status == 200 and event
        self._tally.note(kind, str(response.status), "" if fine else f"{response.status} {event[:300]!r}")

    def _task(self) -> None:
        token = self._held().access_token
        self._number += 1
        call = {"name": "steps", "arguments": {"name": f"soak-{self._number}", "seconds": 0.02}}
        begun = self._expect(
            "task",
            lambda: self._caller.call("tools/call", call, token=token, name="steps", capabilities=TASKS),
            200,
        )
        if b'"taskId"' not in begun.body:
            # So many are kept for each caller; what is beyond that is a plain call, which is answered at once.
            self._said("task", begun, f"soak-{self._number} took")
            self._tally.note("task without a place", "200", "")
            return
        task_id: str = begun.json["result"]["taskId"]
        asked, deadline = {"taskId": task_id}, time.monotonic() + WAIT_SECONDS

        def look() -> Answer:
            return self._caller.call("tasks/get", asked, token=token, name=task_id, capabilities=TASKS)

        while True:
            looked = self._expect("task", look, 200)
            if looked.json["result"]["status"] != "working" or time.monotonic() > deadline:
                self._said("task", looked, f"soak-{self._number} took")
                return
            self._over.wait(0.1)

    def _register(self) -> None:
        said = {"redirect_uris": ["http://127.0.0.1:49152/callback"], "token_endpoint_auth_method": "none"}
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        body = json.dumps(said).encode()
        self._expect(
            "registration", lambda: self._caller.ask("POST", "/register", headers, body), 201, TOO_OFTEN
        )

    def _fail_to_sign_in(self) -> None:
        typed = {"name": self._dice.choice((OWNER, "mallory")), "passphrase": "three calm herons wading"}
        with browser(self._server, self._caller.address()) as person:
            try:
                answer = press(person, person.get("/signin"), "/signin", typed)
            except httpx2.TransportError as error:
                self._tally.note("failing sign-in", "no answer", repr(error))
                raise Unexpected from error
        fine = answer.status_code in (400, TOO_OFTEN)
        self._tally.note(
            "failing sign-in", str(answer.status_code), "" if fine else f"{answer.status_code} {answer.url}"
        )

    def _legacy(
        self, kind: str, token: str, session: str, method: str, params: dict[str, Any], status: int
    ) -> Answer:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            message["id"] = 1
        headers, body = self._legacy_headers(token, session), json.dumps(message).encode()
        return self._expect(kind, lambda: self._caller.ask("POST", "/mcp", headers, body), status)

    def _legacy_headers(self, token: str, session: str) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {token}",
            **({"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY} if session else {}),
        }


def browser(server: Mortal, address: str) -> httpx2.Client:
    headers = {"X-Forwarded-For": address, "User-Agent": "a person's browser"}
    return httpx2.Client(
        base_url=f"http://{HOST}:{server.port}", headers=headers, trust_env=False, timeout=WAIT_SECONDS
    )


def press(
    person: httpx2.Client, page: httpx2.Response, action: str, typed: dict[str, str]
) -> httpx2.Response:
    """Fill in the form of `page` that leads to `action`, and send it."""
    forms = re.findall(r'<form method="post" action="([^"]*)"[^>]*>(.*?)</form>', page.text, re.DOTALL)
    (inside,) = [inside for target, inside in forms if target == action] or [""]
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', inside))
    origin = str(page.url.copy_with(path="/", query=None)).rstrip("/")
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
    return person.post(page.url.join(action), data={**hidden, **typed}, headers=headers)


def claim(server: Mortal) -> None:
    """Become the owner."""
    link = control.ask(server.data, "claim").result["url"]
    typed = {"name": OWNER, "passphrase": PASSPHRASE, "passphrase_again": PASSPHRASE}
    with browser(server, "10.1.1.1") as person:
        page = person.get(link, follow_redirects=True)
        action = re.search(r'<form method="post" action="([^"]*)"', page.text)
        answer = press(person, page, action[1] if action else "", typed)
    if answer.status_code not in (200, 303):
        raise Broken(f"nobody could claim the server: {answer.status_code} {answer.text[:500]}")
