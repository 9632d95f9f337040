"""What bounds the callers of each server, made of the settings; and what the process has of it together: counts, and what is held ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from server.calls.servers.server_opening import now_millis
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.lib.rates.rates import parse_rate
from server.lib.rates.usage_table import RateTable, UsedRates
from server.lib.shortened import short_reason
from server.settings.limit_settings import LimitsConfig
from server.settings.setting_shapes import ServerConfig
from server.store.jobs import Store, StoreError
from server.store.limits.endpoint_gate import Gate, GateRules, ServerLimits
from server.store.limits.restraint_counts import Restraint

if TYPE_CHECKING:
    from server.store.limits.daily_quotas import Quotas
    from server.store.limits.tool_limits import ToolBounds

# How often it is looked for what is held ahead and not used (server/store/limits/daily_quotas.py).
UNUSED_LOOK_SECONDS: Final = 15.0


class ProcessLimits:
    """Whoever opened it closes it, so that what is held ahead is there for the next process."""

    def __init__(
        self,
        config: LimitsConfig,
        store: Store,
        log: Logger,
        metrics: Metrics,
        *,
        shared: bool = False,
        clock: Callable[[], int] = now_millis,
    ) -> None:
        """`shared`: other processes may use the same database, so `keep_giving_back` is run."""
        self.restraint = Restraint()
        self._config = config
        self._store = store
        self._log = log
        self._shared = shared
        self._clock = clock
        self._quotas: Quotas | None = None
        # An address that goes from one server to the next is counted on; a server with a rate of its own counts by itself.
        self._tables: dict[tuple[str, str], UsedRates] = {}
        metrics.counters(
            "held_back",
            "Requests and calls that were told to wait, by limit",
            "limit",
            lambda: self.restraint.counts,
        )

    def make(self, server: ServerConfig) -> ServerLimits:
        own, common = server.limits, self._config
        rules = GateRules(
            calls_at_once=common.calls_at_once if own.calls_at_once is None else own.calls_at_once,
            loopback=common.loopback,
        )
        gate = Gate(
            rules,
            self.restraint,
            addresses=self._table("address", common.address, own.address, server.name),
            callers=self._table("caller", common.caller, own.caller, server.name),
        )
        return ServerLimits(gate=gate, restraint=self.restraint, bounds=self._bounds(server))

    async def keep_giving_back(self) -> None:
        """For ever: what this process holds ahead and nobody uses is there for the others."""
        while True:
            await trio.sleep(UNUSED_LOOK_SECONDS)
            if self._quotas is not None:
                try:
                    await self._quotas.give_back_unused()
                except StoreError as problem:  # it is said by whoever else needs the store
                    self._log.debug("limits.not_given_back", reason=short_reason(problem))

    async def aclose(self) -> None:
        if self._quotas is not None:
            try:
                await self._quotas.aclose()
            except StoreError as problem:
                self._log.warning("limits.not_given_back", reason=str(problem))

    def _table(self, kind: str, common: str, own: str | None, server: str) -> UsedRates | None:
        rate = parse_rate(common if own is None else own)
        if rate is None:
            return None
        return self._tables.setdefault((kind, "" if own is None else server), RateTable(rate))

    def _bounds(self, server: ServerConfig) -> ToolBounds | None:
        quota = self._config.quota if server.limits.quota is None else server.limits.quota
        bounded = {
            name: tool for name, tool in server.tools.items() if tool.limit or tool.limit_all or tool.quota
        }
        if not quota and not bounded:
            return None
        from server.store.limits.daily_quotas import Quotas
        from server.store.limits.tool_limits import BoundRules, ToolBounds

        if self._quotas is None and (quota or any(tool.quota for tool in bounded.values())):
            self._quotas = Quotas(self._store, clock=self._clock, shared=self._shared)
        return ToolBounds(
            server.name,
            {
                name: BoundRules(limit=tool.limit, limit_all=tool.limit_all, quota=tool.quota)
                for name, tool in bounded.items()
            },
            quota=quota,
            quotas=self._quotas,
            restraint=self.restraint,
        )
