"""The configured servers, opened: their agents running, and one engine for the tasks of all.

Identity, pages and metrics, which only HTTP needs, are run/services.py's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import trio

from auth.values.identity_model import Millis
from server import __version__
from server.agents.base.backend import Announce, Foreign, Instructing, TellsServerInfo, TellsStartupError
from server.agents.base.catalog import Catalog, CatalogError, Source, ToolPrices
from server.calls.rights.standing import Rights, rights_of
from server.calls.rights.tiers import ServerRules
from server.calls.rights.visitors import visitor_tools
from server.calls.servers.agent_factory import MakeForbiddenPaths, Subkey, make_source, make_stand_ins
from server.calls.servers.agent_lineup import Lineup, RunningAgents
from server.calls.servers.cannot_start import CannotStart
from server.calls.servers.endpoint import Endpoint, Measure, TaskRules
from server.calls.servers.me_resource import Me
from server.calls.servers.old_names import OldNames
from server.calls.servers.policy_opening import PolicyMaker
from server.calls.servers.upstream_registry_place import UpstreamRegistryPlace
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.sessions.ended_sessions import EndedSessions
from server.calls.sessions.session_ids import SessionIds
from server.calls.sessions.sessions import MAX_OVERALL as MOST_SESSIONS
from server.calls.sessions.sessions import MAX_PER_CALLER as SESSIONS_PER_CALLER
from server.calls.sessions.sessions import Sessions
from server.calls.sessions.subscriptions import MAX_OVERALL as MOST_SUBSCRIPTIONS
from server.calls.sessions.subscriptions import Subscriptions
from server.calls.tasks.task_engine import Tasks
from server.calls.tasks.task_logins import Allowed, everybody
from server.calls.tasks.task_order import TaskOrder
from server.lib.log.logger import Logger, is_for_people
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.cursors import Cursors
from server.mcp.loads import Loads
from server.mcp.messages import Icon, Implementation
from server.mcp.result_encoding import ServerIdentity
from server.mcp.stateless_rounds import Rounds
from server.mcp.task_faces import Ending
from server.mcp.terms import PRICE_META
from server.mcp.tool_names import not_offered
from server.mcp.versions import REVISIONS
from server.settings.money_settings import PAYMENTS, PaymentsConfig
from server.settings.private_paths import KeptPaths
from server.settings.rule_settings import programs_of
from server.settings.setting_shapes import ServerConfig
from server.settings.tool_selection import Selections, unknown
from server.store.call_records.call_book import CallBook
from server.store.jobs import Store
from server.store.keyfile import MasterKey

if TYPE_CHECKING:
    from server.agents.chat.shared_memory import SharedMemory
    from server.agents.mcp.remote_suspended import RemoteSuspended
    from server.agents.mcp.trust.own_tokens import TokenIssuer
    from server.agents.mcp.trust.person_connections import PersonConnections
    from server.agents.mcp.trust.upstream_registry import UpstreamRegistry
    from server.calls.servers.change_news import ChangesElsewhere
    from server.calls.sessions.shared_sessions import SharedSessions
    from server.lib.landlock import ForbiddenPaths
    from server.lib.tracing.request_tracing import Tracing
    from server.payments.seller.till import Till
    from server.store.idempotency.idempotent_calls import IdempotentCalls
    from server.store.limits.endpoint_gate import ServerLimits
    from server.store.node_messages.node_messages import NodeMessages
    from server.store.write_retry import WriteRetry

# Subkeys carry an id, so that one purpose can be given a new key one day while the old one still reads.
SUBKEY_ID: Final = 1

# Agents that have one thing in common usually have many: the first few are enough to see what it is.
MOST_DETAILS: Final = 5
HINT: Final = (
    "put it right in the agent, or where it is said: in its [[server.agent]], another setting or a flag"
)
INSTALL: Final = (
    "install it there, as with pip, or into a .venv beside the file; where the settings have its [[server.agent]],"
    ' python = "…" names another interpreter'
)

_HOUR_MILLIS: Final = 3_600_000

# Carries out what was ordered as a task, at one of these servers.
CarryOut: TypeAlias = Callable[[Mapping[str, Endpoint], TaskOrder, Outlet], Awaitable[Ending]]
LetGoOf: TypeAlias = Callable[[Mapping[str, Endpoint], TaskOrder], Awaitable[None]]


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    """The offer of one server under these settings, and to whom it is made."""

    settings: ServerConfig
    lineup: Lineup
    identity: ServerIdentity
    catalog: Catalog
    rights: Rights


class OpenServers(msgspec.Struct, frozen=True, kw_only=True):
    """Every configured server by its name, and what they share. The caller of `open_servers` runs `tasks`."""

    endpoints: Mapping[str, Endpoint]
    sessions: Mapping[str, Sessions]
    settings: dict[str, ServerConfig]  # as they are served now
    agents: Mapping[str, RunningAgents]
    prices: Callable[[ServerConfig], ToolPrices | None]
    policies: PolicyMaker
    log: Logger
    tasks: Tasks
    boot_id: str
    trust: UpstreamRegistryPlace
    limits: Callable[[ServerConfig], ServerLimits | None]
    kept_paths: KeptPaths

    async def prepare(
        self, changed: Iterable[ServerConfig], renewed: Callable[[msgspec.Struct], bool]
    ) -> Sequence[Offering]:
        """Return what these servers would offer with other settings, running already beside what they offer now. Raises what
        `open_offering` raises, and then nothing has happened."""
        changed = tuple(changed)
        offerings: list[Offering] = []
        try:
            await self.trust.begin_change(changed)
            for settings in changed:
                agents = self.agents[settings.name]
                offerings.append(
                    await open_offering(
                        settings,
                        agents,
                        self.prices(settings),
                        self.log,
                        renewed,
                        endpoint=partial(self.endpoints.__getitem__, settings.name),
                        policies=self.policies,
                        before=self.endpoints[settings.name].catalog,
                    )
                )
                _refuse_absent(offerings[-1].lineup)
        except BaseException:
            with trio.CancelScope(shield=True):
                for offering in offerings:
                    await self.agents[offering.settings.name].dismiss(offering.lineup)
            self.trust.dismiss()
            raise
        return offerings

    def take(self, offerings: Iterable[Offering]) -> None:
        """Take all of it at once: nobody sees one server of the new settings and another of the old ones."""
        for offering in offerings:
            name = offering.settings.name
            self.settings[name] = offering.settings
            self.agents[name].take(offering.lineup)
            self.endpoints[name].take(offering.identity, offering.catalog, offering.rights)
            self.endpoints[name].old_names.take(
                offering.settings.old_names, offering.settings.old_names_until
            )
            _take_bounds(self.endpoints[name].limits, self.limits(offering.settings))
        self.trust.take([source.backend for agents in self.agents.values() for source in agents.sources])

    def begin_draining(self) -> None:
        """Tell whoever waits for something that cannot come any more."""
        self.tasks.begin_draining()
        for sessions in self.sessions.values():
            sessions.begin_draining()

    def cut_off(self) -> None:
        """End what still runs in sessions once the drain is over, and tell each caller so. Calls without a session are the connections'."""
        for sessions in self.sessions.values():
            sessions.cut_off()


