"""Names that a server does not answer for, in its log: each once an hour, and few in all."""

from __future__ import annotations

from loopback_server import capturing

from server.transport.http.allowed_hosts import Guard
from server.transport.http.unknown_hosts import MOST_NAMES, TOLD_AGAIN_SECONDS, UnknownHosts
from tests.transport.http.test_http_guard import scope_for


def test_a_name_that_is_refused_is_told_with_the_settings_once_an_hour() -> None:
    log, logged = capturing()
    now = 0.0
    guard = Guard(refused=UnknownHosts(log, lambda: now))
    for host in ("agent.example.org", "agent.example.org", "b.example"):
        assert not guard.admits_host(scope_for(host), host.encode())
    told = [call.kwargs for call in logged.calls]
    assert [each["host"] for each in told] == ["agent.example.org", "b.example"]
    assert all("issuer" in each["hint"] and "allowed_hosts" in each["hint"] for each in told)
    now += TOLD_AGAIN_SECONDS
    guard.admits_host(scope_for("b.example"), b"b.example")
    assert len(logged.calls) == 3


def test_strangers_with_many_names_fill_no_log() -> None:
    log, logged = capturing()
    tell = UnknownHosts(log, lambda: 0.0)
    for number in range(100):
        tell(f"{number}.example")
    assert len(logged.calls) == MOST_NAMES
