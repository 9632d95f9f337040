"""client/public_address.py: how an address looks to somebody who meets it, with real sockets and a name service of the test's."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from server.client.check_step import CheckStep
from server.client.http_exchange import open_client
from server.client.public_address import address_steps, plain_http
from tests.made_certificates import trusting, write_certificate

NAME = "agent.example.org"
REDIRECT = (
    b"HTTP/1.1 308 Permanent Redirect\r\nLocation: https://agent.example.org/\r\nContent-Length: 0\r\n\r\n"
)
IN_CLEAR = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Names(trio.abc.HostnameResolver):
    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        host = host.decode() if isinstance(host, bytes) else host
        if host != NAME:
            raise socket.gaierror("no such name")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port))) for address in self.addresses
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


@asynccontextmanager
async def listening(answer: bytes = b"", *, context: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    async def serve(stream: trio.abc.Stream) -> None:
        with trio.move_on_after(10):
            try:
                if await stream.receive_some(65536) and answer:
                    await stream.send_all(answer)
            except (trio.BrokenResourceError, ssl.SSLError):
                pass
        await trio.aclose_forcefully(stream)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    served: Any = listener if context is None else trio.SSLListener(listener, context, https_compatible=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [served])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def steps_at(url: str, *addresses: str, trust: ssl.SSLContext | None = None) -> list[CheckStep]:
    trio.socket.set_custom_hostname_resolver(Names(*addresses))
    async with open_client() as client:
        return [
            step
            async for step in address_steps(client, url, trust=lambda: trust or ssl.create_default_context())
        ]


def with_certificate(
    folder: Path, host: str = NAME, *, ends_in_hours: float = 1
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of a client that trusts it."""
    certificate, key = write_certificate(folder, "one", host=host, ends_in_hours=ends_in_hours)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, trusting(certificate)


async def test_a_name_that_nobody_knows_ends_it(tmp_path: Path) -> None:
    (step,) = await steps_at("https://other.example.org/mcp")
    assert step.state == "failed" and " other.example.org " in step.detail


async def test_where_nothing_answers_the_owner_hears_where_to_look() -> None:
    (step,) = await steps_at(f"https://{NAME}:1/mcp", "127.0.0.1")
    assert (step.name, step.state) == ("connection", "failed")
    assert step.detail.endswith(" port 1 of 127.0.0.1")


async def test_one_address_of_several_that_leads_elsewhere_is_found(tmp_path: Path) -> None:
    server, client = with_certificate(tmp_path)
    async with listening(context=server) as port:
        connection, certificate = await steps_at(
            f"https://{NAME}:{port}/mcp", "127.0.0.1", "127.0.0.9", trust=client
        )
    assert (connection.state, connection.goes_on) == ("failed", True)
    assert connection.detail.endswith(f" port {port} of 127.0.0.9")
    assert "DNS record" in (connection.hint or "")
    assert certificate.name == "certificate"


async def test_a_certificate_is_shown_with_its_name_and_its_days_and_one_that_ends_is_a_fault(
    tmp_path: Path,
) -> None:
    server, client = with_certificate(tmp_path)
    async with listening(context=server) as port:
        connection, certificate = await steps_at(f"https://{NAME}:{port}/mcp", "127.0.0.1", trust=client)
    assert connection.state == "ok" and "this machine" in connection.detail
    # It is one of an hour.
    assert (certificate.state, certificate.goes_on) == ("failed", True)
    assert certificate.detail.startswith(f"for {NAME}, from one, good for ")
    assert "certificate status" in (certificate.hint or "")


async def test_what_is_wrong_with_a_certificate_is_said_in_words(tmp_path: Path) -> None:
    server, client = with_certificate(tmp_path, host="other.example.org")
    async with listening(context=server) as port:
        url = f"https://{NAME}:{port}/mcp"
        named = (await steps_at(url, "127.0.0.1", trust=client))[-1]
        unknown = (await steps_at(url, "127.0.0.1"))[-1]
    assert named.detail.endswith("another name")
    assert "signed by nobody" in unknown.detail

    server, client = with_certificate(tmp_path, ends_in_hours=-1)
    async with listening(context=server) as port:
        over = (await steps_at(f"https://{NAME}:{port}/mcp", "127.0.0.1", trust=client))[-1]
    assert over.detail.endswith("it is over")


async def test_what_speaks_no_tls_is_told_from_a_bad_certificate() -> None:
    async with listening(IN_CLEAR) as port:
        step = (await steps_at(f"https://{NAME}:{port}/mcp", "127.0.0.1"))[-1]
    assert step.detail.endswith("speaks no TLS")


async def test_a_server_that_waits_for_its_certificate_is_known_by_what_it_says() -> None:
    async with listening(b"\x15\x03\x03\x00\x02\x02\x70") as port:
        step = (await steps_at(f"https://{NAME}:{port}/mcp", "127.0.0.1"))[-1]
    assert step.detail.endswith("no certificate for this name")
    assert "certificate status" in (step.hint or "")


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (REDIRECT, "ok", "to https"),
        (IN_CLEAR, "failed", "in clear, with status 200"),
        (None, "skipped", "nothing answers"),
    ],
)
async def test_whoever_types_no_https_is_led_on_or_that_is_said(
    answer: bytes | None, state: str, said: str
) -> None:
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    async with listening(answer or b"") as port, open_client() as client:
        step = await plain_http(client, NAME, port if answer else 1)
    assert step.state == state
    assert said in step.detail