def now_millis() -> Millis:
    return time.time_ns() // 1_000_000


def subkeys(key: MasterKey) -> Subkey:
    @cache
    def subkey(purpose: str) -> bytes:
        return key.subkey(f"{purpose}/{SUBKEY_ID}")

    return subkey


async def open_servers(
    servers: Iterable[ServerConfig],
    store: Store,
    subkey: Subkey,
    *,
    carry_out: CarryOut,
    let_go_of: LetGoOf,
    log: Logger,
    measure: Callable[[str], Measure],
    background: trio.Nursery,
    data_dir: Path,
    kept_paths: KeptPaths | None = None,
    allowed: Allowed = everybody,
    me: Callable[[ServerConfig], Me | None] = lambda _: None,
    payments: PaymentsConfig | None = None,
    till: Callable[[ServerConfig], Till | None] = lambda _: None,
    limits: Callable[[ServerConfig], ServerLimits | None] = lambda _: None,
    loads: Loads | None = None,
    issuer: Callable[[], TokenIssuer] | None = None,
    connections: PersonConnections | None = None,
    calls: CallBook | None = None,
    tracing: Tracing | None = None,
    clients: int = 0,
    boot_id: str = "",
    letters: NodeMessages | None = None,
) -> OpenServers:
    """Open all servers. Agents with work of their own do it in `background`, for as long as the server runs. `measure` is for the server of
    that name; `kept_paths` are what programs may not open, and may grow; `allowed` says whose tasks may go on; `me` tells callers of themselves, at that server; `issuer` makes tokens of ours
    for upstreams, and is None where nothing is kept beyond this process; `connections` are of people who have accounts there; `clients`:
    how many may be connected at once, where more are than usual; `boot_id` is this process among others, to
    which `letters` go. Raises `CannotStart`."""
    servers = tuple(servers)
    kept_out = None if kept_paths is None else kept_out_of(kept_paths)
    endpoints: dict[str, Endpoint] = {}
    sessions: dict[str, Sessions] = {}
    settings: dict[str, ServerConfig] = {}
    agents: dict[str, RunningAgents] = {}
    boot_id = boot_id or secrets.token_hex(8)
    tasks = Tasks(
        store,
        perform=partial(carry_out, endpoints),
        let_go=partial(let_go_of, endpoints),
        clock=now_millis,
        entropy=secrets.token_bytes,
        key=subkey("tasks"),
        boot_id=boot_id,
        log=log,
        announce=partial(_announce_task, endpoints),
        allowed=allowed,
        loads=loads,
        letters=letters,
    )
    sessions_each = max(MOST_SESSIONS, clients)
    ended = EndedSessions(store, most=2 * sessions_each * len(servers))
    await ended.load()
    ended.listen(partial(_session_ended, endpoints))
    shared = None
    parked = None
    conversations = None
    if letters is not None:
        shared = _shared(letters, ended, endpoints, store, subkey, len(servers), log)
        background.start_soon(shared.run)
        parked = cache(partial(_parked, letters, background, log))
        conversations = cache(partial(_open_conversations, store, subkey, log))
    node = "" if letters is None else boot_id
    trust = _desk_place(store, subkey, log, issuer, connections, background, node)
    await trust.start(servers)
    keeper = cache(partial(_open_keeper, store, subkey, boot_id, log, background))
    policies = PolicyMaker(store, subkey, log, clock=now_millis, audits=issuer is not None)
    try:
        for server in servers:
            settings[server.name] = server
            ids = SessionIds(subkey("sessions"), server.name, clock=now_millis, entropy=secrets.token_bytes)
            sessions[server.name] = Sessions(ids, ended, overall=sessions_each, shared=shared)
            endpoints[server.name], agents[server.name] = await open_endpoint(
                server,
                subkey,
                tasks,
                sessions[server.name],
                log=log,
                measure=measure(server.name),
                nursery=background,
                data_dir=data_dir,
                kept_out=kept_out,
                me=me(server),
                payments=payments,
                till=till(server),
                limits=limits(server),
                trust=trust,
                calls=calls,
                keeper=keeper,
                policies=policies,
                tracing=tracing,
                clients=clients,
                letters=letters,
                parked=parked,
                conversations=conversations,
            )
    except CatalogError as error:
        raise _cannot_offer(error.problems) from error
    except (ValueError, BackendError) as error:
        raise CannotStart(str(error), _hint_for(str(error))) from error
    return OpenServers(
        endpoints=endpoints,
        sessions=sessions,
        settings=settings,
        agents=agents,
        prices=lambda server: prices_of(server, payments),
        policies=policies,
        log=log,
        tasks=tasks,
        boot_id=boot_id,
        trust=trust,
        limits=limits,
        kept_paths=KeptPaths() if kept_paths is None else kept_paths,
    )


