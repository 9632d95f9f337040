"""The admin listener: health and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from server.transport.http.health_probes import Probe, Readiness


async def ask(
    method: str,
    path: str,
    *,
    missing: str = "",
    headers: dict[bytes, bytes] | None = None,
    told: tuple[str, ...] = (),
) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Any] = []

    async def ready() -> Readiness:
        return Readiness(missing=missing, told=told)

    async def metrics() -> tuple[bytes, str]:
        return b"counted 1\n", "text/plain; version=0.0.4"

    async def receive() -> Any:
        raise AssertionError("nobody's body is of interest here")

    async def send(message: Any) -> None:
        sent.append(message)

    probe = Probe(ready=ready, metrics=metrics)
    head = {b"host": b"127.0.0.1:9000"} if headers is None else headers
    scope = {"type": "http", "method": method, "path": path, "scheme": "http", "headers": list(head.items())}
    await probe({**scope, "server": ("127.0.0.1", 9000), "state": {}}, receive, send)
    start, body = sent
    return start["status"], dict(start["headers"]), body["body"]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/healthz", b"ok\n"), ("/readyz", b"ready\n"), ("/metrics", b"counted 1\n"), ("//healthz", b"ok\n")],
)
async def test_a_probe_is_answered_and_a_head_of_it_without_the_body(path: str, body: bytes) -> None:
    status, headers, got = await ask("GET", path)
    assert (status, got) == (200, body)
    assert await ask("HEAD", path) == (200, headers, b"")
    assert headers[b"content-length"] == b"%d" % len(body)
    wanted = b"text/plain; version=0.0.4" if path == "/metrics" else b"text/plain; charset=utf-8"
    assert headers[b"content-type"] == wanted


async def test_a_server_that_is_not_ready_says_what_is_missing() -> None:
    status, _, body = await ask("GET", "/readyz", missing="the store is closed")
    assert (status, body) == (503, b"not ready: the store is closed\n")
    assert (await ask("GET", "/healthz", missing="the store is closed"))[0] == 200


async def test_a_bad_agent_is_named_and_the_server_is_ready_all_the_same() -> None:
    status, _, body = await ask(
        "GET", "/readyz", told=("out of order: main[1]", "out of order: main[2] (a\nb.py)")
    )
    assert (status, body) == (200, b"ready\nout of order: main[1]\nout of order: main[2] (a b.py)\n")


@pytest.mark.parametrize("path", ["/", "/healthz/", "/mcp", "/Healthz", "/health", ""])
async def test_nothing_else_is_there(path: str) -> None:
    for method in ("GET", "POST"):
        assert (await ask(method, path))[::2] == (404, b"not found\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
async def test_other_methods_are_refused(method: str) -> None:
    assert (await ask(method, "/metrics"))[::2] == (405, b"method not allowed\n")


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/healthz", "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {b"host": b"evil.example"},
        {b"host": b"evil.example:9000"},
        {b"host": b"127.0.0.1.evil.example:9000"},
        {b"host": b"evil.example, 127.0.0.1"},
        {b"host": b""},
        {b"host": b"127.0.0.1:9000", b"origin": b"https://evil.example"},
        {b"host": b"127.0.0.1:9000", b"origin": b"null"},
    ],
)
async def test_a_page_that_led_its_name_here_or_comes_from_elsewhere_is_told_nothing(
    path: str, headers: dict[bytes, bytes]
) -> None:
    status, _, body = await ask("GET", path, headers=headers)
    assert status == 403
    assert b"counted" not in body


@pytest.mark.parametrize(
    "headers",
    [
        {b"host": b"localhost:9000"},
        {b"host": b"[::1]:9000"},
        {b"host": b"127.0.0.1"},
        {b"host": b"localhost", b"origin": b"http://localhost:3000"},
        {},
    ],
)
async def test_this_machine_is_answered_by_any_of_its_own_names(headers: dict[bytes, bytes]) -> None:
    assert (await ask("GET", "/metrics", headers=headers))[0] == 200
