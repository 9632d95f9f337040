"""The credentials that an upstream over HTTP is shown. Never what a caller showed us: a `Credential` is not even given that.

The settings' own headers and token are here; logins to the upstream, ours and those of people, implement the same protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from server.agents.base.backend import AgentRequest, ToolCrashed, Trouble, Watched
from server.client.mcp_session.session_request import Credential
from server.lib.secret import Secret
from server.payments.x402.payment_headers import NOTHING_YET, PAYMENT_SIGNATURE
from server.settings.header_settings import is_sendable
from server.settings.secret_reference import SecretUnreadable

AUTHORIZATION: Final = "Authorization"


class AccountNeeded(ToolCrashed):
    """The tool is used with an account of the caller's own, and they have not connected one. Says where they do."""

    def __init__(self, label: str, url: str, connected: Callable[[], Awaitable[bool]]) -> None:
        """Write the message. `connected` waits for the account for a while, and says whether it came."""
        super().__init__(
            f"This tool is used with your own account at {label}. Open {url} in a browser, sign in, and connect it."
            " Then call the tool again."
        )
        self.message = f"Connect your account at {label}: the tool that was called is used with it."
        self.url = url
        self.connected = connected


class StaticCredential:
    """The headers and the token from the settings, which everybody shows."""

    def __init__(self, headers: Mapping[str, Secret], token: Secret | None = None) -> None:
        """Keep the headers. Raises `SecretUnreadable` for what cannot be sent."""
        told = dict(headers)
        if token is not None:
            told[AUTHORIZATION] = Secret(f"Bearer {token.reveal()}")
        for name, value in told.items():
            if not is_sendable(value.reveal()):
                raise SecretUnreadable(f"the value for the header {name} is not plain ASCII text of one line")
        self._headers: Final = MappingProxyType({name: value.reveal() for name, value in told.items()})

    def __repr__(self) -> str:
        return f"<StaticCredential {sorted(self._headers)}>"

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return self._headers

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return False


class PayerCredential:
    """A credential of somebody with a wallet. Where it shows no login and is turned away, it says from then on that it comes to pay:
    an upstream that sells to everybody lets it in by that."""

    def __init__(self, own: Credential) -> None:
        self._own = own
        self._announces = False
        # What was last shown of its own, and the same with the announcement.
        self._last: tuple[Mapping[str, str], Mapping[str, str]] | None = None

    def trouble(self) -> Trouble | None:
        return self._own.trouble() if isinstance(self._own, Watched) else None

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        own = await self._own.headers(call)
        if not self._announces or AUTHORIZATION in own:
            return own
        last = self._last
        if last is None or last[0] is not own:
            last = self._last = (own, MappingProxyType({PAYMENT_SIGNATURE: NOTHING_YET, **own}))
        return last[1]

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        """Return whether to try again: with the announcement, the first time. Later the own credential decides."""
        if self._announces or AUTHORIZATION in await self._own.headers(call):
            return await self._own.refused(call, challenge)
        self._announces = True
        return True
