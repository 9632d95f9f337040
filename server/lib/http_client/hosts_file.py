"""The file in which whoever runs a machine gives names to addresses: hosts(5). It comes before any other word on a name.

The system's resolver looks there too, but not for a name that ends in a dot, as server/run/pinned_fetcher.py asks for one.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from server.lib.http_client.public_addresses import Address

HOSTS_FILE: Final = Path("/etc/hosts")


def addresses_of(name: str, file: Path) -> list[Address]:
    """What the file says of a name, in its order; nothing where it does not know it, or cannot be read."""
    found: list[Address] = []
    wanted = name.lower()
    with suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            address, *names = line.partition("#")[0].lower().split() or [""]
            if wanted in names:
                with suppress(ValueError):  # no address: the resolver passes such a line over, too
                    found.append(ip_address(address))
    return list(dict.fromkeys(found))
