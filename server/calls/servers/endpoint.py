"""One configured server while it runs: what it offers, who may use it, and who hears of its changes.

No wire makes a difference here. How it is opened is server_opening.py's; how a request uses it, server/calls's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from server.agents.base.catalog import Catalog, CatalogError, ToolEntry
from server.calls.rights.standing import Rights
from server.calls.rights.step_ups import StepUps
from server.calls.servers.me_resource import Me
from server.calls.servers.old_names import OldNames
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.sessions.sessions import Sessions
from server.calls.sessions.subscriptions import Subscriptions, resource_topic, task_topic
from server.calls.tasks.task_engine import Tasks
from server.lib.log.logger import Logger
from server.mcp.cursors import Cursors
from server.mcp.result_encoding import ServerIdentity
from server.mcp.stateless_rounds import Rounds
from server.mcp.task_faces import Face
from server.mcp.tool_names import MEND, refusal, refused_names
from server.mcp.versions import Revision
from server.store.call_records.call_book import CallBook

if TYPE_CHECKING:
    from server.calls.servers.change_news import ChangesElsewhere
    from server.lib.tracing.request_tracing import Tracing
    from server.payments.seller.till import Till
    from server.store.idempotency.abandoned_answers import AbandonedCall
    from server.store.idempotency.idempotent_calls import IdempotentCalls
    from server.store.limits.endpoint_gate import ServerLimits

# What a session of the handshake era is told by name; tasks are polled there.
LISTS: Final = ("tools", "prompts", "resources")

Measure: TypeAlias = Callable[[str, str, float], None]  # tool or method, outcome, seconds


def _nothing_adrift() -> dict[bytes, AbandonedCall]:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRules:
    """The rules by which calls become tasks at one server."""

    engine: Tasks
    # Bring questions to those who do not fetch them; nobody waits for them when the server stops.
    couriers: BackgroundTasks
    ttl_ms: int  # unless the caller asks for less
    wasmagent: bool = False  # the handshake era has them in the dialect of `compat.tasks`
    sync_timeout_seconds: float = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """`measure` is told of every use of what its agents offer. `sessions` None: requests of the handshake era are each
    answered by themselves. `tasks` None: nothing becomes a task."""

    name: str  # in the configuration
    identity: ServerIdentity
    catalog: Catalog
    rights: Rights
    subscriptions: Subscriptions
    sessions: Sessions | None
    tasks: TaskRules | None
    rounds: Rounds
    cursors: Cursors
    page_size: int
    measure: Measure
    log: Logger = field(repr=False)
    old_names: OldNames = field(default_factory=OldNames, repr=False)
    step_ups: StepUps = field(default_factory=StepUps, repr=False)
    till: Till | None = None  # where something costs money
    x402_extension: bool = False  # and clients that know `org.x402/payment` are asked to pay by that
    calls: CallBook | None = None  # where each call is written down, where that is done
    me: Me | None = None  # what callers with a login or a key are told of themselves, where there are any
    # By what makes them the same call: those that run on without their client (server/calls/abandoned_calls.py).
    adrift: dict[bytes, AbandonedCall] = field(default_factory=_nothing_adrift, repr=False)
    # Of calls that are made once although they cost nothing; it is made when the first comes.
    keeper: Callable[[], IdempotentCalls] | None = None
    limits: ServerLimits | None = None  # what bounds its callers; None: nothing does
    # Wrong arguments are a protocol error, as they were before 2025-11-25, instead of a result to learn from.
    refuses_invalid: bool = False
    pretends: Revision | None = None  # the newest that it says it knows, if that is an older one
    tracing: Tracing | None = None  # where some of its requests are traced
    elsewhere: ChangesElsewhere | None = None  # where other nodes have the same server
    names_callers: bool = False  # in the line of every call, and not only of those that failed
    # Tools that are free although their authors say what they cost, because the settings have no [payments].
    unheard_prices: tuple[str, ...] = ()

    def without_sessions(self) -> Endpoint:
        return replace(self, sessions=None)

    # ── what there is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def has_resources(self) -> bool:
        """True if there is anything that could be read."""
        return self.me is not None or "resources" in self.catalog.features

    @property
    def lists(self) -> Sequence[str]:
        """The lists that somebody could be told of."""
        there = {"prompts": "prompts" in self.catalog.features, "resources": self.has_resources}
        return [kind for kind in LISTS if there.get(kind, True)]

    def task_face(self, revision: Revision) -> Face | None:
        """Return what tasks look like in this revision; None where there are none."""
        if self.tasks is None:
            return None
        if self.tasks.wasmagent and not revision.modern:
            return Face.WASMAGENT
        if not self.catalog.has_tasks:
            return None
        if revision.modern:
            return Face.EXTENSION
        return Face.CORE if revision.tasks else None

    def tool_called(self, name: str) -> ToolEntry | None:
        """Return the tool that is called so here, or was, or is by pages of its own server."""
        tools = self.catalog.tools
        return (
            tools.get(name)
            or tools.get(self.old_names.now(name, tools) or "")
            or self.catalog.called_by_page(name)
        )

    @property
    def refused_names(self) -> Sequence[str]:
        """Names of its tools that hosts refuse."""
        return refused_names(self.catalog.tools)

    # ── what changes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def lists_changed(self) -> None:
        """Ask the back-ends again, and tell those who listen what changed. A change that cannot be offered changes nothing."""
        before = self.refused_names
        try:
            changed = self.catalog.refresh()
        except CatalogError as error:
            self.log.warning("agent.not_refreshed", server=self.name, reason=str(error)[:2000])
            return
        self.identity.refresh()
        self.warn_of_left_out()
        self.warn_of_names(before)
        self._tell(changed)

    def take(self, identity: ServerIdentity, catalog: Catalog, rights: Rights) -> None:
        """Offer this from now on, say this of itself, and let these use it; who listens is told. Nothing happens in between.

        A copy that `without_sessions` made shares all three."""
        before = self.refused_names
        self.identity.take(identity)
        self.rights.take(rights)
        changed = self.catalog.take(catalog)
        self.warn_of_names(before)
        self._tell(changed)

    def warn_of_left_out(self) -> None:
        """Say in the log what agents offer and cannot be offered here."""
        if left_out := self.catalog.left_out:
            self.log.warning(
                "agent.left_out",
                server=self.name,
                count=len(left_out),
                reasons=[each[:300] for each in left_out[:5]],
            )

    def warn_of_names(self, known: Sequence[str] = ()) -> None:
        """Say in the log which tools are offered under names that hosts refuse, but for those that are `known`."""
        refused = [name for name in self.refused_names if name not in known]
        if refused:
            self.log.warning("tools.refused_by_hosts", server=self.name, reason=refusal(refused), hint=MEND)

    def _tell(self, changed: frozenset[str]) -> None:
        for kind in LISTS:
            if kind in changed:
                self.tell_list(kind)
                if self.elsewhere is not None:
                    self.elsewhere.list_changed(kind)

    def resource_changed(self, uri: str) -> None:
        self.tell_resource(uri)
        if self.elsewhere is not None:
            self.elsewhere.resource_changed(uri)

    def tell_list(self, kind: str) -> None:
        """Tell whoever listens at this node."""
        self.subscriptions.publish(kind)
        if self.sessions is not None:
            self.sessions.publish(kind)

    def tell_resource(self, uri: str, apart: str = "") -> None:
        """Tell whoever listens at this node; with `apart`, the one caller who is named so (`Request.apart`)."""
        self.subscriptions.publish(resource_topic(uri), apart)
        if self.sessions is not None:
            self.sessions.updated(uri, apart)

    def tell_all(self) -> None:
        """Tell that something may have changed, where nobody knows what."""
        for kind in self.lists:
            self.tell_list(kind)
        for uri in {
            *self.subscriptions.resources(),
            *(() if self.sessions is None else self.sessions.watched()),
        }:
            self.tell_resource(uri)

    def task_changed(self, task_id: str) -> None:
        self.subscriptions.publish(task_topic(task_id))

    async def aclose(self) -> None:
        await self.catalog.aclose()
