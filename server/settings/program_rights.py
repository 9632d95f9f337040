"""Settings of every program that the server starts: what it may open and connect to, and as whom it runs."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from server.lib.shortened import short_name

_Paths: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...], Meta(max_length=100)
]
_Ports: TypeAlias = Annotated[tuple[Annotated[int, Meta(ge=1, le=65535)], ...], Meta(max_length=100)]
USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class ProgramRights(msgspec.Struct, frozen=True, kw_only=True):
    """The part that the settings of all programs have in common. Where `reads` or `writes` is given, even empty, they say together what is
    opened; `connects` likewise for TCP."""

    reads: Annotated[_Paths | None, Meta(description='a list of paths, e.g. ["~/notes"]')] = None
    writes: Annotated[_Paths | None, Meta(description='a list of paths, e.g. ["~/notes/drafts"]')] = None
    connects: Annotated[_Ports | None, Meta(description="a list of ports, e.g. [443]")] = None
    run_as: Annotated[str, Meta(max_length=64, description="the name or number of a user")] = ""

    @property
    def confines_files(self) -> bool:
        return self.reads is not None or self.writes is not None

    @property
    def confined(self) -> bool:
        return self.confines_files or self.connects is not None


def rights_problems(rights: ProgramRights, *, unconfined: bool = False) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write)."""
    found = [
        (key, "must not hold a zero byte")
        for key in ("reads", "writes")
        if any("\0" in path for path in getattr(rights, key) or ())
    ]
    if unconfined:
        found += [
            (key, "contradicts unconfined; write one of the two") for key in given(rights) if key != "run_as"
        ]
    if rights.run_as and (problem := user_problem(rights.run_as)):
        found.append(("run_as", problem))
    return found


def given(rights: ProgramRights) -> list[str]:
    """Return the names of those that are set."""
    found = [key for key in ("reads", "writes", "connects") if getattr(rights, key) is not None]
    return [*found, *(["run_as"] if rights.run_as else [])]


def user_problem(written: str) -> str:
    """Return what is wrong with the name or number of a user; empty where nothing is."""
    if not USER.fullmatch(written):
        return f"{short_name(written)!r} is not the name or number of a user"
    if written == "root" or (written.isdecimal() and int(written) == 0):
        return "must not be root, which nothing is kept from"
    return ""
