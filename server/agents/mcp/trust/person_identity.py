"""`identity = "person"`: each call goes out with its caller's own account at the upstream; who has connected none is told where to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from server.agents.base.backend import AgentRequest, Trouble
from server.agents.mcp.trust.call_credentials import OwnCredential
from server.agents.mcp.trust.own_tokens import person_of
from server.agents.mcp.trust.owner_login import OwnerLogin
from server.agents.mcp.upstream_credentials import AccountNeeded
from server.mcp.call_failures import BackendError

# Logins that are held in memory; one that is put away is read again when its person calls.
MOST: Final = 1_000
# Somebody who was shown the address signs in, finds their phone, and agrees.
PATIENCE_SECONDS: Final = 120.0


class PersonCredential:
    """`ours` is for what the server asks in its own name; `login_of` opens a person's."""

    shared = False

    def __init__(
        self, label: str, url: str, *, ours: OwnCredential, login_of: Callable[[str], OwnerLogin]
    ) -> None:
        self._label = label
        self._url = url
        self._ours = ours
        self._login_of = login_of
        self._logins: OrderedDict[str, OwnerLogin] = OrderedDict()
        self._waiting: dict[str, trio.Event] = {}

    def trouble(self) -> Trouble | None:
        return self._ours.trouble()

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        """Return what is shown for a call. Raises `AccountNeeded` and other `BackendError`s."""
        if call is None:
            return await self._ours.headers(None)
        person = person_of_call(call)
        login = self._login(person)
        headers: Mapping[str, str] = {}
        try:
            headers = await login.headers(call)
        except BackendError:
            if not login.over:
                raise BackendError(
                    f"this tool cannot be used now: your account at {self._label} could not be reached"
                ) from None
        if not headers:
            raise self._needed(person)
        return headers

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        if call is None:
            return await self._ours.refused(None, challenge)
        person = person_of_call(call)
        login = self._login(person)
        if await login.refused(call, challenge):
            return True
        await login.give_up()
        raise self._needed(person)

    def changed(self, person: str) -> None:
        """Take note that they connected, or disconnected."""
        login = self._logins.get(person)
        if login is not None:
            login.changed()
        event = self._waiting.pop(person, None)
        if event is not None:
            event.set()

    def _login(self, person: str) -> OwnerLogin:
        login = self._logins.get(person)
        if login is None:
            login = self._logins[person] = self._login_of(person)
            for other in list(self._logins):
                if len(self._logins) <= MOST:
                    break
                if other != person and self._logins[other].idle:
                    del self._logins[other]
        self._logins.move_to_end(person)
        return login

    def _needed(self, person: str) -> AccountNeeded:
        return AccountNeeded(self._label, self._url, self._waiting_for(person))

    def _waiting_for(self, person: str) -> Callable[[], Awaitable[bool]]:
        async def connected() -> bool:
            event = self._waiting.setdefault(person, trio.Event())
            with trio.move_on_after(PATIENCE_SECONDS):
                while await self._login(person).current() is None:
                    await event.wait()
                    event = self._waiting.setdefault(person, trio.Event())
                return True
            return False

        return connected


def person_of_call(call: AgentRequest) -> str:
    """Return the account in whose name a call is made. Raises `BackendError` where no person stands behind it."""
    person = person_of(call)
    if person is None:
        raise BackendError("this tool is used with an account of a person's: log in with yours to use it")
    return person
