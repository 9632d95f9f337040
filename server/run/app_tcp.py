"""The whole program on a TCP port, where messages are lines: for mocks, and for agents that know no other way.

There is no login on such a wire, so everybody there is whoever calls a server with `auth = "none"`. What is the same without TCP is single_server.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import NamedTuple

import trio

from server.calls.servers.server_opening import CannotStart
from server.lib.host_names import authority
from server.lib.log.logger import Logger
from server.run.single_server import MakeConversation, run_alone
from server.settings.resolved_settings import LOOPBACK_NAMES, Resolved
from server.settings.setting_shapes import ServerConfig
from server.transport.admission.bearer_check import anybody
from server.transport.stdio.tcp_connections import serve_connections


class TcpPlace(NamedTuple):
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        if self.host in LOOPBACK_NAMES:
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:  # a name, which may lead anywhere
            return False

    def __str__(self) -> str:
        return authority(self.host, self.port)


def read_place(written: str) -> TcpPlace:
    """`PORT`, which is of this machine alone, or `HOST:PORT`. Raises `ValueError`."""
    host, _, port = written.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{port[:20]!r} is no port")
    return TcpPlace(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


def run_tcp(
    resolved: Resolved,
    log: Logger,
    place: TcpPlace,
    *,
    server: ServerConfig,
    announce: Callable[[TcpPlace], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. `announce` is told where, once it listens. Raises `CannotStart`."""

    async def talk(make: MakeConversation, stopping: trio.Event) -> None:
        try:
            listeners = await trio.open_tcp_listeners(place.port, host=place.host)
        except OSError as error:
            why = str(error.strerror or error).lower()
            raise CannotStart(
                f"cannot listen on {place}: {why}", "ostiary serve --tcp 0 picks a free port"
            ) from error
        port = listeners[0].socket.getsockname()[1]
        if not place.loopback:
            log.warning(
                "server.open_to_the_network", server=server.name, listens=f"tcp://{place.host}:{port}"
            )
        announce(TcpPlace(place.host, port))
        await serve_connections(listeners, make, stopping=stopping, log=log)

    run_alone(resolved, log, talk, server=server, principal=anybody(resolved.scopes))
