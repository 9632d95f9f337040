"""Whether a caller of an MCP endpoint may come in: identity's bearer check in the words that the endpoint speaks.

The hot path does not wait, and is a plain call: a token that was seen and a login that is known are answered from memory.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from auth.identity import Identity
from auth.tokens.presented_credentials import Presentation
from auth.tokens.www_authenticate import BearerRefusal, challenge
from auth.values.database import NotStored
from auth.values.identity_model import ANONYMOUS, STRANGER, Principal
from auth.values.scopes import Vocabulary
from server.calls.rights.standing import Rights
from server.calls.rights.visitors import VISITOR
from server.settings.tool_selection import MAX_TEXTS, BadSelection, parse
from server.store.jobs import StoreDamaged, StoreError


class EntryRefusal(msgspec.Struct, frozen=True):
    """401 or 403 with its challenge, 400, or 503; the body is for people who look at it, clients read the header."""

    status: int
    www_authenticate: str
    body: bytes
    nonce: str = ""  # for the next proof of a key (RFC 9449 §8)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Those of a challenge."""
        named = ((b"www-authenticate", self.www_authenticate), (b"dpop-nonce", self.nonce))
        return [(name, value.encode("latin-1")) for name, value in named if value]


BUSY = EntryRefusal(
    503, "", b'{"error":"temporarily_unavailable","error_description":"logins cannot be looked up right now"}'
)
DAMAGED = EntryRefusal(
    503,
    "",
    b'{"error":"temporarily_unavailable","error_description":"the database of this server is damaged"}',
)


def anybody(vocabulary: Vocabulary) -> Principal:
    """Whoever calls a server with `auth = "none"`: may do what a login could, but not move money."""
    names = (name for name in vocabulary.names if not vocabulary.financial(name))
    return replace(ANONYMOUS, scopes=frozenset(names))


class Admission(msgspec.Struct, frozen=True):
    """Of one server."""

    identity: Identity
    everybody: Principal | None = None  # who everybody is, at a server that asks nobody to log in
    sells_to_all: bool = False  # whoever pays comes in without a login, to what is paid for
    rights: Rights | None = None  # of the server: whether there is anything for those who show nothing

    def who_nowait(self, shown: Presentation) -> Principal | EntryRefusal | None:
        """Who presents this, decided from memory; None if the store must be asked: then `authenticate`."""
        if shown.pays and self.sells_to_all and self.everybody is None:
            found = STRANGER
        elif shown.visits and self.rights is not None and self.rights.visitors is not None:
            found = self.everybody or VISITOR
        else:
            found = self.everybody or self.identity.check_nowait(shown)
        if found is None:
            return None
        if not isinstance(found, Principal):
            return _refusal(found)
        return found if shown.tools is None else _narrowed(found, shown.tools)

    async def authenticate(self, shown: Presentation) -> Principal | EntryRefusal:
        """The same; waits only where the store must be asked."""
        found = self.who_nowait(shown)
        if found is not None:
            return found
        try:
            checked = await self.identity.check(shown)
        except StoreDamaged:
            return DAMAGED
        except (StoreError, NotStored) as problem:
            # Of whatever kind: nobody is let in, and nobody is told that they may not.
            self.identity.credentials.usage.undecided(str(problem))
            return BUSY
        if not isinstance(checked, Principal):
            return _refusal(checked)
        return checked if shown.tools is None else _narrowed(checked, shown.tools)

    def forbid(self, scopes: frozenset[str], missing: frozenset[str], shown: Presentation) -> EntryRefusal:
        """The 403 for what a login could cover, and this one does not. Some programs show their person the description alone."""
        return _refusal(
            challenge(
                self.identity.parts.site,
                shown,
                error="insufficient_scope",
                description=f"the login lacks the scope {' '.join(sorted(missing))}, which this needs",
                needed=sorted(scopes),
                status=403,
            )
        )


def _narrowed(principal: Principal, tools: str) -> Principal | EntryRefusal:
    texts = tools.split(";")  # of the header, and of the address
    try:
        if len(texts) > MAX_TEXTS:
            raise BadSelection(f"a request has at most {MAX_TEXTS} selections of tools")
        for text in texts:
            parse(text)
    except BadSelection as problem:
        told = {"error": "invalid_request", "error_description": str(problem)}
        return EntryRefusal(400, "", msgspec.json.encode(told))
    return replace(principal, tools=";".join((principal.tools, *texts)))


def _refusal(refused: BearerRefusal) -> EntryRefusal:
    told = {"error": refused.error or "unauthorized", "error_description": refused.description}
    return EntryRefusal(
        refused.status, refused.www_authenticate, msgspec.json.encode(told), nonce=refused.nonce
    )
