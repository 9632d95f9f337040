"""Where the desk of upstreams is, and what is owed to the books for them: from the first settings on that have an upstream. Until then
nothing of it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import kind_of

if TYPE_CHECKING:
    from server.agents.mcp.trust.upstream_registry import UpstreamRegistry
    from server.store.write_retry import WriteRetry


class UpstreamRegistryPlace:
    def __init__(
        self, make: Callable[[], UpstreamRegistry], purchases: Callable[[], WriteRetry] | None = None
    ) -> None:
        """`make`: open it, and have it do its work for as long as the server runs; `purchases`: the same of those that could not be
        booked. None: no books are kept."""
        self.desk: UpstreamRegistry | None = None
        self.purchases = purchases
        self._make = make

    async def start(self, servers: Iterable[ServerConfig]) -> None:
        """Before the agents of these are made. Raises what the store raises."""
        servers = tuple(servers)
        if any(has_upstream(server) for server in servers):
            from server.agents.mcp.trust.upstream_opening import sources_of

            desk = self.desk = self._make()
            await desk.prepare(dict(sources_of(servers)))

    async def begin_change(self, servers: Iterable[ServerConfig]) -> None:
        """Before the agents of these are made beside those that serve; then `take` or `dismiss`. Raises `ValueError` and what the store raises."""
        servers = tuple(servers)
        if self.desk is None and any(has_upstream(server) for server in servers):
            self.desk = self._make()
        if self.desk is not None:
            from server.agents.mcp.trust.upstream_opening import sources_of

            await self.desk.begin_change(sources_of(servers))

    def take(self, backends: Collection[object]) -> None:
        """These serve from now on."""
        if self.desk is not None:
            self.desk.take(backends)

    def dismiss(self) -> None:
        if self.desk is not None:
            self.desk.dismiss()


def has_upstream(server: ServerConfig) -> bool:
    return any(kind_of(agent) == "mcp" for agent in server.agents)
