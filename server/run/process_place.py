"""The values that one_process.py and one_of_several.py are given: what a process does when told, and what it tells when asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec
import trio

from server.admin.control import Handler
from server.lib.log.metrics import Metrics
from server.run.settings_reload import Reloading
from server.transport.http.health_probes import Readiness


class Steering(msgspec.Struct, frozen=True, kw_only=True):
    """The ways to tell a process that serves to stop, and to read again."""

    draining: trio.Event
    everything: trio.CancelScope  # that serves: to end at once
    renew: Callable[[], None]  # a certificate that somebody else writes
    reloading: Reloading


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a process to whoever asks it."""

    make_commands: Callable[[], Mapping[str, Handler]]
    metrics: Metrics
    readiness: Callable[[], Awaitable[Readiness]]
