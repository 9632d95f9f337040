"""The connection with one upstream, whatever the wire: what it can be asked to do, and who is told what it says unasked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
import trio
from msgspec import Raw

from server.client.mcp_session.agreement import Agreement
from server.client.mcp_session.session_request import SessionRequest
from server.client.mcp_session.upstream_calls import UpstreamCall
from server.mcp.call_outlet import Outlet

if TYPE_CHECKING:
    from server.mcp.messages import Resource

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class UpstreamTells(msgspec.Struct, frozen=True):
    """The hearers of what belongs to no request. Neither waits."""

    lists: Callable[[], None]  # some list changed
    resource: Callable[[str], None]  # what this URI holds


UNHEARD: Final = UpstreamTells(lists=lambda: None, resource=lambda uri: None)


class Link(Protocol):
    """Made, and what is agreed on; until it has `ended`. Requests raise `UpstreamRefusal` for an error that the upstream
    answers with, `BackendError` where no answer came, and whatever comes out of the outlet."""

    @property
    def agreement(self) -> Agreement: ...

    @property
    def ended(self) -> trio.Event:
        """The event that there will be no more answers; why is `reason`."""
        ...

    @property
    def reason(self) -> str:
        """Continues a sentence about the upstream; `more` is for its owner."""
        ...

    @property
    def more(self) -> str: ...

    @property
    def busy(self) -> bool:
        """True if any request is under way."""
        ...

    async def agree(self, era: str) -> None:
        """Settle the era. Raises `BackendError`, and `UpstreamRefusal`."""
        ...

    async def end(self) -> None:
        """End what was begun there, without making anybody wait for it."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        call: SessionRequest | None = None,
        outlet: Outlet | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        tasks: bool = False,
    ) -> Raw:
        """Make one request and return its answer. For a caller that can be asked, `begin` and `follow` are the two steps of it. `headers`
        go along over HTTP; `tasks`: the answer may be a task."""
        ...

    async def begin(
        self,
        method: str,
        params: Mapping[str, Any],
        call: SessionRequest,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        tasks: bool = False,
    ) -> UpstreamCall:
        """Begin a request that goes on while nobody follows it, until it is given up."""
        ...

    async def follow(self, running: UpstreamCall, outlet: Outlet) -> Raw: ...

    async def give_up(self, running: UpstreamCall) -> None:
        """Give up a request whose answer nobody wants. This takes a second at most, and cannot be cancelled."""
        ...

    async def own_resources(self, asked: SessionRequest, read: ReadResources) -> Sequence[Resource]:
        """List what there is for this caller, where something may be there for nobody else. Raises what `read` raises."""
        ...

    async def follow_resource(self, uri: str) -> None:
        """Ask to be told when a resource changes."""
        ...


# Reads the resources that are there for whoever makes this request.
ReadResources: TypeAlias = Callable[[Link, SessionRequest], Awaitable[Sequence["Resource"]]]
