"""The word of a company's identity provider for a person, to a program that asks us for a token: the Identity Assertion JWT Authorization
Grant (draft-ietf-oauth-identity-assertion-authz-grant §3.1, §4.4; RFC 7523 §3; MCP's Enterprise-Managed Authorization).

Off unless a provider is configured for it. `prove` runs before the job and does what is slow (fetching keys, checking
signatures), only for a client that has shown who it is. That an assertion counts once, whom it lets in and to what, is for the
job to say (grant_types/jwt_bearer_grant.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import msgspec

from auth.client_authentication import client_assertions as client_assertion
from auth.client_authentication.client_assertions import (
    LEEWAY_SECONDS,
    BadAssertion,
    check_times,
    hash_of_jti,
)
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientCredentials
from auth.context.identity_parts import Parts
from auth.grants.request_parameters import TokenForm
from auth.jose import jws
from auth.jose.jws import BadJws, number_in, text_in
from auth.jose.public_keys import BadKeys, PublicKey, read_set, select
from auth.providers.provider_sign_in import (
    ALGORITHMS,
    MUTABLE,
    SUBJECT_CHARACTERS,
    Provider,
    ProviderPerson,
    person_of,
)
from auth.values.identity_model import JWT_BEARER, Client, Millis
from auth.values.issuer_and_resources import Site
from server.lib.oauth_client.oauth_answers import OAuthFailure

TYPE: Final = "oauth-id-jag+jwt"
PROFILE: Final = "urn:ietf:params:oauth:grant-profile:id-jag"  # §7.2: how the metadata names all this
LIFE_SECONDS: Final = 10 * 60  # at most so far ahead; providers give five minutes
MADE_SECONDS: Final = 60 * 60  # at most so long ago
RESOURCES: Final = 10
SCOPE_CHARACTERS: Final = 1_024

# What would narrow an assertion, or say of whom it is, in a way that we do not check. To pass over one would be to let in more.
NOT_CHECKED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cnf": "it is bound to a key, which is not checked here",
        "authorization_details": "it has authorization_details, which this server does not know",
        "tenant": "it is of one tenant among several, and subjects are listed here without",
        "aud_tenant": "it is for one tenant among several, and this server has none",
    }
)


class AssertedPerson(msgspec.Struct, frozen=True, kw_only=True):
    """The word of a provider, once its signature and its form are right."""

    provider: Provider
    person: ProviderPerson
    client_id: str
    resources: tuple[str, ...]
    scope: str | None  # None: it says nothing of scopes
    auth_time: Millis
    jti_hash: str
    expires_at: Millis


class Unproven(msgspec.Struct, frozen=True, kw_only=True):
    """An assertion that is worth nothing, or nothing now. `reason` is for the audit trail and for the client, which wrote none of it."""

    error: Literal["invalid_grant", "temporarily_unavailable"]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UncheckedAssertion:
    """An assertion before its signature is looked at."""

    asserted: AssertedPerson
    kid: str
    algorithm: str
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def audiences(site: Site, origin: str) -> frozenset[str]:
    """Return our issuer, as the caller finds it in the metadata. Some write a slash after a bare host, which names nobody else."""
    return frozenset(base + end for base in (site.issuer, site.public(origin)) for end in ("", "/"))


def read(
    text: str, *, client_id: str, names: Collection[str], providers: Iterable[Provider], now: Millis
) -> UncheckedAssertion:
    """Read all but the signature. Raise `BadJws`, whose text continues "assertion: …"."""
    said = jws.read(text, longest=client_assertion.LONGEST)
    header, claims = said.header, said.claims
    if "crit" in header:
        raise BadAssertion("critical extensions are not understood")
    if header.get("typ") != TYPE:
        raise BadAssertion(f"typ is {TYPE}")
    algorithm = text_in(header, "alg")
    if algorithm not in ALGORITHMS:
        raise BadAssertion(f"alg is one of {', '.join(sorted(ALGORITHMS))}")
    issuer = text_in(claims, "iss")
    provider = next((each for each in providers if each.assertions and each.issuer == issuer), None)
    if provider is None:
        raise BadAssertion("iss is no identity provider that this server takes assertions of")
    if (found := next((why for name, why in NOT_CHECKED.items() if name in claims), None)) is not None:
        raise BadAssertion(found)
    _check_audience(claims.get("aud"), names)
    if text_in(claims, "client_id") != client_id:
        raise BadAssertion("client_id is another client")
    return UncheckedAssertion(
        asserted=_asserted(claims, provider, client_id, now // 1_000),
        kid=text_in(header, "kid", ""),
        algorithm=algorithm,
        signed=said.signed,
        signature=said.signature,
    )


def _check_audience(audience: object, names: Collection[str]) -> None:
    """Expect a text, or a list of exactly one (§4.4.1)."""
    listed = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    if len(listed) != 1 or not isinstance(listed[0], str) or listed[0] not in names:
        raise BadAssertion("aud is this server's issuer, and nobody else")


def _asserted(claims: Mapping[str, Any], provider: Provider, client_id: str, seconds: int) -> AssertedPerson:
    issued_at = number_in(claims, "iat")
    expires_at = check_times(claims, seconds, life=LIFE_SECONDS, begins=("iat", "nbf", "auth_time"))
    if issued_at < seconds - MADE_SECONDS:
        raise BadAssertion("it was made too long ago")
    auth_time = number_in(claims, "auth_time") if "auth_time" in claims else issued_at
    if auth_time < 0:
        raise BadAssertion("auth_time is no time")
    jti_hash, subject = hash_of_jti(claims), text_in(claims, "sub")
    plain = subject.isascii() and subject.isprintable()  # OpenID Connect Core §2
    if not plain or len(subject) > SUBJECT_CHARACTERS or subject.startswith(MUTABLE):
        raise BadAssertion("sub is no subject")
    return AssertedPerson(
        provider=provider,
        person=person_of(subject, claims),
        client_id=client_id,
        resources=_resources(claims),
        scope=_scope(claims),
        auth_time=min(auth_time, seconds) * 1_000,
        jti_hash=jti_hash,
        expires_at=(expires_at + LEEWAY_SECONDS) * 1_000,
    )


def _resources(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Read one or several (RFC 8707 §2); none only where the claim is not there at all."""
    if "resource" not in claims:
        return ()
    value: object = claims["resource"]
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    texts = [each for each in listed if isinstance(each, str) and 0 < len(each) <= 2_048]
    if not 0 < len(texts) == len(listed) <= RESOURCES:
        raise BadAssertion(f"resource is one address, or at most {RESOURCES} of them")
    return tuple(texts)


