"""The connection with one upstream, whatever the wire: what it can be asked to do, and who is told what it says unasked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec
import trio
from msgspec import Raw

from server.agents.base.backend import AgentRequest, Outlet
from server.agents.mcp.agreement import Agreement
from server.agents.mcp.upstream_calls import UpstreamCall
from server.mcp.messages import Resource

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class UpstreamTells(msgspec.Struct, frozen=True):
    """Who hears what belongs to no request. Neither waits."""

    lists: Callable[[], None]  # some list changed
    resource: Callable[[str], None]  # what this URI holds


class Link(Protocol):
    """Made, and what is agreed on; until it has `ended`. Requests raise `UpstreamRefusal` for an error that the upstream
    answers with, `BackendError` where no answer came, and whatever comes out of the outlet."""

    @property
    def agreement(self) -> Agreement: ...

    @property
    def ended(self) -> trio.Event:
        """There will be no more answers, and why is `reason`."""
        ...

    @property
    def reason(self) -> str:
        """Continues a sentence about the upstream; `more` is for its owner."""
        ...

    @property
    def more(self) -> str: ...

    @property
    def busy(self) -> bool:
        """Whether any request is under way."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        call: AgentRequest | None = None,
        outlet: Outlet | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        tasks: bool = False,
    ) -> Raw:
        """One request and its answer. Of a caller that can be asked, `begin` and `follow` are the same in two steps. `headers`
        go along over HTTP; `tasks`: the answer may be a task."""
        ...

    async def begin(
        self,
        method: str,
        params: Mapping[str, Any],
        call: AgentRequest,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        tasks: bool = False,
    ) -> UpstreamCall:
        """A request that goes on while nobody follows it, until it is given up."""
        ...

    async def follow(self, running: UpstreamCall, outlet: Outlet) -> Raw: ...

    async def give_up(self, running: UpstreamCall) -> None:
        """Nobody wants the answer any more. Takes a second at most, and cannot be cancelled."""
        ...

    async def own_resources(self, asked: AgentRequest) -> Sequence[Resource]:
        """List what there is for this caller, where something may be there for nobody else. Raises `BackendError`, `UpstreamRefusal`."""
        ...

    async def follow_resource(self, uri: str) -> None:
        """Be told when it changes."""
        ...
