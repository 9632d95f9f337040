"""Access token → Principal, or the refusal with its challenge (RFC 6750 §3, RFC 9068 §4, RFC 9449 §7.1).

Two steps. What a token *says* is checked once and remembered by its digest for a minute; whether its login is still *live* is
asked on every request, as is whether its key still counts. The first check of a token's login, and the first after a change, need
the store: `check_nowait` answers None then, and `reload` gets what it missed. Keys and static tokens are accepted_credentials.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec

from auth.client_authentication import dpop_proofs
from auth.jose import jws
from auth.jose.es256 import is_signed
from auth.jose.jws import BadJws
from auth.jose.public_keys import is_thumbprint
from auth.keys.signing_keys import Keys, SigningKeys
from auth.tokens.access_tokens import TOKEN_TYPE
from auth.tokens.dpop_replays import ProofClaims
from auth.tokens.live_logins import LiveGrant, LiveLogins
from auth.tokens.presented_credentials import LONGEST_TOKEN, Presentation, PresentedCredential, PresentedProof
from auth.tokens.www_authenticate import INVALID, BearerRefusal, challenge, nonce_challenge, proof_challenge
from auth.values import scopes
from auth.values.identity_model import OF_NOBODY, Millis, Principal, PrincipalKind
from auth.values.issuer_and_resources import Site

LEEWAY_SECONDS: Final = 30
FUTURE_SECONDS: Final = 60  # a clock may be this far ahead of ours
REMEMBERED: Final = 10_000
REMEMBERED_MS: Final = 60_000

BOUND: Final = "the access token is bound to a key: send it as DPoP, with a proof"

_TYPES: Final = frozenset({TOKEN_TYPE, f"application/{TOKEN_TYPE}"})


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says, once its signature and its form are right."""

    subject: str
    client_id: str
    grant_id: str
    audience: str
    scopes: frozenset[str]
    expires_at: int  # seconds
    kid: str
    jkt: str | None = None  # the thumbprint of the key that it is bound to (RFC 9449 §6)


class _KnownToken(msgspec.Struct, eq=False):
    claims: Claims
    keys: SigningKeys  # among which its key was found; they are replaced as a whole when one of them changes
    until: Millis
    principal: Principal  # as the token says
    # The login when it was last looked at, at which server, and who that made of the caller.
    live: LiveGrant | None = None
    server: str = ""
    bounded: Principal | None = None


class BadToken(Exception):
    """Why a token is not one; for logs and tests. The client learns only `invalid_token`."""


class UnknownKey(BadToken):
    """It names a key that is not known here."""


