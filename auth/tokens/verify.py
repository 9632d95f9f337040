"""Bearer token → Principal, or the refusal with its challenge (RFC 6750 §3, RFC 9068 §4, RFC 9728 §5.1).

Two steps. What a token *says* is checked once and remembered by its hash for a minute; whether its login is still *live* is
asked on every request. The first check of a token, and the first of a login after a change, may need the store: `check_nowait`
answers None then, and `check` waits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from auth import scopes
from auth.clients.assertion import BadAssertion
from auth.keys.ring import Keys
from auth.keys.signatures import is_signed, unpack
from auth.metadata import resource_metadata_url
from auth.model import Millis, Principal, PrincipalKind
from auth.site import Site
from auth.tokens import dpop
from auth.tokens.access import TOKEN_TYPE
from auth.tokens.dpop import Presented
from auth.tokens.live import Live, LiveGrant

LONGEST_TOKEN: Final = 8 * 1_024  # ours have about 700 bytes
LEEWAY_SECONDS: Final = 30
FUTURE_SECONDS: Final = 60  # a clock may be this far ahead of ours
REMEMBERED: Final = 10_000
REMEMBERED_MS: Final = 60_000

INVALID: Final = "the access token is not valid (any more)"
BOUND: Final = "the access token is bound to a key: send it as DPoP, with a proof"

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES: Final = frozenset({TOKEN_TYPE, f"application/{TOKEN_TYPE}"})


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """401 or 403, and the header that says how to do better. `error` is None where no token was sent."""

    status: int
    error: str | None
    description: str
    www_authenticate: str


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


class _Remembered(msgspec.Struct, eq=False):
    claims: Claims
    until: Millis
    principal: Principal  # as the token says
    live: LiveGrant | None = None  # the login when it was last looked at, and who that made of it
    bounded: Principal | None = None


class BadToken(Exception):
    """Why a token is not one; for logs and tests. The client learns only `invalid_token`."""


class Verifier:
    """One per process. Everything in it can be lost at any time."""

    def __init__(self, *, site: Site, keys: Keys, live: Live, remembered: int = REMEMBERED) -> None:
        self._site = site
        self._keys = keys
        self._live = live
        self._tokens: dict[bytes, _Remembered] = {}
        self._remembered = remembered
        self._proofs = dpop.Window()

    def check_nowait(
        self, authorization: str | None, *, server: str, origin: str, path: str | None = None, now: Millis
    ) -> Principal | Refused | None:
        """The hot path: no await. None if the store must be asked; then use `check`.

        `origin` and `path` are what the caller typed; only a challenge repeats them.
        """
        if self._keys.stale:
            return None
        token = bearer(authorization)
        if token is None:
            return challenge(self._site, server=server, origin=origin, path=path)
        known = self._known(token, now)
        if isinstance(known, BadToken):
            return self._invalid(server, origin, path)
        live = self._live.get(known.claims.grant_id)
        if live is None:
            return None
        if known.claims.jkt is not None:
            return self._bound(server, origin, path, BOUND, used=False)
        return self._judge(known, live, server, now) or self._invalid(server, origin, path)

    async def check(
        self, authorization: str | None, *, server: str, origin: str, path: str | None = None, now: Millis
    ) -> Principal | Refused:
        """Like `check_nowait`, and asks the store where that must. Raises what the store raises."""
        token = bearer(authorization)
        if token is None:
            return challenge(self._site, server=server, origin=origin, path=path)
        known = self._known(token, now)
        if isinstance(known, BadToken):
            return self._invalid(server, origin, path)
        if known.claims.jkt is not None:
            return self._bound(server, origin, path, BOUND, used=False)
        grant_id = known.claims.grant_id
        live = self._live.get(grant_id) or await self._live.load(grant_id)
        found = None if live is None else self._judge(known, live, server, now)
        return found or self._invalid(server, origin, path)

    def check_bound_nowait(
        self, token: str, proof: Presented | None, *, server: str, origin: str, path: str | None, now: Millis
    ) -> Principal | Refused | None:
        """The same for a token that was sent as DPoP (RFC 9449 §7.1): it must be bound to a key, and come with a proof of it.
        None if the store must be asked; then nothing of the proof is used up."""
        if self._keys.stale:
            return None
        known = self._known(token, now)
        if isinstance(known, BadToken):
            return self._bound(server, origin, path, INVALID)
        live = self._live.get(known.claims.grant_id)
        if live is None:
            return None
        return self._judge_bound(known, token, live, proof, server, origin, path, now)

    async def check_bound(
        self, token: str, proof: Presented | None, *, server: str, origin: str, path: str | None, now: Millis
    ) -> Principal | Refused:
        known = self._known(token, now)
        if isinstance(known, BadToken):
            return self._bound(server, origin, path, INVALID)
        grant_id = known.claims.grant_id
        live = self._live.get(grant_id) or await self._live.load(grant_id)
        if live is None:
            return self._bound(server, origin, path, INVALID)
        return self._judge_bound(known, token, live, proof, server, origin, path, now)

    def _judge_bound(
        self,
        known: _Remembered,
        token: str,
        live: LiveGrant,
        proof: Presented | None,
        server: str,
        origin: str,
        path: str | None,
        now: Millis,
    ) -> Principal | Refused:
        jkt = known.claims.jkt
        if jkt is None:
            return self._bound(server, origin, path, "the access token is bound to no key: send it as Bearer")
        found = self._judge(known, live, server, now)
        if found is None:
            return self._bound(server, origin, path, INVALID)
        if proof is None:
            return self._bound(server, origin, path, "DPoP proof: is missing", error="invalid_dpop_proof")
        if proof.again:
            return found
        urls = dpop.urls_of(self._site, origin, path or self._site.servers[server])
        try:
            read_proof = dpop.read(proof.text, method=proof.method, urls=urls, now=now, token=token, jkt=jkt)
        except BadAssertion as problem:
            told = f"DPoP proof: {problem}"
            return self._bound(server, origin, path, told, error="invalid_dpop_proof")
        if not self._proofs.use_up(read_proof, now):
            told = "DPoP proof: was used before"
            return self._bound(server, origin, path, told, error="invalid_dpop_proof")
        return found

    def _known(self, token: str, now: Millis) -> _Remembered | BadToken:
        if len(token) > LONGEST_TOKEN:
            return BadToken("too long")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = self._tokens.get(digest)
        if found is not None:
            if now < found.until and self._keys.ring.get(found.claims.kid, now) is not None:
                return found
            del self._tokens[digest]
        try:
            claims = read(token, self._site.issuer, self._keys, now)
        except BadToken as problem:
            return problem
        fresh = _Remembered(
            claims,
            min(now + REMEMBERED_MS, (claims.expires_at + LEEWAY_SECONDS) * 1_000),
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
        self._tokens[digest] = fresh
        return fresh

    def _judge(self, known: _Remembered, live: LiveGrant, server: str, now: Millis) -> Principal | None:
        claims = known.claims
        sound = (
            live.usable
            and now < live.ends_at
            and live.subject == claims.subject
            and live.client_id == claims.client_id
            and live.server == server
            and claims.audience == self._site.audience(server)
        )
        if not sound:
            return None
        if known.live is not live:  # what is live is replaced as a whole when anything of it changes
            known.live, known.bounded = live, _under_ceiling(known.principal, live)
        return known.bounded

    async def still(self, principal: Principal) -> Principal | None:
        """For work that outlives the request it came with: who may go on, as what the user may have now; None once the login
        was ended, or its user or client disabled. One that ran out by itself ends no work that was begun under it. Raises
        what the store raises."""
        grant_id = principal.grant_id
        if grant_id is None:
            return principal
        live = self._live.get(grant_id) or await self._live.load(grant_id)
        if live is None or not live.usable:
            return None
        if (live.subject, live.client_id) != (principal.subject, principal.client_id):
            return None
        return _under_ceiling(principal, live)

    def _invalid(self, server: str, origin: str, path: str | None) -> Refused:
        return challenge(
            self._site,
            server=server,
            origin=origin,
            path=path,
            error="invalid_token",
            description=INVALID,
        )

    def _bound(
        self,
        server: str,
        origin: str,
        path: str | None,
        description: str,
        *,
        error: str = "invalid_token",
        used: bool = True,
    ) -> Refused:
        """§7.1. Bearer stays the first challenge, since clients that read only one read that; the error is told with the scheme
        that was used."""
        plain = challenge(
            self._site,
            server=server,
            origin=origin,
            path=path,
            error=None if used else error,
            description=description,
        )
        parts = [f'algs="{" ".join(dpop.ALGORITHMS)}"']
        if used:
            parts += [f'error="{error}"', f'error_description="{description}"']
        return Refused(
            status=401,
            error=error,
            description=description,
            www_authenticate=f"{plain.www_authenticate}, DPoP {', '.join(parts)}",
        )


def _under_ceiling(principal: Principal, live: LiveGrant) -> Principal:
    open_sky = scopes.EVERYTHING in live.ceiling or principal.scopes <= live.ceiling
    if open_sky and (live.kind, live.tools, live.reach) == (principal.kind, principal.tools, principal.reach):
        return principal
    # The user's ceiling was lowered since (or is written wider, `mcp` for `mcp:tools`): at most what lies under it.
    allowed = scopes.narrow(scopes.join(principal.scopes), scopes.join(live.ceiling))
    machine = live.kind == PrincipalKind.CLIENT
    return Principal(
        kind=PrincipalKind(live.kind),
        subject=principal.subject,
        client_id=principal.client_id,
        grant_id=principal.grant_id,
        scopes=frozenset(scopes.parse(allowed)),
        tools=live.tools,
        reach=frozenset() if machine else live.reach,
    )


def bearer(authorization: str | None) -> str | None:
    """The token of a Bearer header; None where none was sent, or another scheme."""
    if not authorization:
        return None
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def challenge(
    site: Site,
    *,
    server: str,
    origin: str,
    path: str | None = None,
    error: str | None = None,
    description: str = "sign in first",
    needed: Iterable[str] | None = None,
    status: int = 401,
) -> Refused:
    """§3: `error` only if a token was sent. `resource_metadata` is absolute and under the name that was typed. `needed`: by
    default all that an ordinary session needs, since several clients ask for exactly what stands here."""
    needed = site.scopes.ordinary if needed is None else needed
    parts = [f'resource_metadata="{resource_metadata_url(site, server, origin, path)}"']
    parts.append(f'scope="{scopes.join(needed)}"')
    if error is not None:
        parts += [f'error="{error}"', f'error_description="{description}"']
    return Refused(
        status=status,
        error=error,
        description=description,
        www_authenticate="Bearer " + ", ".join(parts),
    )


# ---------------------------------------------------------------- reading a token


def read(token: str, issuer: str, keys: Keys, now: Millis, *, expired_too: bool = False) -> Claims:
    """Signature and form, not liveness. Raises `BadToken`. `expired_too` is for revocation, where age does no harm."""
    if len(token) > LONGEST_TOKEN:
        raise BadToken("too long")
    if _TOKEN.fullmatch(token) is None:
        raise BadToken("not a compact JWS")
    head, payload, _ = token.split(".")
    header = _object(head)
    key = keys.ring.get(_text(header, "kid"), now)
    if key is None:
        raise BadToken("unknown kid")
    # The key says which algorithm it is for; the token's own word is only compared. jku, jwk and x5u are never looked at.
    if header.get("alg") != key.algorithm:
        raise BadToken("another algorithm than the key's")
    if _text(header, "typ").lower() not in _TYPES:
        raise BadToken("not an access token")
    if "crit" in header:
        raise BadToken("critical extensions are not understood")
    if not is_signed(token, key.key):
        raise BadToken("bad signature")
    return _claims(_object(payload), key.kid, issuer, now, expired_too=expired_too)


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
        scopes=frozenset(scopes.parse(_text(claims, "scope"))),
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
    if members.keys() != {"jkt"} or not dpop.is_thumbprint(_text(members, "jkt")):
        raise BadToken("bound in an unknown way")
    return _text(members, "jkt")


def _object(part: str) -> dict[str, Any]:
    try:
        # RFC 7515 §3: UTF-8. Bytes as they are would be taken for UTF-16 and others, too.
        value: Any = json.loads(unpack(part).decode(), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise BadToken("unreadable") from error
    if not isinstance(value, dict):
        raise BadToken("not an object")
    return value  # pyright: ignore[reportUnknownVariableType]  # json.loads makes str keys


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadToken("a member is given twice")
    return found


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