def _session_ended(endpoints: Mapping[str, Endpoint], apart: str) -> None:
    for endpoint in endpoints.values():
        endpoint.catalog.session_ended(apart)


def kept_out_of(paths: KeptPaths) -> MakeForbiddenPaths:
    """Return how what programs may not open or change is made, once, when the first is to be started."""

    @cache
    def make() -> ForbiddenPaths:
        from server.lib.landlock import ForbiddenPaths

        return ForbiddenPaths(paths.closed, paths.read_only)

    return make


def _shared(
    letters: NodeMessages,
    ended: EndedSessions,
    endpoints: Mapping[str, Endpoint],
    store: Store,
    subkey: Subkey,
    servers: int,
    log: Logger,
) -> SharedSessions:
    from server.calls.servers.change_news import hear_changes
    from server.calls.sessions.shared_sessions import SharedSessions

    hear_changes(letters, endpoints)
    return SharedSessions(
        letters,
        ended,
        store,
        key=subkey("shared-sessions"),
        per_caller=servers * SESSIONS_PER_CALLER,
        clock=now_millis,
        entropy=secrets.token_bytes,
        log=log,
    )


def _parked(letters: NodeMessages, background: trio.Nursery, log: Logger) -> RemoteSuspended:
    from server.agents.mcp.remote_suspended import RemoteSuspended

    parked = RemoteSuspended(letters, log)
    background.start_soon(parked.run)
    return parked