class TokenVerifier:
    """One per process. Everything in it can be lost at any time."""

    def __init__(
        self,
        *,
        site: Site,
        keys: Keys,
        live: LiveLogins,
        reload_keys: Callable[[], Awaitable[None]],
        nonces: dpop_proofs.ProofNonces,
        remembered: int = REMEMBERED,
    ) -> None:
        """`reload_keys`: reads `keys` again from the store, if they are stale."""
        self._site = site
        self._keys = keys
        self._live = live
        self._reload_keys = reload_keys
        self._tokens: dict[bytes, _KnownToken] = {}
        self._remembered = remembered
        self._proofs = dpop_proofs.ProofWindow()
        self._nonces = nonces
        self.proof_claims: ProofClaims | None = None  # there are others, who see proofs as well

    def check_nowait(
        self, shown: Presentation, token: PresentedCredential, now: Millis
    ) -> Principal | BearerRefusal | None:
        """Who shows `token`, the credential of `shown`. None if the store must be asked, see `reload`; then no other request can
        use its proof. The way of nearly every request, a token and a login that are known, calls nothing of ours."""
        keys = self._keys
        if keys.stale:
            return None
        known = self._tokens.get(token.digest)
        if known is None or now >= known.until or known.keys is not keys.ring:
            try:
                known = self._read(token, now)
            except BadToken as problem:
                is_new = isinstance(problem, UnknownKey) and keys.may_be_new(now)
                return None if is_new else self.refuse(shown, token)
        live = self._live.get(known.claims.grant_id)
        if token.kind == "dpop":
            return None if live is None else self._check_bound(shown, token, known, live, now)
        if known.claims.jkt is not None:
            return proof_challenge(self._site, shown, BOUND, used=False)
        if live is None:
            return None
        if known.live is live and known.server == shown.server and now < live.ends_at:
            return known.bounded
        return self._judge(known, live, shown.server, now) or self.refuse(shown, token)

    def settle(self) -> None:
        """Whoever asked the store has had its answer: see `LiveLogins.trust`."""
        self._live.settle()

    async def reload(
        self, token: PresentedCredential, now: Millis, proof: PresentedProof | None = None
    ) -> bool:
        """Get from the store what `check_nowait` missed. False if there is nothing to get: the login is not there. Raises what
        `LiveLogins.load` raises."""
        if proof is not None and self.proof_claims is not None and self.proof_claims.is_waiting(proof.text):
            return await self.proof_claims.ask(proof.text)
        if self._keys.stale or not self._keys.trusted:
            await self._reload_keys()
            if self._keys.trusted:
                return True
        try:
            known = self._tokens.get(token.digest) or self._read(token, now)
        except BadToken:
            return False
        return await self._live.load(known.claims.grant_id) is not None

    def refuse(self, shown: Presentation, token: PresentedCredential) -> BearerRefusal:
        """For a token that is worth nothing here."""
        if token.kind == "dpop":
            return proof_challenge(self._site, shown, INVALID)
        return challenge(self._site, shown, error="invalid_token", description=INVALID)

    def _check_bound(
        self,
        shown: Presentation,
        token: PresentedCredential,
        known: _KnownToken,
        live: LiveGrant,
        now: Millis,
    ) -> Principal | BearerRefusal | None:
        """A token that was sent as DPoP (RFC 9449 §7.1): it must be bound to a key, and come with a proof of it."""
        site, jkt, proof = self._site, known.claims.jkt, shown.proof
        if jkt is None:
            return proof_challenge(site, shown, "the access token is bound to no key: send it as Bearer")
        found = self._judge(known, live, shown.server, now)
        if found is None:
            return proof_challenge(site, shown, INVALID)
        if proof is None:
            return proof_challenge(site, shown, "DPoP proof: is missing", error="invalid_dpop_proof")
        if proof.again:
            return found
        if self.proof_claims is not None:
            if self.proof_claims.is_waiting(proof.text):
                return None
            if (first := self.proof_claims.taken(proof.text)) is not None:
                return found if first else self._refuse_used(shown)
        urls = dpop_proofs.urls_of(site, shown.origin, shown.path or site.servers[shown.server])
        try:
            read_proof = dpop_proofs.read(
                proof.text, method=proof.method, urls=urls, now=now, token=token.secret, jkt=jkt
            )
        except BadJws as problem:
            return proof_challenge(site, shown, f"DPoP proof: {problem}", error="invalid_dpop_proof")
        if self.proof_claims is None and self._nonces.wanted(read_proof):
            return nonce_challenge(self._nonces.make(now))
        if not self._proofs.use_up(read_proof, now):
            return self._refuse_used(shown)
        if self.proof_claims is None:
            return found
        return None if self.proof_claims.wait(proof.text, read_proof, now) else self._refuse_used(shown)

    def _refuse_used(self, shown: Presentation) -> BearerRefusal:
        return proof_challenge(self._site, shown, "DPoP proof: was used before", error="invalid_dpop_proof")

    def _read(self, token: PresentedCredential, now: Millis) -> _KnownToken:
        """What the token says, from now on remembered. Raises `BadToken`."""
        self._tokens.pop(token.digest, None)
        ring = self._keys.ring
        claims = read(token.secret, self._site.issuer, self._keys, now)
        until = min(now + REMEMBERED_MS, (claims.expires_at + LEEWAY_SECONDS) * 1_000)
        key = ring.get(claims.kid, now)
        if key is not None and key.retires_at is not None:
            until = min(until, key.retires_at)
        known = _KnownToken(
            claims,
            ring,
            until,
            Principal(
                kind=PrincipalKind.USER,
                subject=claims.subject,
                client_id=claims.client_id,
                grant_id=claims.grant_id,
                scopes=claims.scopes,
            ),
        )
        while len(self._tokens) >= self._remembered:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[token.digest] = known
        return known

    def _judge(self, known: _KnownToken, live: LiveGrant, server: str, now: Millis) -> Principal | None:
        claims = known.claims
        sound = (
            live.usable
            and now < live.ends_at
            and live.subject == claims.subject
            and live.client_id == claims.client_id
            and live.server == server
            and claims.audience == self._site.audience(server)
            # Only what was bought has no scopes.
            and (claims.scopes or live.kind == PrincipalKind.PAYER)
        )
        if not sound:
            return None
        if known.live is not live or known.server != server:
            # What is live is replaced as a whole when anything of it changes.
            known.live, known.server, known.bounded = live, server, _under_ceiling(known.principal, live)
        return known.bounded

    async def still(self, principal: Principal) -> Principal | None:
        """For work that outlives the request it came with: who may go on, as what the user may have now; None once the login
        was ended, or its user or client disabled. One that ran out by itself ends no work that was begun under it. Raises
        what `LiveLogins.load` raises."""
        grant_id = principal.grant_id
        if grant_id is None:
            return principal
        live = self._live.get(grant_id) or await self._live.load(grant_id)
        self._live.settle()
        if live is None or not live.usable:
            return None
        if (live.subject, live.client_id) != (principal.subject, principal.client_id):
            return None
        return _under_ceiling(principal, live)


