"""Which credential a request shows, and who that makes of its caller: a login's token, an API key, a token of the settings.

    Authorization: Bearer <token, key or static token> · X-API-Key: <key or static token> · Authorization: Basic <id>:<key>
    Authorization: DPoP <token> with a proof of the key that it is bound to

Each server says which kinds it takes. The challenge is OAuth's wherever a login is taken: who holds a key knows what to do
with it. Tokens are verify.py's, keys api_keys.py's. RFC 6750 §2.1, RFC 7617.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, Literal

from auth.model import Millis, Principal, PrincipalKind
from auth.site import Site
from auth.tokens import api_keys
from auth.tokens.dpop import Presented
from auth.tokens.key_ring import KeyRing, Usage
from auth.tokens.verify import Refused, Verifier, challenge

# An id and a secret, whatever they are; ours have about 80.
LONGEST_SECRET: Final = 1_024

INVALID_KEY: Final = "the key is not valid (any more), or not for this server"
TWO_CREDENTIALS: Final = "two different credentials were sent: send one"


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def static_principal(server: str, name: str, *, scopes: frozenset[str], tools: str) -> Principal:
    """Who shows a token that stands in the settings."""
    subject = f"token:{server}:{name}"
    return Principal(
        kind=PrincipalKind.API_KEY,
        subject=subject,
        grant_id=subject,
        scopes=scopes,
        tools=tools,
        reach=frozenset(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What one server takes."""

    login: bool = True
    api_key: bool = True  # keys and static tokens, as Bearer or X-API-Key
    basic: bool = True  # the same as user name and password
    tokens: Mapping[bytes, Principal] = field(  # of the settings, by SHA-256
        default_factory=lambda: MappingProxyType({}), repr=False
    )

    def named(self, subject: str) -> Principal | None:
        return next((each for each in self.tokens.values() if each.subject == subject), None)


EVERYTHING: Final = Access()


@dataclass(frozen=True, slots=True)
class Shown:
    kind: Literal["bearer", "key", "basic", "dpop"]
    secret: str = field(repr=False)
    name: str = ""  # basic: the user name


class Conflict(Enum):
    TWO = auto()  # different credentials in one request