def _open_conversations(store: Store, subkey: Subkey, log: Logger) -> SharedMemory:
    from server.agents.chat.shared_memory import SharedMemory
    from server.store.idempotency.sealed_answers import AnswerVault

    vault = AnswerVault(subkey("conversations"), secrets.token_bytes)
    return SharedMemory(store, vault, key=subkey("conversation-names"), clock=now_millis, log=log)


def _elsewhere(letters: NodeMessages, server: str) -> ChangesElsewhere:
    from server.calls.servers.change_news import ChangesElsewhere

    return ChangesElsewhere(letters, server)


def _open_keeper(
    store: Store, subkey: Subkey, boot_id: str, log: Logger, background: trio.Nursery
) -> IdempotentCalls:
    from server.store.idempotency.idempotent_calls import IdempotentCalls
    from server.store.idempotency.sealed_answers import AnswerVault

    keeper = IdempotentCalls(
        store=store,
        vault=AnswerVault(subkey("kept-answers"), secrets.token_bytes),
        key=subkey("kept-calls"),
        clock=now_millis,
        entropy=secrets.token_bytes,
        boot_id=boot_id,
        log=log,
    )
    background.start_soon(keeper.run)
    return keeper


def _desk_place(
    store: Store,
    subkey: Subkey,
    log: Logger,
    issuer: Callable[[], TokenIssuer] | None,
    connections: PersonConnections | None,
    background: trio.Nursery,
    node: str,
) -> UpstreamRegistryPlace:
    def make() -> UpstreamRegistry:
        from server.agents.mcp.trust.upstream_opening import open_desk

        desk = open_desk(store, subkey, log, issuer, clock=now_millis, connections=connections, node=node)
        background.start_soon(desk.run)
        return desk

    def purchases() -> WriteRetry:
        from server.payments.seller.purchases import NOT_BOOKED
        from server.store.write_retry import WriteRetry

        arrears = WriteRetry(store, log, NOT_BOOKED)
        background.start_soon(arrears.run)
        return arrears

    # Over stdio nothing is kept, and there are no books.
    return UpstreamRegistryPlace(make, None if issuer is None else cache(purchases))


def _take_bounds(served: ServerLimits | None, newer: ServerLimits | None) -> None:
    """Take the bounds of tools. Who comes in how often is counted on as it was."""
    if served is None or newer is None:
        return
    if served.bounds is not None and newer.bounds is not None:
        newer.bounds.succeed(served.bounds)
    served.bounds = newer.bounds


