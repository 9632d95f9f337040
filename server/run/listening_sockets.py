"""The sockets that a server listens at, opened before anything else is touched: a taken port is the commonest mistake, and early callers
wait in the kernel's queue until all is there.
"""

from __future__ import annotations

import msgspec

from server.lib.host_names import authority
from server.settings.setting_shapes import Config
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.sockets import open_listeners


class BoundSockets(msgspec.Struct, frozen=True, kw_only=True):
    """Sockets that listen already, handed on by number."""

    descriptors: tuple[int, ...]
    port: int

    @property
    def binds(self) -> tuple[str, ...]:
        return tuple(f"fd://{descriptor}" for descriptor in self.descriptors)


class BoundPorts(msgspec.Struct, frozen=True, kw_only=True):
    public: BoundSockets
    plain: BoundSockets | None = None  # http, where the rest is https
    admin: BoundSockets | None = None


def open_ports(config: Config) -> BoundPorts:
    """Raises `ListenError`."""
    return BoundPorts(
        public=_listen(config.host, config.port),
        plain=_listen(config.host, config.http_port) if config.http_port >= 0 else None,
        admin=_listen("127.0.0.1", config.admin_port) if config.admin_port >= 0 else None,
    )


def _listen(host: str, port: int) -> BoundSockets:
    sockets = open_listeners([authority(host, port)], backlog=HttpLimits().backlog)
    return BoundSockets(
        port=sockets[0].getsockname()[1], descriptors=tuple(sock.detach() for sock in sockets)
    )
