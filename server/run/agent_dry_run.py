"""A trial of every agent where no server runs: started as `serve` starts it, reached, and let go again. For `ostiary doctor`.

Everything is in memory, so nothing is written. The data directory's rows of upstreams are not looked at: accepted definitions, and
logins, which are good for one refresh each and so for a running server alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NoReturn

import msgspec
import trio

from server.agents.base.backend import Announce, Reachable, Watched
from server.agents.base.catalog import CatalogError
from server.calls.servers.agent_factory import Subkey, agent_name, make_source
from server.calls.servers.agent_lineup import Lineup, RunningAgents
from server.calls.servers.policy_opening import PolicyMaker
from server.calls.servers.server_opening import kept_out_of, now_millis, offering_of, prices_of, subkeys
from server.calls.servers.upstream_registry_place import UpstreamRegistryPlace
from server.lib.log.logger import UNLOGGED, Logger
from server.mcp.call_failures import BackendError
from server.mcp.tool_names import refused_names
from server.settings.private_paths import kept_out_paths
from server.settings.resolved_settings import Resolved
from server.settings.rule_settings import programs_of
from server.settings.secret_reference import SecretUnreadable
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import kind_of
from server.store.inline_store import open_inline_store
from server.store.jobs import Store
from server.store.keyfile import MasterKey

if TYPE_CHECKING:
    from server.agents.mcp.trust.upstream_registry import UpstreamRegistry

# For all agents together. An upstream is given less, so that it is heard why it did not answer.
TRY_SECONDS: Final = 30.0
UPSTREAM_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 5.0
NO_LOGIN: Final = "it is there, and wants to know who asks, which only a running server can show it"
NOT_READY: Final = f"it was not ready within {TRY_SECONDS:g} s, for which this waits"
# As whom an upstream is called, where only a running server can be that.
_OF_A_RUNNING_SERVER: Final = frozenset({"token", "exchange", "id-jag", "person", "person-key"})

# `refused`: no server starts with it. `fails`: it starts, and the agent is out of order. `unseen`: it is there, or may be.
Outcome = Literal["well", "refused", "fails", "unseen"]


class TriedAgent(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # as `ostiary status` and the log have it
    upstream: bool
    outcome: Outcome
    words: str = ""


class AgentDryRun(msgspec.Struct, frozen=True, kw_only=True):
    agents: Sequence[TriedAgent]
    problems: Sequence[str]  # with what the agents of a server offer together
    refused_names: Sequence[str] = ()  # of tools, by hosts
    left_out: Sequence[str] = ()  # what agents have and cannot be offered, and why


async def rehearse(resolved: Resolved, log: Logger | None = None) -> AgentDryRun:
    """Try all agents, for `TRY_SECONDS` at most and the time to close. Nothing is left of them, also after cancellation."""
    log = log or UNLOGGED
    subkey = subkeys(MasterKey(secrets.token_hex(6), secrets.token_bytes(32)))
    async with open_inline_store(clock=now_millis) as store, trio.open_nursery() as background:
        stages = [_Stage(resolved, server, store, subkey, log, background) for server in resolved.servers]
        try:
            with trio.move_on_after(TRY_SECONDS):
                async with trio.open_nursery() as trying:
                    for stage in stages:
                        trying.start_soon(stage.run, trying)
            return AgentDryRun(
                agents=[agent for stage in stages for agent in stage.outcomes()],
                problems=[problem for stage in stages for problem in stage.problems()],
                refused_names=[name for stage in stages for name in stage.refused_names],
                left_out=[each for stage in stages for each in stage.left_out],
            )
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                for stage in reversed(stages):
                    await stage.close()
            background.cancel_scope.cancel()


class _Stage:
    """One server of the settings, and what became of its agents so far."""

    def __init__(
        self,
        resolved: Resolved,
        server: ServerConfig,
        store: Store,
        subkey: Subkey,
        log: Logger,
        background: trio.Nursery,
    ) -> None:
        agents = tuple(_seen_alone(agent) for agent in server.agents)
        self._server = msgspec.structs.replace(server, agents=agents)
        self._resolved = resolved
        self._store = store
        self._subkey = subkey
        self._log = log
        self._background = background
        self._agents: Sequence[msgspec.Struct] = (*agents, *programs_of(server.hooks))
        self._kept_out = kept_out_of(kept_out_paths(resolved))
        self._trust = UpstreamRegistryPlace(self._make_desk)
        self._tried: dict[int, TriedAgent] = {}
        self.refused_names: Sequence[str] = ()  # known with `problems`, as what is left out
        self.left_out: Sequence[str] = ()
        self._running: dict[int, tuple[RunningAgents, Lineup]] = {}

    async def run(self, trying: trio.Nursery) -> None:
        await self._trust.start((self._server,))
        for place in range(len(self._agents)):
            trying.start_soon(self._try, place)

    def outcomes(self) -> Sequence[TriedAgent]:
        places = range(len(self._agents))
        for place in places:
            if place not in self._tried:
                self._put(place, "unseen", NOT_READY)
        return [self._tried[place] for place in places]

    def problems(self) -> Sequence[str]:
        """Return, once all agents run, what is wrong with what they offer together, or with the settings about that."""
        if len(self._running) < len(self._agents):
            return []
        agents = [agent for place in sorted(self._running) for agent in self._running[place][1].agents]
        policies = PolicyMaker(self._store, self._subkey, self._log, clock=now_millis, audits=False)
        try:
            offering = offering_of(
                self._server,
                Lineup(tuple(agents), ()),
                prices_of(self._server, self._resolved.payments),
                self._log,
                endpoint=_nobody_asks,
                policies=policies,
            )
        except CatalogError as error:
            return error.problems
        except ValueError as error:
            return [str(error)]
        self.refused_names = refused_names(offering.catalog.tools)
        self.left_out = offering.catalog.all_left_out()
        return []

    async def close(self) -> None:
        for agents, lineup in reversed(list(self._running.values())):
            await agents.dismiss(lineup)

    async def _try(self, place: int) -> None:
        make = partial(
            make_source,
            self._server.name,
            place + 1,
            subkey=self._subkey,
            log=self._log,
            data_dir=self._resolved.data_dir,
            kept_out=self._kept_out,
            trust=self._trust,
        )
        agents = RunningAgents(
            lambda _, settings: make(settings),
            Announce(lists=lambda: None, resource=lambda _: None),
            self._background,
            self._log,
        )
        try:
            lineup = await agents.start((self._agents[place],))
        except (BackendError, SecretUnreadable, ValueError) as error:
            self._put(place, "refused", str(error))
            return
        self._running[place] = agents, lineup
        backend = lineup.sources[0].backend
        if isinstance(backend, Reachable):
            await backend.reach()
        trouble = backend.trouble() if isinstance(backend, Watched) else None
        if trouble is None:
            self._put(place, "well")
        elif self._wants_login(place):
            self._put(place, "unseen", NO_LOGIN)
        else:
            self._put(place, "fails", trouble.words)

    def _put(self, place: int, outcome: Outcome, words: str = "") -> None:
        """Put an agent with the others. A refusal names whose tools they are, as at a start."""
        upstream = self._upstream(place)
        self._tried[place] = TriedAgent(
            name=upstream or self._name(place), upstream=bool(upstream), outcome=outcome, words=words
        )

    def _name(self, place: int) -> str:
        return agent_name(self._server.name, place + 1, self._agents[place])

    def _upstream(self, place: int) -> str:
        """Return its name as an upstream; empty for an agent that is none."""
        agent = self._agents[place]
        if kind_of(agent) != "mcp":
            return ""
        from server.agents.mcp.trust.pin_rows import UpstreamKey

        return str(UpstreamKey(self._server.name, getattr(agent, "id", "")))

    def _wants_login(self, place: int) -> bool:
        """Return whether nothing but a login is missing."""
        desk, name = self._trust.desk, self._upstream(place)
        known = () if desk is None else desk.known.values()
        return any(
            str(each.key) == name and each.login is not None and each.login.trouble() is not None
            for each in known
        )

    def _make_desk(self) -> UpstreamRegistry:
        from server.agents.mcp.trust.upstream_opening import open_desk

        return open_desk(self._store, self._subkey, self._log, None, clock=now_millis)


def _seen_alone(agent: msgspec.Struct) -> msgspec.Struct:
    """Return an agent as it can be tried without what is kept: an upstream is connected to at once, believed, and shown no login."""
    if kind_of(agent) != "mcp":
        return agent
    seconds = min(getattr(agent, "start_seconds", UPSTREAM_SECONDS), UPSTREAM_SECONDS)
    changed = msgspec.structs.replace(agent, trust="always", connect="start", start_seconds=seconds)
    if getattr(agent, "identity", "") in _OF_A_RUNNING_SERVER:
        changed = msgspec.structs.replace(changed, identity="login")
    return changed


def _nobody_asks() -> NoReturn:
    raise AssertionError("nothing of it is called")