def _refuse_absent(lineup: Lineup) -> None:
    """Refuse a new agent that should be there and is not: what serves now is better. Raises `BackendError`."""
    for agent in lineup.fresh:
        backend = agent.source.backend
        if isinstance(backend, TellsStartupError) and (why := backend.absent()) is not None:
            raise BackendError(f"{agent.source.name}: {why}")


async def open_endpoint(
    settings: ServerConfig,
    subkey: Subkey,
    tasks: Tasks,
    sessions: Sessions,
    *,
    log: Logger,
    measure: Measure,
    nursery: trio.Nursery,
    data_dir: Path,
    kept_out: MakeForbiddenPaths | None = None,
    me: Me | None = None,
    payments: PaymentsConfig | None = None,
    till: Till | None = None,
    limits: ServerLimits | None = None,
    trust: UpstreamRegistryPlace | None = None,
    calls: CallBook | None = None,
    keeper: Callable[[], IdempotentCalls] | None = None,
    policies: PolicyMaker | None = None,
    tracing: Tracing | None = None,
    clients: int = 0,
    letters: NodeMessages | None = None,
    parked: Callable[[], RemoteSuspended] | None = None,
    conversations: Callable[[], SharedMemory] | None = None,
) -> tuple[Endpoint, RunningAgents]:
    """Open one server. Back-ends with work of their own do it in `nursery`, as long as the server runs. Raises what `open_offering` raises."""
    made: list[Endpoint] = []  # changes that come before it is made are in its first catalogue anyway

    def tell(what: Callable[[Endpoint], None]) -> None:
        for endpoint in made:
            what(endpoint)

    announce = Announce(
        lists=lambda: tell(Endpoint.lists_changed),
        resource=lambda uri: tell(lambda endpoint: endpoint.resource_changed(uri)),
        own_resource=lambda uri, apart: tell(lambda endpoint: endpoint.tell_resource(uri, apart)),
    )
    make = partial(
        make_source,
        settings.name,
        subkey=subkey,
        log=log,
        data_dir=data_dir,
        kept_out=kept_out,
        trust=trust,
        parked=parked,
        conversations=conversations,
    )
    agents = RunningAgents(make, announce, nursery, log)
    offering = await open_offering(
        settings,
        agents,
        prices_of(settings, payments),
        log,
        endpoint=lambda: made[0],
        policies=policies,
    )
    agents.take(offering.lineup)
    catalog = offering.catalog
    in_vain = _with_prices(catalog, offering.lineup.sources) if payments is None else []
    if in_vain:
        # Its author says what it costs, and nobody could pay that: it is free.
        log.warning(
            "price.unheard",
            server=settings.name,
            tools=in_vain[:MOST_DETAILS],
            count=len(in_vain),
            hint=f"write {PAYMENTS} into ostiary.toml",
        )
    compat, couriers = settings.compat, BackgroundTasks(log)
    nursery.start_soon(couriers.run)
    endpoint = Endpoint(
        name=settings.name,
        identity=offering.identity,
        catalog=catalog,
        rights=offering.rights,
        subscriptions=Subscriptions(overall=max(MOST_SUBSCRIPTIONS, clients)),
        sessions=sessions,
        tasks=TaskRules(
            engine=tasks,
            couriers=couriers,
            ttl_ms=int(settings.task_hours * _HOUR_MILLIS),
            wasmagent=compat.tasks == "wasmagent",
            sync_timeout_seconds=compat.sync_timeout_seconds,
        ),
        rounds=Rounds(subkey("rounds"), clock=now_millis, entropy=secrets.token_bytes),
        cursors=Cursors(subkey("cursors"), settings.name),
        page_size=settings.page_size,
        measure=measure,
        log=log,
        tracing=tracing,
        names_callers=is_for_people(log),
        till=till,
        x402_extension=settings.x402_extension and till is not None,
        calls=calls,
        keeper=keeper,
        me=me,
        limits=limits,
        refuses_invalid=compat.invalid_arguments is not None,
        pretends=None if compat.protocol_version is None else REVISIONS[compat.protocol_version],
        unheard_prices=tuple(in_vain),
        elsewhere=None if letters is None else _elsewhere(letters, settings.name),
        old_names=OldNames(settings.old_names, settings.old_names_until),
    )
    made.append(endpoint)
    endpoint.warn_of_left_out()
    endpoint.warn_of_names()
    return endpoint, agents


