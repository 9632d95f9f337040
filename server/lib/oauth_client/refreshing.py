"""The refresh of a login whose refresh token is good for one use (RFC 6749 §6, RFC 9700 §4.14), by one refresher at a time.

Nothing may come between the server's answer and the place where the tokens are kept: a refresh waits for nobody, ignores cancellation for its
bounded time, and is repeated at once if its answer was lost, because servers repeat a rotation only within a short window (60 s on an ostiary).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Protocol, TypeVar

import trio

from server.lib.oauth_client.kept_login import OAuthLogin
from server.lib.oauth_client.proof_key import Millis
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens

L = TypeVar("L", bound=OAuthLogin)


class LoginKeeper(Protocol[L]):
    """The keeper of one login, wherever that is. Its methods may raise errors of its own, which go to whoever wants a token."""

    pauses: ClassVar[tuple[float, ...]] = (0,)  # seconds before each further try
    _now: Callable[[], Millis]

    def turn(self, useful: Callable[[L], bool]) -> AbstractAsyncContextManager[L]:
        """Hold the turn, and yield the login as it is kept then: others may have refreshed it meanwhile, and where it is `useful` nobody needs the turn."""
        ...

    async def request(self, login: L) -> Tokens | GrantRefusal:
        """Make the request of a refresh once, in a bounded time."""
        ...

    def lost(self, error: Exception) -> bool:
        """Tell whether the server may have given tokens in an answer that `error` says did not come."""
        ...

    async def keep(self, login: L) -> L:
        """Keep a refreshed login, and return the one that counts from now on."""
        ...

    async def ended(self, login: L, refusal: GrantRefusal | None) -> L:
        """End a login that cannot be refreshed any more; return a newer one, if there is one after all."""
        ...

    async def give_back(self) -> None:
        """Let others try at once, after a failure that ended nothing."""

    async def wait(self, seconds: float) -> None:
        """Wait before another try."""
        await trio.sleep(seconds)

    async def refresh(self, useful: Callable[[L], bool]) -> L:
        """Return a login that is `useful`, or else a refreshed one. Raise `OAuthFailure` for a refusal that may pass."""
        async with self.turn(useful) as login:
            if useful(login):
                return login
            done: list[L] = []
            with trio.CancelScope(shield=True):  # bounded by the tries within
                try:
                    done.append(await self._rotate(login))
                except Exception:
                    await self.give_back()
                    raise
            return done[0]

    async def _rotate(self, login: L) -> L:
        if login.refresh_token is None:
            return await self.ended(login, None)
        answer = await self._insist(login)
        if isinstance(answer, Tokens):
            return await self.keep(login.renewed(answer, now=self._now()))
        if answer.final:  # whatever the reason: a spent refresh token never comes back
            return await self.ended(login, answer)
        raise answer.failure()

    async def _insist(self, login: L) -> Tokens | GrantRefusal:
        for pause in self.pauses:
            try:
                return await self.request(login)
            except Exception as error:
                if not self.lost(error):
                    raise
            await self.wait(pause)
        return await self.request(login)
