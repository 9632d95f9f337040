"""What the settings come to on this machine: directories, names, networks, certificates. Read once; `serve` and `doctor` share it.

Like `config.load` it reports every problem at once. Nothing is created or opened for good here.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from server import paths
from server.config import Config, ConfigInvalid, Loaded, Problem, ServerConfig

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    config: Config
    servers: tuple[ServerConfig, ...]
    source: Path | None
    data_dir: Path
    loopback: bool  # every name we answer to is a loopback name
    issuer: str  # canonical; "" means: http on loopback with the port we get
    trusted_proxies: tuple[Network, ...]
    paths: Mapping[str, str]  # server name → path of its MCP endpoint; the first is at /mcp

    def canonical_issuer(self, port: int) -> str:
        scheme = "https" if self.config.tls_certificate else "http"
        return self.issuer or f"{scheme}://127.0.0.1:{port}"


def data_directory(config: Config) -> Path:
    return Path(config.data_dir).expanduser() if config.data_dir else paths.data_home()


def resolve(loaded: Loaded) -> Resolved:
    """Raises `ConfigInvalid` with every problem."""
    config, problems = loaded.config, list[Problem]()
    loopback_socket = _is_loopback(config.host)
    issuer = _issuer(config, loopback_socket, problems)
    if config.auth == "none" and not (loopback_socket and (not issuer or _host_is_loopback(issuer))):
        problems.append(
            Problem(
                key="auth",
                what='"none" would let anybody in from the network',
                instead='"oauth", or host = "127.0.0.1"',
            )
        )
    _check_tls(config, problems)
    networks = _networks(config.trusted_proxies, problems)
    if problems:
        raise ConfigInvalid(problems, str(loaded.source) if loaded.source else "the settings")
    return Resolved(
        config=config,
        servers=loaded.servers,
        source=loaded.source,
        data_dir=data_directory(config),
        loopback=loopback_socket and (not issuer or _host_is_loopback(issuer)),
        issuer=issuer,
        trusted_proxies=networks,
        paths=MappingProxyType(
            {
                server.name: "/mcp" if position == 0 else f"/{server.name}/mcp"
                for position, server in enumerate(loaded.servers)
            }
        ),
    )


def _issuer(config: Config, loopback_socket: bool, problems: list[Problem]) -> str:
    written = config.issuer
    if not written:
        if not loopback_socket:
            problems.append(
                Problem(
                    key="issuer",
                    what=f"is needed when listening on {config.host}, because callers must know one address",
                    instead='the public address, e.g. "https://agent.example.org"',
                )
            )
        return ""
    try:
        parts = urlsplit(written)
        sound = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and parts.port != 0
            and written == written.lower()
        )
    except ValueError:
        problems.append(
            Problem(
                key="issuer",
                what=f'"{written}" is not an address',
                instead='e.g. "https://agent.example.org"',
            )
        )
        return ""
    bare = f"{parts.scheme}://{parts.netloc}"
    if not sound or "@" in parts.netloc or written.rstrip("/") != bare:
        problems.append(
            Problem(
                key="issuer",
                what=f'"{written}" is more than scheme and host in lower case',
                instead='e.g. "https://agent.example.org"',
            )
        )
        return ""
    if parts.scheme == "http" and not _host_is_loopback(bare) and not config.allow_insecure_http:
        problems.append(
            Problem(
                key="issuer",
                what=f'"{written}" would send tokens over the network unencrypted',
                instead="an https address, or allow_insecure_http = true in a network that you trust",
            )
        )
    return bare


def _check_tls(config: Config, problems: list[Problem]) -> None:
    if not config.tls_certificate and not config.tls_key:
        return
    if not config.tls_certificate or not config.tls_key:
        problems.append(
            Problem(key="tls_certificate", what="and tls_key belong together", instead="both, or neither")
        )
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            Path(config.tls_certificate).expanduser(), Path(config.tls_key).expanduser()
        )
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or getattr(error, "reason", None) or type(error).__name__
        problems.append(
            Problem(
                key="tls_certificate",
                what=f"and tls_key cannot be used: {reason}",
                instead="paths of a matching PEM pair",
            )
        )


def _networks(written: tuple[str, ...], problems: list[Problem]) -> tuple[Network, ...]:
    found = list[Network]()
    for text in written:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            problems.append(
                Problem(key="trusted_proxies", what=f'"{text}" is not a network', instead='e.g. "10.0.0.0/8"')
            )
    return tuple(found)


def _is_loopback(host: str) -> bool:
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_is_loopback(url: str) -> bool:
    return _is_loopback(urlsplit(url).hostname or "")
