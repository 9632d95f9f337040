"""The server from start to end of drain: our own nursery tree over Hypercorn's sockets.

    serve > reaper > connections > listeners

Hypercorn's own `worker_serve` is not used: one bad request ends it, and a client that refuses to read holds its shutdown for
ever. Hypercorn is pinned, and a test fails when a piece used here changes upstream.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
import trio

from server.lib.log.logger import Logger

from .connection_limits import HttpLimits
from .connection_table import ConnectionPlace, ConnectionTable, Network
from .handler import Address, Resolve
from .response import refusal
from .server_connection import Connection
from .server_tls import Secures
from .shared_state import Counters, Serving
from .socket_stream import PeerStream
from .sockets import allow_descriptors, open_listeners, url_of

# While descriptors or memory are short, connections in progress must get the time to end and give theirs back.
_ACCEPT_BACKOFF_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_PEERS_FAULT: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ECONNRESET))
_ACCEPTS_PER_TURN: Final = 64
# Where other processes accept at the same sockets, whoever is awake leaves the rest to them: else one would have twice as many as another.
_ACCEPTS_OF_ONE_OF_SEVERAL: Final = 1


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True):
    binds: Sequence[str]  # host:port, [v6]:port, unix:/path, fd://N; a loopback name means both families
    log: Logger
    tls: Secures | None = None
    limits: HttpLimits = msgspec.field(default_factory=HttpLimits)
    trusted_proxies: Sequence[Network] = ()  # exempt from the cap per IP: each stands for many callers
    counters: Counters = msgspec.field(default_factory=Counters)
    shared: bool = False  # other processes accept at the same sockets
    vital_paths: frozenset[str] = frozenset()  # answered also where there is no room for anything else


async def serve(
    resolve: Resolve,
    settings: ListenSettings,
    *,
    draining: trio.Event,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `draining` is set and the drain is over; with `nursery.start` it returns the URLs once it listens.

    Raises `ListenError` (`PortInUse`) before that, and nothing that a peer could cause at any time.
    Cancelled, it ends at once, without a drain.
    """
    limits = _within_descriptors(settings)
    serving = Serving(
        resolve=resolve,
        limits=limits,
        log=settings.log,
        draining=draining,
        vital_paths=settings.vital_paths,
        now=trio.current_time(),
        closing=draining.is_set(),
        counters=settings.counters,
    )
    roster = ConnectionTable(serving, exempt=settings.trusted_proxies)
    at_once = _ACCEPTS_OF_ONE_OF_SEVERAL if settings.shared else _ACCEPTS_PER_TURN
    with contextlib.ExitStack() as sockets:
        listeners = open_listeners(settings.binds, backlog=limits.backlog)
        for listener in listeners:
            sockets.callback(listener.close)
        async with trio.open_nursery() as reaper:
            reaper.start_soon(roster.reap)
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as listening:
                    for listener in listeners:
                        listening.start_soon(
                            _accept, listener, settings.tls, serving, roster, connections, at_once
                        )
                    scheme = "http" if settings.tls is None else "https"
                    task_status.started([url_of(listener, scheme) for listener in listeners])
                    await draining.wait()
                    serving.begin_drain()
                    listening.cancel_scope.cancel()
                sockets.close()
                roster.begin_drain()
                over = trio.current_time() + limits.drain_seconds
                reaper.start_soon(roster.cut_off_at, over)
                connections.cancel_scope.deadline = over + limits.last_word_seconds
            reaper.cancel_scope.cancel()


def _within_descriptors(settings: ListenSettings) -> HttpLimits:
    """No more connections than the process may have files open, with some left for everything else: the store, the admin socket,
    health, agents. Whoever comes beyond that is refused, and nothing starves."""
    limits = settings.limits
    wanted = limits.connections + limits.spare_descriptors
    allowed = allow_descriptors(wanted)
    connections = min(limits.connections, allowed - min(limits.spare_descriptors, allowed // 4))
    if connections < limits.connections:
        settings.log.warning("http.few_descriptors", allowed=allowed, wanted=wanted, connections=connections)
    return msgspec.structs.replace(limits, connections=connections)


async def _accept(
    listener: socket.socket,
    tls: Secures | None,
    serving: Serving,
    roster: ConnectionTable,
    connections: trio.Nursery,
    at_once: int,
) -> None:
    """Accept for ever. `connections` outlives this task: it is where each connection's task lives."""
    failures = 0
    while True:
        await trio.lowlevel.wait_readable(listener)
        for _ in range(at_once):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _PEERS_FAULT:
                    continue
                serving.counters.accept_errors += 1
                if failures == 0:
                    serving.log.error("http.accept_failed", error=error.strerror, open=len(roster))
                await trio.sleep(_ACCEPT_BACKOFF_SECONDS[min(failures, len(_ACCEPT_BACKOFF_SECONDS) - 1)])
                failures += 1
                break
            failures = 0
            try:
                _admit(sock, peer, tls, serving, roster, connections)
            except OSError:  # gone before it was looked at
                sock.close()


def _admit(
    sock: socket.socket,
    peer: Any,
    tls: Secures | None,
    serving: Serving,
    roster: ConnectionTable,
    connections: trio.Nursery,
) -> None:
    client = _address(sock.family, peer)
    server = _address(sock.family, sock.getsockname())
    wire = PeerStream(sock)
    admission, place = roster.admit(client and client[0])
    vital = admission is ConnectionPlace.VITAL
    if admission is not ConnectionPlace.GRANTED and not vital:
        if tls is None:
            with contextlib.suppress(OSError):
                sock.send(refusal(503, "too many connections"))
        wire.close()
        return
    stream = None if tls is None else tls.secured(wire)
    connection = Connection(
        serving,
        wire,
        tls=stream,
        client=client,
        server=server,
        # Without an address, it came by a Unix socket, behind which a proxy may be as well.
        proxied=client is None or roster.is_proxy(client[0]),
        vital=vital,
    )
    roster.add(connection)
    connection.at_end = partial(roster.remove, connection, place, vital=vital)
    connections.start_soon(connection.run)


def _address(family: int, name: Any) -> Address | None:
    return (str(name[0]), int(name[1])) if family in (socket.AF_INET, socket.AF_INET6) else None
