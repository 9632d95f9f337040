"""Whether a caller of an MCP endpoint may come in: identity's bearer check in the words that the endpoint speaks.

The hot path does not wait: a token that was seen and a login that is known are answered from memory.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from auth.identity import Identity
from auth.model import ANONYMOUS, Principal
from auth.scopes import Vocabulary
from auth.tokens.dpop import Presented
from auth.tokens.verify import Refused, challenge
from server.selection import MAX_TEXTS, BadSelection, parse
from server.store.jobs import StoreUnavailable


class Refusal(msgspec.Struct, frozen=True):
    """401 or 403 with its challenge, 400, or 503; the body is for people who look at it, clients read the header."""

    status: int
    www_authenticate: str
    body: bytes


BUSY = Refusal(
    503, "", b'{"error":"temporarily_unavailable","error_description":"logins cannot be looked up right now"}'
)


def anybody(vocabulary: Vocabulary) -> Principal:
    """Whoever calls a server with `auth = "none"`: may do what a login could, but not move money."""
    names = (name for name in vocabulary.names if not vocabulary.financial(name))
    return replace(ANONYMOUS, scopes=frozenset(names))


class Admission(msgspec.Struct, frozen=True):
    identity: Identity
    everybody: Principal | None = None  # who everybody is, at a server that asks nobody to log in

    async def authenticate(
        self,
        authorization: str | None,
        *,
        origin: str,
        server: str,
        path: str,
        api_key: str | None = None,
        address: str = "",
        tools: str | None = None,
        proof: Presented | None = None,
    ) -> Principal | Refusal:
        """`origin` and `path` are what the caller typed: a challenge repeats them, slash and all. `tools`: what of its tools
        the request wants to know of; it can have less than its caller may, and never more."""
        found: Principal | Refused | None = self.everybody
        if found is None:
            found = self.identity.check_nowait(
                authorization,
                server=server,
                origin=origin,
                path=path,
                api_key=api_key,
                address=address,
                proof=proof,
            )
        if found is None:
            try:
                found = await self.identity.check(
                    authorization,
                    server=server,
                    origin=origin,
                    path=path,
                    api_key=api_key,
                    address=address,
                    proof=proof,
                )
            except StoreUnavailable:
                return BUSY
        if not isinstance(found, Principal):
            return _refusal(found)
        return found if tools is None else _narrowed(found, tools)

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


def _narrowed(principal: Principal, tools: str) -> Principal | Refusal:
    texts = tools.split(";")  # of the header, and of the address
    try:
        if len(texts) > MAX_TEXTS:
            raise BadSelection(f"a request has at most {MAX_TEXTS} selections of tools")
        for text in texts:
            parse(text)
    except BadSelection as problem:
        told = {"error": "invalid_request", "error_description": str(problem)}
        return Refusal(400, "", msgspec.json.encode(told))
    return replace(principal, tools=";".join((principal.tools, *texts)))


def _refusal(refused: Refused) -> Refusal:
    told = {"error": refused.error or "unauthorized", "error_description": refused.description}
    return Refusal(refused.status, refused.www_authenticate, msgspec.json.encode(told))
