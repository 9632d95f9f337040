"""The settings as they come out on this machine: directories, names, networks, certificates. `serve` and `doctor` share them.

Every problem is reported at once. Nothing is created or opened for good here.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from auth.values.scopes import Vocabulary
from server.lib import paths
from server.settings.acme_settings import AcmeConfig, acme_faults
from server.settings.limit_settings import LimitsConfig
from server.settings.money_settings import PaymentsConfig, PlanConfig
from server.settings.policy_settings import vocabulary
from server.settings.program_rights import user_problem
from server.settings.provider_settings import UpstreamConfig
from server.settings.secret_reference import without_credentials
from server.settings.setting_shapes import Config, ServerConfig
from server.settings.settings_reader import ConfigInvalid, LoadedSettings, SettingsProblem
from server.settings.started_programs import run_all_as
from server.settings.store_reference import store_fault
from server.settings.telemetry_settings import TelemetryConfig, telemetry_faults

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# A name as callers send it in Host: one that is written otherwise would never match, and lock everybody out.
_AUTHORITY: Final = re.compile(r"(?:[0-9a-z._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN: Final = re.compile(rf"https?://{_AUTHORITY.pattern}")
_HOST: Final = re.compile(r"\*|[0-9A-Za-z._-]+|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?")
# RFC 9116 §2.5.3: an address as a URI, of the web only https. What has a blank in it would end the line.
_CONTACT: Final = re.compile(r"mailto:[!-~]+@[!-~]+|https://[!-~]+|tel:\+[0-9][0-9.-]+")
MOST_WORKERS: Final = 64
# Notes a fault: the setting, what is wrong, what to write instead.
Wrong: TypeAlias = Callable[[str, str, str], None]
_DEFAULT_PORTS: Final = MappingProxyType({"http": 80, "https": 443})


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    servers: tuple[ServerConfig, ...]
    source: Path | None
    servers_file: Path | None = None  # another program's, which names the servers
    data_dir: Path
    loopback: bool  # every name we answer to is a loopback name
    issuer: str  # canonical; "" means: http on loopback with the port we get
    trusted_proxies: tuple[Network, ...]
    # Server name → path of its MCP endpoint; the first is at /mcp, unless it has one of its own.
    paths: Mapping[str, str]
    aliases: Mapping[str, str] = MappingProxyType({})  # further path → server name
    scopes: Vocabulary = msgspec.field(default_factory=Vocabulary)
    upstreams: tuple[UpstreamConfig, ...] = ()
    backup_dir: Path | None = None  # None: in the data directory
    payments: PaymentsConfig | None = None
    plans: tuple[PlanConfig, ...] = ()
    limits: LimitsConfig = LimitsConfig()
    acme: AcmeConfig = AcmeConfig()
    telemetry: TelemetryConfig | None = None
    program: str = "ostiary"  # how it is typed on this machine, wherever one stands

    def open_to_all(self, server: ServerConfig) -> bool:
        """Return whether nobody is asked to log in there: as the server says, or else the settings."""
        return (server.auth or self.config.auth) == "none"

    @property
    def needs_login(self) -> bool:
        """Return whether there is a server that somebody must log in to."""
        return not all(self.open_to_all(server) for server in self.servers)

    @property
    def workers(self) -> int:
        """The number of processes that serve."""
        return _workers(self.config)

    @property
    def sells(self) -> bool:
        """Return whether anything could cost something here."""
        return self.payments is not None or any(
            server.price is not None
            or any(tool.price is not None or tool.price_for for tool in server.tools.values())
            for server in self.servers
        )

    @property
    def open_servers(self) -> frozenset[str]:
        return frozenset(server.name for server in self.servers if self.open_to_all(server))

    def canonical_issuer(self, port: int) -> str:
        scheme = "https" if self.config.tls_certificate else "http"
        return self.issuer or f"{scheme}://{_own_name(self.config.host)}:{port}"


def _workers(config: Config) -> int:
    if config.workers != "auto":
        return config.workers
    # A file is one process's; and more of them than settings may ask for are of no use.
    return min(_processors(), MOST_WORKERS) if config.store else 1


def _processors() -> int:
    """Return the number of processors that this process may use, as far as the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def data_directory(config: Config) -> Path:
    return Path(config.data_dir).expanduser() if config.data_dir else paths.data_home()


