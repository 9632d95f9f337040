"""The server's own login at an upstream (`ostiary upstream login`): shown with every call, refreshed when it runs out.

However many calls want it at once, one refreshes (oauth_client/refreshing.py); and where several nodes have it, one of them, which is written down
before the authorization server is asked: the others wait for what it brings. The tokens are written before they are used. Where the store cannot
write at that moment they are owed, and written as soon as it can; nobody else has its turn before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from shlex import quote
from types import MappingProxyType
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import trio

from auth.values.identity_model import Millis
from server.agents.base.backend import AgentRequest, Trouble
from server.agents.mcp.trust import login_rows
from server.agents.mcp.trust.login_rows import OURS, KeptLogin, LoginVault, SealedLogin, UpstreamLogin
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.lib.log.logger import Logger
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.refreshing import LoginKeeper
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens, ask_for_tokens
from server.mcp.call_failures import BackendError
from server.store.jobs import Store, StoreError, StoreUnavailable
from server.store.write_retry import Job, WriteRetry

# Two tries take 20 seconds at most, and then the turn is given back, or what it brought is written. Where the store is away it is for longer: who
# shows the token a second time as soon as it is there again may end the login. What a node left that died is free after ten seconds.
TURN_MILLIS: Final[Millis] = 10 * 60_000
# So long a call waits for the turn of another node.
TURN_SECONDS: Final = 35.0
_LOOK_SECONDS: Final = 0.25
# A token that was refused so soon after it was made is not refused for its age.
JUST_NOW: Final[Millis] = 60_000
# Of calls that were sent together with an old token, the later ones are refused after the first has refreshed it.
TOGETHER: Final[Millis] = 5_000

_NOTHING_SHOWN: Final[Mapping[str, str]] = MappingProxyType({})

T = TypeVar("T")


class OwnerLogin(LoginKeeper[UpstreamLogin]):
    """A `Credential`. While nobody is logged in, calls go out without one, and the upstream says whether it wants one."""

    shared = True

    def __init__(
        self,
        upstream: UpstreamKey,
        store: Store,
        vault: LoginVault,
        ask: Ask,
        *,
        owed: WriteRetry,
        clock: Callable[[], Millis],
        log: Logger,
        person: str = OURS,
        url: str = "",
        node: str = "",
    ) -> None:
        """Prepare the login of one upstream.

        `owed` is what the store could not write yet, of all logins. `url` is where the upstream is: a login at another place is none, however
        the two are called here. `node` is the boot id of this one, where others may use the same database."""
        self._upstream = upstream
        self._store = store
        self._vault = vault
        self._ask = ask
        self._owed = owed
        self._clock = self._now = clock
        self._log = log
        self._person = person
        self._place = _place(url) if url else None
        self._node = node
        self._kept: KeptLogin | None = None
        self._held: KeptLogin | None = None  # that is being refreshed
        self._read = False  # the row; from then on it changes by way of us alone
        self._renewed_at: Millis = 0
        self._one_at_a_time = trio.Lock()
        self._trouble: Trouble | None = None
        self._shown: tuple[UpstreamLogin, Mapping[str, str]] | None = None  # of the login that was shown last

    def trouble(self) -> Trouble | None:
        return self._trouble

    def changed(self) -> None:
        """Forget what was read, because somebody logged in, or out. Why the last one ended is said until there is another."""
        self._read, self._kept, self._renewed_at = False, None, 0
        self._shown = None

    @property
    def over(self) -> bool:
        """The answer to whether there is no login, as far as is known."""
        return self._read and self._kept is None

    @property
    def idle(self) -> bool:
        return not self._one_at_a_time.locked()

    async def give_up(self) -> None:
        """Give up a login that is not accepted over there, whatever it says of itself."""
        kept = self._kept
        if kept is not None:
            await self._end(kept, "it was not accepted")

    async def current(self) -> UpstreamLogin | None:
        """Return the login, with a token that has some time left. Raise `BackendError`."""
        kept = self._kept if self._read else await self._load()
        if kept is None or kept.login.fresh(self._clock()):
            return None if kept is None else kept.login
        return await self._refresh(kept)

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        if self._read and self._kept is None:
            return _NOTHING_SHOWN
        login = await self.current()
        if login is None:
            return _NOTHING_SHOWN
        shown = self._shown
        if shown is None or shown[0] is not login:
            shown = (login, {"Authorization": f"Bearer {login.access_token.reveal()}"})
            self._shown = shown
        return shown[1]

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        kept = self._kept if self._read else await self._load()
        if kept is None:
            if self._trouble is None:
                self._fail("wants a login")
            return False
        age = self._clock() - self._renewed_at
        if 0 <= age < JUST_NOW:
            if age >= TOGETHER:
                self._fail("does not accept its login any more")
            return age < TOGETHER
        try:
            await self._refresh(kept)
        except BackendError:
            if not self.over:  # it may be as good as ever
                raise
            return False
        return True

    async def _load(self) -> KeptLogin | None:
        async with self._one_at_a_time:
            if self._read:
                return self._kept
            try:
                await self._owed.settle()  # or else the row may be older than what we had
                row = await self._row()
            except StoreError:
                raise _not_known() from None
            self._kept = self._opened(row)
            self._read = True
            if self._kept is not None:
                self._trouble = None
            return self._kept

    async def _refresh(self, seen: KeptLogin) -> UpstreamLogin:
        now = self._clock()  # read once: whether the turn is needed is asked more than once

        def useful(login: UpstreamLogin) -> bool:
            another = (login.access_token, login.obtained_at) != (
                seen.login.access_token,
                seen.login.obtained_at,
            )
            return another and login.fresh(now)

        try:
            return await self.refresh(useful)
        except OAuthFailure as failure:
            self._fail(f"could not refresh its login: {host_of(seen.login.token_endpoint)} {failure}")
            raise _not_renewed() from None

    @asynccontextmanager
    async def turn(self, useful: Callable[[UpstreamLogin], bool]) -> AsyncGenerator[UpstreamLogin]:
        async with self._one_at_a_time:
            if self._kept is None or not useful(self._kept.login):
                self._held = await self._take_turn(useful)
                yield self._held.login
            else:
                yield self._kept.login

    async def _take_turn(self, useful: Callable[[UpstreamLogin], bool]) -> KeptLogin:
        """Return the login when it is this node's turn, or when another has made it useful. Raise `BackendError`."""
        try:
            await self._owed.settle()
        except StoreUnavailable:
            if self._node:  # nobody knows who else is at it
                raise _not_known() from None
        kept = self._kept
        if kept is None:
            raise self._unusable()
        kept = await self._refreshed_elsewhere(kept) or kept
        while self._node and not useful(kept.login):
            theirs = await self._wait_for_turn(kept)
            if theirs is None:
                break
            kept = theirs
        return kept

    async def _wait_for_turn(self, kept: KeptLogin) -> KeptLogin | None:
        """Wait until it is this node's turn, and return None; or what another node has made of the login meanwhile. Raise `BackendError`."""
        job = self._job(login_rows.take_turn, kept, node=self._node, millis=TURN_MILLIS)
        with trio.move_on_after(TURN_SECONDS):
            while True:
                try:
                    if await self._store.write(partial(job, now=self._clock())):
                        return None
                    row = await self._row()
                except StoreError:
                    # Another one may be at it: to spend the token now could end the login. And it may have been given to this one.
                    self._owed.owe(self._leaving(kept))
                    raise _not_known() from None
                if row is None or row.login_id != kept.login_id:  # logged out, or in anew
                    self.changed()
                    raise self._unusable()
                if (newer := await self._refreshed_elsewhere(kept)) is not None:
                    return newer
                await trio.sleep(_LOOK_SECONDS)
        raise _not_renewed()

    def _leaving(self, kept: KeptLogin) -> Job:
        return self._job(login_rows.leave_turn, kept, node=self._node)

    async def give_back(self) -> None:
        if not self._node or self._held is None:
            return
        job = self._leaving(self._held)
        try:
            await self._store.write(job)
        except StoreError:
            self._owed.owe(job)

    async def request(self, login: UpstreamLogin) -> Tokens | GrantRefusal:
        return await ask_for_tokens(
            self._ask, login.token_endpoint, login.refresh_form(), identity=login.identity
        )

    def lost(self, error: Exception) -> bool:
        # What stands in front of a server says 502 or 504 where the server may have answered, and puts pages in the place of answers.
        return isinstance(error, OAuthFailure) and (
            error.reason in ("no answer", "no object") or error.status in (502, 504)
        )

    async def keep(self, login: UpstreamLogin) -> UpstreamLogin:
        kept = self._held
        assert kept is not None
        sealed = self._vault.seal(self._upstream, self._person, login)
        renewed = await self._write(self._job(login_rows.renew, kept, sealed=sealed))
        if renewed is False:  # logged in anew, or out, while we asked: what we hold belongs to nobody
            self.changed()
            raise self._unusable()
        # Not written yet, because the store cannot: it is used all the same, for the old refresh token is spent. Which version it will be is known
        # where no other node can come before it; else it is read when it matters.
        written = renewed or not self._node
        self._kept = msgspec.structs.replace(kept, login=login, version=kept.version + (1 if written else 0))
        self._renewed_at, self._trouble = login.obtained_at, None
        return login

    async def ended(self, login: UpstreamLogin, refusal: GrantRefusal | None) -> UpstreamLogin:
        kept = self._held
        assert kept is not None
        # Another process of ours may have spent it a moment ago.
        if refusal is not None and (newer := await self._refreshed_elsewhere(kept)) is not None:
            return newer.login
        await self._end(kept, "it ran out" if refusal is None else "its refresh was refused")
        self._held = None
        said = "" if refusal is None else f": {host_of(login.token_endpoint)} {refusal.failure()}"
        self._fail(f"does not accept its login any more{said}")
        raise self._unusable()

    async def _refreshed_elsewhere(self, kept: KeptLogin) -> KeptLogin | None:
        """Return the login with newer tokens, if another process on this database has written them."""
        try:
            newer = self._opened(await self._row())
        except StoreError:
            return None
        if newer is None or newer.login_id != kept.login_id or newer.version <= kept.version:
            return None
        self._kept = newer
        return newer

    async def _row(self) -> SealedLogin | None:
        return await self._store.read(partial(login_rows.fetch, upstream=self._upstream, person=self._person))

    def _opened(self, row: SealedLogin | None) -> KeptLogin | None:
        login = None if row is None else self._vault.open(self._upstream, self._person, row.sealed)
        if row is None or login is None or self._place not in (None, _place(login.resource)):
            return None
        return KeptLogin(login=login, login_id=row.login_id, version=row.version)

    def _job(self, job: Callable[..., T], kept: KeptLogin, **more: object) -> Callable[..., T]:
        """Return a job on the row of this login, which does nothing to other tokens than these."""
        return partial(
            job,
            upstream=self._upstream,
            person=self._person,
            login_id=kept.login_id,
            version=kept.version,
            **more,
        )

    async def _end(self, kept: KeptLogin, why: str) -> None:
        """End these tokens, and no newer ones that somebody else has written."""
        job = self._job(login_rows.end, kept, by="settings", why=why, now=self._clock())
        ended = await self._write(job)
        if self._kept is kept:
            self._kept = None
            self._read = ended is not False

    async def _write(self, job: Callable[..., bool]) -> bool | None:
        """Write, and return what the job does; None if the store cannot now, so that it is owed. The job may be done twice."""
        try:
            return await self._store.write(job)
        except StoreError as error:
            self._log.error("upstream.login_not_kept", upstream=str(self._upstream), reason=str(error))
            self._owed.owe(job)
            return None

    def _fail(self, words: str) -> None:
        """Tell the owner, whose login this is to mend; a person is asked for theirs when they call."""
        if self._person != OURS:
            self._log.info("upstream.account_over", upstream=str(self._upstream), reason=words)
            return
        said = f"{words}: ostiary upstream login {quote(str(self._upstream))}"
        if self._trouble is None or self._trouble.words != said:
            self._log.warning("upstream.login_wanted", upstream=str(self._upstream), reason=words)
            self._trouble = Trouble(words=said, since=self._clock())

    def _unusable(self) -> BackendError:
        return BackendError(
            "this tool cannot be used now: our login at its upstream has ended, and the owner of this server is told so"
        )


def _not_known() -> BackendError:
    return BackendError(
        "this tool cannot be used right now: what is kept of our login at its upstream cannot be read. Try again in a few seconds"
    )


def _not_renewed() -> BackendError:
    return BackendError(
        "this tool cannot be used right now: our login at its upstream could not be renewed. Try again in a few seconds"
    )


def _place(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