class Credentials:
    def __init__(
        self, *, site: Site, verifier: Verifier, ring: KeyRing, access: Mapping[str, Access]
    ) -> None:
        """`access`: by the name of the server; one that is not there takes everything and has no static tokens."""
        self._site = site
        self._verifier = verifier
        self._ring = ring
        self._access = access
        self.usage: Final = Usage()

    def check_nowait(
        self,
        authorization: str | None,
        *,
        server: str,
        origin: str,
        path: str | None = None,
        api_key: str | None = None,
        address: str = "",
        proof: Presented | None = None,
        now: Millis,
    ) -> Principal | Refused | None:
        """The hot path: no await. None if the store must be asked; then use `check`. `proof`: of a key, beside a token that is
        bound to it."""
        access = self._access.get(server, EVERYTHING)
        # Most callers: a login's token, which begins like every JWT. Nothing is taken apart that need not be.
        if (
            api_key is None
            and authorization is not None
            and authorization.startswith("ey", 7)
            and access.login
            and not access.tokens
        ):
            return self._verifier.check_nowait(
                authorization, server=server, origin=origin, path=path, now=now
            )
        shown = read(authorization, api_key)
        if isinstance(shown, Shown) and shown.kind == "dpop" and access.login:
            return self._verifier.check_bound_nowait(
                shown.secret, proof, server=server, origin=origin, path=path, now=now
            )
        if isinstance(shown, Shown):
            if shown.kind == "bearer" and not shown.secret.startswith(api_keys.PREFIX):
                known = access.tokens.get(digest_of(shown.secret)) if access.tokens else None
                if known is None and access.login:
                    return self._verifier.check_nowait(
                        authorization, server=server, origin=origin, path=path, now=now
                    )
            found = self._of_key(shown, access, server, address, now)
            if found is None or isinstance(found, Principal):
                return found
            return self._refuse(access, server, origin, path, found)
        problem = TWO_CREDENTIALS if shown is Conflict.TWO else None
        return self._refuse(access, server, origin, path, problem)

    async def check(
        self,
        authorization: str | None,
        *,
        server: str,
        origin: str,
        path: str | None = None,
        api_key: str | None = None,
        address: str = "",
        proof: Presented | None = None,
        now: Millis,
    ) -> Principal | Refused:
        """Like `check_nowait`, and asks the store where that must. Raises what the store raises."""
        if self._ring.stale:
            await self._ring.reload()
        found = self.check_nowait(
            authorization,
            server=server,
            origin=origin,
            path=path,
            api_key=api_key,
            address=address,
            proof=proof,
            now=now,
        )
        if found is not None:
            return found
        shown = read(authorization, api_key)
        if isinstance(shown, Shown) and shown.kind == "dpop":
            return await self._verifier.check_bound(
                shown.secret, proof, server=server, origin=origin, path=path, now=now
            )
        # A token whose login must be looked up; or a key while keys change faster than they can be read, which is no token.
        return await self._verifier.check(authorization, server=server, origin=origin, path=path, now=now)

    async def still(self, principal: Principal) -> Principal | None:
        """For work that outlives its request, as `Verifier.still`."""
        if principal.kind is not PrincipalKind.API_KEY:
            return await self._verifier.still(principal)
        if principal.subject.startswith("token:"):
            for access in self._access.values():
                if (known := access.named(principal.subject)) is not None:
                    return known
            return None
        if not await self._ring.reload():
            return None
        key = self._ring.get(principal.subject)
        return None if key is None or key.ended else key.principal

    def _of_key(
        self, shown: Shown, access: Access, server: str, address: str, now: Millis
    ) -> Principal | str | None:
        """A text: why not. None: the store must be asked."""
        secret = shown.secret
        taken = access.basic if shown.kind == "basic" else access.api_key
        if not taken or shown.kind == "dpop" or len(secret) > LONGEST_SECRET:
            return INVALID_KEY
        static = access.tokens.get(digest_of(secret)) if access.tokens else None
        if static is not None:
            fits = shown.kind != "basic" or static.subject == f"token:{server}:{shown.name}"
            return static if fits else INVALID_KEY
        if not api_keys.is_one(secret):
            return INVALID_KEY
        if self._ring.stale:
            return None
        key = self._ring.find(secret)
        if key is None or (shown.kind == "basic" and shown.name != key.id):
            self.usage.refused("", "unknown", now, address)
            return INVALID_KEY
        reason = api_keys.decide(key, server=server, now=now)
        if reason is not None:
            self.usage.refused(key.id, reason, now, address)
            return INVALID_KEY
        self.usage.used(key.id, now, address)
        return key.principal

    def _refuse(
        self, access: Access, server: str, origin: str, path: str | None, problem: str | None
    ) -> Refused:
        error = None if problem is None else "invalid_token"
        description = problem or ("sign in first" if access.login else "send a key")
        if access.login:
            return challenge(
                self._site, server=server, origin=origin, path=path, error=error, description=description
            )
        # RFC 7235 §4.1: one header may hold several challenges. No metadata: there is no login to find.
        offers: list[str] = []
        if access.basic:
            offers.append(f'Basic realm="{server}", charset="UTF-8"')
        if access.api_key:
            told = "" if error is None else f', error="{error}", error_description="{description}"'
            offers.append(f'Bearer realm="{server}"{told}')
        return Refused(status=401, error=error, description=description, www_authenticate=", ".join(offers))


def read(authorization: str | None, api_key: str | None) -> Shown | Conflict | None:
    """None: nothing was shown that we know, which is answered like a request without anything."""
    shown = None if authorization is None else _of_header(authorization)
    if api_key is None:
        return shown
    if authorization is None:
        return Shown("key", api_key.strip())
    # The same key twice is one credential; anything else would be a guess about which of them counts.
    same = isinstance(shown, Shown) and shown.secret == api_key.strip()
    return shown if same else Conflict.TWO


def _of_header(authorization: str) -> Shown | None:
    scheme, _, rest = authorization.strip().partition(" ")
    kind = scheme.lower()
    if kind == "bearer":
        return Shown("bearer", rest.strip())
    if kind == "dpop":
        return Shown("dpop", rest.strip())
    if kind != "basic":
        return None
    # Unreadable is not "nothing": it is refused as a key that there is not.
    name, _, secret = _decoded(rest.strip()).partition(":")
    return Shown("basic", secret, name)


def _decoded(text: str) -> str:
    if len(text) > 2 * LONGEST_SECRET:
        return ""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
