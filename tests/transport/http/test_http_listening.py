"""server/transport/http/listen.py and sockets.py: where the server listens, and how it says that it cannot."""

from __future__ import annotations

import errno
import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback_server import GOOD, Echo, Peer, capturing, expect_service, networks_of, running

from server.transport.http.asgi import hosting
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.connection_table import ConnectionPlace, ConnectionTable
from server.transport.http.listen import ListenSettings, serve
from server.transport.http.shared_state import Serving
from server.transport.http.sockets import ListenError, PortInUse, allow_descriptors, open_listeners

HAS_IPV6 = (
    Path("/proc/net/if_inet6").exists()
    and "00000000000000000000000000000001" in Path("/proc/net/if_inet6").read_text()
)


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6 loopback")
async def test_a_loopback_name_listens_on_both_families_with_one_port() -> None:
    async with running(Echo(), bind="localhost:0") as server:
        assert server.urls == [f"http://127.0.0.1:{server.port}", f"http://[::1]:{server.port}"]
        await expect_service(server)
        async with await server.connect("::1") as peer:
            assert (await peer.ask(GOOD)).status == 200


async def test_a_star_listens_on_every_address_and_callers_by_ipv4_are_known_by_their_own() -> None:
    app = Echo()
    async with running(app, bind="*:0") as server:
        ports = {int(url.rpartition(":")[2]) for url in server.urls}
        assert ports == {server.port}
        assert len(server.urls) == 2
        for host in ("127.0.0.1", "::1"):
            async with await server.connect(host) as peer:
                await peer.ask(GOOD)
        assert [scope["client"][0] for scope in app.scopes] == ["127.0.0.1", "::1"]
        with pytest.raises(PortInUse) as taken:
            open_listeners([f"*:{server.port}"], backlog=1)
        assert f"--port {server.port + 1}" in taken.value.hint


async def test_without_ipv6_the_loopback_name_means_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def refuse(family: int = socket.AF_INET, *rest: Any, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported")
        return real(family, *rest, **options)

    monkeypatch.setattr("server.transport.http.sockets.socket.socket", refuse)
    opened = open_listeners(["127.0.0.1:0"], backlog=1)
    monkeypatch.undo()
    try:
        assert [sock.family for sock in opened] == [socket.AF_INET]
    finally:
        for sock in opened:
            sock.close()


@pytest.mark.parametrize("reuse_port", [False, True])
def test_a_second_instance_is_told_which_port_is_taken(reuse_port: bool) -> None:
    with socket.socket() as holder:
        if reuse_port:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortInUse) as refused:
            open_listeners([f"127.0.0.1:{port}"], backlog=1)
        assert str(refused.value) == f"port {port} on 127.0.0.1 is in use by another process"
        assert "--port" in refused.value.hint


async def test_two_servers_on_one_port_leave_the_first_one_serving() -> None:
    async with running(Echo()) as server:
        log, _ = capturing()
        settings = ListenSettings(binds=[f"127.0.0.1:{server.port}"], log=log)
        with pytest.raises(PortInUse):
            await serve(hosting(Echo()), settings, draining=trio.Event())
        await expect_service(server)


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6 loopback")
def test_a_port_taken_on_the_other_family_alone_is_in_use_too() -> None:
    with socket.socket(socket.AF_INET6) as holder:
        holder.bind(("::1", 0))
        holder.listen()
        with pytest.raises(PortInUse):
            open_listeners([f"localhost:{holder.getsockname()[1]}"], backlog=1)


@pytest.mark.parametrize(
    "bind", ["nowhere", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "fd://x", "203.0.113.1:0"]
)
def test_an_address_that_cannot_be_listened_on_is_explained(bind: str) -> None:
    with pytest.raises(ListenError) as refused:
        open_listeners([bind], backlog=1)
    assert bind.partition(":")[0] in str(refused.value)


def test_listeners_are_not_inherited_by_child_processes() -> None:
    opened = open_listeners(["127.0.0.1:0"], backlog=1)
    try:
        assert [sock.get_inheritable() for sock in opened] == [False] * len(opened)
    finally:
        for sock in opened:
            sock.close()


async def test_a_socket_that_was_handed_over_is_served() -> None:
    with socket.socket() as handed:
        handed.bind(("127.0.0.1", 0))
        async with running(Echo(), bind=f"fd://{os.dup(handed.fileno())}") as server:
            assert server.port == handed.getsockname()[1]
            await expect_service(server)


async def test_a_unix_socket_is_served_and_its_peers_have_no_address(tmp_path: Path) -> None:
    app = Echo()
    path = tmp_path / "http.sock"
    async with running(app, bind=f"unix:{path}") as server:
        assert server.urls == [f"unix:{path}"]
        async with Peer(await trio.open_unix_socket(path)) as peer:
            assert (await peer.ask(GOOD)).status == 200
        assert (app.scopes[0]["client"], app.scopes[0]["server"]) == (None, None)


