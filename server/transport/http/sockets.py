"""Listening sockets: which addresses, one port for both loopback families, and a clear error for a second instance.

The sockets themselves are made by Hypercorn's `Config.create_sockets`; what it leaves open is settled here before and after.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from hypercorn.config import Config, SocketTypeError

from server.lib.host_names import authority

# Port 0 asks the kernel for a port on one family; another process may hold the same number on the other family.
_PORT_TRIES: Final = 20
FIRST_FREE_PORT: Final = 1024  # those below are for root, and mean something to others
# Every address of this machine, of both families.
EVERYWHERE: Final = "*"
_LOOPBACK_HOSTS: Final = frozenset(("localhost", "127.0.0.1", "::1", "[::1]"))


class ListenError(Exception):
    """The server cannot listen there. `str(error)` and `hint` are written for the person who started it."""

    hint = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class PortInUse(ListenError):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} on {host} is in use by another process",
            hint=f"ostiary serve --port {port + 1 if port < 65535 else 8420}, or end the other one: `ss -ltnp` shows it"
            if port >= FIRST_FREE_PORT
            else "`ss -ltnp` shows the other one: end it, or let Ostiary stand behind it (docs/deploy.md)",
        )
        self.port = port


def open_listeners(binds: Sequence[str], *, backlog: int) -> list[socket.socket]:
    """Listening, non-blocking, not inherited by children. A bind is `host:port`, `[v6]:port`, `unix:/path` or `fd://N`; a
    loopback name means both loopback families where both exist, and `*` both families of every address. Raises `ListenError`; then nothing stays open."""
    opened: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        for bind in binds:
            for sock in _open(bind):
                undo.callback(sock.close)
                opened.append(sock)
        for sock in opened:
            try:
                sock.listen(backlog)
            except OSError as error:  # two that bound at the same moment: the second one learns it here
                raise _explained(error, *_place(sock)) from error
            sock.set_inheritable(False)
        undo.pop_all()
    return opened


def allow_descriptors(wanted: int) -> int:
    """Raise this process's soft limit of open files as far as needed and allowed. → the limit that holds."""
    try:
        import resource
    except ImportError:  # not a POSIX system: there is no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return wanted
    reachable = wanted if hard == unlimited else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def url_of(sock: socket.socket, scheme: str) -> str:
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{os.fsdecode(name)}"
    host, port = _place(sock)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _place(sock: socket.socket) -> tuple[str, int]:
    """Host and port; for a Unix socket its path, and 0."""
    name = sock.getsockname()
    return (os.fsdecode(name), 0) if sock.family == socket.AF_UNIX else (name[0], name[1])


def _open(bind: str) -> Iterator[socket.socket]:
    if bind.startswith(("unix:", "fd://")):
        if bind.startswith("unix:"):
            _probe_unix(bind.removeprefix("unix:"))
        yield from _create(bind, bind, 0)
        return
    host, port = _split(bind)
    if host == EVERYWHERE:
        yield from _open_everywhere(port)
        return
    if host not in _LOOPBACK_HOSTS:
        _probe(host, port)
        yield from _create(bind, host, port)
        return
    hosts = [literal for literal in ("127.0.0.1", "::1") if _exists(literal)]
    if not hosts:
        raise ListenError("this machine has no loopback address")
    yield from _open_all(hosts, port)


def _open_everywhere(port: int) -> Iterator[socket.socket]:
    """A socket for each family, so that callers by IPv4 are known by their own addresses."""
    _probe("0.0.0.0", port)
    first = _create(f"0.0.0.0:{port}", "0.0.0.0", port)
    yield from first
    if not _exists("::1"):
        return
    port = first[0].getsockname()[1]
    other = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("::", port))
    except OSError as error:
        other.close()
        raise _explained(error, "::", port) from error
    yield from _create(f"fd://{other.detach()}", "::", port)


def _open_all(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """The same port on every host; for port 0 the first family chooses and the others must follow."""
    for tries_left in reversed(range(_PORT_TRIES if port == 0 else 1)):
        sockets: list[socket.socket] = []
        chosen = port
        try:
            for host in hosts:
                _probe(host, chosen)
                sockets += _create(authority(host, chosen), host, chosen)
                chosen = sockets[0].getsockname()[1]
            return sockets
        except PortInUse:
            for sock in sockets:
                sock.close()
            if not tries_left:
                raise
        except BaseException:
            for sock in sockets:
                sock.close()
            raise
    raise ListenError("no port is free on every loopback address")


def _create(bind: str, host: str, port: int) -> list[socket.socket]:
    config = Config()
    config.bind = [bind]
    try:
        return config.create_sockets().insecure_sockets
    except OSError as error:
        raise _explained(error, host, port) from error
    except (ValueError, SocketTypeError) as error:
        raise ListenError(f"cannot listen on {bind}: {error}") from error


def _probe(host: str, port: int) -> None:
    """Bind and let go, without SO_REUSEPORT: it would let a second instance share the port without a word."""
    with _socket_for(host) as probe:
        if os.name == "posix":  # elsewhere this option means that the port may be taken over
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise _explained(error, host, port) from error


def _probe_unix(path: str) -> None:
    """Hypercorn removes a socket that is in its way; one that somebody still answers on is not in the way."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            pass  # its queue is full: it is served
        except OSError:
            return
    raise ListenError(f"{path} is in use by another process", hint="stop it first, or choose another path")


def _exists(host: str) -> bool:
    try:
        with _socket_for(host) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _socket_for(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)


def _split(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ListenError(
            f"cannot listen on {bind!r}", hint="write host:port, for example 127.0.0.1:8420 or [::]:8420"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _explained(error: OSError, host: str, port: int) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(host, port)
    if error.errno == errno.EACCES:
        return ListenError(
            f"not allowed to listen on {host}:{port}",
            hint="choose a port above 1023, or let this user have those below: AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit (docs/deploy.md)",
        )
    where = f"{host}:{port}" if port else host
    return ListenError(
        f"cannot listen on {where}: {error.strerror or error}",
        hint="check the address: it must be one of this machine's",
    )
