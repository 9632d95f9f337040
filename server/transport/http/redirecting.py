"""What answers on port 80 of a server that is served by https: an authority that looks at a name (HTTP-01, RFC 8555 §8.3), and the way
to https for whoever typed an address without it.

Only what is looked at is sent on. What was posted, or came with a credential, has been sent in clear already: a client that is led on
would do it again each time, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from server.transport.http.allowed_hosts import authority, host_of
from server.transport.http.handler import Receive, Scope, Send

PROOF_PATH: Final = "/.well-known/acme-challenge/"
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")


def origins_of(issuer: str, names: Sequence[str]) -> dict[str, str]:
    """The https address of each name: with the issuer's port, where that has one."""
    parts = urlsplit(issuer)
    port = f":{parts.port}" if parts.port else ""
    return {name: f"https://{name}{port}" for name in (*names, parts.hostname or "")}


class HttpsOnly(msgspec.Struct, frozen=True, kw_only=True):
    """An ASGI application. `origins` are the https addresses by host name; whoever asks for another name is led to `origin`."""

    origin: str
    origins: dict[str, str]
    key_authorization: Callable[[str], str | None] = lambda token: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, headers, body = self._answer(scope)
        length = (b"content-length", b"%d" % len(body))
        start: dict[str, Any] = {
            "type": "http.response.start",
            "status": status,
            "headers": [length, *headers],
        }
        await send(start)
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, scope: Scope) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        path: str = scope["path"]
        if path.startswith(PROOF_PATH):
            proof = self.key_authorization(path.removeprefix(PROOF_PATH))
            if proof is None:
                return 404, [_TEXT], b"nothing is proved here just now\n"
            return 200, [(b"content-type", b"application/octet-stream")], proof.encode()
        host = (authority(host_of(scope), "http") or "").partition(":")[0]
        origin = self.origins.get(host, self.origin)
        if scope["method"] not in ("GET", "HEAD") or any(
            name == b"authorization" for name, _ in scope["headers"]
        ):
            said = f"this address is for https alone, and what was sent here came in clear: use {origin}\n"
            return 403, [_TEXT], said.encode()
        query: bytes = scope["query_string"]
        raw: bytes = scope["raw_path"]
        # As it came, so still escaped; the origin is before it, so that two slashes in front name no other host.
        location = (
            origin.encode("ascii")
            + (raw if raw.startswith(b"/") else b"/")
            + (b"?" + query if query else b"")
        )
        return 308, [(b"location", location), _TEXT], b"this server is reached by https\n"
