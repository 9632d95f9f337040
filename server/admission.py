"""Whether a caller of an MCP endpoint may come in: identity's bearer check in the words that the endpoint speaks.

The hot path does not wait: a token that was seen and a login that is known are answered from memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from auth.identity import Identity
from auth.model import ANONYMOUS, Principal
from auth.scopes import STANDARD
from auth.verify import Refused, challenge
from server.store.jobs import StoreUnavailable

# With `auth = "none"` everybody on this machine may do what a login could.
ANYBODY = replace(ANONYMOUS, scopes=frozenset(scope.name for scope in STANDARD))


@dataclass(frozen=True, slots=True)
class Refusal:
    """401 or 403 with its challenge, or 503; the body is for people who look at it, clients read the header."""

    status: int
    www_authenticate: str
    body: bytes


BUSY = Refusal(
    503, "", b'{"error":"temporarily_unavailable","error_description":"logins cannot be looked up right now"}'
)


@dataclass(frozen=True, slots=True)
class Admission:
    identity: Identity
    open_to_all: bool

    async def authenticate(
        self, authorization: str | None, *, origin: str, server: str, path: str
    ) -> Principal | Refusal:
        """`origin` and `path` are what the caller typed: a challenge repeats them, slash and all."""
        if self.open_to_all:
            return ANYBODY
        found = self.identity.check_nowait(authorization, server=server, origin=origin, path=path)
        if found is None:
            try:
                found = await self.identity.check(authorization, server=server, origin=origin, path=path)
            except StoreUnavailable:
                return BUSY
        return found if isinstance(found, Principal) else _refusal(found)

    def forbid(self, scopes: frozenset[str], *, origin: str, server: str, path: str) -> Refusal:
        """The 403 for a tool that a login could cover, and this one does not."""
        return _refusal(
            challenge(
                self.identity.site,
                server=server,
                origin=origin,
                path=path,
                error="insufficient_scope",
                description="the login does not cover this tool",
                needed=sorted(scopes),
                status=403,
            )
        )


def _refusal(refused: Refused) -> Refusal:
    told = {"error": refused.error or "unauthorized", "error_description": refused.description}
    return Refusal(refused.status, refused.www_authenticate, msgspec.json.encode(told))
