"""The offer of an upstream, and the guard that has a say in whether it is offered on.

Lists are as the upstream names things, before names of ours. A guard sees each new version of them before anybody else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec

from server.agents.base.backend import Feature
from server.agents.mcp.asked_prices import AskedPrice
from server.mcp.messages import Implementation, Prompt, Resource, ResourceTemplate, Tool


class UpstreamLists(msgspec.Struct, frozen=True, kw_only=True):
    tools: Sequence[Tool] = ()
    resources: Sequence[Resource] = ()
    resource_templates: Sequence[ResourceTemplate] = ()
    prompts: Sequence[Prompt] = ()
    tasks: Mapping[str, str] = MappingProxyType(
        {}
    )  # its tools whose calls can be tasks: "optional" or "required"
    features: frozenset[Feature] = frozenset()  # as it declares them
    instructions: str = ""  # how it is meant to be used
    introduction: Implementation | None = None  # who it says that it is
    prices: Mapping[str, AskedPrice] = MappingProxyType({})  # of its tools, where it says them
    left_out: Sequence[str] = ()  # what it has and cannot be offered, and why


class OfferGuard(Protocol):
    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        """Return what of `offered` may be offered on, without waiting. The keeper calls it whenever the lists were read."""
        ...

    def watch(self, again: Callable[[], None]) -> None:
        """Remember `again`, which is to be called when it would allow something else of the same."""
        ...

    def withheld(self, is_meant: Callable[[str], bool]) -> str | None:
        """Tell a caller why a tool of the last offer is not allowed; `is_meant` is told its name there."""
        ...


class OpenGuard:
    """Lets everything through."""

    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        return offered

    def watch(self, again: Callable[[], None]) -> None:
        """Do nothing: it never changes its mind."""

    def withheld(self, is_meant: Callable[[str], bool]) -> str | None:
        return None
