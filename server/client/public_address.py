"""The checks of a server's address, before anything is asked there: which IP addresses its name has, whether each of them answers,
which certificate is shown, and where somebody ends who types the address without https.

The checks go over the network by the name that was typed, also on the machine of the server itself. They cannot see what only others
see, such as the far side of a router; the steps say so where it matters.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from server.client.check_step import CheckStep
from server.client.client_errors import ClientError
from server.client.http_exchange import CONNECT_SECONDS, network_trouble, peek
from server.lib.host_names import authority
from server.lib.http_client.http_client import HttpClient
from server.lib.http_client.proxies import Proxy, proxy_for
from server.lib.http_client.trusted_roots import system_trust
from server.lib.oauth_client.addresses import is_loopback

# How many of a name's IP addresses are tried.
ADDRESSES: Final = 8
# Whatever renews certificates does so long before: Let's Encrypt's shortest are renewed with two days left.
ENDS_SOON_SECONDS: Final = 2 * 86_400.0

MakeTrust = Callable[[], ssl.SSLContext]


async def address_steps(
    client: HttpClient,
    url: str,
    *,
    trust: MakeTrust = system_trust,
) -> AsyncGenerator[CheckStep, None]:
    """Check the address of `url`, and yield each step when it is done: connection, certificate, plain http.

    A failed connection without `goes_on` is the last step. There is a certificate for https only, and plain http is asked only where
    `url` names no port and is not on this machine.
    """
    parts = urlsplit(url)
    if (proxy := proxy_for(parts, os.environ)) is not None:
        yield await _through(client, url, proxy)
        return
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    step = await _connection(url, host, port)
    yield step
    if (step.state == "failed" and not step.goes_on) or parts.scheme != "https":
        return
    step = await _certificate(host, port, await trio.to_thread.run_sync(trust))
    yield step
    if parts.port is None and not is_loopback(url):
        yield await plain_http(client, host)


# ── the name, and what it leads to ───────────────────────────────────────────────────────────────────────────────────


async def _through(client: HttpClient, url: str, proxy: Proxy) -> CheckStep:
    """Report whether a proxy leads there. Addresses and certificate of the server are not seen from behind one."""
    name = "connection"
    try:
        with network_trouble(url):
            await client.reach(url)
    except ClientError as error:
        return CheckStep.failed(name, str(error), error.hint)
    return CheckStep.ok(name, f"through the proxy {proxy.place}, which alone sees more of it")


async def _connection(url: str, host: str, port: int) -> CheckStep:
    name = "connection"
    try:
        with trio.fail_after(CONNECT_SECONDS):
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, trio.TooSlowError, UnicodeError):
        return CheckStep.failed(
            name, f"the name {host} is not known here", "check the spelling, or the network"
        )
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))[:ADDRESSES]
    spoken = ", ".join(addresses[:4])
    answers: dict[str, bool] = {}
    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(_try, address, port, answers)
    silent = [address for address in addresses if not answers[address]]
    if len(silent) == len(addresses):
        return CheckStep.failed(
            name, f"nothing answers on port {port} of {spoken}", _why_silent(url, addresses)
        )
    # `localhost` has two families, and whoever serves one of them means to.
    if silent and not is_loopback(url):
        return CheckStep.failed(
            name,
            f"{host} is {spoken}; nothing answers on port {port} of {', '.join(silent)}",
            "callers and certificate authorities may try that one first: let it lead here, or remove its DNS record",
            goes_on=True,
        )
    named = f"{host} is {spoken}; " if addresses != [host] else ""
    return CheckStep.ok(name, f"{named}port {port} answers{_reach(url, addresses)}")


async def _try(address: str, port: int, answers: dict[str, bool]) -> None:
    answers[address] = False
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await trio.open_tcp_stream(address, port)
            await stream.aclose()
    except (OSError, trio.TooSlowError):
        return
    answers[address] = True


def _why_silent(url: str, addresses: list[str]) -> str:
    if is_loopback(url):
        return "is it running? `ostiary serve` starts it"
    if all(_is_private(address) for address in addresses):
        return "check the address, or a firewall"
    return (
        "check the address, a firewall, and the router's port forwarding; behind the router itself it may not be seen: "
        "try from elsewhere, such as a phone without Wi-Fi"
    )


def _reach(url: str, addresses: list[str]) -> str:
    """Return words to append on who can reach the addresses; "" for public addresses and for a URL of this machine."""
    if is_loopback(url) or not all(_is_private(address) for address in addresses):
        return ""
    if all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        return " (the name leads back to this machine here; that it leads here from elsewhere was not seen)"
    return " (private addresses: reached from this network alone)"


def _is_private(address: str) -> bool:
    return not ipaddress.ip_address(address.partition("%")[0]).is_global


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

_NO_TLS: Final = "no TLS connection"
_WHY: Final = (
    # part of what OpenSSL says, what it means, what to do
    ("certificate has expired", "it is over", "ostiary certificate status, at that machine; or renew it where it is ended"),
    ("not yet valid", "it is not valid yet", "is this machine's clock right?"),
    ("mismatch", "it is for another name", "the certificate must name the host that callers type"),
    ("doesn't match", "it is for another name", "the certificate must name the host that callers type"),
    ("self-signed", "it was signed by nobody that is known here", "get one from an authority: domain = […]; a private authority: SSL_CERT_FILE"),
    ("self signed", "it was signed by nobody that is known here", "get one from an authority: domain = […]; a private authority: SSL_CERT_FILE"),
    ("unable to get local issuer", "its chain leads to no authority that is known here", "serve the whole chain (fullchain.pem), not the certificate alone"),
)  # fmt: skip


async def _certificate(host: str, port: int, trust: ssl.SSLContext) -> CheckStep:
    name = "certificate"
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await trio.open_ssl_over_tcp_stream(host, port, https_compatible=True, ssl_context=trust)
            try:
                await stream.do_handshake()
                shown: dict[str, Any] = dict(stream.getpeercert() or {})
            finally:
                await trio.aclose_forcefully(stream)
    except trio.TooSlowError:
        return CheckStep.failed(name, f"{_NO_TLS}: no answer in time", "is it https that is served there?")
    except (trio.BrokenResourceError, OSError) as error:
        return _refused(error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else error)
    return _shown(host, shown)


def _refused(error: BaseException) -> CheckStep:
    name = "certificate"
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.partition(",")[0]
        for part, words, hint in _WHY:
            if part in said.lower():
                return CheckStep.failed(name, f"not accepted: {words}", hint)
        return CheckStep.failed(name, f"not accepted: {said}")
    reason = (getattr(error, "reason", "") or "").lower()
    if "unrecognized_name" in reason:
        return CheckStep.failed(
            name,
            f"{_NO_TLS}: the server has no certificate for this name",
            "ostiary certificate status, at that machine, says what keeps it",
        )
    if "wrong_version_number" in reason or "record_layer_failure" in reason:
        return CheckStep.failed(
            name,
            f"{_NO_TLS}: what answers there speaks no TLS",
            "http:// instead of https://, or another port",
        )
    return CheckStep.failed(name, f"{_NO_TLS} could be made", "is it https that is served there?")


def _shown(host: str, shown: dict[str, Any]) -> CheckStep:
    left = ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()
    parts = {key: value for each in shown.get("issuer", ()) for key, value in each}
    issuer = parts.get("organizationName") or parts.get("commonName") or "somebody without a name"
    days = f"{left / 86_400:.0f} days" if left >= ENDS_SOON_SECONDS else f"{left / 3600:.0f} hours"
    detail = f"for {host}, from {issuer}, good for {days}"
    if left < ENDS_SOON_SECONDS:
        return CheckStep.failed(
            "certificate",
            detail,
            "nothing has renewed it: ostiary certificate status, at that machine",
            goes_on=True,
        )
    return CheckStep.ok("certificate", detail)


# ── without https ────────────────────────────────────────────────────────────────────────────────────────────────────


async def plain_http(client: HttpClient, host: str, port: int = 80) -> CheckStep:
    name = "plain http"
    url = f"http://{authority(host, None if port == 80 else port)}/"
    try:
        with trio.fail_after(CONNECT_SECONDS):
            answer = await peek(client, "GET", url, headers={"Accept": "text/html"})
    except (ClientError, trio.TooSlowError):
        return CheckStep.skipped(
            name,
            f"nothing answers on port {port}: who types the address without https finds nobody",
            "http_port = 80 leads them on",
        )
    location = answer.head.value(b"location")
    if 300 <= answer.status < 400 and urlsplit(location).scheme == "https":
        led = urlsplit(location).hostname
        where = "" if led == host else f" of {led}"
        return CheckStep.ok(name, f"is led on to https{where}")
    return CheckStep.failed(
        name,
        f"answers in clear, with status {answer.status}, instead of leading on to https",
        "whoever types http:// there sends everything in clear: redirect it, or close the port",
    )
