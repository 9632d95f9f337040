"""The whole program on standard input and output: for one client, which started it. Like app.py, the only place where its
concrete things are constructed.

    run > store in memory > background (agents, tasks, sweeping, signals) > the conversation

No port, no data directory, no login: who may start the program may use it. What it remembers ends with the process.
"""

from __future__ import annotations

import os
import secrets
import signal
from functools import partial
from typing import Any, Final, NamedTuple, cast

import trio

from auth.values.model import Principal, PrincipalKind
from server import __version__
from server.backends.catalog import CatalogError
from server.client.lines import Read, Write, reader, writer
from server.endpoint.opening import CannotStart, now_millis, open_servers, subkeys
from server.observe.log import Logger
from server.request.ahead import let_go_of
from server.request.dispatch import use_inside
from server.request.tools import carry_out
from server.settings.resolve import Resolved
from server.settings.secret import SecretUnreadable
from server.settings.shapes import ServerConfig
from server.stdio.conversation import PipeConversation
from server.store.clock_doubt import ClockDoubt
from server.store.inline import open_inline_store
from server.store.jobs import CannotOpen, Store, StoreError
from server.store.keyfile import MasterKey
from server.store.maintenance import Retention, keep_sweeping

# One Ctrl-C reaches the one-file program twice: from the terminal, and passed on by its launcher.
ECHO_SECONDS: Final = 0.5
# Agents let go of what they hold; clients that have closed their end kill us after two seconds.
CLOSING_SECONDS: Final = 1.0


class Pipes(NamedTuple):
    read: int
    write: int


def run_stdio(resolved: Resolved, log: Logger, *, server: ServerConfig) -> None:
    """Serve until the client closes its end, SIGTERM or Ctrl-C. Raises `CannotStart`, and `OSError` for a standard input or
    output that cannot be used."""
    pipes = take_pipes()
    try:
        trio.run(
            partial(
                serve_stdio,
                resolved,
                log,
                server=server,
                read=reader(pipes.read),
                write=writer(pipes.write),
            )
        )
    except* (CannotStart, CannotOpen, CatalogError, SecretUnreadable, StoreError) as group:
        problem = _first(group)
        hint, details = getattr(problem, "hint", None) or "", getattr(problem, "details", ())
        raise CannotStart(str(problem), hint, details) from problem
    except* OSError as group:
        raise _first(group) from None


async def serve_stdio(
    resolved: Resolved, log: Logger, *, server: ServerConfig, read: Read, write: Write
) -> None:
    config, stopping = resolved.config, trio.Event()
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
        )
        endpoint = opened.endpoints[server.name]
        await background.start(opened.tasks.run)
        background.start_soon(_sweep, store, opened.boot_id, log)
        with trio.CancelScope() as conversing:
            await background.start(_stop_on_signals, stopping, conversing)
            log.info("server.started", version=__version__, server=server.name, boot=opened.boot_id)
            conversation = PipeConversation(
                endpoint,
                opened.sessions[server.name],
                Principal(kind=PrincipalKind.LOCAL, subject=f"local:{os.getuid()}"),
                boot_id=opened.boot_id,
                max_line=config.max_body_kib * 1024,
                drain_seconds=config.drain_seconds,
                widened=server.compat.batch,
            )
            await conversation.run(read, write, stopping=stopping)
        with trio.move_on_after(CLOSING_SECONDS):
            await opened.tasks.stop()  # before the agents go, whose end would look like a failure of theirs
            await endpoint.aclose()
        background.cancel_scope.cancel()
    log.info("server.stopped")


def take_pipes() -> Pipes:
    """Standard input and output for messages alone, until the process ends. Whoever prints from now on prints to stderr, and
    who reads finds nothing: an agent's stray output would be a broken message. Child processes inherit neither."""
    pipes = Pipes(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return pipes


async def _stop_on_signals(
    stopping: trio.Event, conversing: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    """The first drains, the next ends at once, and so does the first after the client has closed its end: clients that do not
    want to wait any longer do it in this order."""
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
    """Tasks whose time is over."""

    def report(outcome: dict[str, int] | ClockDoubt | StoreError) -> None:
        if isinstance(outcome, StoreError):
            log.warning("store.not_swept", reason=str(outcome))

    await keep_sweeping(store, owner=boot_id, clock=now_millis, retention=Retention(), report=report)


def _uncounted(_tool: str, _outcome: str, _seconds: float) -> None:
    """There is nobody to show metrics to."""


def _first(error: BaseException) -> Any:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