async def open_offering(
    settings: ServerConfig,
    agents: RunningAgents,
    prices: ToolPrices | None,
    log: Logger,
    renewed: Callable[[msgspec.Struct], bool] = lambda _: False,
    *,
    endpoint: Callable[[], Endpoint],
    policies: PolicyMaker | None = None,
    before: Catalog | None = None,
) -> Offering:
    """Open what a server offers. `endpoint`: who will offer it; `before`: what it offers now. Its agents run when this returns, beside those that ran before. Raises `CatalogError`, `BackendError`, `SecretUnreadable` and
    `ValueError` for agents that cannot be used, and then none is left of those that were started."""
    lineup = await agents.start((*settings.agents, *programs_of(settings.hooks)), renewed)
    try:
        return offering_of(settings, lineup, prices, log, endpoint=endpoint, policies=policies, before=before)
    except ValueError:  # `CatalogError` is one
        with trio.CancelScope(shield=True):
            await agents.dismiss(lineup)
        raise


def offering_of(
    settings: ServerConfig,
    lineup: Lineup,
    prices: ToolPrices | None,
    log: Logger,
    *,
    endpoint: Callable[[], Endpoint],
    policies: PolicyMaker | None,
    before: Catalog | None = None,
) -> Offering:
    """Return what these agents, which run, come to together. Raises `CatalogError` and `ValueError`."""
    offered, hooks = lineup.sources[: len(settings.agents)], lineup.sources[len(settings.agents) :]
    rules = ServerRules(
        tools=settings.tools,
        expose=frozenset(settings.expose),
        financial=settings.financial,
        unclassified=settings.unclassified,
    )
    if stand_ins := make_stand_ins(settings):
        log.warning("tool.mocked", server=settings.name, tools=sorted(stand_ins))
    policy = None if policies is None else policies.make(settings, [hook.backend for hook in hooks])
    sources = (*lineup.sources, *_own_tools(settings, endpoint))
    catalog = Catalog(sources, rules, prices, stand_ins, policy, before)
    if not catalog.awaits_more:
        check_words(settings, catalog.named)
        if policy is not None and (unknown := policy.unknown(catalog.named)):
            raise CatalogError(unknown)
    return Offering(
        settings=settings,
        lineup=lineup,
        identity=ServerIdentity(
            _implementation(settings, offered),
            instructions=settings.instructions or None,
            further=_further(offered),
            introduce=partial(_implementation, settings, offered, others=True),
        ),
        catalog=catalog,
        rights=rights_of(
            Selections(default=settings.default_tools, groups=settings.groups),
            visitor_tools(settings.anonymous_tools),
        ),
    )


def _own_tools(settings: ServerConfig, endpoint: Callable[[], Endpoint]) -> Iterable[Source]:
    """Yield what the server itself offers, last: a name that an agent has is the agent's, and a clash is one of the settings."""
    if settings.getting_started:
        from server.calls.servers.getting_started import guide

        yield guide("" if settings.getting_started is True else settings.getting_started, endpoint)
    if settings.read_resource:
        from server.calls.servers.resource_reader import reader

        yield reader("" if settings.read_resource is True else settings.read_resource, endpoint)
    if settings.discovery == "search":
        from server.calls.servers.tool_search import search

        yield search([name for agent in settings.agents if (name := getattr(agent, "id", ""))], endpoint)


