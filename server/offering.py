"""One configured server while it runs: what it offers, who may use it, and who hears of its changes.

The same whatever wire a request comes by: HTTP and stdio lend these parts to each of their requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from server import __version__, agents
from server.agents import Subkey
from server.backends.base import Active, Announce, BackendError
from server.backends.catalog import Catalog, CatalogError
from server.calls import Calls, Measure
from server.library import Library, Me
from server.mcp.messages import Icon, Implementation
from server.mcp.results import Server
from server.selection import Selections, unknown
from server.sessions import Sessions
from server.settings.shapes import ServerConfig
from server.standing import selecting
from server.subscriptions import Subscriptions, resource_topic, task_topic
from server.tiers import Rules

# What a session of the handshake era is told by name; tasks are polled there.
LISTS: Final = ("tools", "prompts", "resources")


@dataclass(kw_only=True, slots=True)
class Offering:
    settings: ServerConfig
    server: Server
    catalog: Catalog
    calls: Calls
    library: Library
    subscriptions: Subscriptions
    sessions: Sessions
    log: FilteringBoundLogger = field(repr=False)

    def lists_changed(self) -> None:
        """Ask the back-ends again, and tell those who listen what changed. A change that cannot be offered changes nothing."""
        try:
            changed = self.catalog.refresh()
        except CatalogError as error:
            self.log.warning("agent.not_refreshed", server=self.settings.name, reason=str(error)[:2000])
            return
        for kind in LISTS:
            if kind in changed:
                self.subscriptions.publish(kind)
                self.sessions.publish(kind)

    def resource_changed(self, uri: str) -> None:
        self.subscriptions.publish(resource_topic(uri))
        self.sessions.updated(uri)

    def task_changed(self, task_id: str) -> None:
        self.subscriptions.publish(task_topic(task_id))

    async def aclose(self) -> None:
        await self.catalog.aclose()


async def open_offering(
    settings: ServerConfig,
    subkey: Subkey,
    *,
    log: FilteringBoundLogger,
    measure: Measure,
    nursery: trio.Nursery,
    me: Me | None = None,
) -> Offering:
    """Back-ends with work of their own do it in `nursery`, as long as the server runs. Raises `CatalogError`, `BackendError`,
    `SecretUnreadable` and `ValueError` for agents that cannot be used."""
    sources = agents.make_sources(settings, subkey, log)
    made: list[Offering] = []  # changes that come before it is made are in its first catalogue anyway

    def tell(what: Callable[[Offering], None]) -> None:
        for offering in made:
            what(offering)

    announce = Announce(
        lists=lambda: tell(Offering.lists_changed),
        resource=lambda uri: tell(lambda offering: offering.resource_changed(uri)),
    )
    for source in sources:
        if isinstance(source.backend, Active):
            try:
                await nursery.start(partial(source.backend.run, announce))
            except BackendError as error:
                raise BackendError(f"{source.name}: {error}") from error
    catalog = Catalog(
        sources,
        Rules(tools=settings.tools, financial=settings.financial, unclassified=settings.unclassified),
    )
    check_words(settings, catalog.named)
    policy = selecting(Selections(default=settings.default_tools, groups=settings.groups))
    offering = Offering(
        settings=settings,
        server=Server(_implementation(settings), instructions=settings.instructions or None),
        catalog=catalog,
        calls=Calls(
            catalog,
            log=log,
            measure=measure,
            policy=policy,
            refuses_invalid=settings.compat.invalid_arguments is not None,
        ),
        library=Library(catalog, log=log, measure=measure, policy=policy, me=me),
        subscriptions=Subscriptions(),
        sessions=Sessions(),
        log=log,
    )
    made.append(offering)
    return offering


def check_words(settings: ServerConfig, tools: Collection[str]) -> None:
    """Raises `CatalogError` for selections that name what there is not: a word that was misspelt would select otherwise."""
    written = {"default_tools": settings.default_tools}
    written |= {f"tokens: {token.name}": token.tools for token in settings.tokens}
    problems = [
        f"{settings.name}: {key} selects {word}, which is no tool or group"
        for key, text in written.items()
        for word in unknown(text, groups=settings.groups.keys(), tools=tools)
    ]
    if problems:
        raise CatalogError(problems)


def _implementation(settings: ServerConfig) -> Implementation:
    unset = msgspec.UNSET
    return Implementation(
        name="ostiary",
        version=__version__,
        title=settings.title or unset,
        description=settings.description or unset,
        website_url=settings.website or unset,
        icons=[
            Icon(
                src=icon.src,
                mime_type=icon.mime_type or unset,
                sizes=icon.sizes or unset,
                theme=icon.theme or unset,
            )
            for icon in settings.icons
        ]
        or unset,
    )
