"""The Quart-Trio app: pages, documents, health and metrics; everything but the MCP endpoints and OAuth's form endpoints. Pages are
`auth`'s, which knows no framework; here a Quart request becomes its `wire.Request` and its `wire.Reply` a Quart response.

Quart appears in this file and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from auth import wire
from server.http.values import FORM_BYTES, Answer, FormTooLarge, request_of

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What health and metrics are read from."""

    ready: Callable[[], Awaitable[str]]  # "" when ready, else what is missing
    metrics: Callable[[], tuple[bytes, str]]  # exposition, content type


def make_site(answer: Answer) -> QuartTrio:
    """The public app: every path goes to `answer`, which knows its own 404."""
    app = _bare_app()

    async def anything(path: str = "") -> Response:
        return _response(await answer(await _request()))

    app.add_url_rule("/", "root", anything, methods=list(METHODS))
    app.add_url_rule("/<path:path>", "anything", anything, methods=list(METHODS))
    return app


def make_admin_site(probe: Probe) -> QuartTrio:
    """The admin listener's app, for this machine's eyes: health and metrics."""
    app = _bare_app()

    async def healthz() -> Response:
        return _plain("ok\n")

    async def readyz() -> Response:
        missing = await probe.ready()
        return _plain("ready\n") if not missing else _plain(f"not ready: {missing}\n", 503)

    async def metrics() -> Response:
        body, content_type = probe.metrics()
        return Response(body, content_type=content_type)

    for path, view in (("/healthz", healthz), ("/readyz", readyz), ("/metrics", metrics)):
        app.add_url_rule(path, path, view, methods=["GET"])
    return app


def _bare_app() -> QuartTrio:
    app = QuartTrio("server", static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = FORM_BYTES
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.register_error_handler(HTTPException, _as_plain)
    return app


async def _as_plain(error: HTTPException) -> Response:
    return _plain(f"{error.name.lower()}\n", error.code or 500)


def _plain(text: str, status: int = 200) -> Response:
    return Response(text, status=status, content_type="text/plain; charset=utf-8")


async def _request() -> wire.Request:
    body = (
        cast("bytes", await request.get_data(cache=False, as_text=False)) if request.method == "POST" else b""
    )
    try:
        return request_of(cast("dict[str, Any]", request.scope), body)
    except FormTooLarge as error:
        raise RequestEntityTooLarge from error


def _response(reply: wire.Reply) -> Response:
    response = Response(reply.body, status=reply.status)
    response.headers.clear()
    for name, value in reply.headers:
        response.headers.add(name, value)
    response.headers["content-length"] = str(len(reply.body))
    return response
