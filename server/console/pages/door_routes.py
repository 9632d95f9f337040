"""The door between Quart and auth: a request is taken in before a view runs, and a reply goes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

from quart import Response, g, request
from werkzeug.exceptions import MethodNotAllowed, NotFound, RequestEntityTooLarge

from auth.values.http_messages import WireReply, WireRequest
from server.transport.http.identity_http import FormTooLarge, request_of

# Others are answered alike at every path, before anybody asks whether there is a page.
METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


async def take_in() -> None:
    """Bound and read every request, also one that no route fits, and put it aside for `asked`."""
    if request.method not in METHODS:
        raise MethodNotAllowed
    body = await request.get_data(cache=False, as_text=False) if request.method == "POST" else b""
    try:
        g.asked = request_of(cast("dict[str, Any]", request.scope), cast("bytes", body))
    except FormTooLarge as error:
        raise RequestEntityTooLarge from error
    if asked().path.startswith("//"):  # Quart reads such a path as if one slash stood there
        raise NotFound


def asked() -> WireRequest:
    return cast("WireRequest", g.asked)


def page(reply: WireReply) -> Response:
    return respond(replace(reply, body=b"") if request.method == "HEAD" else reply)


def respond(reply: WireReply) -> Response:
    """Respond with the headers of `reply` and none of Quart's own."""
    response = Response(reply.body, status=reply.status)
    response.headers.clear()
    for name, value in reply.headers:
        response.headers.add(name, value)
    response.headers["content-length"] = str(len(reply.body))
    return response
