"""The agents of one server while they run: started, kept where the settings of one are what they were, and let go when their last
call has ended.

    start (beside those that run) → take (they are what is offered now) → those that are not among them any more: idle, or late → closed
                                  → dismiss (something of the new ones cannot be) → everything stays as it was
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from server.agents.base.backend import Active, Announce, HasDeadlines, TellsWhenBusy
from server.agents.base.catalog import CLOSE_SECONDS, Source
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError

LOOK_SECONDS: Final = 0.5

# From its settings, and its place among the agents of its server, to the back-end that answers for it. Raises `SecretUnreadable` and `ValueError`.
MakeSource = Callable[[int, msgspec.Struct], Source]


class RunningAgent(msgspec.Struct, frozen=True, eq=False):
    settings: msgspec.Struct
    source: Source
    scope: trio.CancelScope  # of what it does by itself


class Lineup(msgspec.Struct, frozen=True):
    """What runs for one version of the settings."""

    agents: tuple[RunningAgent, ...]
    fresh: tuple[RunningAgent, ...]  # those that were started for it

    @property
    def sources(self) -> Sequence[Source]:
        return [agent.source for agent in self.agents]


class RunningAgents:
    """Of one server; they run in `nursery`."""

    def __init__(self, make: MakeSource, announce: Announce, nursery: trio.Nursery, log: Logger) -> None:
        self._make = make
        self._announce = announce
        self._nursery = nursery
        self._log = log
        self._agents: tuple[RunningAgent, ...] = ()

    @property
    def sources(self) -> Sequence[Source]:
        return [agent.source for agent in self._agents]

    async def start(
        self, settings: Sequence[msgspec.Struct], renewed: Callable[[msgspec.Struct], bool] = lambda _: False
    ) -> Lineup:
        """Those that run already as they are written here go on, unless they are to be `renewed`. Raises what `make` raises, and
        `BackendError`; then none is left of those that it began."""
        left = [agent for agent in self._agents if not renewed(agent.settings)]
        agents: list[RunningAgent] = []
        fresh: list[RunningAgent] = []
        try:
            for position, each in enumerate(settings, 1):
                kept = next((agent for agent in left if agent.settings == each), None)
                if kept is not None:
                    left.remove(kept)
                    agents.append(kept)
                    continue
                agents.append(RunningAgent(each, self._make(position, each), trio.CancelScope()))
                fresh.append(agents[-1])
            await self._begin(fresh)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.dismiss(Lineup((), tuple(fresh)))
            raise
        return Lineup(tuple(agents), tuple(fresh))

    def take(self, lineup: Lineup) -> None:
        """From now on these are the agents; the others go as soon as they have nothing to do any more."""
        gone = [agent for agent in self._agents if agent not in lineup.agents]
        self._agents = lineup.agents
        for agent in gone:
            self._nursery.start_soon(self._let_go, agent)

    async def dismiss(self, lineup: Lineup) -> None:
        """What was started for it is not needed."""
        for agent in reversed(lineup.fresh):
            await _close(agent)

    async def _begin(self, fresh: Sequence[RunningAgent]) -> None:
        """At the same time: one that is slow to start holds up no other. Raises `BackendError` for the first that cannot be used."""
        problems: dict[int, BackendError] = {}

        async def begin(place: int, agent: RunningAgent, run: Callable[..., Awaitable[None]]) -> None:
            try:
                await self._nursery.start(partial(_run_within, agent.scope, partial(run, self._announce)))
            except BackendError as error:
                problems[place] = error

        async with trio.open_nursery() as beginning:
            for place, agent in enumerate(fresh):
                backend = agent.source.backend
                if isinstance(backend, Active):
                    beginning.start_soon(begin, place, agent, backend.run)
        if problems:
            first = min(problems)
            raise BackendError(f"{fresh[first].source.name}: {problems[first]}") from problems[first]

    async def _let_go(self, agent: RunningAgent) -> None:
        backend = agent.source.backend
        try:
            with trio.move_on_after(_longest_call(agent.source)):
                # Asked, and not told: that costs the calls nothing.
                while not isinstance(backend, TellsWhenBusy) or backend.busy:  # noqa: ASYNC110
                    await trio.sleep(LOOK_SECONDS)
        finally:
            with trio.CancelScope(shield=True):
                await _close(agent)
        self._log.info("agent.gone", agent=agent.source.name)


async def _run_within(
    scope: trio.CancelScope,
    run: Callable[..., Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with scope:
        await run(task_status=task_status)


async def _close(agent: RunningAgent) -> None:
    with trio.move_on_after(CLOSE_SECONDS):
        await agent.source.backend.aclose()
    agent.scope.cancel()


def _longest_call(source: Source) -> float:
    """What a call of one that was let go may still take."""
    own = source.backend
    paced = (
        [seconds for tool in own.tools() if (seconds := own.deadline(tool.name)) is not None]
        if isinstance(own, HasDeadlines)
        else []
    )
    return max(
        (
            source.terms.deadline_seconds,
            *(terms.deadline_seconds for terms in source.tool_terms.values()),
            *paced,
        )
    )
