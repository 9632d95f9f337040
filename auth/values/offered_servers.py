"""The interface through which pages learn about servers and tools, so that a person sees what they grant access to.

The server implements it. An agent author's texts are shown as they are, bounded and escaped; what a tool is and who may use it is not
known here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec


class OfferedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a server. `icon` is a `data:` URL or a URL of this server, so that no third party is asked; or ""."""

    name: str  # in the settings
    title: str = ""
    description: str = ""
    icon: str = ""


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    changes: bool = False  # it does more than look things up
    moves_money: bool = False


class OfferedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that a person would find. `some_missing`: an agent is out of order, so its tools are unknown."""

    tools: tuple[OfferedTool, ...] = ()
    some_missing: bool = False


class ConnectWay(msgspec.Struct, frozen=True, kw_only=True):
    """A way to add a server to one program: text to type or paste, or a link that opens the program.

    In sentences, backquotes mark text to type.
    """

    program: str  # as people call it
    how: str  # a sentence
    text: str = ""
    link: str = ""
    then: str = ""


class Offerings(Protocol):
    """The server's answers about what it offers, from memory. `origin` is the visitor's, by which callers reach the server, too."""

    def server(self, name: str) -> OfferedServer:
        """Return the description of a server. Raise `KeyError`."""
        ...

    def tools(self, server: str, *, person: str, selection: str, granted: Collection[str]) -> OfferedTools:
        """Return the tools that a login with these scopes finds. `person` is an id, `selection` the tool selection of that account."""
        ...

    def moves_money(self, server: str) -> bool:
        """Return whether any tool of a server moves money, or might."""
        ...

    def ways(self, server: str, origin: str, program: str) -> Sequence[ConnectWay]:
        """Return the ways to add a server to programs. `program` is the command that starts ours on the reader's machine."""
        ...
