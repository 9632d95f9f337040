"""Tools: ten thousand of them at one server, of mocks with a thousand each."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Final

from house import House
from pair import Ground, Served, compare_starts, fill, served
from people import Entrance

MANY: Final = 10_000
MOCK: Final = 1_000  # of one agent


def measure(ground: Ground) -> None:
    sheet, many_count = ground.sheet, ground.many(MANY)
    sheet.begin(f"tools: 1 → {many_count:,}")
    few, many = (made(ground, name, count) for name, count in (("tools_few", 1), ("tools_many", many_count)))
    entrances = {house.folder.name: Entrance() for house in (few, many)}
    for house in (few, many):
        fill(house, entrances[house.folder.name].open)
    compare_starts(ground, few, many)
    with served(ground, few, many) as (little, much):
        compare = partial(sheet.compare, times=ground.times(101))
        of_few, of_many = Caller(little, 1), Caller(much, many_count)
        compare("call of the last tool", of_few.call, of_many.call)
        sheet.add("tools of a page of the list", float(of_few.shown), float(of_many.shown), "")
        compare("list, its first page", of_few.first, of_many.first)
        compare("list, its last page", of_few.last, of_many.last)
        begun = time.perf_counter()
        of_many.whole()
        sheet.add("list, all of it", None, (time.perf_counter() - begun) * 1e3)
        slow = partial(sheet.compare, times=ground.times(11))
        for what, path in (
            ("Overview", "/account"),
            ("page Try", "/bench/try"),
            ("page People, to invite", "/account/people/new"),
        ):
            slow(
                what,
                *(partial(entrances[each.house.folder.name].page, each, path) for each in (little, much)),
            )
        slow("ostiary status", partial(little.guest.ask, "status"), partial(much.guest.ask, "status"))
        sheet.add("resident", little.resident_mib(), much.resident_mib(), "MiB")


def made(ground: Ground, name: str, count: int) -> House:
    agents = ""
    for begin in range(0, count, MOCK):
        file = ground.folder / f"{name}-{begin}.json"
        numbers = range(begin, min(begin + MOCK, count))
        file.write_text(json.dumps({"name": "mock", "tools": [tool(number) for number in numbers]}), "utf-8")
        agents += f'[[server.agent]]\nkind = "mock"\nfile = "{file}"\n'
    return ground.house(name, f'[[server]]\nname = "bench"\n{agents}')


def tool(number: int) -> dict[str, object]:
    return {
        "name": f"tool_{number}",
        "description": f"What tool {number} does for you, in a sentence as long as they usually are.",
        "input": {"text": "string", "count": "integer?"},
        "scenarios": [{"respond": {"number": number}}],
    }


class Caller:
    def __init__(self, served: Served, count: int) -> None:
        self._guest, self._count = served.guest, count
        self._token = served.guest.log_in()["access_token"]
        page = self._guest.listed(self._token)
        self.shown, self._last = len(page["tools"]), None
        seen = self.shown
        while (cursor := page.get("nextCursor")) is not None:
            self._last = cursor
            page = self._guest.listed(self._token, cursor)
            seen += len(page["tools"])
        if seen < count:
            raise AssertionError(f"of {count} tools {seen} are listed")
        self._seen = seen

    def call(self) -> None:
        self._guest.call(self._token, f"tool_{self._count - 1}", text="hello")

    def first(self) -> None:
        self._guest.listed(self._token)

    def last(self) -> None:
        self._guest.listed(self._token, self._last)

    def whole(self) -> None:
        page = self._guest.listed(self._token)
        while (cursor := page.get("nextCursor")) is not None:
            page = self._guest.listed(self._token, cursor)
