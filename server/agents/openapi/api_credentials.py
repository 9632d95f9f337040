"""The credentials with which an API is called: which of an operation's security requirements they meet, and how.

They are added here, after everything that a caller has a say in, and taken out of what an API repeats. Spec: OpenAPI 3.1.1
§4.8.27 and §4.8.30; RFC 6749 §4.4, RFC 6750, RFC 7617.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import msgspec
import trio

from server.agents.openapi.openapi_document import ApiDocument, BadApi
from server.agents.openapi.openapi_settings import ClientGrant
from server.lib.json_objects import mapping
from server.lib.oauth_client.client_identity import BASIC, ClientIdentity
from server.lib.oauth_client.oauth_answers import OAuthFailure
from server.lib.oauth_client.oauth_fetcher import OAuthFetcher
from server.lib.oauth_client.token_cache import TokenCache
from server.lib.oauth_client.token_requests import Tokens, client_credentials_form, fetch_tokens
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError

Where: TypeAlias = Literal["header", "query", "cookie"]

MASKED_CHARACTERS: Final = 4  # shorter values are words, not credentials

AskToken: TypeAlias = Callable[[ClientGrant, Secret], Awaitable[Tokens]]


class Presented(msgspec.Struct, frozen=True):
    """One credential, and where in a request it is sent."""

    where: Where
    name: str
    value: Secret


_BEARER: Final = Presented("header", "Authorization", Secret(""))  # where a token goes


def same_name(name: str) -> str:
    """Return the name so that whatever some server takes for the same is the same: in any case, with an index behind it, and with
    other marks in it."""
    return re.sub(r"[^a-z0-9]", "_", name.strip().casefold().partition("[")[0])


class Credentials:
    """The configured credentials of one API.

    `given` are references that were read, by the name of their scheme. `BadApi` is raised for a scheme that is not in the document or
    has no place for a credential."""

    def __init__(
        self,
        document: ApiDocument,
        given: Mapping[str, Secret],
        grants: Mapping[str, ClientGrant],
        ask: AskToken,
    ) -> None:
        known = mapping(mapping(document.root.get("components")).get("securitySchemes"))
        self._presented: dict[str, Presented] = {}
        self._tokens: dict[str, Callable[[], Awaitable[Tokens]]] = {}  # makers, by the name of a scheme
        self._cache = TokenCache(_now)
        self._shown: dict[str, Secret] = {}  # the last token of each
        for name, secret in given.items():
            if name not in known:
                there = ", ".join(sorted(known)[:10]) or "none"
                raise BadApi(
                    f"has no security scheme {name!r}, for which there is a credential; it has {there}"
                )
            scheme = document.resolved(known[name])
            if name in grants:
                self._tokens[name] = partial(ask, grants[name], secret)
                continue
            self._presented[name] = _presented(name, scheme, secret)
        self._masks = [each.value for each in self._presented.values()] + list(given.values())

    def __bool__(self) -> bool:
        return bool(self._presented or self._tokens)

    def chosen(self, security: Sequence[Sequence[str]]) -> Sequence[str] | None:
        """Return the schemes of the first requirement that can be met; None where there is none.

        Without any credential, requirements are not looked at: the API may know its callers otherwise."""
        if not security or not self:
            return ()
        known = self._presented.keys() | self._tokens.keys()
        return next((schemes for schemes in security if known.issuperset(schemes)), None)

    def places(self, schemes: Sequence[str]) -> frozenset[tuple[Where, str]]:
        """Return where these are sent, by names as `same_name` writes them."""
        return frozenset(
            (found.where, same_name(found.name))
            for found in (self._presented.get(name, _BEARER) for name in schemes)
        )

    async def present(self, schemes: Sequence[str]) -> Sequence[Presented]:
        """Return these as they are sent. Raise `BackendError` where a token cannot be had."""
        for name in self._tokens.keys() & set(schemes):
            self._shown[name] = await self._cache.get(name, self._tokens[name])
        return [
            self._presented[name]
            if name in self._presented
            else Presented("header", "Authorization", Secret(f"Bearer {self._shown[name].reveal()}"))
            for name in schemes
        ]

    def refused(self, schemes: Sequence[str]) -> bool:
        """Forget the tokens with which the API said 401, and tell whether another may do better."""
        had = [self._cache.drop(name) for name in schemes]
        return any(had)

    def masked(self, text: str) -> str:
        """Return `text` without what we sent: some APIs repeat it."""
        words = {
            word
            for secret in (*self._masks, *self._shown.values())
            for word in (secret.reveal(), secret.reveal().rpartition(" ")[2], quote(secret.reveal(), safe=""))
        }
        for word in sorted(words, key=len, reverse=True):
            if len(word) >= MASKED_CHARACTERS:
                text = text.replace(word, "***")
        return text


async def ask_token(grant: ClientGrant, secret: Secret) -> Tokens:
    """Request a token. Raise `BackendError`, which holds nothing that the token endpoint said: it knows the secret."""
    identity = ClientIdentity(client_id=grant.client_id, secret=secret, method=BASIC)
    form = client_credentials_form(scope=grant.scope)
    try:
        return await fetch_tokens(OAuthFetcher(), grant.token_url, form, identity, any_type=True)
    except OAuthFailure as failure:
        why = f"answered {failure.status} and gave no token" if failure.status else str(failure)
        raise BackendError(f"the API's token endpoint {why}") from None


def _now() -> int:
    return int(trio.current_time() * 1_000)


def _presented(name: str, scheme: Mapping[str, Any], secret: Secret) -> Presented:
    value = secret.reveal()
    match scheme.get("type"):
        case "apiKey":
            where, key = scheme.get("in"), scheme.get("name")
            if where not in ("header", "query", "cookie") or not isinstance(key, str) or not key:
                raise BadApi(f"does not say where the key of {name!r} belongs")
            return Presented(where, key, secret)
        case "http" if str(scheme.get("scheme")).lower() == "basic":
            pair = b64encode(value.encode()).decode("ascii")
            return Presented("header", "Authorization", Secret(f"Basic {pair}"))
        case "http" if str(scheme.get("scheme")).lower() != "bearer":
            raise BadApi(
                f"has {name!r} with the scheme {str(scheme.get('scheme'))[:40]!r}; basic and bearer are spoken"
            )
        case "http" | "oauth2" | "openIdConnect":
            return Presented("header", "Authorization", Secret(f"Bearer {value}"))
        case kind:
            raise BadApi(f"has {name!r} of the type {str(kind)[:40]!r}, for which nothing can be sent")
