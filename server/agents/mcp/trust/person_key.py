"""`identity = "person-key"`: each call goes out with a key that its caller pasted on their page; who has given none is told where to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from server.agents.base.backend import AgentRequest, Trouble
from server.agents.mcp.trust.owner_login import OwnerLogin
from server.agents.mcp.trust.person_identity import PersonCredential, person_of_call
from server.agents.mcp.upstream_credentials import AUTHORIZATION, AccountNeeded
from server.lib.secret import Secret

# Calls whose key is remembered until they are answered; a refusal of one that is forgotten ends the key that there is now.
CALLS: Final = 1_000


class NoLogin:
    """The credential for our own questions where there is no login of ours: the settings say all that is shown."""

    def trouble(self) -> Trouble | None:
        return None

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return {}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return False


class KeyNeeded(AccountNeeded):
    """The tool is used with a key of the caller's own, and they have given none that is good. Says where they do."""

    def __init__(
        self, label: str, url: str, connected: Callable[[], Awaitable[bool]], *, refused: bool
    ) -> None:
        super().__init__(label, url, connected)
        why = f"{label} did not accept your API key. " if refused else ""
        self.args = (
            f"{why}This tool is used with your own API key for {label}. Open {url} in a browser, sign in, and paste "
            f"{'another' if refused else 'it'} there, never here. Then call the tool again.",
        )
        self.message = f"{why}Paste {'another' if refused else 'your'} API key for {label}: the tool that was called is used with it."


class KeyCredential(PersonCredential):
    """The keys of the people who call, sent in the header that the settings name."""

    def __init__(
        self,
        label: str,
        url: str,
        *,
        header: str,
        login_of: Callable[[str], OwnerLogin],
        used: Callable[[str], None],
    ) -> None:
        """Keep the parts. `used` is told whose key is sent."""
        super().__init__(label, url, ours=NoLogin(), login_of=login_of)
        self._header = header
        self._used = used
        self._sent: OrderedDict[str, Secret] = OrderedDict()  # by the id of the call
        self._turned_away: set[str] = set()  # people whose key was refused, and who have given no other

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        if call is None:
            return {}
        await super().headers(call)
        person = person_of_call(call)
        login = await self._login(person).current()
        if login is None:  # ended just now
            raise self._needed(person)
        self._sent[call.call_id] = login.access_token
        if len(self._sent) > CALLS:
            self._sent.popitem(last=False)
        self._used(person)
        key = login.access_token.reveal()
        return {self._header: f"Bearer {key}" if self._header.lower() == AUTHORIZATION.lower() else key}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        """Return whether there is another key by now. Raises `KeyNeeded` where it was the one there is, which ends it."""
        if call is None:
            return False
        person = person_of_call(call)
        login = self._login(person)
        sent, now = self._sent.pop(call.call_id, None), await login.current()
        if now is not None and sent is not None and now.access_token != sent:
            return True
        await login.give_up()
        self._turned_away.add(person)
        raise self._needed(person)

    def changed(self, person: str) -> None:
        super().changed(person)
        self._turned_away.discard(person)

    def _needed(self, person: str) -> AccountNeeded:
        return KeyNeeded(
            self._label, self._url, self._waiting_for(person), refused=person in self._turned_away
        )
