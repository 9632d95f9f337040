"""Tokens from the authorization servers of upstreams, or the reason why there is none, for the owner of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.token_requests import Tokens, ask_for_tokens

# A token whose lifetime is not said is asked for anew after this.
UNSAID_SECONDS: Final = 300


class TokenDenied(Exception):
    """The error of a request that brought no token.

    Its text continues a sentence about the authorization server, and holds nothing of what it said but a code."""

    def __init__(self, words: str, *, final: bool) -> None:
        super().__init__(words)
        self.final = final  # asking again is in vain until somebody does something


class AskForTokens(Protocol):
    """A request for tokens. `TokenDenied` is raised where there are none."""

    async def __call__(
        self, endpoint: str, form: Mapping[str, str], identity: ClientIdentity, /
    ) -> Tokens: ...


class TokenEndpoints:
    """An `AskForTokens`, over whatever makes requests here."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def __call__(self, endpoint: str, form: Mapping[str, str], identity: ClientIdentity) -> Tokens:
        """Request tokens. Raise `TokenDenied`."""
        try:
            answer = await ask_for_tokens(self._ask, endpoint, form, identity=identity)
        except OAuthFailure as failure:
            raise TokenDenied(str(failure), final=False) from None
        if isinstance(answer, Tokens):
            return answer
        said = answer.word or f"status {answer.status}"
        raise TokenDenied(f"gave no token ({said})", final=answer.final)
