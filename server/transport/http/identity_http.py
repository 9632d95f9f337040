"""HTTP as identity wants it: a request becomes a `WireRequest`, and a `WireReply` goes out in one write.

The form endpoints of OAuth are answered by `FormHandler`, straight from the router: a token refresh spends less time in identity than a
framework needs to hand it over. Pages make their requests by `request_of` as well (server/console/pages/door_routes.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Final, TypeAlias, cast
from urllib.parse import parse_qsl

from auth.values import http_messages
from server.transport.http import allowed_hosts
from server.transport.http.handler import Address, Cycle, Receive, Resolve, Scope

FORM_BYTES: Final = 64 * 1024  # more is not a form of ours
FORM_FIELDS: Final = 100
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"

Answer: TypeAlias = Callable[[http_messages.WireRequest], Awaitable[http_messages.WireReply]]
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class FormTooLarge(ValueError):
    """More bytes or fields than any form of ours has."""


class FormHandler:
    """Implements `Handler` for paths that identity answers with plain values."""

    __slots__ = ("_answer", "_headers", "_kind", "_origin", "_query", "_scope", "client")

    def __init__(self, answer: Answer, scope: Scope) -> None:
        self._answer = answer
        self._scope = scope
        self._headers = _headers(scope)
        self._kind = _kind(self._headers)
        self._query: Pairs | None = None  # not read yet: a request is refused, not a head
        self._origin = allowed_hosts.origin_of(scope)
        self.client: Final = (
            cast("Address | None", scope["client"]) if scope["state"].get("proxied") else None
        )

    async def answer(self, cycle: Cycle) -> None:
        body = cycle.arrived()
        try:
            if body is None:
                body = await _read(cycle.receive)
                if body is None:
                    return
            elif len(body) > FORM_BYTES:
                raise FormTooLarge
            reply = await self._answer(self._request(cycle, body))
        except FormTooLarge:
            reply = _TOO_LARGE
        await cycle.answer(reply.status, _encoded(reply.headers), reply.body)

    def done(self, cycle: Cycle, seconds: float) -> None:
        """Whatever there is to tell was told."""

    def _request(self, cycle: Cycle, body: bytes) -> http_messages.WireRequest:
        if self._query is None:
            self._query = _pairs(self._scope["query_string"])
        method: str = self._scope["method"]
        return http_messages.WireRequest(
            method=method,
            path=self._scope["path"],
            query=self._query,
            form=_pairs(body) if self._kind == FORM and method == "POST" else (),
            json=body if self._kind == JSON and method in ("POST", "PUT") else b"",
            headers=self._headers,
            origin=self._origin,
            ip=cycle.client[0] if cycle.client else "",
        )


def form_handler(answer: Answer) -> Resolve:
    return partial(FormHandler, answer)


def request_of(scope: Scope, body: bytes) -> http_messages.WireRequest:
    """Raises `FormTooLarge`. Only a POST with a form's content type has a form, only a POST or PUT of JSON has JSON."""
    headers = _headers(scope)
    kind = _kind(headers)
    client = scope.get("client")
    return http_messages.WireRequest(
        method=scope["method"],
        path=scope["path"],
        query=_pairs(scope["query_string"]),
        form=_pairs(body) if kind == FORM and scope["method"] == "POST" else (),
        json=body if kind == JSON and scope["method"] in ("POST", "PUT") else b"",
        headers=headers,
        origin=allowed_hosts.origin_of(scope),
        ip=client[0] if client else "",
        request_id=scope["state"].get("request_id", ""),
    )


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _kind(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _pairs(text: bytes) -> Pairs:
    if not text:
        return ()
    if text.isascii() and b"%" not in text and b"+" not in text:
        # Nothing in it stands for something else, as in nearly every form of a program.
        fields = text.decode().split("&")
        if len(fields) > FORM_FIELDS:
            raise FormTooLarge
        found: list[tuple[str, str]] = []
        for field in fields:
            if field:
                name, _, value = field.partition("=")
                found.append((name, value))
        return tuple(found)
    try:
        return tuple(
            parse_qsl(text.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS)
        )
    except ValueError as error:
        raise FormTooLarge from error


async def _read(receive: Receive) -> bytes | None:
    """The body; None when the client left first. Raises `FormTooLarge`."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > FORM_BYTES:
            raise FormTooLarge
        if not message.get("more_body", False):
            return body


_TOO_LARGE: Final = http_messages.WireReply(
    status=413,
    headers=(
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("access-control-allow-origin", "*"),
        ("connection", "close"),
    ),
    body=b'{"error":"invalid_request","error_description":"the form is larger than any that is understood here"}',
)


# Most replies have the headers of the one before.
@lru_cache(maxsize=64)
def _encoded(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)
