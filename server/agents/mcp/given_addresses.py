"""Addresses of an upstream's resources that stand in no list: those that its answers named, to whom, and those that may be asked for at all.

A caller may ask for what an answer linked to. Who it was given to is kept by the caller's name, not by a connection, in memory alone: at another
node, or after a start, an address is asked for where only one upstream could have it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import unquote

import trio

from server.agents.base.backend import AgentRequest
from server.agents.mcp.offer_guard import UpstreamLists
from server.mcp.messages import Content, EmbeddedResource, ResourceLink

CALLERS: Final = 1024
ADDRESSES: Final = 128  # of each caller
SECONDS: Final = 24 * 3600.0


class GivenAddresses:
    """The addresses that one upstream gave to each caller, as digests: bounded in number, and in time."""

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._of: dict[str, dict[bytes, float]] = {}  # until when; whoever was given something last is last

    def note(self, asked: AgentRequest, addresses: Iterable[str]) -> None:
        """Remember that these were given to a caller."""
        caller = _caller(asked)
        until = self._clock() + SECONDS
        given = self._of.pop(caller, {})
        for address in addresses:
            key = _digest(address)
            given.pop(key, None)
            given[key] = until
        while len(given) > ADDRESSES:
            del given[next(iter(given))]
        while len(self._of) >= CALLERS:
            del self._of[next(iter(self._of))]
        self._of[caller] = given

    def has(self, asked: AgentRequest, address: str) -> bool:
        """Return whether this caller was given the address, and not too long ago."""
        until = self._of.get(_caller(asked), {}).get(_digest(address))
        return until is not None and self._clock() < until


def named_in(content: Sequence[Content]) -> list[str]:
    """List the addresses that content links to, or that it is of."""
    links = [block.uri for block in content if isinstance(block, ResourceLink)]
    return links + [block.resource.uri for block in content if isinstance(block, EmbeddedResource)]


class Withheld:
    """The addresses that an upstream offers and its owner has not accepted. A template withholds all that its scheme begins."""

    def __init__(self, offered: UpstreamLists, allowed: UpstreamLists) -> None:
        self._resources = {each.uri for each in offered.resources} - {each.uri for each in allowed.resources}
        accepted = {each.uri_template for each in allowed.resource_templates}
        self._schemes = {
            scheme_of(each.uri_template)
            for each in offered.resource_templates
            if each.uri_template not in accepted
        }

    def has(self, address: str) -> bool:
        scheme = scheme_of(address)
        return address in self._resources or any(scheme == each or "{" in each for each in self._schemes)


def leads_astray(address: str) -> bool:
    """Return whether an address could lead out of a directory, or is no address. No template fits such a one, either."""
    path = unquote(address).replace("\\", "/")
    return not address.isprintable() or " " in address or "\0" in path or ".." in path.split("/")


def scheme_of(address: str) -> str:
    """Return the scheme of an address or a template, in small letters."""
    return address.partition(":")[0].lower()


def _caller(asked: AgentRequest) -> str:
    return f"{asked.subject} {asked.sharer}"


def _digest(address: str) -> bytes:
    return hashlib.blake2b(address.encode("utf-8", "surrogatepass"), digest_size=16).digest()