def resolve(loaded: LoadedSettings) -> Resolved:
    """Resolve the settings. Raises `ConfigInvalid` with every problem."""
    resolved, problems = resolve_all(loaded)
    if problems:
        raise ConfigInvalid(problems, str(loaded.source) if loaded.source else "the settings")
    return resolved


def resolve_all(loaded: LoadedSettings) -> tuple[Resolved, list[SettingsProblem]]:
    """Return the resolved settings and their problems. With any problem, nobody may be served by them."""
    config, problems = _for_its_domain(loaded), list[SettingsProblem]()

    def wrong(key: str, what: str, instead: str) -> None:
        problems.append(SettingsProblem(key, what, instead))

    loopback_socket = _is_loopback(config.host)
    _check_names(loaded.config, wrong)
    issuer = _issuer(config, loopback_socket, wrong)
    if config.auth == "none" and not (loopback_socket and (not issuer or _host_is_loopback(issuer))):
        wrong("auth", '"none" would let anybody in from the network', '"oauth", or host = "127.0.0.1"')
    if config.auth == "none" and config.trusted_proxies:
        wrong("auth", '"none" would let anybody in whom a proxy passes on', '"oauth", or no trusted_proxies')
    if config.registration == "token" and not config.registration_token:
        wrong(
            "registration_token",
            'is needed with registration = "token": it is what programs must show',
            'where it is kept, "env:NAME" or "file:/path"',
        )
    elif config.registration_token and not config.registration_token.startswith(("env:", "file:")):
        wrong("registration_token", "is no reference", '"env:NAME" or "file:/path"')
    if config.programs_run_as and (problem := user_problem(config.programs_run_as)):
        wrong("programs_run_as", problem, "the name of another user")
    servers = run_all_as(loaded.servers, config.programs_run_as) if config.programs_run_as else loaded.servers
    _check_store(config, wrong)
    _check_streams(config, loaded.servers, wrong)
    _check_prefixes(config, loaded.servers, wrong)
    _check_tls(config, wrong)
    _check_ports(config, wrong)
    for fault in acme_faults(config, loaded.acme):
        wrong(*fault)
    for fault in telemetry_faults(loaded.telemetry) if loaded.telemetry is not None else ():
        wrong(*fault)
    networks = _networks(config.trusted_proxies, wrong)
    ways, aliases = _ways(loaded.servers, wrong)
    resolved = Resolved(
        config=config,
        servers=servers,
        source=loaded.source,
        servers_file=loaded.servers_file,
        data_dir=data_directory(config),
        backup_dir=Path(config.backup_dir).expanduser() if config.backup_dir else None,
        loopback=loopback_socket and (not issuer or _host_is_loopback(issuer)),
        issuer=issuer,
        trusted_proxies=networks,
        paths=ways,
        aliases=aliases,
        scopes=vocabulary(loaded.scopes, loaded.servers),
        upstreams=loaded.upstreams,
        payments=loaded.payments,
        plans=loaded.plans,
        limits=loaded.limits,
        acme=loaded.acme,
        telemetry=loaded.telemetry,
    )
    return resolved, problems


def _check_store(config: Config, wrong: Wrong) -> None:
    if (fault := store_fault(config.store, os.environ)) is not None:
        wrong("store", fault.what, fault.instead)
    if not config.store and config.workers not in (1, "auto"):
        wrong(
            "workers",
            f"{config.workers} processes cannot share a database that is a file: what one writes, the others would not hear of",
            "1, or with `store` a PostgreSQL database (docs/scale.md)",
        )
    if config.store_ca:
        try:
            ssl.create_default_context(cafile=Path(config.store_ca).expanduser())
        except OSError as error:  # of TLS as well
            why = error.strerror if not isinstance(error, ssl.SSLError) else "there is no certificate in it"
            wrong(
                "store_ca",
                f'"{config.store_ca}" cannot be used: {why}',
                "the path of a file in PEM with certificates of authorities",
            )
    if config.store and config.backup_hours:
        wrong(
            "backup_hours",
            "is for a database in a file, and `store` leads to another",
            "0, and the database's own back-ups (pg_basebackup, pg_dump)",
        )