def _scope(claims: Mapping[str, Any]) -> str | None:
    if "scope" not in claims:
        return None
    value: object = claims["scope"]
    if not isinstance(value, str) or len(value) > SCOPE_CHARACTERS:
        raise BadAssertion("scope is a text of scopes with spaces between them")
    return value


def believed(statement: UncheckedAssertion, jwks: Sequence[object]) -> AssertedPerson:
    """Return what it says, if one of the provider's keys has signed it; else raise `BadAssertion`. `jwks`: entries of its key set."""
    try:
        keys: tuple[PublicKey, ...] = select(read_set({"keys": list(jwks)}), statement.kid)
    except BadKeys:
        keys = ()
    if not any(key.is_signed(statement.signed, statement.signature, statement.algorithm) for key in keys):
        raise BadAssertion("the signature is not by a key of its provider")
    return statement.asserted


async def prove(parts: Parts, form: TokenForm, origin: str, now: Millis) -> AssertedPerson | Unproven | None:
    """Say what the form's assertion is worth; None where nobody asks for that. Raise what the store raises."""
    if form.grant_type != JWT_BEARER or form.assertion is None or not parts.policy.assertions:
        return None
    client = await parts.store.read(partial(clients.lookup, client_id=form.credentials.client_id or ""))
    if client is None or not _may_ask(client, form.credentials):
        # Its job says what is wrong with it. Strangers do not make us ask anybody.
        return Unproven(error="invalid_grant", reason="not looked at")
    try:
        statement = read(
            form.assertion,
            client_id=client.id,
            names=audiences(parts.site, origin),
            providers=parts.upstreams.providers.values(),
            now=now,
        )
    except BadJws as problem:
        return Unproven(error="invalid_grant", reason=str(problem))
    provider = statement.asserted.provider
    try:
        return believed(statement, await parts.upstreams.keys(provider, statement.kid))
    except BadJws as problem:
        return Unproven(error="invalid_grant", reason=str(problem))
    except OAuthFailure as problem:
        return Unproven(error="temporarily_unavailable", reason=f"{provider.label} {problem}")


def _may_ask(client: Client, shown: ClientCredentials) -> bool:
    return (
        client.enabled
        and not client.public
        and JWT_BEARER in client.grant_types
        and clients.proves(client, shown)
    )
