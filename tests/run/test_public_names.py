"""The whole program by the names it is reached under: an issuer, a proxy that says so or does not, and loopback."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
from test_app import Running, running

from server.transport.bounded_log import LINES_PER_NETWORK

ISSUER = "https://agent.example.org"
PROXY = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
METADATA = "/.well-known/oauth-protected-resource/mcp"


async def ask(server: Running, method: str, path: str, *, host: str, **headers: str) -> httpx2.Response:
    """A request to the socket itself, whatever name stands in Host."""
    started = next(
        json.loads(line) for line in server.log.getvalue().splitlines() if "server.started" in line
    )
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        return await client.request(
            method,
            started["listens"][0] + path,
            headers={"host": host} | {name.replace("_", "-"): value for name, value in headers.items()},
        )


def addresses(server: Running) -> list[str]:
    lines = [json.loads(line) for line in server.log.getvalue().splitlines()]
    return [line["ip"] for line in lines if line["event"] == "http.request"]


async def test_behind_a_trusted_proxy_everything_speaks_of_the_issuer(tmp_path: Path) -> None:
    async with running(tmp_path, issuer=ISSUER, trusted_proxies="127.0.0.1") as server:
        refused = await ask(server, "GET", "/mcp", host="agent.example.org", **PROXY)
        assert refused.status_code == 401
        assert f'resource_metadata="{ISSUER}{METADATA}"' in refused.headers["www-authenticate"]
        document = (await ask(server, "GET", METADATA, host="agent.example.org", **PROXY)).json()
        assert (document["resource"], document["authorization_servers"]) == (f"{ISSUER}/mcp", [ISSUER])
        page = await ask(server, "GET", "/device", host="agent.example.org", **PROXY)
        assert (page.status_code, page.headers["location"]) == (303, "/signin?next=/device")
        renamed = await ask(
            server, "GET", "/mcp", host="backend", x_forwarded_host="agent.example.org", **PROXY
        )
        assert renamed.status_code == 401
        assert (await ask(server, "GET", "/mcp", host="localhost", **PROXY)).status_code == 403
        assert set(addresses(server)) == {"203.0.113.9"}


async def test_without_a_trusted_proxy_what_is_forwarded_is_not_believed(tmp_path: Path) -> None:
    async with running(tmp_path, issuer=ISSUER) as server:
        host = "agent.example.org"
        renamed = await ask(server, "GET", "/mcp", host="evil.example", x_forwarded_host=host, **PROXY)
        assert renamed.status_code == 403
        kept = await ask(server, "GET", METADATA, host=host, x_forwarded_host="evil.example", **PROXY)
        assert kept.json()["authorization_servers"] == [ISSUER]
        # Only the scheme of the connection itself makes a sign-in page safe to show.
        assert (await ask(server, "GET", "/device", host=host, **PROXY)).status_code == 400
        assert set(addresses(server)) == {"127.0.0.1"}


async def test_a_proxy_that_does_not_say_https_still_serves_calls_and_the_issuers_own_pages(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, issuer=ISSUER) as server:
        host = "agent.example.org"
        challenge = (await ask(server, "POST", "/mcp", host=host)).headers["www-authenticate"]
        assert f'"{ISSUER}{METADATA}"' in challenge
        preflight = await ask(server, "OPTIONS", "/mcp", host=host, origin=ISSUER)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, ISSUER)
        assert (
            await ask(server, "OPTIONS", "/mcp", host=host, origin="https://evil.example")
        ).status_code == 403
        front = (await ask(server, "GET", "/", host=host)).text
        assert f"{ISSUER}/mcp" in front
        assert f"http://{host}" not in front


async def test_pages_of_ours_refuse_other_verbs_and_say_which_there_are(tmp_path: Path) -> None:
    async with running(tmp_path, auth="none") as server:
        for path in ("/", "/healthz"):
            refused = await ask(server, "POST", path, host="localhost")
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_a_balancer_is_told_whether_to_send_callers_by_whatever_name_it_asks(tmp_path: Path) -> None:
    async with running(tmp_path, issuer=ISSUER) as server:
        for host in ("agent.example.org", "10.0.0.11:8420"):
            asked = await ask(server, "GET", "/readyz", host=host)
            assert (asked.status_code, asked.text) == (200, "ready\n")
        assert (await ask(server, "GET", "/", host="10.0.0.11:8420")).status_code == 403
        assert (await ask(server, "HEAD", "/readyz", host="balancer")).text == ""
        refused = await ask(server, "POST", "/readyz", host="balancer")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        # It is asked every few seconds, for ever: what goes well is not worth a line.
        assert [
            line
            for line in server.log.getvalue().splitlines()
            if '"/readyz"' in line and '"status":200' in line
        ] == []


async def test_a_stranger_fills_only_so_much_of_the_log_and_it_says_how_much_was_left_out(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as server, httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        for _ in range(LINES_PER_NETWORK + 5):
            for path, status in (("/nothing/here", 404), ("/mcp", 401)):
                assert (await client.get(server.started.origin + path)).status_code == status
    lines = [json.loads(line) for line in server.log.getvalue().splitlines()]
    assert len(addresses(server)) == LINES_PER_NETWORK
    assert [line["count"] for line in lines if line["event"] == "log.more"] == [LINES_PER_NETWORK + 10]
