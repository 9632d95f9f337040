"""Requests as many people's programs make them: each from an address of its own, through a proxy that the server trusts.

Limits by address are for the open network. Here everybody is on one machine, and so each request says that it comes from elsewhere.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from email.message import Message
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlencode

from wire import call_parts

WAIT_SECONDS = 30.0
TRUSTED = ("127.0.0.0/8",)  # `trusted_proxies` of a server that is called from here
# Of a request that was not done, and may be made again: too often, and not now.
NOT_NOW = frozenset({429, 503})


class Lost(Exception):
    """No answer came: whether the request was done is not known."""


class Unheard(Lost):
    """Nobody was there to be asked: it was not done."""


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes
    node: str = ""  # which gave it

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    def error(self) -> str:
        """OAuth's word for what is wrong; empty where it says none."""
        try:
            return str(self.json.get("error", ""))
        except ValueError:
            return ""


class Caller:
    """One connection, opened again whenever it was lost. For one thread."""

    def __init__(self, host: str, port: int, dice: Random, *, seconds: float = WAIT_SECONDS) -> None:
        self.dice = dice
        self._host, self._port, self._seconds = host, port, seconds
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", path, headers or {})

    def form(self, path: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Answer:
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        return self.ask("POST", path, {**kind, **(headers or {})}, urlencode(form).encode())

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        token: str,
        name: str = "",
        capabilities: Mapping[str, Any] | None = None,
    ) -> Answer:
        """A 2026-07-28 request to /mcp."""
        headers, body = call_parts(method, params, name=name, token=token, capabilities=capabilities)
        return self.ask("POST", "/mcp", headers, body)

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """The whole answer, an event stream to its end. Raises `Lost`."""
        try:
            response = self.begin(method, path, headers, body)
            return Answer(response.status, response.headers, response.read(), f"{self._host}:{self._port}")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Lost(f"{method} {path}: {error!r}") from error

    def begin(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> http.client.HTTPResponse:
        """The head of the answer; whoever does not read the rest closes. Raises `Unheard`, and what `http.client` does."""
        if self._connection is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)
            try:
                connection.connect()
            except OSError as error:
                raise Unheard(f"nobody listens: {error!r}") from error
            self._connection = connection
        self._connection.request(method, path, body, {**headers, "X-Forwarded-For": self.address()})
        return self._connection.getresponse()

    def address(self) -> str:
        """Of somebody else, each time."""
        return ".".join(["10", *(str(self.dice.randrange(256)) for _ in range(3))])
