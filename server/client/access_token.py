"""The access token that works now: the stored one, or a refreshed one. However many processes want it at once, one refreshes.

A refresh token can be used once, so nothing may come between the server's answer and our file: the refresh waits for nobody, ignores
Ctrl-C for its bounded time, and is repeated at once if its answer was lost, because the server repeats a rotation only within a short
window (60 s on an ostiary).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from shlex import quote

import trio

from server.client.client_errors import BadAnswer, NotLoggedIn, ServerBusy, TokenFileError, Unreachable
from server.client.oauth_exchange import ask_for_tokens
from server.client.token_file import Millis, StoredLogin, TokenFile, wall_clock
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.addresses import origin, same_place
from server.lib.oauth_client.proof_key import BoundToken
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens
from server.lib.secret import Secret

# Three tries of ten seconds stay well inside the window in which a lost rotation can be repeated.
REFRESH_TRIES = 3
TRY_SECONDS = 10.0


class Access:
    """The login at one server. Methods raise `NotLoggedIn`, `TokenFileError`, `Unreachable`, `ServerBusy` or `BadAnswer`."""

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
        lock = await trio.to_thread.run_sync(self._file.lock_of, self._url)
        async with lock.held_async(self._sleep):
            login = await self.stored()  # another process may have refreshed while we waited
            if login is None:
                raise await self.not_logged_in()
            useful = login.fresh(self._now()) if refused is None else login.access_token != refused
            if useful:
                return login
            if login.refresh_token is None:
                raise NotLoggedIn(
                    f"the login at {self._url} has expired", hint=f"ostiary login {quote(self._url)}"
                )
            rotated: list[StoredLogin] = []
            with trio.CancelScope(shield=True):  # bounded by the tries within
                rotated.append(await self._rotate(login))
            return rotated[0]

    async def _rotate(self, login: StoredLogin) -> StoredLogin:
        answer = await self._insist(login)
        if isinstance(answer, Tokens):
            renewed = login.renewed(answer, now=self._now())
            await trio.to_thread.run_sync(self._file.put, renewed)
            return renewed
        if answer.error in ("invalid_grant", "invalid_client", "unauthorized_client"):
            if answer.error != "invalid_grant":
                # The next login introduces us anew instead of coming with an id that nobody knows.
                await trio.to_thread.run_sync(self._file.drop_registrations, login.issuer, login.client_id)
            # Final, whatever the reason: a spent refresh token never comes back.
            await trio.to_thread.run_sync(self._file.drop, self._url)
            raise NotLoggedIn(f"the login at {self._url} has ended", hint=f"ostiary login {quote(self._url)}")
        late = answer.error == "invalid_dpop_proof"  # whose time is all that can be wrong with it
        raise BadAnswer(
            f"the login could not be refreshed ({answer.error})",
            hint="is the clock of this machine right?" if late else f"ostiary login {quote(self._url)}",
        )

    async def _insist(self, login: StoredLogin) -> Tokens | GrantRefusal:
        endpoint, form = login.token_endpoint, login.refresh_form()
        trouble: Unreachable | None = None
        for attempt in range(REFRESH_TRIES):
            if attempt:
                await self._sleep(attempt)
            try:
                with trio.move_on_after(TRY_SECONDS):
                    return await ask_for_tokens(
                        self._client, endpoint, form, identity=login.identity, key=login.key, now=self._now()
                    )
                trouble = Unreachable(f"{origin(endpoint)} did not answer in time")
            except ServerBusy:
                raise
            except Unreachable as error:
                trouble = error
                if not error.sent:
                    break
        assert trouble is not None
        raise trouble

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
