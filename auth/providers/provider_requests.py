"""What we ask an upstream provider, and what of its answers can be used: discovery, keys, the code's exchange, GitHub's `/user`.

Whoever runs this lends the asking itself (server/client/provider_fetcher.py); addresses come from the configuration and from the discovery
document of a configured issuer, which may name others only as far as `MayFollow` goes. Nothing here decides who is let in.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from auth.providers import provider_sign_in as upstream
from auth.providers.provider_sign_in import Provider, ProviderLogin, ProviderNotBelieved, ProviderPerson
from auth.values.identity_model import Millis
from auth.values.ip_networks import is_loopback
from auth.values.limits_and_lifetimes import MINUTE, SECOND

DISCOVERY: Final = "/.well-known/openid-configuration"
GITHUB: Final = "https://github.com"
# Documents of a provider; a key that is not among those kept is asked for at once, but so often at most.
KEPT: Final[Millis] = 60 * MINUTE
ASKED_EVERY: Final[Millis] = 30 * SECOND
# After a failure, where programs ask: they do it in loops, and no person waits.
QUIET: Final[Millis] = 10 * SECOND
KEYS: Final = 10  # of one kid


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderAnswer:
    status: int
    body: bytes = field(repr=False)


class AskProvider(Protocol):
    """One exchange, bounded in size and time, without redirects. Raises `ProviderUnavailable`."""

    async def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> ProviderAnswer: ...


class MayFollow(Protocol):
    """Whether a server that somebody `typed` may send us to `url`: not to private addresses from outside. Lent by the server."""

    def __call__(self, url: str, *, typed: str) -> bool: ...


class ProviderUnavailable(Exception):
    """The provider cannot be reached or answers nonsense. The text continues a sentence about it; no secret, no address."""


class ProviderMetadata(msgspec.Struct, frozen=True, kw_only=True):
    authorization: str
    token: str
    jwks: str
    says_who: bool  # RFC 9207: its answers carry `iss`
    secret_in_form: bool


class _Kept:
    """Documents of one provider and when they were asked for."""

    def __init__(self) -> None:
        self.metadata: tuple[ProviderMetadata, Millis] | None = None
        self.keys: tuple[list[object], Millis] | None = None
        self.quiet_until: Millis = 0


class Upstreams:
    """The configured providers, and what is remembered of them in this process."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        ask: AskProvider,
        clock: Callable[[], Millis],
        *,
        may_follow: MayFollow,
    ) -> None:
        self.providers = providers
        self._ask = ask
        self._clock = clock
        self._may_follow = may_follow
        self._kept = {name: _Kept() for name in providers}

    @property
    def origins(self) -> tuple[str, ...]:
        """Where the forms on the sign-in page may lead: browsers apply `form-action` to the redirect that follows, too."""
        return tuple(sorted({origin_of(each.issuer) for each in self.providers.values()}))

    async def authorization_url(self, provider: Provider, login: ProviderLogin, state: str) -> str:
        """Where the browser goes. Raises `ProviderUnavailable`."""
        metadata = await self.metadata(provider)
        asked = {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": login.redirect_uri,
            "state": state,
            "code_challenge": upstream.challenge_of(login.verifier),
            "code_challenge_method": "S256",
        }
        if provider.kind == "oidc":
            mail = any(word.startswith("email:") for word in provider.allow)
            asked |= {"scope": "openid email" if mail else "openid", "nonce": login.nonce}
        else:
            asked |= {"allow_signup": "false"}  # no scope: name and number are public
        joint = "&" if "?" in metadata.authorization else "?"
        return metadata.authorization + joint + urlencode(asked)

    async def person(
        self, provider: Provider, login: ProviderLogin, *, code: str, iss: str
    ) -> ProviderPerson | ProviderNotBelieved:
        """Whom the code stands for. Raises `ProviderUnavailable`."""
        metadata = await self.metadata(provider)
        # RFC 9207 §2.4: an answer that another provider sent would carry its name.
        if (iss or metadata.says_who) and not hmac.compare_digest(
            iss.encode(errors="replace"), provider.issuer.encode()
        ):
            return ProviderNotBelieved("the answer is another issuer's")
        tokens = await self._redeem(provider, metadata, login, code)
        if isinstance(tokens, ProviderNotBelieved):
            return tokens
        if provider.kind == "github":
            return await self._github_person(provider, tokens)
        token = tokens.get("id_token")
        if not isinstance(token, str):
            return ProviderNotBelieved("the provider sent no id token")
        kid = upstream.key_id(token)
        if isinstance(kid, ProviderNotBelieved):
            return kid
        keys = await self._keys(provider, metadata, kid)
        return upstream.verify_id_token(token, keys, provider, nonce=login.nonce, now=self._clock())

    async def keys(self, provider: Provider, kid: str) -> list[object]:
        """Entries of its key set that something may be signed with which a program brings. Raises `ProviderUnavailable`, and then for a
        while without asking; keys that are known count meanwhile."""
        kept, now = self._kept[provider.name], self._clock()
        if kept.keys is not None and now - kept.keys[1] < KEPT and (known := _of_kid(kept.keys[0], kid)):
            return known
        if now < kept.quiet_until:
            raise ProviderUnavailable("could not be asked a moment ago")
        try:
            return await self._keys(provider, await self.metadata(provider), kid)
        except ProviderUnavailable:
            kept.quiet_until = self._clock() + QUIET
            raise

    # ------------------------------------------------------------ documents

    async def metadata(self, provider: Provider) -> ProviderMetadata:
        if provider.kind == "github":
            base = provider.issuer
            return ProviderMetadata(
                authorization=f"{base}/login/oauth/authorize",
                token=f"{base}/login/oauth/access_token",
                jwks="",
                says_who=False,
                secret_in_form=True,
            )
        kept, now = self._kept[provider.name], self._clock()
        if kept.metadata is not None and now - kept.metadata[1] < KEPT:
            return kept.metadata[0]
        said = await self._get(provider.issuer.removesuffix("/") + DISCOVERY)
        if said.get("issuer") != provider.issuer:
            raise ProviderUnavailable("says that it is another issuer than the settings name")
        methods: object = said.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        metadata = ProviderMetadata(
            authorization=self._address(said, "authorization_endpoint", provider.issuer),
            token=self._address(said, "token_endpoint", provider.issuer),
            jwks=self._address(said, "jwks_uri", provider.issuer),
            says_who=said.get("authorization_response_iss_parameter_supported") is True,
            secret_in_form=isinstance(methods, list) and "client_secret_basic" not in methods,
        )
        kept.metadata = (metadata, now)
        return metadata

    async def _keys(self, provider: Provider, metadata: ProviderMetadata, kid: str) -> list[object]:
        """The provider's keys of this id, asked for again where it has none: providers change their keys."""
        kept, now = self._kept[provider.name], self._clock()
        age = None if kept.keys is None else now - kept.keys[1]
        found = [] if kept.keys is None else _of_kid(kept.keys[0], kid)
        if age is None or age >= KEPT or (not found and age >= ASKED_EVERY):
            listed: object = (await self._get(metadata.jwks)).get("keys")
            if not isinstance(listed, list):
                raise ProviderUnavailable("publishes no keys")
            kept.keys = (cast("list[object]", listed), now)
            found = _of_kid(kept.keys[0], kid)
        return found

    async def _redeem(
        self, provider: Provider, metadata: ProviderMetadata, login: ProviderLogin, code: str
    ) -> Mapping[str, Any] | ProviderNotBelieved:
        """RFC 6749 §4.1.3 with RFC 7636 §4.5."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": login.redirect_uri,
            "code_verifier": login.verifier,
        }
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        secret = "" if provider.secret is None else provider.secret.reveal()
        if secret and not metadata.secret_in_form:
            pair = f"{quote_plus(provider.client_id)}:{quote_plus(secret)}".encode()
            headers["authorization"] = "Basic " + base64.b64encode(pair).decode()
        else:
            form["client_id"] = provider.client_id
            if secret:
                form["client_secret"] = secret
        answer = await self._ask("POST", metadata.token, headers, urlencode(form).encode())
        if answer.status >= 500:
            raise ProviderUnavailable("has a problem of its own")
        said = _object(answer.body)
        if answer.status != 200 or "error" in said:  # GitHub says 200 to everything
            error = said.get("error")
            known = error if isinstance(error, str) and error.replace("_", "").isalpha() else "unknown"
            return ProviderNotBelieved(f"the code was not accepted ({known[:40]})")
        return said

    async def _github_person(
        self, provider: Provider, tokens: Mapping[str, Any]
    ) -> ProviderPerson | ProviderNotBelieved:
        token = tokens.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            return ProviderNotBelieved("the provider sent no access token")
        api = "https://api.github.com" if provider.issuer == GITHUB else f"{provider.issuer}/api/v3"
        headers = {"authorization": f"Bearer {token}", "accept": "application/vnd.github+json"}
        return upstream.github_person(await self._get(f"{api}/user", headers))

    def _address(self, said: Mapping[str, Any], name: str, issuer: str) -> str:
        value = said.get(name)
        if not isinstance(value, str) or not is_fit(value) or not self._may_follow(value, typed=issuer):
            raise ProviderUnavailable(f"has no {name} with https at a place where it may be")
        return value

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        answer = await self._ask("GET", url, headers or {"accept": "application/json"}, b"")
        if answer.status != 200:
            raise ProviderUnavailable(f"answered {answer.status}")
        return _object(answer.body)


def _of_kid(keys: list[object], kid: str) -> list[object]:
    """Taken out before any is read: a key that we cannot use must not spoil the others."""
    readable = [cast("dict[str, object]", key) for key in keys if isinstance(key, dict)]
    found: list[object] = [key for key in readable if not kid or key.get("kid") == kid]
    return found[:KEYS]


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise ProviderUnavailable("did not answer in JSON") from None
    if not isinstance(value, dict):
        raise ProviderUnavailable("did not answer with a JSON object")
    return cast("Mapping[str, Any]", value)


def is_fit(url: str) -> bool:
    """https, or http to this machine; nothing that could be read in two ways."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    safe = parts.scheme == "https" or (parts.scheme == "http" and (host == "localhost" or is_loopback(host)))
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= 2_048
    return safe and plain and host != "" and "@" not in parts.netloc and not parts.fragment


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


async def _nobody_to_ask(method: str, url: str, headers: Mapping[str, str], body: bytes) -> ProviderAnswer:
    raise ProviderUnavailable("is not set up")


def _nowhere(url: str, *, typed: str) -> bool:
    return False


def none() -> Upstreams:
    """Of a server without any."""
    return Upstreams({}, _nobody_to_ask, lambda: 0, may_follow=_nowhere)
