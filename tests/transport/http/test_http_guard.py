"""server/transport/http/allowed_hosts.py: for whom this server answers."""

from __future__ import annotations

from typing import Any

import pytest

from server.transport.http.allowed_hosts import (
    ForeignRequest,
    Guard,
    OwnRequest,
    authority,
    normal_origin,
    origin_of,
)

LOOPBACK, PUBLIC = ("127.0.0.1", 8420), ("192.0.2.7", 443)


def scope_for(
    host: str | None, *, server: tuple[str, int] | None = LOOPBACK, scheme: str = "http", **state: Any
) -> dict[str, Any]:
    headers = [] if host is None else [(b"host", host.encode("latin-1"))]
    return {"scheme": scheme, "server": server, "headers": headers, "state": state, "type": "http"}


def decide(guard: Guard, scope: dict[str, Any], origin: str | None = None) -> OwnRequest | ForeignRequest:
    headers = dict(scope["headers"])
    if origin is not None:
        headers[b"origin"] = origin.encode()
    return guard.admit(scope, headers)


@pytest.mark.parametrize(
    "host", ["localhost:8420", "127.0.0.1:8420", "[::1]:8420", "LOCALHOST", "localhost:1234"]
)
def test_on_loopback_its_names_are_admitted_with_whatever_port_was_typed(host: str) -> None:
    scope = scope_for(host)
    assert decide(Guard(), scope) == OwnRequest(origin=f"http://{host.lower()}")
    assert origin_of(scope) == f"http://{host.lower()}"


@pytest.mark.requirement("http.host")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8420",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "localhost.",
        "0.0.0.0",
        "127.0.0.2",
        "[::]",
        "",
        None,
        "localhost:8420:1",
        "local host",
        "\xff",
        "user@localhost",
        "localhost/",
    ],
)
def test_every_other_name_is_refused_there(host: str | None) -> None:
    assert isinstance(decide(Guard(), scope_for(host)), ForeignRequest)


@pytest.mark.parametrize("server", [PUBLIC, None, ("::ffff:192.0.2.7", 1), ("0.0.0.0", 1)])
def test_loopback_names_are_refused_off_loopback(server: tuple[str, int] | None) -> None:
    assert isinstance(decide(Guard(), scope_for("localhost:8420", server=server)), ForeignRequest)


def test_loopback_names_are_admitted_where_the_owner_says_that_the_listener_is_on_loopback() -> None:
    assert isinstance(decide(Guard(on_loopback=True), scope_for("localhost:8420", server=None)), OwnRequest)


def test_what_came_through_a_proxy_did_not_arrive_on_loopback() -> None:
    for server in (LOOPBACK, ("::1", 1), ("::ffff:127.0.0.1", 1)):
        assert isinstance(decide(Guard(), scope_for("localhost", server=server)), OwnRequest)
        for guard in (Guard(), Guard(on_loopback=True)):
            assert isinstance(
                decide(guard, scope_for("localhost", server=server, proxied=True)), ForeignRequest
            )


def test_configured_names_are_admitted_everywhere_on_their_port() -> None:
    guard = Guard(hosts=frozenset({"agent.example", "other.example:8443"}))
    for host in ("agent.example", "Agent.Example:443", "other.example:8443"):
        assert isinstance(decide(guard, scope_for(host, server=PUBLIC, scheme="https")), OwnRequest)
    for host in ("agent.example:444", "other.example", "x.agent.example", "agent.example."):
        assert isinstance(decide(guard, scope_for(host, server=PUBLIC, scheme="https")), ForeignRequest)
    assert decide(guard, scope_for("agent.example:443", server=PUBLIC, scheme="https")) == OwnRequest(
        origin="https://agent.example"
    )


@pytest.mark.parametrize(
    "origin", ["http://localhost:8420", "http://127.0.0.1:3000", "https://localhost", "http://[::1]:6274"]
)
def test_pages_of_this_machine_may_call_a_server_on_loopback(origin: str) -> None:
    assert decide(Guard(), scope_for("localhost:8420"), origin) == OwnRequest(
        origin="http://localhost:8420", cors=origin.encode()
    )


@pytest.mark.requirement("http.origin")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "file://",
        "chrome-extension://abc",
        "http://localhost:8420, http://evil.example",
        "http://localhost:8420/path",
        "localhost",
    ],
)
def test_other_origins_are_refused(origin: str) -> None:
    denied = decide(Guard(), scope_for("localhost:8420"), origin)
    assert isinstance(denied, ForeignRequest)
    assert denied.status == 403


def test_off_loopback_only_the_own_and_the_configured_origins_may_call() -> None:
    guard = Guard(hosts=frozenset({"agent.example"}), origins=frozenset({"https://app.example:8443"}))
    scope = scope_for("agent.example", server=PUBLIC, scheme="https")
    for origin in ("https://agent.example", "https://agent.example:443", "HTTPS://App.Example:8443"):
        assert decide(guard, scope, origin) == OwnRequest(
            origin="https://agent.example", cors=origin.encode()
        )
    for origin in ("http://agent.example", "https://app.example", "http://localhost:3000", "null"):
        assert isinstance(decide(guard, scope, origin), ForeignRequest)


def test_any_origin_is_admitted_only_when_asked_for_and_null_not_even_then() -> None:
    guard = Guard(hosts=frozenset({"agent.example"}), any_origin=True)
    scope = scope_for("agent.example", server=PUBLIC, scheme="https")
    assert isinstance(decide(guard, scope, "https://anything.example"), OwnRequest)
    assert isinstance(decide(guard, scope, "null"), ForeignRequest)
    assert isinstance(decide(guard, scope_for("evil.example"), "https://anything.example"), ForeignRequest)


@pytest.mark.parametrize(
    ("host", "scheme", "name"),
    [
        (b"A.Example:80", "http", "a.example"),
        (b"a.example:80", "https", "a.example:80"),
        (b"a.example:443", "https", "a.example"),
        (b"[::1]:80", "http", "[::1]"),
        (b"[2001:DB8::1]", "http", "[2001:db8::1]"),
        (b"a:b", "http", None),
        (b"a.example:", "http", None),
        (b"", "http", None),
        (None, "http", None),
    ],
)
def test_names_are_compared_in_one_form(host: bytes | None, scheme: str, name: str | None) -> None:
    assert authority(host, scheme) == name


def test_origins_are_compared_in_one_form() -> None:
    assert normal_origin("HTTPS://A.Example:443") == "https://a.example"
    assert normal_origin("http://a.example:8080") == "http://a.example:8080"
    assert normal_origin("http://a.example/") is None
    assert normal_origin("ftp://a.example") is None
    assert normal_origin("http://ä.example") is None
