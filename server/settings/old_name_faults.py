"""`old_names` of a server: what is wrong with names by which its tools are to be called still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Protocol

from server.lib.shortened import short_name
from server.settings.policy_settings import Fault


class OldNamesSettings(Protocol):
    """The part of a `ServerConfig` that speaks of old names."""

    @property
    def old_names(self) -> Mapping[str, str]: ...
    @property
    def old_names_until(self) -> date | None: ...


def faults(servers: Sequence[OldNamesSettings]) -> list[Fault]:
    """Return the faults of all servers."""
    found: list[Fault] = []
    for place, server in enumerate(servers, 1):
        where = f"server[{place}].old_names"
        for old, now in server.old_names.items():
            if old == now:
                what, instead = "leads to itself", "a name that a tool had, and the one it has"
            elif old.count("*") > 1 or now.count("*") != old.count("*"):
                what = "needs one * on either side, or none"
                instead = '{ "notes.*" = "notes__*" }'
            else:
                continue
            found.append((f"{where}.{short_name(old)}", what, instead))
        if server.old_names_until is not None and not server.old_names:
            found.append((f"{where}_until", "ends nothing: there are no old_names", "both, or none"))
    return found
