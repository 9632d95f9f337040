"""The access token that works now: the stored one, or a refreshed one. However many processes want it at once, one refreshes.

The turn of the one is a lock beside the token file; the refresh ignores Ctrl-C for its bounded time (oauth_client/refreshing.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from shlex import quote

import trio

from server.client.client_errors import BadAnswer, NotLoggedIn, ServerBusy, TokenFileError, Unreachable
from server.client.oauth_exchange import ask_for_tokens
from server.client.token_file import Millis, StoredLogin, TokenFile, wall_clock
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.addresses import origin, same_place
from server.lib.oauth_client.oauth_answers import OAuthFailure
from server.lib.oauth_client.proof_key import BoundToken
from server.lib.oauth_client.refreshing import LoginKeeper
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens
from server.lib.secret import Secret

# Three tries of ten seconds stay well inside the window in which a lost rotation can be repeated.
TRY_SECONDS = 10.0


class Access(LoginKeeper[StoredLogin]):
    """The login at one server. Methods raise `NotLoggedIn`, `TokenFileError`, `Unreachable`, `ServerBusy` or `BadAnswer`."""

    pauses = (1.0, 2.0)

    def __init__(
        self,
        file: TokenFile,
        url: str,
        *,
        client: HttpClient,
        now: Callable[[], Millis] = wall_clock,
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    ) -> None:
        self._file = file
        self._url = url
        self._client = client
        self._now = now
        self._sleep = sleep
        self._nonces: dict[str, str] = {}  # what servers want in proofs of a key, by origin

    async def stored(self) -> StoredLogin | None:
        return await trio.to_thread.run_sync(self._file.get, self._url)

    async def token(self) -> Secret | None:
        """Return an access token with some time left, or None if nobody is logged in at this server."""
        return None if await self.stored() is None else self.shown(await self.login())

    def shown(self, login: StoredLogin) -> Secret:
        """Return the access token of a login as requests send it: with its key, if it is bound to one (DPoP)."""
        key = login.key
        if key is None:
            return login.access_token
        return BoundToken(login.access_token.reveal(), key, now=self._now, nonces=self._nonces)

    async def login(self) -> StoredLogin:
        """Return the login, with an access token that has some time left."""
        login = await self.stored()
        if login is None:
            raise await self.not_logged_in()
        return login if login.fresh(self._now()) else await self._refresh(refused=None)

    async def renew(self, refused: Secret) -> Secret:
        """Return the access token that follows a refused one; refresh it only if nobody did so meanwhile."""
        return self.shown(await self._refresh(refused=refused))

    async def _refresh(self, refused: Secret | None) -> StoredLogin:
        def useful(login: StoredLogin) -> bool:
            return login.fresh(self._now()) if refused is None else login.access_token != refused

        try:
            return await self.refresh(useful)
        except OAuthFailure as failure:
            late = failure.error == "invalid_dpop_proof"  # whose time is all that can be wrong with it
            raise BadAnswer(
                f"the login could not be refreshed ({failure.error})",
                hint="is the clock of this machine right?" if late else f"ostiary login {quote(self._url)}",
            ) from None

    @asynccontextmanager
    async def turn(self, useful: Callable[[StoredLogin], bool]) -> AsyncGenerator[StoredLogin]:
        lock = await trio.to_thread.run_sync(self._file.lock_of, self._url)
        async with lock.held_async(self._sleep):
            login = await self.stored()
            if login is None:
                raise await self.not_logged_in()
            yield login

    async def request(self, login: StoredLogin) -> Tokens | GrantRefusal:
        endpoint, form = login.token_endpoint, login.refresh_form()
        with trio.move_on_after(TRY_SECONDS):
            return await ask_for_tokens(
                self._client, endpoint, form, identity=login.identity, key=login.key, now=self._now()
            )
        raise Unreachable(f"{origin(endpoint)} did not answer in time")

    async def wait(self, seconds: float) -> None:
        await self._sleep(seconds)

    def lost(self, error: Exception) -> bool:
        return isinstance(error, Unreachable) and error.sent and not isinstance(error, ServerBusy)

    async def keep(self, login: StoredLogin) -> StoredLogin:
        await trio.to_thread.run_sync(self._file.put, login)
        return login

    async def ended(self, login: StoredLogin, refusal: GrantRefusal | None) -> StoredLogin:
        if refusal is not None:
            if refusal.error in ("invalid_client", "unauthorized_client"):
                # The next login introduces us anew instead of coming with an id that nobody knows.
                await trio.to_thread.run_sync(self._file.drop_registrations, login.issuer, login.client_id)
            await trio.to_thread.run_sync(self._file.drop, self._url)
        ended = f"the login at {self._url} has ended"
        said = f"the login at {self._url} has expired" if refusal is None else ended
        raise NotLoggedIn(said, hint=f"ostiary login {quote(self._url)}")

    async def not_logged_in(self) -> NotLoggedIn:
        hint = f"ostiary login {quote(self._url)}"
        try:
            logins = await trio.to_thread.run_sync(self._file.all)
        except TokenFileError:
            logins = []
        # The same server under another of its names is another login, because tokens are bound to the name.
        for other in logins:
            if same_place(other.url, self._url):
                hint += f", or use {quote(other.url)}, where you are logged in"
                break
        return NotLoggedIn(f"not logged in at {self._url}", hint=hint)
