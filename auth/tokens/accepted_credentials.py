"""Who calls, by what a request presents: a login's token, an API key, a token of the settings.

Each server says which kinds it takes. The challenge is OAuth's wherever a login is taken: who holds a key knows what to do
with it. How a request presents something is presented_credentials.py's; tokens are access_token_verifier.py's, keys api_keys.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from auth.tokens import api_keys
from auth.tokens.access_token_verifier import TokenVerifier
from auth.tokens.api_key_ring import ApiKeyRing, KeyUsage
from auth.tokens.api_keys import ApiKey
from auth.tokens.presented_credentials import LONGEST_KEY, Presentation, PresentedCredential
from auth.tokens.www_authenticate import BearerRefusal, challenge
from auth.values.database import ChangedWhileRead
from auth.values.identity_model import Millis, Principal, PrincipalKind
from auth.values.issuer_and_resources import Site

INVALID_KEY: Final = "the key is not valid (any more), or not for this server"
TWO_CREDENTIALS: Final = "two different credentials were sent: send one"

# A token waits for a signing key, a login and a proof at most; more often is somebody who changes things in a loop.
ATTEMPTS: Final = 5


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
        program=name,
        known_as=(name, subject),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedCredentials:
    """What one server takes."""

    login: bool = True
    api_key: bool = True  # keys and static tokens, as Bearer or X-API-Key
    basic: bool = True  # the same as user name and password
    tokens: Mapping[bytes, Principal] = field(  # of the settings, by SHA-256
        default_factory=lambda: MappingProxyType({}), repr=False
    )

    def named(self, subject: str) -> Principal | None:
        return next((each for each in self.tokens.values() if each.subject == subject), None)


EVERYTHING: Final = AcceptedCredentials()


class CredentialCheck:
    def __init__(
        self,
        *,
        site: Site,
        verifier: TokenVerifier,
        ring: ApiKeyRing,
        access: Mapping[str, AcceptedCredentials],
    ) -> None:
        """`access`: by the name of the server; one that is not there takes everything and has no static tokens."""
        self._site = site
        self._verifier = verifier
        self._ring = ring
        self._access = access
        self.usage: Final = KeyUsage()

    def check_nowait(self, shown: Presentation, now: Millis) -> Principal | BearerRefusal | None:
        """The decision, from memory alone. None if the store must be asked: then `check`."""
        credential = shown.credential
        access = self._access.get(shown.server, EVERYTHING)
        if not isinstance(credential, PresentedCredential):
            return self._refuse(shown, access, None if credential is None else TWO_CREDENTIALS)
        if access.login and _is_token(credential, access):
            return self._verifier.check_nowait(shown, credential, now)
        found = self._of_key(shown, credential, access, now)
        return self._refuse(shown, access, found) if isinstance(found, str) else found

    async def check(self, shown: Presentation, now: Millis) -> Principal | BearerRefusal:
        """Decide the same, once what is missing for it was read. Raises `ChangedWhileRead`, and what the store raises: then nobody
        knows who this is, which is no refusal."""
        credential = shown.credential
        for _ in range(ATTEMPTS):
            found = self.check_nowait(shown, now)
            if found is not None:
                self._verifier.settle()
                return found
            assert isinstance(credential, PresentedCredential)  # all else is decided from memory
            if credential.kind in ("key", "basic"):
                key = await self._ring.fetch(credential.digest, now)
                judged = self._judge(key, credential, shown, now)
                access = self._access.get(shown.server, EVERYTHING)
                return self._refuse(shown, access, judged) if isinstance(judged, str) else judged
            if not await self._verifier.reload(credential, now, shown.proof):  # there is no such login
                self._verifier.settle()
                return self._verifier.refuse(shown, credential)
        raise ChangedWhileRead

    async def still(self, principal: Principal) -> Principal | None:
        """Decide, for work that outlives its request, who may go on, as `TokenVerifier.still`."""
        if principal.kind is not PrincipalKind.API_KEY:
            return await self._verifier.still(principal)
        if principal.subject.startswith("token:"):
            for access in self._access.values():
                if (known := access.named(principal.subject)) is not None:
                    return known
            return None
        key = await self._ring.current(principal.subject)
        return None if key is None or key.ended else key.principal

    def _of_key(
        self, shown: Presentation, credential: PresentedCredential, access: AcceptedCredentials, now: Millis
    ) -> Principal | str | None:
        """A text: why not. None: the store must be asked."""
        basic = credential.kind == "basic"
        taken = access.basic if basic else access.api_key
        if not taken or credential.kind == "dpop" or len(credential.secret) > LONGEST_KEY:
            return INVALID_KEY
        static = access.tokens.get(credential.digest) if access.tokens else None
        if static is not None:
            fits = not basic or static.subject == f"token:{shown.server}:{credential.name}"
            return static if fits else INVALID_KEY
        key = self._ring.find(credential.digest)
        if key is None:
            if not api_keys.is_one(credential.secret):
                return INVALID_KEY
            if self._ring.must_ask(credential.digest):
                return None
        return self._judge(key, credential, shown, now)

    def _judge(
        self, key: ApiKey | None, credential: PresentedCredential, shown: Presentation, now: Millis
    ) -> Principal | str:
        """Who shows this key, or why it is worth nothing here."""
        if key is None or (credential.kind == "basic" and credential.name != key.id):
            self.usage.refused("", "unknown", now, shown.address)
            return INVALID_KEY
        reason = api_keys.decide(key, server=shown.server, now=now)
        if reason is not None:
            self.usage.refused(key.id, reason, now, shown.address)
            return INVALID_KEY
        self.usage.used(key.id, now, shown.address)
        return key.principal

    def _refuse(self, shown: Presentation, access: AcceptedCredentials, problem: str | None) -> BearerRefusal:
        error = None if problem is None else "invalid_token"
        description = problem or ("sign in first" if access.login else "send a key")
        if access.login:
            return challenge(self._site, shown, error=error, description=description)
        # RFC 7235 §4.1: one header may hold several challenges. No metadata: there is no login to find.
        offers: list[str] = []
        if access.basic:
            offers.append(f'Basic realm="{shown.server}", charset="UTF-8"')
        if access.api_key:
            told = "" if error is None else f', error="{error}", error_description="{description}"'
            offers.append(f'Bearer realm="{shown.server}"{told}')
        return BearerRefusal(
            status=401, error=error, description=description, www_authenticate=", ".join(offers)
        )


def _is_token(credential: PresentedCredential, access: AcceptedCredentials) -> bool:
    """Whether it can be a login's token, and no token of the settings."""
    if credential.kind == "token":
        return not access.tokens or credential.digest not in access.tokens
    return credential.kind == "dpop"
