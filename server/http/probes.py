"""What the admin listener answers, for this machine's eyes: health and metrics. No framework: a server that is only looked at
by a supervisor need not carry one, and is not late for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from server.http.handler import Receive, Scope, Send

METHODS: Final = frozenset({"GET", "HEAD"})
TEXT: Final = "text/plain; charset=utf-8"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What health and metrics are read from; an ASGI application."""

    ready: Callable[[], Awaitable[str]]  # "" when ready, else what is missing
    metrics: Callable[[], tuple[bytes, str]]  # exposition, content type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, body, content_type = await self._answer(scope["method"], scope["path"])
        headers = [
            (b"content-type", content_type.encode("latin-1")),
            (b"content-length", b"%d" % len(body)),
        ]
        start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, method: str, path: str) -> tuple[int, bytes, str]:
        name = path.lstrip("/")  # an address that was put together with one slash too many is meant well
        if name not in ("healthz", "readyz", "metrics"):
            return 404, b"not found\n", TEXT
        if method not in METHODS:
            return 405, b"method not allowed\n", TEXT
        if name == "healthz":
            return 200, b"ok\n", TEXT
        if name == "metrics":
            return 200, *self.metrics()
        if missing := await self.ready():
            return 503, f"not ready: {missing}\n".encode(), TEXT
        return 200, b"ready\n", TEXT
