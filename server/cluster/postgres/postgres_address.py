"""The address of a PostgreSQL database, as it is written, and what libpq is told of it: over a network nothing but TLS that is verified.

`postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with several hosts for a primary and its standbys, or a folder with a socket
(`postgresql:///DATABASE?host=/run/postgresql`). None of it is ever shown: there is a password in it.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict

from server.cluster.postgres.postgres_wire import PROVED
from server.store.jobs import CannotOpen

FORM: Final = "postgresql://USER:PASSWORD@HOST/DATABASE"
_SCHEMES: Final = ("postgresql://", "postgres://")
# They would say from elsewhere where to connect.
_REFUSED: Final = frozenset({"service", "servicefile"})
_DIALECTS: Final = ("postgresql+", "postgres+")
_ASSIGNED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\s*=\s*['\"]?postgres")
_DEFAULT_FOLDER: Final = "/var/run/postgresql"
_SSL_MODES: Final = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
# A password in which a character should have been written otherwise is cut in two there, and its rest is none of these.
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]*|[/@].*", re.DOTALL)
_PORT: Final = re.compile(r"|0*[1-9]\d{0,4}")
_LAST_PORT: Final = 65_535
_NUMBER: Final = re.compile(r"[0-9]{1,8}")
_NUMBERS: Final = frozenset(
    {"connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
)  # fmt: skip
_FIRST_WITH_REQUIRE_AUTH: Final = 160_000


class AddressRefused(CannotOpen):
    """Starting again would not help."""

    lasting = True


def parameters_of(address: str, *, ca_file: str = "") -> dict[str, str]:
    """What libpq is told. Raises `AddressRefused`, which shows nothing of the address."""
    if "PGSERVICE" in os.environ:
        raise AddressRefused(
            "PGSERVICE is set: it would say from elsewhere which database is meant",
            hint="start without it; all that counts is in the address",
        )
    if not address.startswith(_SCHEMES):
        raise _no_address(address)
    if len(address.splitlines()) > 1:
        raise AddressRefused(
            "what `store` leads to has more than one line", hint=f"let {FORM} stand there alone"
        )
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    except ProgrammingError:
        raise _unreadable(address) from None
    if not _is_sound(address, found):
        raise _unreadable(address)
    if named := sorted(_REFUSED & found.keys()):
        raise AddressRefused(
            f"the address of the database has {named[0]}, which is not taken", hint=f"write {FORM}"
        )
    found.setdefault("host", _DEFAULT_FOLDER)
    hosts = [*found["host"].split(","), *filter(None, found.get("hostaddr", "").split(","))]
    if all(_is_here(host) for host in hosts):
        return found if all(_is_socket(host) for host in hosts) else _over_loopback(found)
    mode = found.get("sslmode", "verify-full")
    if mode != "verify-full":
        said = mode if mode in _SSL_MODES else "…"
        raise AddressRefused(
            f"the address of the database has sslmode={said}: over a network it would be anybody's to read or to answer",
            hint="leave sslmode out; `store_ca` names the certificate of an authority of your own",
        )
    found["sslmode"] = "verify-full"
    authorities = (
        (str(Path(ca_file).expanduser()) if ca_file else "")
        or found.get("sslrootcert")
        or ssl.get_default_verify_paths().cafile
    )
    found["sslrootcert"] = authorities or "system"
    return found


def _no_address(text: str) -> AddressRefused:
    """In which of the ways in which people write it elsewhere."""
    alone = f"let {FORM} stand there, and nothing else"
    if text[:1] in ("'", '"'):
        return AddressRefused(
            "the address of the database stands in quotation marks", hint=f"leave them out: {FORM}"
        )
    if text.startswith("export ") or _ASSIGNED.match(text):
        return AddressRefused(
            "what `store` leads to is an assignment, in which an address may be", hint=alone
        )
    if text.startswith("jdbc:"):
        return AddressRefused(
            "the address of the database is one for Java (jdbc:)",
            hint=f"leave that out, and write user and password before the host: {FORM}",
        )
    if text.startswith(_DIALECTS):
        return AddressRefused(
            "the address of the database names a driver (postgresql+…)", hint=f"leave it out: {FORM}"
        )
    if re.match(r"\s*(?:host|hostaddr|port|dbname|user|password)\s*=", text):
        return AddressRefused(
            "the address of the database is written as words (host=… dbname=…)", hint=f"write it as {FORM}"
        )
    return AddressRefused("`store` leads to something that is no address of a database", hint=alone)


def _unreadable(address: str) -> AddressRefused:
    """What else than letters and digits is in a password cuts it in two, so no part of it is shown."""
    rest = address.partition("://")[2]
    authority, _, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    query = path.partition("?")[2]
    said = "the address of the database cannot be read"
    if "@" in login or ("@" in path and not at):
        return AddressRefused(
            f"{said}: a character in the password ends it too early, an '@' or a '/'",
            hint=f"write it as %XX, @ as %40 and / as %2F: {FORM}",
        )
    ports = [port for each in hosts.split(",") if (port := each.rpartition("]")[2].partition(":")[2])]
    if not all(map(_is_port, ports)):
        return AddressRefused(
            f"{said}: where the port should be is no number of one",
            hint=f"user and password come first, then an '@' and the host: {FORM}",
        )
    if query:
        unknown = next((each for each in _names(query) if each not in _known()), None)
        if unknown is not None:
            close = get_close_matches(unknown, _known(), 1, cutoff=0.8)
            meant = f"is {close[0]} meant?" if close else "leave it out."
            return AddressRefused(
                f"{said}: what follows the '?' has a parameter that PostgreSQL does not know",
                hint=f"{meant} A '?' in a password is written as %3F",
            )
    return AddressRefused(
        said, hint=f"it is {FORM}; what else than letters and digits is in a password is written as %XX"
    )


def _names(query: str) -> list[str]:
    return [each.partition("=")[0] for each in query.split("&")]


def _known() -> list[str]:
    return [each.keyword.decode() for each in pq.Conninfo.get_defaults()]


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and int(text or 1) <= _LAST_PORT


def _is_sound(address: str, found: Mapping[str, str]) -> bool:
    """Before a part of it is asked of name servers, sent to somebody, or said in an error."""
    path = address.partition("://")[2].partition("?")[0].partition("/")[2]
    numbers = (found[name] for name in _NUMBERS & found.keys())
    return (
        "@" not in path
        and all(map(_HOST.fullmatch, found.get("host", "").split(",")))
        and all(_is_ip(host) for host in filter(None, found.get("hostaddr", "").split(",")))
        and all(map(_is_port, found.get("port", "").split(",")))
        and all(map(_NUMBER.fullmatch, numbers))
    )


def _over_loopback(found: dict[str, str]) -> dict[str, str]:
    """Whoever holds the port is whom the password is for, as long as they can only be shown that it is known: any user of the machine may."""
    if "require_auth" in found:
        return found
    has_password = bool(found.get("password") or os.environ.get("PGPASSWORD"))
    if pq.version() >= _FIRST_WITH_REQUIRE_AUTH:
        # Without one there still may be a file of them.
        found["require_auth"] = PROVED if has_password else "!password,!md5"
    elif has_password:
        raise AddressRefused(
            "the address of the database leads over TCP to this machine, and this version of libpq would show the password to anybody who listens there",
            hint="use the socket: postgresql:///DATABASE?host=/run/postgresql, or libpq 16 or newer",
        )
    return found


def _is_socket(host: str) -> bool:
    return host.startswith(("/", "@")) or host == ""


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_here(host: str) -> bool:
    if _is_socket(host) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