def _check_streams(config: Config, servers: Sequence[ServerConfig], wrong: Wrong) -> None:
    """Refuse streams of the transport of 2024-11-05 with several processes: their POSTs may reach any."""
    count = _workers(config)
    if config.store and count > 1:
        for place, server in enumerate(servers, 1):
            if server.compat.sse:
                wrong(
                    f"server[{place}].compat.sse",
                    f"keeps each stream in one process, and {count} processes serve: its POSTs would reach the wrong one",
                    "false, or workers = 1",
                )


def _check_prefixes(config: Config, servers: Sequence[ServerConfig], wrong: Wrong) -> None:
    """Refuse names that are settled by who comes first where each of several processes would settle them by itself, and where settings go by
    names: the one that is meant may have another when it comes late."""
    count = _workers(config) if config.store else 1
    for place, server in enumerate(servers, 1):
        for position, agent in enumerate(server.agents, 1):
            if not getattr(agent, "gives_way", False):
                continue
            key = f"server[{place}].agent[{position}].prefix"
            if count != 1:
                wrong(
                    key,
                    f'is "on collision", and {count} processes serve: a tool might be called otherwise in each',
                    '"always", or workers = 1',
                )
            if named := _going_by_names(server):
                wrong(
                    key,
                    f'is "on collision", and {named} goes by names of tools: another might have one of them at the next start',
                    '"always"',
                )


def _going_by_names(server: ServerConfig) -> str:
    """Return the setting of a server that names tools, and stands in front of them or opens them; empty: none does."""
    for name in ("tools", "expose", "anonymous_tools"):
        if getattr(server, name):
            return name
    return "policy" if any(set(rule.tools) - {"*"} for rule in server.policy) else ""


def _for_its_domain(loaded: LoadedSettings) -> Config:
    """Return the settings with the listening place that names for certificates mean, unless the settings say another."""
    config = loaded.config
    if not config.domain:
        return config
    port = config.issuer.rpartition(":")[2].removesuffix("/")
    suffix = f":{port}" if port.isdecimal() else ""
    return msgspec.structs.replace(
        config,
        host=config.host if "host" in loaded.written else "*",
        port=config.port if "port" in loaded.written else 443,
        allowed_hosts=(*config.allowed_hosts, *(name + suffix for name in config.domain)),
    )


