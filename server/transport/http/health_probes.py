"""What the admin listener answers, for this machine's eyes: health and metrics; and one word of it for everybody's. No framework: a server
that is only looked at by a supervisor need not carry one, and is not late for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from server.lib.log.visible_text import clean
from server.transport.http.allowed_hosts import ForeignRequest, Guard, host_of
from server.transport.http.handler import Receive, Scope, Send

METHODS: Final = frozenset({"GET", "HEAD"})
TEXT: Final = "text/plain; charset=utf-8"


# This listener has no other name than the machine's for itself.
GUARD: Final = Guard()


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    missing: str = ""  # why it is not ready; empty when it is
    # What there is to say though it is: an agent that is down takes nobody else with it.
    told: Sequence[str] = ()


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What health and metrics are read from; an ASGI application."""

    ready: Callable[[], Awaitable[Readiness]]
    metrics: Callable[[], Awaitable[tuple[bytes, str]]]  # exposition, content type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = _foreign(scope)
        status, body, content_type = refused or await self._answer(scope["method"], scope["path"])
        await _send(send, scope["method"], status, body, content_type)

    async def _answer(self, method: str, path: str) -> tuple[int, bytes, str]:
        name = path.lstrip("/")  # an address that was put together with one slash too many is meant well
        if name not in ("healthz", "readyz", "metrics"):
            return 404, b"not found\n", TEXT
        if method not in METHODS:
            return 405, b"method not allowed\n", TEXT
        if name == "healthz":
            return 200, b"ok\n", TEXT
        if name == "metrics":
            return 200, *await self.metrics()
        found = await self.ready()
        told = "".join(f"{clean(line)}\n" for line in found.told)
        if found.missing:
            return 503, f"not ready: {found.missing}\n{told}".encode(), TEXT
        # The first word is for supervisors.
        return 200, f"ready\n{told}".encode(), TEXT


class PublicReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a balancer on another machine should send callers here: a status and a word. Why not is for this machine's eyes, and nobody
    waits for a look: strangers may ask as often as they like. An ASGI application."""

    is_ready: Callable[[], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method not in METHODS:
            await _send(send, method, 405, b"method not allowed\n", TEXT, (b"allow", b"GET, HEAD"))
        elif self.is_ready():
            await _send(send, method, 200, b"ready\n", TEXT)
        else:
            await _send(send, method, 503, b"not ready\n", TEXT)


async def _send(
    send: Send, method: str, status: int, body: bytes, content_type: str, *more: tuple[bytes, bytes]
) -> None:
    headers = [
        (b"content-type", content_type.encode("latin-1")),
        (b"content-length", b"%d" % len(body)),
        *more,
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def _foreign(scope: Scope) -> tuple[int, bytes, str] | None:
    """The refusal of a page that a browser of this machine shows: by a name that was led here, or from another origin."""
    if host_of(scope) is None:
        return None  # a supervisor's HTTP/1.0: browsers always name the host
    admitted = GUARD.admit(scope, dict(scope["headers"]))
    return (403, f"{admitted.reason}\n".encode(), TEXT) if isinstance(admitted, ForeignRequest) else None
