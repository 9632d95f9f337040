"""What connects nodes with their database and with their clients, and can be pulled out: nobody is told of it, and nothing is closed.

NamespaceCables   each node in a network namespace of its own, with a cable (a pair of veth devices) to each of two switches (bridges)
ProxyCables       where no namespaces may be made: a proxy for each node, on the way to the database alone
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

from tests.e2e.silent_proxy import SilentProxy

Cable = Literal["database", "load"]
INSIDE: Final = "OSTIARY_CHAOS_INSIDE"  # set where this program is in a namespace of its own already
PORT: Final = 5432
# Devices have short names. The first of each network is whoever started all this.
_SWITCHES: Final[dict[Cable, tuple[str, str]]] = {"database": ("db", "10.77.1"), "load": ("web", "10.77.2")}
_SECOND_HOST: Final = "10.77.1.2"
_NODES_FROM: Final = 11


class Cables(Protocol):
    @property
    def how(self) -> str:
        """For people."""
        ...

    @property
    def kinds(self) -> Sequence[Cable]:
        """Which can be pulled out."""
        ...

    @property
    def trusted(self) -> str:
        """The network that clients come from."""
        ...

    @property
    def switch_host(self) -> str:
        """Where whoever started all this is, for the nodes; empty: at the same machine as they."""
        ...

    @property
    def database_hosts(self) -> Sequence[str]:
        """Where the two databases listen; none: at a socket in their folders."""
        ...

    def inside(self, node: str) -> Sequence[str]:
        """What starts a program where that node is."""
        ...

    def host(self, node: str) -> str: ...

    def address(self, node: str, home: Path, folders: Sequence[Path]) -> str:
        """Of both databases, as the node is told it."""
        ...

    def cut(self, node: str, cable: Cable) -> None: ...

    def mend(self, node: str, cable: Cable) -> None: ...

    def close(self) -> None: ...


def enter_namespace() -> None:
    """Starts this program anew where it may make networks of its own. Returns where that was done, or cannot be."""
    if INSIDE in os.environ or os.geteuid() != 0:
        return
    if subprocess.run(("unshare", "--net", "true"), capture_output=True, check=False).returncode == 0:
        os.environ[INSIDE] = "1"
        # The interpreter's own options as well: it is `-P -m chaos` that runs here.
        os.execvp("unshare", ("unshare", "--net", "--", sys.executable, *sys.orig_argv[1:]))


def cables(nodes: Sequence[str]) -> Cables:
    return NamespaceCables(nodes) if INSIDE in os.environ else ProxyCables(nodes)


class NamespaceCables:
    how = "a network namespace for each node, and two cables to it"
    kinds: Sequence[Cable] = ("database", "load")
    trusted = "10.77.2.0/24"
    switch_host = "10.77.2.1"
    database_hosts = ("10.77.1.1", _SECOND_HOST)

    def __init__(self, nodes: Sequence[str]) -> None:
        self._numbers = {node: number for number, node in enumerate(nodes)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        _ip("link", "set", "lo", "up")
        for switch, network in _SWITCHES.values():
            _ip("link", "add", switch, "type", "bridge")
            _ip("addr", "add", f"{network}.1/24", "dev", switch)
            _ip("link", "set", switch, "up")
        _ip("addr", "add", f"{_SECOND_HOST}/24", "dev", "db")
        for node in nodes:
            self._connect(node)

    def inside(self, node: str) -> Sequence[str]:
        return ("nsenter", "--target", str(self._holders[node].pid), "--net", "--")

    def host(self, node: str) -> str:
        return f"10.77.2.{_NODES_FROM + self._numbers[node]}"

    def address(self, node: str, home: Path, folders: Sequence[Path]) -> str:
        del node, home, folders
        hosts = ",".join(self.database_hosts)
        return f"postgresql://ostiary@one.database.test,two.database.test/chaos?hostaddr={hosts}"

    def cut(self, node: str, cable: Cable) -> None:
        _ip("link", "set", self._device(node, cable), "nomaster")

    def mend(self, node: str, cable: Cable) -> None:
        _ip("link", "set", self._device(node, cable), "master", _SWITCHES[cable][0])

    def close(self) -> None:
        """The networks end with the last process in them."""
        for holder in self._holders.values():
            holder.send_signal(signal.SIGKILL)
            holder.wait()

    def _connect(self, node: str) -> None:
        # Lives as long as this program does, also where that is killed.
        holder = subprocess.Popen(
            ("unshare", "--net", "--", "setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo there; exec sleep infinity"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert holder.stdout is not None
        holder.stdout.readline()
        self._holders[node] = holder
        _ip("link", "set", "lo", "up", inside=self.inside(node))
        for cable, (_, network) in _SWITCHES.items():
            device, address = self._device(node, cable), f"{network}.{_NODES_FROM + self._numbers[node]}/24"
            _ip("link", "add", device, "type", "veth", "peer", "name", cable, "netns", str(holder.pid))
            _ip("addr", "add", address, "dev", cable, inside=self.inside(node))
            _ip("link", "set", cable, "up", inside=self.inside(node))
            _ip("link", "set", device, "up")
            self.mend(node, cable)

    def _device(self, node: str, cable: Cable) -> str:
        return f"{_SWITCHES[cable][0]}-{node}"


class ProxyCables:
    how = "a proxy for each node on its way to the database (no network namespace may be made here)"
    kinds: Sequence[Cable] = ("database",)
    trusted = "127.0.0.0/8"
    switch_host = ""
    database_hosts: Sequence[str] = ()

    def __init__(self, nodes: Sequence[str]) -> None:
        self._proxies: dict[str, list[SilentProxy]] = {node: [] for node in nodes}

    def inside(self, node: str) -> Sequence[str]:
        del node
        return ()

    def host(self, node: str) -> str:
        del node
        return "127.0.0.1"

    def address(self, node: str, home: Path, folders: Sequence[Path]) -> str:
        for number, folder in enumerate(folders):
            self._proxies[node].append(SilentProxy(home / f"db{number}", folder))
        hosts = ",".join(str(proxy.folder) for proxy in self._proxies[node])
        return f"postgresql://ostiary@/chaos?host={hosts}"

    def cut(self, node: str, cable: Cable) -> None:
        assert cable in self.kinds
        for proxy in self._proxies[node]:
            proxy.cut()

    def mend(self, node: str, cable: Cable) -> None:
        assert cable in self.kinds
        for proxy in self._proxies[node]:
            proxy.mend()

    def close(self) -> None:
        for proxies in self._proxies.values():
            for proxy in proxies:
                proxy.close()


def _ip(*words: str, inside: Sequence[str] = ()) -> None:
    subprocess.run((*inside, "ip", *words), check=True, stdin=subprocess.DEVNULL)