def _ways(servers: Sequence[ServerConfig], wrong: Wrong) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return where each server is, and which other paths lead there."""
    ways = {
        server.name: server.path or ("/mcp" if position == 0 else f"/{server.name}/mcp")
        for position, server in enumerate(servers)
    }
    aliases: dict[str, str] = {}
    taken: dict[str, str] = {}
    for place, server in enumerate(servers, 1):
        for key, path in (("path", ways[server.name]), *(("aliases", alias) for alias in server.aliases)):
            if path in taken:
                what = f'"{path}" leads to {taken[path]} already'
                wrong(f"server[{place}].{key}", what, "a path of its own")
            taken.setdefault(path, server.name)
        aliases |= dict.fromkeys(server.aliases, server.name)
    return MappingProxyType(ways), MappingProxyType(aliases)


def _issuer(config: Config, loopback_socket: bool, wrong: Wrong) -> str:
    written = config.issuer
    if not written and config.domain:
        return f"https://{config.domain[0]}"
    if not written:
        if not loopback_socket and _is_host(config.host):
            wrong(
                "issuer",
                f"is needed when listening on {config.host}, because callers must know one address",
                'the public address, e.g. "https://agent.example.org"',
            )
        return ""
    try:
        parts = urlsplit(written)
        sound = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and parts.port != 0
            and _AUTHORITY.fullmatch(parts.netloc)
        )
    except ValueError:
        wrong(
            "issuer",
            f'"{without_credentials(written)}" is not an address',
            'e.g. "https://agent.example.org"',
        )
        return ""
    bare = f"{parts.scheme}://{parts.netloc}"
    if not sound or written.removesuffix("/") != bare:
        excess = (
            "is more than scheme and host in lower case"
            if parts.scheme in ("http", "https")
            else "does not begin with https:// or http://"
        )
        wrong(
            "issuer",
            f'"{without_credentials(written)}" {excess}',
            'e.g. "https://agent.example.org" (and a name of other letters as xn--…)',
        )
        return ""
    # Clients drop it from what was typed, and then refuse metadata in which it stands.
    if parts.port == _DEFAULT_PORTS[parts.scheme]:
        wrong(
            "issuer",
            f'"{written}" names the port that {parts.scheme} has anyway',
            f'"{parts.scheme}://{parts.netloc.rpartition(":")[0]}"',
        )
        return ""
    if parts.scheme == "http" and not _host_is_loopback(bare) and not config.allow_insecure_http:
        wrong(
            "issuer",
            f'"{written}" would send tokens over the network unencrypted',
            "an https address, or allow_insecure_http = true in a network that you trust",
        )
    return bare


def _check_tls(config: Config, wrong: Wrong) -> None:
    if not config.tls_certificate and not config.tls_key:
        return
    if not config.tls_certificate or not config.tls_key:
        wrong("tls_certificate", "and tls_key belong together", "both, or neither")
        return
    files, readable = {"tls_certificate": config.tls_certificate, "tls_key": config.tls_key}, True
    for key, file in files.items():
        try:
            Path(file).expanduser().read_bytes()
        except OSError as error:
            readable = False
            wrong(
                key,
                f'"{file}" cannot be used: {error.strerror}',
                "the path of a PEM file that this user may read",
            )
    if not readable:
        return
    try:
        # A password argument is always given: without one OpenSSL would ask for it on the terminal, and wait.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            *(Path(file).expanduser() for file in files.values()), password=""
        )
    except OSError:
        wrong(
            "tls_certificate",
            "and tls_key cannot be used: they are not a certificate and its key",
            "paths of a matching PEM pair, the key without a passphrase",
        )


def _check_ports(config: Config, wrong: Wrong) -> None:
    seen = {config.port: "port"} if config.port > 0 else {}
    for key, port in (("admin_port", config.admin_port), ("http_port", config.http_port)):
        if port > 0 and port in seen:
            what = f"{port} is what {seen[port]} has already"
            wrong(key, what, "a port of its own")
        seen.setdefault(port, key)


def _check_names(config: Config, wrong: Wrong) -> None:
    if not _is_host(config.host):
        wrong(
            "host",
            f'"{config.host}" is not an address to listen on',
            'one without a port, e.g. "127.0.0.1"; `port` is a setting of its own',
        )
    for name in config.allowed_hosts:
        if not _AUTHORITY.fullmatch(name.lower()):
            wrong("allowed_hosts", f'"{name}" is not a host name', 'e.g. "agent.example.org"')
    for origin in config.allowed_origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin.lower()):
            wrong(
                "allowed_origins",
                f'"{origin}" is not a web origin',
                'e.g. "https://app.example.org", without a path, or "*"',
            )
    for contact in config.security_contact:
        if not _CONTACT.fullmatch(contact):
            wrong(
                "security_contact",
                f'"{contact}" is no address that can be written to',
                'e.g. "mailto:security@example.org", "https://example.org/report" or "tel:+1-201-555-0123"',
            )


def _is_host(host: str) -> bool:
    if _HOST.fullmatch(host) is None:
        return False
    if ":" not in host:
        return True
    try:
        ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _own_name(host: str) -> str:
    """Return the name by which callers on this machine reach a loopback socket without an issuer."""
    return "127.0.0.1" if host.lower() in LOOPBACK_NAMES else host


def _networks(written: tuple[str, ...], wrong: Wrong) -> tuple[Network, ...]:
    found = list[Network]()
    for text in written:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            wrong("trusted_proxies", f'"{text}" is not a network', 'e.g. "10.0.0.0/8"')
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
