"""Many back-ends, one catalogue: which tools there are, who answers them, and on what terms.

Every tool is checked when it is registered, and all that is wrong is reported at once. Who may see or call a tool is
decided in calls.py from the terms kept here; which kinds of principal exist is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
import trio

from server.backends.base import Backend
from server.mcp.messages import Tool
from server.mcp.schema import BadTool, ToolSchema

# A call that takes longer is not answered interactively by any client we know.
DEADLINE_SECONDS: Final = 300.0
# At shutdown a back-end that hangs while it is closed must not keep the others from being closed.
CLOSE_SECONDS: Final = 5.0


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """On what terms a tool is called."""

    scopes: frozenset[str] = frozenset()  # all of these
    deadline_seconds: float = DEADLINE_SECONDS
    # The call returns without ever waiting and emits no events. So there is nothing that a deadline could end, and nobody
    # has to watch whether its caller is still there: these cost more than such a call does. Only for code of our own.
    quick: bool = False


DEFAULT_TERMS: Final = Terms()


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A back-end under the name it has in the configuration, and the terms of its tools."""

    name: str
    backend: Backend
    terms: Terms = DEFAULT_TERMS
    tool_terms: Mapping[str, Terms] = MappingProxyType({})


class Entry(msgspec.Struct, frozen=True):
    tool: Tool
    schema: ToolSchema
    backend: Backend
    terms: Terms


class CatalogError(ValueError):
    """The tools cannot be offered together; `problems` says what to change, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems: Final = tuple(problems)


class Catalog:
    """Raises `CatalogError`. Tools keep the order of the sources, and in it the order of each back-end."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._entries = _entries(self._sources)

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def entries(self) -> Sequence[Entry]:
        return tuple(self._entries.values())

    def refresh(self) -> bool:
        """Ask the back-ends for their tools again; whether what callers see has changed. Raises `CatalogError`, and
        then everything stays as it was."""
        before = [(entry.tool, entry.terms.scopes) for entry in self._entries.values()]
        self._entries = _entries(self._sources)
        return before != [(entry.tool, entry.terms.scopes) for entry in self._entries.values()]

    async def aclose(self) -> None:
        """Close every back-end, the last one first."""
        for source in reversed(self._sources):
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await source.backend.aclose()


def _entries(sources: Sequence[Source]) -> Mapping[str, Entry]:
    problems: list[str] = []
    entries: dict[str, Entry] = {}
    owners: dict[str, str] = {}
    for source in sources:
        tools = source.backend.tools()
        unknown = sorted(source.tool_terms.keys() - {tool.name for tool in tools})
        problems += [
            f"{source.name} has terms for the tool {name}, which it does not offer" for name in unknown
        ]
        for tool in tools:
            try:
                schema = ToolSchema(tool)
            except BadTool as error:
                problems.append(f"{source.name} offers a tool that cannot be used: {error}")
                continue
            if tool.name in owners:
                problems.append(
                    f"the tool {tool.name} is offered by {owners[tool.name]} and by {source.name}: rename one of them"
                )
                continue
            owners[tool.name] = source.name
            terms = source.tool_terms.get(tool.name, source.terms)
            entries[tool.name] = Entry(tool, schema, source.backend, terms)
    if problems:
        raise CatalogError(problems)
    return MappingProxyType(entries)
