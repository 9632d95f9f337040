"""The offer of an upstream, and the guard that has a say in whether it is offered on.

Lists are as the upstream names things, before names of ours. A guard sees each new version of them before anybody else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from server.agents.base.backend import Feature
from server.agents.mcp.asked_prices import AskedPrice
from server.mcp.messages import Implementation, Prompt, Resource, ResourceTemplate, Tool, ToolExecution

# A tool whose call begins as a call here, and becomes a task when it turns out to be one there.
BY_HAND: Final = ToolExecution(task_support="optional", by_hand=True)


class ToolPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it was read. `said`: what goes with its content, for the eyes of whoever accepts it."""

    uri: str
    digest: str
    size: int
    said: Mapping[str, Any]


class UpstreamLists(msgspec.Struct, frozen=True, kw_only=True):
    tools: Sequence[Tool] = ()
    resources: Sequence[Resource] = ()
    resource_templates: Sequence[ResourceTemplate] = ()
    prompts: Sequence[Prompt] = ()
    tasks: Mapping[str, str] = MappingProxyType(
        {}
    )  # its tools whose calls can be tasks: "optional" or "required"
    # Likewise in sessions, where it speaks the handshake era besides the one of these lists.
    session_tasks: Mapping[str, str] = MappingProxyType({})
    modern: bool = False  # the lists were read in the stateless era
    features: frozenset[Feature] = frozenset()  # as it declares them
    instructions: str = ""  # how it is meant to be used
    introduction: Implementation | None = None  # who it says that it is
    prices: Mapping[str, AskedPrice] = MappingProxyType({})  # of its tools, where it says them
    pages: Mapping[str, ToolPage] = MappingProxyType({})  # those of the resources, where they are pinned
    left_out: Sequence[str] = ()  # what it has and cannot be offered, and why


class OfferGuard(Protocol):
    """The judge of all that an upstream offers."""

    @property
    def pins_pages(self) -> bool:
        """True if it has to know the content of pages."""
        ...

    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        """Return what of `offered` may be offered on, without waiting. The keeper calls it whenever the lists were read."""
        ...

    def watch(self, again: Callable[[], None]) -> None:
        """Remember `again`, which is to be called when it would allow something else of the same."""
        ...

    def withheld(self, is_meant: Callable[[str], bool]) -> str | None:
        """Tell a caller why a tool of the last offer is not allowed; `is_meant` is told its name there."""
        ...

    def resources_allowed(self, resources: Sequence[Resource]) -> Sequence[Resource]:
        """Return what one caller may be told of the resources that there are for them."""
        ...

    def page_refused(self, page: ToolPage) -> str | None:
        """Tell a caller why a page that was read is not handed on; None: it is."""
        ...


class OpenGuard:
    """The guard that lets everything through."""

    pins_pages = False

    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        return offered

    def watch(self, again: Callable[[], None]) -> None:
        """Do nothing: it never changes its mind."""

    def withheld(self, is_meant: Callable[[str], bool]) -> str | None:
        return None

    def resources_allowed(self, resources: Sequence[Resource]) -> Sequence[Resource]:
        return resources

    def page_refused(self, page: ToolPage) -> str | None:
        return None
