"""HTTP as identity wants it: an ASGI request becomes a `wire.Request`, a `wire.Reply` becomes ASGI messages.

The form endpoints of OAuth are answered by `Direct`, straight from the router: a token refresh spends less time in identity than a
framework needs to hand it over. Pages take the same two functions by way of Quart (site.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl

from auth import wire
from server.http import guard
from server.http.serving import Receive, Scope, Send

FORM_BYTES: Final = 64 * 1024  # more is not a form of ours
FORM_FIELDS: Final = 100
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"

Answer = Callable[[wire.Request], Awaitable[wire.Reply]]


class FormTooLarge(ValueError):
    """More bytes or fields than any form of ours has."""


class Direct:
    """An ASGI application for paths that identity answers with plain values."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _read(receive)
            if body is None:
                return
            reply = await self._answer(request_of(scope, body))
        except FormTooLarge:
            reply = _TOO_LARGE
        await _send(send, scope["method"], reply)


def request_of(scope: Scope, body: bytes) -> wire.Request:
    """Raises `FormTooLarge`. Only a POST with a form's content type has a form, only a POST or PUT of JSON has JSON."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    client = scope.get("client")
    return wire.Request(
        method=scope["method"],
        path=scope["path"],
        query=_pairs(scope["query_string"]),
        form=_pairs(body) if kind == FORM and scope["method"] == "POST" else (),
        json=body if kind == JSON and scope["method"] in ("POST", "PUT") else b"",
        headers=headers,
        origin=guard.origin_of(scope),
        ip=client[0] if client else "",
    )


def _pairs(text: bytes) -> tuple[tuple[str, str], ...]:
    if not text:
        return ()
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


_TOO_LARGE: Final = wire.Reply(
    status=413,
    headers=(
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("access-control-allow-origin", "*"),
        ("connection", "close"),
    ),
    body=b'{"error":"invalid_request","error_description":"the form is larger than any that is understood here"}',
)


async def _send(send: Send, method: str, reply: wire.Reply) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
    headers.append((b"content-length", b"%d" % len(reply.body)))
    start: dict[str, Any] = {"type": "http.response.start", "status": reply.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else reply.body})
