"""The questions that a provider is asked when people sign in: its document and keys, the exchange of a code, and GitHub's `/user`.

The asking itself is lent by the caller; addresses come from the configuration, and from the document of a configured issuer. Nothing
here decides who is let in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from auth.providers import provider_sign_in as upstream
from auth.providers.provider_sign_in import Provider, ProviderLogin, ProviderNotBelieved, ProviderPerson
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE, SECOND
from server.lib.oauth_client.authorization_code import authorization_link, code_form, comes_from
from server.lib.oauth_client.client_identity import POST, ClientIdentity, method_for
from server.lib.oauth_client.issuer_metadata import ServerMetadata, find_server, openid_place
from server.lib.oauth_client.oauth_answers import Ask, OAuthAnswer, OAuthFailure
from server.lib.oauth_client.token_requests import Tokens, ask_for_tokens

GITHUB: Final = "https://github.com"
# Documents of a provider; a key that is not among those kept is asked for at once, but so often at most.
KEPT: Final[Millis] = 60 * MINUTE
ASKED_EVERY: Final[Millis] = 30 * SECOND
# After a failure, where programs ask: they do it in loops, and no person waits.
QUIET: Final[Millis] = 10 * SECOND
KEYS: Final = 10  # of one kid


class _Kept:
    """The documents of one provider, and when they were asked for."""

    def __init__(self) -> None:
        self.metadata: tuple[ServerMetadata, Millis] | None = None
        self.keys: tuple[list[object], Millis] | None = None
        self.quiet_until: Millis = 0


class Upstreams:
    """The configured providers, and what is remembered of them in this process."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        ask: Ask,
        clock: Callable[[], Millis],
    ) -> None:
        self.providers = providers
        self._ask = ask
        self._clock = clock
        self._kept = {name: _Kept() for name in providers}

    @property
    def origins(self) -> tuple[str, ...]:
        """The places to which forms on the sign-in page may lead: browsers apply `form-action` to the redirect that follows, too."""
        return tuple(sorted({origin_of(each.issuer) for each in self.providers.values()}))

    async def authorization_url(self, provider: Provider, login: ProviderLogin, state: str) -> str:
        """Return where the browser goes. Raise `OAuthFailure`."""
        metadata = await self.metadata(provider)
        mail = any(word.startswith("email:") for word in provider.allow)
        return authorization_link(
            metadata.authorization_endpoint or "",
            client_id=provider.client_id,
            redirect_uri=login.redirect_uri,
            state=state,
            verifier=login.verifier.reveal(),
            more={"scope": "openid email" if mail else "openid", "nonce": login.nonce.reveal()}
            if provider.kind == "oidc"
            else {"allow_signup": "false"},  # no scope: name and number are public
        )

    async def person(
        self, provider: Provider, login: ProviderLogin, *, code: str, iss: str
    ) -> ProviderPerson | ProviderNotBelieved:
        """Return the person for whom the code stands. Raise `OAuthFailure`."""
        metadata = await self.metadata(provider)
        if not comes_from(provider.issuer, iss or None, always=metadata.names_itself):
            return ProviderNotBelieved("the answer is another issuer's")
        tokens = await self._redeem(provider, metadata, login, code)
        if isinstance(tokens, ProviderNotBelieved):
            return tokens
        if provider.kind == "github":
            return await self._github_person(provider, tokens)
        if tokens.id_token is None:
            return ProviderNotBelieved("the provider sent no id token")
        token = tokens.id_token.reveal()
        kid = upstream.key_id(token)
        if isinstance(kid, ProviderNotBelieved):
            return kid
        keys = await self._keys(provider, metadata, kid)
        return upstream.verify_id_token(token, keys, provider, nonce=login.nonce.reveal(), now=self._clock())

    async def keys(self, provider: Provider, kid: str) -> list[object]:
        """Return entries of its key set that something may be signed with which a program brings.

        Raise `OAuthFailure`, and then for a while without asking; keys that are known count meanwhile."""
        kept, now = self._kept[provider.name], self._clock()
        if kept.keys is not None and now - kept.keys[1] < KEPT and (known := _of_kid(kept.keys[0], kid)):
            return known
        if now < kept.quiet_until:
            raise OAuthFailure("could not be asked a moment ago")
        try:
            return await self._keys(provider, await self.metadata(provider), kid)
        except OAuthFailure:
            kept.quiet_until = self._clock() + QUIET
            raise

    # ------------------------------------------------------------ documents

    async def metadata(self, provider: Provider) -> ServerMetadata:
        """Return where the provider is asked. Raise `OAuthFailure`."""
        issuer = provider.issuer
        if provider.kind == "github":
            return ServerMetadata(
                issuer=issuer,
                authorization_endpoint=f"{issuer}/login/oauth/authorize",
                token_endpoint=f"{issuer}/login/oauth/access_token",
                auth_methods=(POST,),
            )
        kept, now = self._kept[provider.name], self._clock()
        if kept.metadata is not None and now - kept.metadata[1] < KEPT:
            return kept.metadata[0]
        found = await find_server(
            self._ask,
            issuer,
            typed=issuer,
            places=[openid_place(issuer)],
            required=("authorization_endpoint", "jwks_uri"),
            optional=(),
        )
        kept.metadata = (found, now)
        return found

    async def _keys(self, provider: Provider, metadata: ServerMetadata, kid: str) -> list[object]:
        """Return the provider's keys of this id, asked for again where it has none: providers change their keys."""
        kept, now = self._kept[provider.name], self._clock()
        age = None if kept.keys is None else now - kept.keys[1]
        found = [] if kept.keys is None else _of_kid(kept.keys[0], kid)
        if age is None or age >= KEPT or (not found and age >= ASKED_EVERY):
            listed: object = (await self._get(metadata.jwks_uri or "")).get("keys")
            if not isinstance(listed, list):
                raise OAuthFailure("publishes no keys")
            kept.keys = (cast("list[object]", listed), now)
            found = _of_kid(kept.keys[0], kid)
        return found

    async def _redeem(
        self, provider: Provider, metadata: ServerMetadata, login: ProviderLogin, code: str
    ) -> Tokens | ProviderNotBelieved:
        form = code_form(code=code, redirect_uri=login.redirect_uri, verifier=login.verifier.reveal())
        method = method_for(metadata.auth_methods, secret=provider.secret is not None)
        identity = ClientIdentity(client_id=provider.client_id, secret=provider.secret, method=method)
        try:
            answer = await ask_for_tokens(
                self._ask, metadata.token_endpoint, form, identity=identity, any_type=True
            )
        except OAuthFailure as failure:
            if failure.reason != "no token":
                raise
            return ProviderNotBelieved("the provider sent no access token")
        if isinstance(answer, Tokens):
            return answer
        return ProviderNotBelieved(f"the code was not accepted ({answer.word or 'unknown'})")

    async def _github_person(
        self, provider: Provider, tokens: Tokens
    ) -> ProviderPerson | ProviderNotBelieved:
        api = "https://api.github.com" if provider.issuer == GITHUB else f"{provider.issuer}/api/v3"
        headers = {
            "authorization": f"Bearer {tokens.access_token.reveal()}",
            "accept": "application/vnd.github+json",
        }
        return upstream.github_person(await self._get(f"{api}/user", headers))

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        answer = await self._ask("GET", url, headers or {"Accept": "application/json"}, b"")
        if answer.status != 200:
            raise OAuthFailure(f"answered with status {answer.status}")
        return answer.json_object()


def _of_kid(keys: list[object], kid: str) -> list[object]:
    """Take them out before any is read: a key that we cannot use must not spoil the others."""
    readable = [cast("dict[str, object]", key) for key in keys if isinstance(key, dict)]
    found: list[object] = [key for key in readable if not kid or key.get("kid") == kid]
    return found[:KEYS]


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


async def _nobody_to_ask(method: str, url: str, headers: Mapping[str, str], body: bytes) -> OAuthAnswer:
    raise OAuthFailure("is not set up")


def none() -> Upstreams:
    """Return the providers of a server without any."""
    return Upstreams({}, _nobody_to_ask, lambda: 0)