def _under_ceiling(principal: Principal, live: LiveGrant) -> Principal:
    open_sky = scopes.EVERYTHING in live.ceiling or principal.scopes <= live.ceiling
    told = (live.kind, live.tools, live.reach, live.person, live.program, live.known_as)
    if open_sky and told == (
        principal.kind,
        principal.tools,
        principal.reach,
        principal.person,
        principal.program,
        principal.known_as,
    ):
        return principal
    # The user's ceiling was lowered since (or is written wider, `mcp` for `mcp:tools`): at most what lies under it.
    allowed = scopes.narrow(scopes.join(principal.scopes), scopes.join(live.ceiling))
    machine = live.kind in OF_NOBODY
    return Principal(
        kind=PrincipalKind(live.kind),
        subject=principal.subject,
        client_id=principal.client_id,
        grant_id=principal.grant_id,
        scopes=frozenset(scopes.parse(allowed)),
        tools=live.tools,
        reach=frozenset() if machine else live.reach,
        person=live.person,
        program=live.program,
        known_as=live.known_as,
    )


# ---------------------------------------------------------------- reading a token


def read(token: str, issuer: str, keys: Keys, now: Millis, *, expired_too: bool = False) -> Claims:
    """Signature and form, not liveness. Raises `BadToken`. `expired_too` is for revocation, where age does no harm."""
    try:
        said = jws.read(token, longest=LONGEST_TOKEN)
    except BadJws as problem:
        raise BadToken(str(problem)) from None
    header = said.header
    key = keys.ring.get(_text(header, "kid"), now)
    if key is None:
        raise UnknownKey("unknown kid")
    # The key says which algorithm it is for; the token's own word is only compared. jku, jwk and x5u are never looked at.
    if header.get("alg") != key.algorithm:
        raise BadToken("another algorithm than the key's")
    if _text(header, "typ").lower() not in _TYPES:
        raise BadToken("not an access token")
    if "crit" in header:
        raise BadToken("critical extensions are not understood")
    if not is_signed(token, key.key):
        raise BadToken("bad signature")
    return _claims(said.claims, key.kid, issuer, now, expired_too=expired_too)


def _claims(claims: dict[str, Any], kid: str, issuer: str, now: Millis, *, expired_too: bool) -> Claims:
    seconds = now // 1_000
    if claims.get("iss") != issuer:
        raise BadToken("another issuer")
    expires_at, issued_at = _number(claims, "exp"), _number(claims, "iat")
    if seconds >= expires_at + LEEWAY_SECONDS and not expired_too:
        raise BadToken("expired")
    if issued_at > seconds + FUTURE_SECONDS:
        raise BadToken("issued in the future")
    if (
        "nbf" in claims and _number(claims, "nbf") > seconds + FUTURE_SECONDS
    ):  # RFC 7519 §4.1.5; ours have none
        raise BadToken("not valid yet")
    return Claims(
        subject=_text(claims, "sub"),
        client_id=_text(claims, "client_id"),
        grant_id=_text(claims, "sid"),
        audience=_text(claims, "aud"),
        scopes=frozenset() if claims.get("scope") == "" else frozenset(scopes.parse(_text(claims, "scope"))),
        expires_at=expires_at,
        kid=kid,
        jkt=_key_of(claims),
    )


def _key_of(claims: dict[str, Any]) -> str | None:
    """§6.1. Bound in a way that is not known here is not "not bound"."""
    if "cnf" not in claims:
        return None
    confirmation = claims["cnf"]
    if not isinstance(confirmation, dict):
        raise BadToken("cnf is not an object")
    members = cast("dict[str, Any]", confirmation)
    if members.keys() != {"jkt"} or not is_thumbprint(_text(members, "jkt")):
        raise BadToken("bound in an unknown way")
    return _text(members, "jkt")


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value:
        raise BadToken(f"{name} is not a text")
    return value


def _number(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadToken(f"{name} is not a whole number")
    return value
