"""Getting in while requests wait: the stored login, refreshed, or a login that is begun when it is needed.

The parts of a login, and its screen, are the caller's (signing_in.py); refreshing is in access_token.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from server.client.client_errors import ClientError, LoginDenied, NotLoggedIn
from server.lib.secret import Secret

LogIn = Callable[[], Awaitable[None]]


class TokenSource(Protocol):
    async def token(self) -> Secret | None: ...

    async def renew(self, refused: Secret) -> Secret: ...

    async def not_logged_in(self) -> NotLoggedIn: ...


class Entrance(Protocol):
    async def token(self) -> Secret | None: ...

    async def after_refusal(self, refused: Secret | None) -> Secret: ...


class _Attempt:
    def __init__(self) -> None:
        self.over = trio.Event()
        self.error: ClientError | None = None


class Door:
    """An `Entrance` for many at once: whoever needs a login waits for the same one. `run` must be running meanwhile.

    Without `log_in` nobody is asked, and `NotLoggedIn` is raised at once.
    """

    def __init__(self, access: TokenSource, log_in: LogIn | None) -> None:
        self._access = access
        self._log_in = log_in
        self._attempt: _Attempt | None = None
        self._knocked = trio.Event()
        self._denied: LoginDenied | None = None

    async def token(self) -> Secret | None:
        """Return a token with some time left; None for somebody who never logged in here, and may not need to."""
        try:
            return await self._access.token()
        except NotLoggedIn as ended:
            return await self._after_login(ended)

    async def after_refusal(self, refused: Secret | None) -> Secret:
        """Return another token than the one refused. Raises what logging in raises."""
        try:
            if refused is not None:
                return await self._access.renew(refused)
            token = await self._access.token()  # somebody may have logged in meanwhile, in a terminal
            if token is not None:
                return token
            raise await self._access.not_logged_in()
        except NotLoggedIn as ended:
            return await self._after_login(ended)

    async def run(self) -> None:
        """Do the logins. They belong to nobody's request: one that its client gives up must not end them."""
        log_in = self._log_in
        if log_in is None:
            return
        while True:
            await self._knocked.wait()
            self._knocked = trio.Event()
            attempt = self._attempt
            if attempt is None:
                continue
            try:
                await log_in()
            except ClientError as error:
                attempt.error = error
                # A no of a person stands: asking again with every message would be pestering.
                self._denied = error if isinstance(error, LoginDenied) else None
            self._attempt = None
            attempt.over.set()

    async def _after_login(self, why: NotLoggedIn) -> Secret:
        if self._log_in is None:
            raise why
        if self._denied is not None:
            raise LoginDenied(str(self._denied), hint=why.hint)
        if self._attempt is None:
            self._attempt = _Attempt()
            self._knocked.set()
        attempt = self._attempt
        await attempt.over.wait()
        if attempt.error is not None:
            raise attempt.error
        token = await self._access.token()
        if token is None:  # logged out again at once, elsewhere
            raise why
        return token
