"""The address of a PostgreSQL database, as it is written, and what libpq is told of it: over a network nothing but TLS that is verified.

`postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with several hosts for a primary and its standbys, or a folder with a socket
(`postgresql:///DATABASE?host=/run/postgresql`). None of it is ever shown: there is a password in it.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from server.store.jobs import CannotOpen

FORM: Final = "postgresql://USER:PASSWORD@HOST/DATABASE"
_SCHEMES: Final = ("postgresql://", "postgres://")
# They would say from elsewhere where to connect.
_REFUSED: Final = frozenset({"service", "servicefile"})
_DEFAULT_FOLDER: Final = "/var/run/postgresql"


class AddressRefused(CannotOpen):
    """Starting again would not help."""

    lasting = True


def parameters_of(address: str, *, ca_file: str = "") -> dict[str, str]:
    """What libpq is told. Raises `AddressRefused`, which shows nothing of the address."""
    if not address.startswith(_SCHEMES):
        raise AddressRefused(
            "`store` leads to something that is no address of a database", hint=f"write {FORM} there"
        )
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    except ProgrammingError:
        raise AddressRefused(
            "the address of the database cannot be read",
            hint=f"it is {FORM}; what else than letters and digits is in a password is written as %XX",
        ) from None
    if named := sorted(_REFUSED & found.keys()):
        raise AddressRefused(
            f"the address of the database has {named[0]}, which is not taken", hint=f"write {FORM}"
        )
    found.setdefault("host", _DEFAULT_FOLDER)
    hosts = [*found["host"].split(","), *filter(None, found.get("hostaddr", "").split(","))]
    if all(_is_here(host) for host in hosts):
        return found
    if found.get("sslmode", "verify-full") != "verify-full":
        raise AddressRefused(
            f"the address of the database has sslmode={found['sslmode']}: over a network it would be anybody's to read or to answer",
            hint="leave sslmode out; `store_ca` names the certificate of an authority of your own",
        )
    found["sslmode"] = "verify-full"
    authorities = ca_file or found.get("sslrootcert") or ssl.get_default_verify_paths().cafile
    found["sslrootcert"] = authorities or "system"
    return found


def _is_here(host: str) -> bool:
    if host.startswith(("/", "@")) or host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