async def test_a_unix_socket_that_is_served_is_not_taken_away_and_one_that_was_left_behind_is_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "http.sock"
    async with running(Echo(), bind=f"unix:{path}"):
        with pytest.raises(ListenError, match="in use"):
            open_listeners([f"unix:{path}"], backlog=1)
        async with Peer(await trio.open_unix_socket(path)) as peer:
            assert (await peer.ask(GOOD)).status == 200
    assert path.exists()
    async with running(Echo(), bind=f"unix:{path}"), Peer(await trio.open_unix_socket(path)) as peer:
        assert (await peer.ask(GOOD)).status == 200


def test_the_limit_of_open_files_is_raised_as_far_as_allowed_and_never_lowered() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        assert allow_descriptors(300) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
        assert allow_descriptors(250) == 250
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
        if hard != resource.RLIM_INFINITY:
            assert allow_descriptors(hard + 1) == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Flaky:
    """A listening socket whose first accepts fail as they do when descriptors run out."""

    def __init__(self, real: socket.socket, failures: list[int]) -> None:
        self._real = real
        self._failures = failures

    def accept(self) -> Any:
        if self._failures:
            number = self._failures.pop(0)
            raise OSError(number, os.strerror(number))
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def test_accept_errors_do_not_end_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EINVAL]

    def open_flaky(binds: Any, *, backlog: int) -> list[Any]:
        return [Flaky(sock, failures) for sock in open_listeners(binds, backlog=backlog)]

    monkeypatch.setattr("server.transport.http.listen.open_listeners", open_flaky)
    async with running(Echo(), bind="127.0.0.1:0") as server:
        await expect_service(server)
        assert failures == []
        assert server.counters.accept_errors == 4
        assert server.events() == ["http.accept_failed"]  # once, not at every try


def make_roster(*vital_paths: str, **limits: Any) -> ConnectionTable:
    log, _ = capturing()
    serving = Serving(
        resolve=hosting(Echo()),
        limits=HttpLimits(**limits),
        log=log,
        draining=trio.Event(),
        vital_paths=frozenset(vital_paths),
        now=0.0,
    )
    return ConnectionTable(serving)


def test_an_address_has_one_of_the_places_for_the_question_whether_the_server_lives() -> None:
    roster = make_roster("/healthz", connections=1, vital_connections=2)
    asked = [roster.admit(ip)[0] for ip in ("192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3", "192.0.2.4")]
    assert asked == [
        ConnectionPlace.GRANTED,
        ConnectionPlace.VITAL,
        ConnectionPlace.OVER_CAP,
        ConnectionPlace.VITAL,
        ConnectionPlace.OVER_CAP,
    ]


def test_the_cap_per_ip_counts_an_address_and_not_its_neighbours() -> None:
    roster = make_roster(connections_per_ip=2)
    keys = [roster.admit("192.0.2.1") for _ in range(2)]
    assert roster.admit("192.0.2.1")[0] is ConnectionPlace.OVER_IP_CAP
    assert (
        roster.admit("::ffff:192.0.2.1")[0] is ConnectionPlace.OVER_IP_CAP
    )  # the same address in other clothes
    assert roster.admit("192.0.2.2")[0] is ConnectionPlace.GRANTED
    roster.leave(keys[0][1])
    assert roster.admit("192.0.2.1")[0] is ConnectionPlace.GRANTED
    assert len(roster) == 3


def test_a_whole_ipv6_site_counts_as_one_caller() -> None:
    roster = make_roster(connections_per_ip=2)
    assert [roster.admit(ip)[0] for ip in ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")] == [
        ConnectionPlace.GRANTED, ConnectionPlace.GRANTED, ConnectionPlace.OVER_IP_CAP, ConnectionPlace.GRANTED
    ]  # fmt: skip


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", None])
def test_loopback_and_unix_peers_are_exempt_from_the_cap_per_ip_but_not_from_the_total(
    ip: str | None,
) -> None:
    roster = make_roster(connections_per_ip=1, connections=3)
    assert [roster.admit(ip)[0] for _ in range(4)] == [ConnectionPlace.GRANTED] * 3 + [
        ConnectionPlace.OVER_CAP
    ]


def test_trusted_proxies_are_exempt_because_each_stands_for_many_callers() -> None:
    log, _ = capturing()
    serving = Serving(
        resolve=hosting(Echo()),
        limits=HttpLimits(connections_per_ip=1),
        log=log,
        draining=trio.Event(),
        now=0.0,
    )
    roster = ConnectionTable(serving, exempt=networks_of(["192.0.2.0/24"]))
    assert [roster.admit("192.0.2.9")[0] for _ in range(3)] == [ConnectionPlace.GRANTED] * 3
    assert [roster.admit("198.51.100.1")[0] for _ in range(2)] == [
        ConnectionPlace.GRANTED,
        ConnectionPlace.OVER_IP_CAP,
    ]
