"""One server by itself, in memory, for a client over pipes (app_stdio.py) or clients over TCP (app_tcp.py).

    run > store in memory > background (agents, tasks, sweeping, signals) > the conversations

No data directory, no login, no till: the memory ends with the process.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import trio
from msgspec.structs import replace

from auth.values.identity_model import Principal, PrincipalKind
from server import __version__
from server.agents.base.catalog import CatalogError
from server.calls.charge_before_task import let_go_of
from server.calls.dispatch import use_inside
from server.calls.servers.server_opening import CannotStart, OpenServers, now_millis, open_servers, subkeys
from server.calls.tools_call import carry_out
from server.lib.log.logger import Logger
from server.run.agent_outages import OutageWatch, nothing_recorded, tell_of_programs
from server.run.orphaned_processes import take_orphans
from server.run.start_report import first_of, why_not
from server.settings.private_paths import kept_out_paths
from server.settings.resolved_settings import Resolved
from server.settings.secret_reference import SecretUnreadable
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import kind_of
from server.store.clock_doubt import ClockDoubt
from server.store.inline_store import open_inline_store
from server.store.jobs import CannotOpen, Store, StoreError
from server.store.keyfile import MasterKey
from server.store.maintenance import keep_sweeping
from server.store.retention import Retention
from server.transport.stdio.stdio_conversation import PipeConversation

# One Ctrl-C reaches the one-file program twice: from the terminal, and passed on by its launcher.
ECHO_SECONDS: Final = 0.5
# Agents let go of what they hold; clients that have closed their end kill us after two seconds.
CLOSING_SECONDS: Final = 1.0

# Makes the conversation of one client. The text makes the ids of its calls different from those of every other.
MakeConversation: TypeAlias = Callable[[str], PipeConversation]
# Talks with whoever there is to talk with, until the event is set, or sets it itself.
NodeConversation: TypeAlias = Callable[[MakeConversation, trio.Event], Awaitable[None]]


def run_alone(
    resolved: Resolved, log: Logger, talk: NodeConversation, *, server: ServerConfig, principal: Principal
) -> None:
    """Serve until `talk` is over, SIGTERM or Ctrl-C. Everybody is `principal`. Raises `CannotStart`, and `OSError`."""
    try:
        trio.run(partial(serve_alone, resolved, log, talk, server=server, principal=principal))
    except* (CannotStart, CannotOpen, CatalogError, SecretUnreadable, StoreError) as group:
        raise why_not(group) from first_of(group)
    except* OSError as group:
        raise first_of(group) from None


async def serve_alone(
    resolved: Resolved, log: Logger, talk: NodeConversation, *, server: ServerConfig, principal: Principal
) -> None:
    stopping = trio.Event()
    alone = principal.kind is PrincipalKind.LOCAL
    if alone:
        server = shared_by_all(server)
    key = MasterKey(secrets.token_hex(6), secrets.token_bytes(32))
    async with open_inline_store(clock=now_millis) as store, trio.open_nursery() as background:
        opened = await open_servers(
            (server,),
            store,
            subkeys(key),
            carry_out=partial(carry_out, inner=use_inside),
            let_go_of=let_go_of,
            log=log,
            measure=lambda _: _uncounted,
            background=background,
            data_dir=resolved.data_dir,
            kept_paths=kept_out_paths(resolved),
        )

        def make(mark: str) -> PipeConversation:
            return _conversation(opened, resolved, server, principal, mark)

        await background.start(take_orphans)
        await background.start(opened.tasks.run)
        background.start_soon(_sweep, store, opened.boot_id, log)
        background.start_soon(OutageWatch(opened.endpoints, store, log, nothing_recorded).run)
        with trio.CancelScope() as conversing:
            await background.start(_stop_on_signals, stopping, conversing)
            log.info("server.started", version=__version__, server=server.name, boot=opened.boot_id)
            tell_of_programs(resolved, log, alone=alone)
            await talk(make, stopping)
        with trio.move_on_after(CLOSING_SECONDS):
            await opened.tasks.stop()  # before the agents go, whose end would look like a failure of theirs
            await opened.endpoints[server.name].aclose()
        background.cancel_scope.cancel()
    log.info("server.stopped")


def shared_by_all(server: ServerConfig) -> ServerConfig:
    """Return the server with one process or connection of each upstream for all who call, as suits a single caller."""
    agents = tuple(
        replace(agent, share="all") if kind_of(agent) == "mcp" else agent for agent in server.agents
    )
    return replace(server, agents=agents)


def _conversation(
    opened: OpenServers, resolved: Resolved, server: ServerConfig, principal: Principal, mark: str
) -> PipeConversation:
    return PipeConversation(
        opened.endpoints[server.name],
        opened.sessions[server.name],
        principal,
        boot_id=opened.boot_id + mark,
        max_line=resolved.config.max_body_kib * 1024,
        drain_seconds=resolved.config.drain_seconds,
        widened=server.compat.batch,
    )


async def _stop_on_signals(
    stopping: trio.Event, conversing: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    """End calls at the first signal; end all at once at the next, or at the first after the client has closed its end.

    Clients that do not want to wait any longer do it in this order.
    """
    stops_since = float("-inf")
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            if not stopping.is_set():
                stopping.set()
                stops_since = trio.current_time()
            elif trio.current_time() - stops_since > ECHO_SECONDS:
                conversing.cancel()


async def _sweep(store: Store, boot_id: str, log: Logger) -> None:
    """Sweep tasks whose time is over."""

    def report(outcome: dict[str, int] | ClockDoubt | StoreError) -> None:
        if isinstance(outcome, StoreError):
            log.warning("store.not_swept", reason=str(outcome))

    await keep_sweeping(store, owner=boot_id, clock=now_millis, retention=Retention(), report=report)


def _uncounted(_tool: str, _outcome: str, _seconds: float) -> None:
    """Count nothing: nobody is shown metrics."""
