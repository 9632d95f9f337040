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
from pathlib import Path
from typing import Final

from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict

from server.store.jobs import CannotOpen
from server.store.postgres_wire import PROVED

FORM: Final = "postgresql://USER:PASSWORD@HOST/DATABASE"
_SCHEMES: Final = ("postgresql://", "postgres://")
# They would say from elsewhere where to connect.
_REFUSED: Final = frozenset({"service", "servicefile"})
_DEFAULT_FOLDER: Final = "/var/run/postgresql"
_SSL_MODES: Final = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
# A password in which a character should have been written otherwise is cut in two there, and its rest is none of these.
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]*|[/@].*", re.DOTALL)
_PORT: Final = re.compile(r"|0*[1-9]\d{0,4}")
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
        raise AddressRefused(
            "`store` leads to something that is no address of a database", hint=f"write {FORM} there"
        )
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    except ProgrammingError:
        raise _unreadable() from None
    if not _is_sound(address, found):
        raise _unreadable()
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


def _unreadable() -> AddressRefused:
    return AddressRefused(
        "the address of the database cannot be read",
        hint=f"it is {FORM}; what else than letters and digits is in a password is written as %XX",
    )


def _is_sound(address: str, found: Mapping[str, str]) -> bool:
    """Before a part of it is asked of name servers, sent to somebody, or said in an error."""
    path = address.partition("://")[2].partition("?")[0].partition("/")[2]
    numbers = (found[name] for name in _NUMBERS & found.keys())
    return (
        "@" not in path
        and all(map(_HOST.fullmatch, found.get("host", "").split(",")))
        and all(_is_ip(host) for host in filter(None, found.get("hostaddr", "").split(",")))
        and all(
            _PORT.fullmatch(port) and int(port or 1) < 65_536 for port in found.get("port", "").split(",")
        )
        and all(number.isascii() and number.isdigit() and len(number) < 9 for number in numbers)
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
