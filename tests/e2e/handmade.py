"""A client program made by hand, for what no library lets one send: each request as some real program was seen to send it.

It registers, sends somebody's browser (person.py) to /authorize and takes what comes back in the address of the last redirect,
so nothing has to listen for it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx2
from person import Forms, Person
from programs import WAIT_SECONDS

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
CLI = "ostiary-cli"
CALLBACK = "http://127.0.0.1:49152/callback"
METADATA = "/.well-known/oauth-authorization-server"
MCP_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@dataclass
class Handmade:
    """`origin` is what its user typed."""

    origin: str
    http: httpx2.Client = field(default_factory=lambda: httpx2.Client(trust_env=False, timeout=WAIT_SECONDS))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)

    def close(self) -> None:
        self.http.close()

    # ------------------------------------------------------------ looking

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return self.http.get(self.origin + path, headers=headers)

    def metadata(self) -> dict[str, Any]:
        return self.get(METADATA).json()

    # ------------------------------------------------------------ asking

    def post(
        self, path: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        return self.http.post(self.origin + path, data=dict(form), headers=dict(headers or {}))

    def register(self, **members: Any) -> dict[str, Any]:
        body = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none", **members}
        said = {name: value for name, value in body.items() if value is not None}
        answer = self.http.post(f"{self.origin}/register", json=said)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def authorize_url(self, client_id: str, **changes: str | None) -> str:
        challenge = hashlib.sha256(self.verifier.encode()).digest()
        request = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": CALLBACK,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "state": "as~it-was",
            **changes,
        }
        given = {name: value for name, value in request.items() if value is not None}
        return f"{self.origin}/authorize?{urlencode(given)}"

    def agreed(self, person: Person, client_id: str, **changes: str | None) -> dict[str, str]:
        """What comes back after somebody said yes, or had said it before."""
        return landed(person, self.authorize_url(client_id, **changes))

    def redeem(self, client_id: str, code: str, **changes: str) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": code,
            "code_verifier": self.verifier,
            "redirect_uri": CALLBACK,
            **changes,
        }
        return self.post("/token", form)

    def ask_for_device(self, **form: str) -> dict[str, Any]:
        answer = self.post("/device_authorization", {"client_id": CLI, **form})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def poll(self, device_code: str, **form: str) -> httpx2.Response:
        form = {"client_id": CLI, "grant_type": DEVICE_CODE, "device_code": device_code, **form}
        return self.post("/token", form)

    def refresh(self, refresh_token: str, client_id: str = CLI, **form: str) -> httpx2.Response:
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id, **form}
        return self.post("/token", form)

    # ------------------------------------------------------------ calling

    def mcp(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        token: str | None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method}
        if params is not None:
            body["params"] = params
        return self.http.post(
            f"{self.origin}/mcp",
            content=json.dumps(body),
            headers={**MCP_HEADERS, **bearer, **(headers or {})},
        )

    def works(self, token: str) -> bool:
        """Whether a tool answers to this access token; anything but yes and 401 is a failure."""
        answer = self.mcp("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, token=token)
        assert answer.status_code in (200, 401), answer.text
        return answer.status_code == 200


def landed(person: Person, url: str, *, words: str = "Allow") -> dict[str, str]:
    """Open `url` and press the button where there is one; the parameters of the address outside that the browser is sent to."""
    house = httpx2.URL(url).netloc
    reply = person.browser.get(url, follow_redirects=False)
    for _ in range(6):
        if reply.is_redirect:
            target = reply.url.join(reply.headers["location"])
            if target.netloc != house:
                assert reply.status_code == 303
                assert len(target.params.multi_items()) == len(target.params)  # none is there twice
                return dict(target.params)
            reply = person.browser.get(target, follow_redirects=False)
        else:
            reply = pressed(person, reply, words)
    raise AssertionError(f"it led nowhere: {reply.url}")


def pressed(person: Person, page: httpx2.Response, words: str) -> httpx2.Response:
    assert page.status_code == 200, page.text
    for form in Forms(page.text).found:
        for button in form.buttons:
            if button.words.startswith(words):
                fields = [*form.fields, *form.ticked]
                fields += [(button.name, button.value)] if button.name else []
                target = page.url.join(form.action)
                headers = {
                    "Content-Type": "application/x-www-form-urlencoded",
                    "Origin": f"{target.scheme}://{target.netloc.decode()}",
                    "Sec-Fetch-Site": "same-origin",
                }
                content = urlencode(fields).encode()
                return person.browser.post(target, content=content, headers=headers, follow_redirects=False)
    raise AssertionError(f"there is no button {words!r} on this page:\n{page.text}")
