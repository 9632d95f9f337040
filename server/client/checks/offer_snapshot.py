"""What a server offered when somebody last looked, kept in a file beside their code, and how what it offers now differs.

Of a tool is kept what a model goes by: its names, its words, its schemas, its annotations. The order of the list and of members does not
count, nor does anything in `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

FORMAT: Final = 1
KEPT: Final = ("title", "description", "inputSchema", "outputSchema", "annotations")
# More than any catalogue that somebody reads has.
MAX_BYTES: Final = 16 * 1024 * 1024

Tools = Mapping[str, Mapping[str, Any]]


class BadSnapshot(Exception):
    """A file that is none, or of a newer kind."""


class KeptTools(msgspec.Struct, frozen=True, kw_only=True):
    """By server, then by tool."""

    version: int = FORMAT
    servers: Mapping[str, Tools]


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One tool that is not as it was. `before` and `after` are its definition as JSON; empty where there is none."""

    server: str
    tool: str
    change: Literal["added", "removed", "changed"]
    before: str = ""
    after: str = ""


def definitions(tools: Sequence[Mapping[str, Any]]) -> Tools:
    return {str(tool["name"]): {key: tool[key] for key in KEPT if key in tool} for tool in tools}


def write(servers: Mapping[str, Tools]) -> bytes:
    """The same for the same tools, whatever their order: it is kept under version control."""
    data = msgspec.json.encode(KeptTools(servers=servers), order="sorted")
    return msgspec.json.format(data, indent=2) + b"\n"


def read(data: bytes) -> KeptTools:
    """Raises `BadSnapshot`."""
    try:
        if len(data) > MAX_BYTES:
            raise BadSnapshot(f"is larger than {MAX_BYTES // 1024 // 1024} MiB")
        found = msgspec.json.decode(data, type=KeptTools)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadSnapshot("is nothing that `ostiary check --write` has written") from error
    if found.version != FORMAT:
        raise BadSnapshot("was written by another version of this program; write it anew")
    return found


def drifts(before: Mapping[str, Tools], now: Mapping[str, Tools]) -> list[Drift]:
    """From `before` to `now`. Where each is of one server they are compared, whatever it is called: the same server has another address
    where it is tried out."""
    if len(before) == len(now) == 1:
        before = dict(zip(now, before.values(), strict=True))
    return [
        each
        for server in sorted(before.keys() | now.keys())
        for each in _between(server, before.get(server, {}), now.get(server, {}))
    ]


def _between(server: str, before: Tools, now: Tools) -> list[Drift]:
    found: list[Drift] = []
    for tool in sorted(before.keys() | now.keys()):
        old, new = (_canonical(each[tool]) if tool in each else "" for each in (before, now))
        if old != new:
            change = "added" if not old else "changed" if new else "removed"
            found.append(Drift(server=server, tool=tool, change=change, before=old, after=new))
    return found


def _canonical(tool: Mapping[str, Any]) -> str:
    return msgspec.json.encode(tool, order="sorted").decode()