def prices_of(settings: ServerConfig, payments: PaymentsConfig | None) -> ToolPrices | None:
    """Return what tools cost; None where nothing can cost anything: then nothing of the till is loaded."""
    priced = any(tool.price is not None or tool.price_for for tool in settings.tools.values())
    if payments is None and settings.price is None and not priced:
        return None
    from server.payments.seller.tool_prices import Prices

    return Prices(settings, payments)


def _with_prices(catalog: Catalog, sources: Sequence[Source]) -> list[str]:
    """List the tools that are free although their authors say what they cost."""
    return [
        tool.name
        for source in sources
        for tool in source.backend.tools()
        if tool.meta is not msgspec.UNSET
        and PRICE_META in tool.meta
        and (entry := catalog.get(tool.name)) is not None
        and entry.price is None
    ]


def check_words(settings: ServerConfig, tools: Collection[str]) -> None:
    """Refuse selections that name what there is not: a word that was misspelt would select otherwise. Raises `CatalogError`."""
    written = {"default_tools": settings.default_tools}
    written |= {f"tokens: {token.name}": token.tools for token in settings.tokens}
    problems = [
        f"{settings.name}: {key} selects {word}, which is no tool or group"
        for key, text in written.items()
        for word in unknown(text, groups=settings.groups.keys(), tools=tools)
    ]
    problems += [
        f"{settings.name}: expose names {not_offered(name, tools)}"
        for name in settings.expose
        if name not in tools
    ]
    problems += [
        f"{settings.name}: old_names leads to {not_offered(name, tools)}"
        for name in settings.old_names.values()
        if "*" not in name and name not in tools
    ]
    problems += [
        f"{settings.name}: anonymous_tools names {not_offered(name, tools)}"
        for name in settings.anonymous_tools
        if "*" not in name and name not in tools
    ]
    if problems:
        raise CatalogError(problems)


def _further(sources: Sequence[Source]) -> Callable[[], str]:
    """Return the instructions of the one agent that has such. With several, nobody could tell whose tools are meant."""
    found = [source.backend for source in sources if isinstance(source.backend, Instructing)]
    return found[0].instructions if len(found) == 1 else str


def _implementation(
    settings: ServerConfig, sources: Sequence[Source], *, others: bool = False
) -> Implementation:
    """Return who the server is: as its settings say, and else as its only agent does. `others`: even if that is somebody else's server, which
    then is known by its own name unless its owner gave it a title."""
    unset = msgspec.UNSET
    its = Implementation(name="", version="")
    version = __version__
    if len(sources) == 1 and isinstance(only := sources[0].backend, TellsServerInfo):
        theirs = isinstance(only, Foreign)
        if not theirs or (others and not settings.title):
            its = only.introduction() or its
            version = "" if theirs and its.name else version  # ours would be no version of it
    return Implementation(
        name=its.name or "ostiary",
        version=settings.version or its.version or version,
        title=settings.title or its.title,
        description=settings.description or unset,
        website_url=settings.website or its.website_url,
        icons=[
            Icon(
                src=icon.src,
                mime_type=icon.mime_type or unset,
                sizes=icon.sizes or unset,
                theme=icon.theme or unset,
            )
            for icon in settings.icons
        ]
        or its.icons,
    )


def _hint_for(problem: str) -> str:
    return INSTALL if "ModuleNotFoundError" in problem else HINT


def _cannot_offer(problems: Sequence[str]) -> CannotStart:
    if len(problems) == 1:
        return CannotStart(problems[0], _hint_for(problems[0]))
    more = len(problems) - MOST_DETAILS
    details = [*problems[:MOST_DETAILS], *([f"and {more} more"] if more > 0 else [])]
    return CannotStart(f"{len(problems)} problems with what the agents offer", HINT, details)


def _announce_task(endpoints: Mapping[str, Endpoint], server: str, task_id: str) -> None:
    endpoint = endpoints.get(server)
    if endpoint is not None:  # a task may be older than the configuration
        endpoint.task_changed(task_id)
