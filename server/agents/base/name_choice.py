"""The choice between two names, for what an agent offers that gives way where another has the first (`SecondNames`).

Names that cannot be others come first, then the order of the agents. While a server runs, whoever has a name keeps it: a program that has
seen a list goes on calling what it has seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from server.agents.base.backend import Backend, Foreign, LibraryBackend, SecondNames

Key: TypeAlias = tuple[str, str]  # "tool" or "prompt", and a name

NO_OWNERS: Final[Mapping[Key, object]] = MappingProxyType({})


class NameChoice:
    """The names of everything that agents offer by one of two."""

    def __init__(
        self, backends: Sequence[Backend], before: Mapping[Key, object] = NO_OWNERS, *, running: bool = False
    ) -> None:
        """Choose. `before`: the owners of the names until now. `running`: what comes from a server of others takes no name from one that has it."""
        self.owners: dict[Key, object] = {}
        self.kept: dict[Key, object] = {}  # those of `owners` that had the name before
        self._names: dict[tuple[int, str, str], str] = {}
        giving = [each for each in backends if isinstance(each, SecondNames) and each.gives_way]
        if not giving:
            return
        offers = {id(each): dict.fromkeys(_offered(each)) for each in backends}
        taken = {
            key
            for each in backends
            if each not in giving and not (running and isinstance(each, Foreign))
            for key in offers[id(each)]
        }
        held = {key: each for key, each in before.items() if key in offers.get(id(each), ())}
        for each in giving:
            for what, name in offers[id(each)]:
                first, second = (what, name), (what, each.second_name(what, name))
                is_free = first not in taken and held.get(first, each) is each
                key = first if is_free and before.get(second) is not each else second
                taken.add(key)
                self.owners[key] = each
                self._names[id(each), what, name] = key[1]
        self.kept = {key: each for key, each in self.owners.items() if before.get(key) is each}

    def name(self, backend: object, what: str, name: str) -> str:
        """Return by which name this is offered."""
        return self._names.get((id(backend), what, name), name)


def _offered(backend: Backend) -> Iterator[Key]:
    for tool in backend.tools():
        yield "tool", tool.name
    if isinstance(backend, LibraryBackend):
        for prompt in backend.prompts():
            yield "prompt", prompt.name
