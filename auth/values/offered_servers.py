"""What pages need to know of the servers behind them, so that a person sees what is being opened: lent by the server.

Texts of an agent's author are shown as they are, bounded and escaped; what a tool is and who may use it is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec


class OfferedServer(msgspec.Struct, frozen=True, kw_only=True):
    """What one says of itself. `icon` is an address that asks no stranger for anything: `data:`, or one of our own; "": none."""

    name: str  # in the settings
    title: str = ""
    description: str = ""
    icon: str = ""


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    changes: bool = False  # it does more than look things up
    moves_money: bool = False


class OfferedTools(msgspec.Struct, frozen=True, kw_only=True):
    """All that somebody would find. `some_missing`: an agent is out of order, and nobody can say what it would offer."""

    tools: tuple[OfferedTool, ...] = ()
    some_missing: bool = False


class ConnectWay(msgspec.Struct, frozen=True, kw_only=True):
    """How one program is told of a server: what to type or paste, or an address that opens the program. In sentences, what stands
    between backquotes is typed."""

    program: str  # as people call it
    how: str  # a sentence
    text: str = ""
    link: str = ""
    then: str = ""


class Offerings(Protocol):
    """Answers from memory. `origin`: the address by which the visitor came, which is how callers reach us, too."""

    def server(self, name: str) -> OfferedServer:
        """Raises `KeyError`."""
        ...

    def tools(self, server: str, *, person: str, selection: str, granted: Collection[str]) -> OfferedTools:
        """What a login of this person finds that has these scopes. `person` is their id, `selection` their account's."""
        ...

    def moves_money(self, server: str) -> bool:
        """Whether any tool of it does, or might."""
        ...

    def ways(self, server: str, origin: str, program: str) -> Sequence[ConnectWay]:
        """How programs are told of it. `program`: how ours is started where the reader is."""
        ...
