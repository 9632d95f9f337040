"""What stands in front of the tools of each server, made of its settings. Nothing of it is loaded before there is anything."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from server.agents.base.backend import Backend
from server.calls.servers.agent_factory import Subkey
from server.lib.log.logger import Logger
from server.settings.setting_shapes import ServerConfig
from server.store.jobs import Store

if TYPE_CHECKING:
    from server.calls.policy.hooks import HookRunner
    from server.calls.policy.policy_log import PolicyLog
    from server.calls.policy.tool_policy import ServerPolicy


class PolicyMaker:
    """Of one process. `audits`: its store has an audit trail."""

    def __init__(
        self, store: Store, subkey: Subkey, log: Logger, *, clock: Callable[[], int], audits: bool
    ) -> None:
        self._store = store
        self._subkey = subkey
        self._log = log
        self._clock = clock
        self._audits = audits
        self._desk: PolicyLog | None = None

    def make(self, settings: ServerConfig, hooks: Sequence[Backend] = ()) -> ServerPolicy | None:
        """`hooks` run what the settings have of them, in their order. None: nothing stands there. Raises `ValueError`."""
        if not settings.governed:
            return None
        from server.calls.policy.policy_log import PolicyLog
        from server.calls.policy.tool_policy import ServerPolicy

        if self._desk is None:
            self._desk = PolicyLog(
                self._store,
                key=self._subkey("previews"),
                clock=self._clock,
                entropy=secrets.token_bytes,
                log=self._log,
                audits=self._audits,
            )
        return ServerPolicy(settings, self._desk, cast("Sequence[HookRunner]", hooks))

    @property
    def counts(self) -> Mapping[str, int]:
        """What was decided, and how often."""
        return {} if self._desk is None else self._desk.counts
