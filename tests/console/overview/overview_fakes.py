"""Agents that fail, and calls that were written down."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from server.agents.base.backend import Trouble
from server.agents.base.catalog import AgentTrouble
from server.calls.servers.endpoint import Endpoint
from server.store.call_records import call_rows
from server.store.call_records.call_book import CallBook
from server.store.call_records.call_record import CallRecord
from server.store.jobs import Store


class FailingCatalog:
    """As much of a catalogue as says how its agents are."""

    def __init__(self, *found: AgentTrouble) -> None:
        self.found = list(found)
        self.tried = 0
        self.behind: list[AgentTrouble] = []  # what is found out by trying every agent

    def troubles(self) -> list[AgentTrouble]:
        return self.found

    async def reach_all(self, *, failing: bool = False) -> None:
        if failing:
            self.tried += 1
        else:
            self.found += self.behind


class FailingServer:
    def __init__(self, catalog: FailingCatalog) -> None:
        self.catalog = catalog


def endpoints_of(**catalogs: FailingCatalog) -> dict[str, Endpoint]:
    return {name: cast("Endpoint", FailingServer(catalog)) for name, catalog in catalogs.items()}


def broken(trouble: Trouble, *tools: str, name: str = "main[1] (chat)") -> AgentTrouble:
    return AgentTrouble(name=name, backend=cast("Any", object()), trouble=trouble, tools=tools)


async def keep(store: Store, *records: CallRecord) -> None:
    book = CallBook()
    book.waiting.extend(records)
    while book.count(10_000):
        pass
    batch = book.take()
    assert batch is not None
    await store.write(partial(call_rows.write, batch=batch, most_rows=1_000_000))
