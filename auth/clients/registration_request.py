"""What a program may say of itself when it registers (RFC 7591 §2): a stranger's JSON, judged member by member. Pure.

Unknown members are ignored, and `null` is "not said" (RFC 7592 §2.2). What we know must be of its type; texts are cleaned and cut,
because people will read them. What comes of it is in auth/endpoints/client_registration.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import urlsplit

from auth.clients import client_registry as clients
from auth.clients import redirect_uris as redirects
from auth.clients.client_registry import (
    AUTH_METHODS,
    NAME_LENGTH,
    PRIVATE_KEY,
    ClientRegistration,
    is_fetchable,
)
from auth.jose.public_keys import BadKeys, read_set
from auth.values import scopes
from auth.values.compact_json import json_bytes
from auth.values.identity_model import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, DEVICE_CODE, REFRESH_TOKEN
from auth.values.requester import clean, shown
from auth.values.scopes import Vocabulary

BYTES: Final = 16 * 1_024
REDIRECT_URIS: Final = 10
LISTED: Final = 16  # grant types, response types: there are not so many
TEXT: Final = 200  # software_id and its like
SCOPE: Final = 1_024

GRANT_TYPES: Final = (AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE)
# RFC 7591 §2 has the code alone; but programs that say nothing expect to be refreshed, as all others are.
UNSAID_GRANTS: Final = (AUTHORIZATION_CODE, REFRESH_TOKEN)
UNSAID_METHOD: Final = "client_secret_basic"  # §2; the official Python SDK relies on it
NAMELESS: Final = "a program without a name"

# Kept only to be repeated to whoever registered it.
REPEATED: Final = ("software_id", "software_version")
APPLICATION_TYPES: Final = frozenset({"native", "web"})


class BadMetadata(ValueError):
    """The text is for the client: it begins with the member, and repeats little of it."""

    def __init__(self, text: str, *, error: str = "invalid_client_metadata") -> None:
        super().__init__(text)
        self.error = error


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientMetadata:
    """What is registered of what was said."""

    registration: ClientRegistration
    scope: str  # as it is told to the client; the ceiling is the registration's
    response_types: tuple[str, ...]
    repeated: Mapping[str, str]  # members that only its owner sees again
    # Of a change to what is there already (RFC 7592 §2.2).
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)

    def kept(self) -> str:
        """What of it goes into the column of its own."""
        named = {"scope": self.scope, "response_types": list(self.response_types)}
        return json_bytes({**self.repeated, **named}).decode()


def read(body: bytes, known: Vocabulary, *, fetches: bool) -> ClientMetadata:
    """Raises `BadMetadata`. `fetches`: this server can get keys from an address."""
    said = _Said(_object(body))
    redirect_uris = _redirect_uris(said)
    grants = _grant_types(said)
    if AUTHORIZATION_CODE in grants and not redirect_uris:
        raise BadMetadata(
            f"redirect_uris: {AUTHORIZATION_CODE} needs at least one", error="invalid_redirect_uri"
        )
    method = said.text("token_endpoint_auth_method", 64) or UNSAID_METHOD
    if method not in AUTH_METHODS:
        raise BadMetadata(f"token_endpoint_auth_method: one of {', '.join(AUTH_METHODS)}")
    secret = said.text("client_secret", 512)
    if secret and method not in clients.SECRET_METHODS:
        raise BadMetadata(f"client_secret: a client with {method} has none")
    told, ceiling = _scope(said, known)
    jwks, jwks_uri = _keys(said, method, fetches=fetches)
    return ClientMetadata(
        registration=ClientRegistration(
            name=shown(said.text("client_name", BYTES), NAME_LENGTH) or NAMELESS,
            auth_method=method,
            grant_types=grants,
            redirect_uris=redirect_uris,
            scope=ceiling,
            client_uri=_home(said),
            jwks=jwks,
            jwks_uri=jwks_uri,
        ),
        scope=told,
        response_types=_response_types(said, grants),
        repeated=_repeated(said),
        client_id=said.text("client_id", 2_048) or None,
        client_secret=secret or None,
    )


class _Said:
    """The members, each asked for as what it must be."""

    def __init__(self, members: Mapping[str, object]) -> None:
        self._members = members

    def get(self, name: str) -> object:
        return self._members.get(name)

    def text(self, name: str, length: int) -> str:
        value = self._members.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BadMetadata(f"{name}: a text")
        if len(value) > length:
            raise BadMetadata(f"{name}: at most {length} characters")
        return value

    def texts(
        self, name: str, count: int, *, error: str = "invalid_client_metadata"
    ) -> tuple[str, ...] | None:
        value = self._members.get(name)
        if value is None:
            return None
        listed = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(each, str) for each in listed):
            raise BadMetadata(f"{name}: a list of texts", error=error)
        if len(listed) > count:
            raise BadMetadata(f"{name}: at most {count}", error=error)
        return tuple(dict.fromkeys(cast("list[str]", listed)))


def _object(body: bytes) -> Mapping[str, object]:
    if not body:
        raise BadMetadata("the registration is a JSON object, sent with Content-Type: application/json")
    if len(body) > BYTES:
        raise BadMetadata(f"the registration has at most {BYTES} bytes")
    try:
        found: Any = json.loads(body, object_pairs_hook=_once_each, parse_constant=_no_constant)
    except BadMetadata:
        raise
    except (ValueError, RecursionError):
        raise BadMetadata("the registration is not JSON") from None
    if not isinstance(found, dict):
        raise BadMetadata("the registration is a JSON object")
    return cast("dict[str, object]", found)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadMetadata("a member is given more than once")
    return found


def _no_constant(name: str) -> object:
    raise BadMetadata(f"{name} is not JSON")


def _redirect_uris(said: _Said) -> tuple[str, ...]:
    listed = said.texts("redirect_uris", REDIRECT_URIS, error="invalid_redirect_uri") or ()
    for position, uri in enumerate(listed):
        if not redirects.is_acceptable(uri):
            raise BadMetadata(
                f"redirect_uris: number {position + 1} is not https, http on this machine (127.0.0.1, [::1], localhost),"
                " or an application's own scheme",
                error="invalid_redirect_uri",
            )
    return listed


def _grant_types(said: _Said) -> tuple[str, ...]:
    grants = said.texts("grant_types", LISTED)
    if grants is None:
        return UNSAID_GRANTS
    if CLIENT_CREDENTIALS in grants:
        raise BadMetadata(f"grant_types: {CLIENT_CREDENTIALS} is only for clients that the operator adds")
    if not set(grants) <= set(GRANT_TYPES):
        raise BadMetadata(f"grant_types: some of {', '.join(GRANT_TYPES)}")
    if not set(grants) - {REFRESH_TOKEN}:
        raise BadMetadata("grant_types: none of these begins a login")
    return grants


def _response_types(said: _Said, grants: tuple[str, ...]) -> tuple[str, ...]:
    """Device-only programs send ["code"] or []; what they are told is what they said."""
    listed = said.texts("response_types", LISTED)
    if listed is not None and not set(listed) <= {"code"}:
        raise BadMetadata('response_types: ["code"]')
    return ("code",) if AUTHORIZATION_CODE in grants else listed or ()


def _scope(said: _Said, known: Vocabulary) -> tuple[str, str]:
    """What the client is told, and its ceiling. What moves money may be asked for later, by name, and a person decides then."""
    named = [name for name in scopes.parse(said.text("scope", SCOPE)) if name in known]
    if not named:
        return known.usual, scopes.EVERYTHING
    return scopes.join(named), scopes.join([*named, *filter(known.financial, known.names)])


def _keys(said: _Said, method: str, *, fetches: bool) -> tuple[str | None, str | None]:
    jwks, jwks_uri = said.get("jwks"), said.text("jwks_uri", 2_048)
    if (jwks is not None or jwks_uri) and method != PRIVATE_KEY:
        raise BadMetadata(f"jwks: keys go with token_endpoint_auth_method {PRIVATE_KEY}")
    if method != PRIVATE_KEY:
        return None, None
    if (jwks is not None) == bool(jwks_uri):
        raise BadMetadata(f"jwks: {PRIVATE_KEY} needs either jwks or jwks_uri")
    if jwks_uri:
        if not fetches:
            raise BadMetadata("jwks_uri: this server fetches no keys; send them as jwks")
        if not is_fetchable(jwks_uri):
            raise BadMetadata("jwks_uri: an https address")
        return None, jwks_uri
    try:
        read_set(jwks)
        return json_bytes(cast("dict[str, Any]", jwks)).decode(), None
    except BadKeys as problem:
        raise BadMetadata(f"jwks: {problem}") from None
    except (UnicodeEncodeError, OverflowError, RecursionError):  # in members beside the keys' own
        raise BadMetadata("jwks: holds what cannot be kept") from None


def _home(said: _Said) -> str:
    """A web page, or nothing: a link of another kind is for nobody to follow."""
    uri = said.text("client_uri", 2_048)
    try:
        parts = urlsplit(uri)
        sound = parts.scheme in ("https", "http") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return ""
    return uri if sound and uri.isascii() and uri.isprintable() and " " not in uri else ""


def _repeated(said: _Said) -> Mapping[str, str]:
    found = {name: clean(said.text(name, BYTES), TEXT) for name in REPEATED}
    kind = said.text("application_type", 64)  # "web" with a native address is common, and tells nothing
    found["application_type"] = kind if kind in APPLICATION_TYPES else ""
    return MappingProxyType({name: text for name, text in found.items() if text})
