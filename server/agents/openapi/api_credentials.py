"""The credentials with which an API is called: which of an operation's security requirements they meet, and how.

They are added here, after everything that a caller has a say in, and taken out of what an API repeats. Spec: OpenAPI 3.1.1
§4.8.27 and §4.8.30; RFC 6749 §4.4, RFC 6750, RFC 7617.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import msgspec
import trio

from server.agents.openapi.openapi_document import ApiDocument, BadApi, as_table
from server.agents.openapi.openapi_settings import ClientGrant
from server.lib.oauth_client.token_requests import Tokens
from server.lib.secret import Secret

Where: TypeAlias = Literal["header", "query", "cookie"]

MASKED_CHARACTERS: Final = 4  # shorter values are words, not credentials
# A token that ends while its request is on the way is refused: it counts as ended a little before.
EARLY_SECONDS: Final = 30.0
USUAL_SECONDS: Final = 300.0
LONGEST_SECONDS: Final = 86_400.0

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
        known = as_table(as_table(document.root.get("components")).get("securitySchemes"))
        self._presented: dict[str, Presented] = {}
        self._tokens: dict[str, _Token] = {}
        for name, secret in given.items():
            if name not in known:
                there = ", ".join(sorted(known)[:10]) or "none"
                raise BadApi(
                    f"has no security scheme {name!r}, for which there is a credential; it has {there}"
                )
            scheme = document.resolved(known[name])
            if name in grants:
                self._tokens[name] = _Token(grants[name], secret, ask)
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
        return [
            self._presented[name]
            if name in self._presented
            else Presented("header", "Authorization", Secret(f"Bearer {await self._tokens[name].current()}"))
            for name in schemes
        ]

    def refused(self, schemes: Sequence[str]) -> bool:
        """Forget the tokens with which the API said 401, and tell whether another may do better."""
        had = [self._tokens[name].forget() for name in schemes if name in self._tokens]
        return any(had)

    def masked(self, text: str) -> str:
        """Return `text` without what we sent: some APIs repeat it."""
        words = {
            word
            for secret in (*self._masks, *(token.value for token in self._tokens.values()))
            for word in (secret.reveal(), secret.reveal().rpartition(" ")[2], quote(secret.reveal(), safe=""))
        }
        for word in sorted(words, key=len, reverse=True):
            if len(word) >= MASKED_CHARACTERS:
                text = text.replace(word, "***")
        return text


class _Token:
    """One access token, asked for once for all who need it."""

    def __init__(self, grant: ClientGrant, secret: Secret, ask: AskToken) -> None:
        self._grant = grant
        self._secret = secret
        self._ask = ask
        self._lock = trio.Lock()
        self._ends = 0.0
        self.value = Secret("")

    async def current(self) -> str:
        async with self._lock:
            if trio.current_time() >= self._ends:
                answer = await self._ask(self._grant, self._secret)
                lasts = answer.expires_in or USUAL_SECONDS
                self.value = answer.access_token
                self._ends = trio.current_time() + min(max(lasts - EARLY_SECONDS, lasts / 2), LONGEST_SECONDS)
            return self.value.reveal()

    def forget(self) -> bool:
        had = trio.current_time() < self._ends
        self._ends = 0.0
        return had


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
