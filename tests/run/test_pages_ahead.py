"""The pages are loaded as soon as somebody is about to ask for one (server/run/pages_ahead.py)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from server.lib.log.structured_log import make_logger
from server.run.pages_ahead import MAKE_LINKS, LazyPages


def ahead_of(made: list[str]) -> LazyPages:
    async def app(*_: Any) -> None: ...

    def make() -> Any:
        made.append("pages")
        return app

    return LazyPages(make, make_logger(level="info", style="json", stream=io.StringIO()))


@pytest.mark.parametrize("name", sorted(MAKE_LINKS))
async def test_whoever_makes_a_link_has_the_pages_loaded_once(name: str) -> None:
    made: list[str] = []
    ahead = ahead_of(made)

    async def answer(arguments: Mapping[str, Any], actor: str) -> Any:
        return dict(arguments)

    commands = ahead.heeding({name: answer, "status": answer})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ahead.run)
        assert await commands["status"]({}, "local:0") == {}
        await trio.testing.wait_all_tasks_blocked()
        assert made == []
        assert await commands[name]({"name": "vera"}, "local:0") == {"name": "vera"}
        assert await commands[name]({}, "local:0") == {}
    assert made == ["pages"]


async def test_pages_that_cannot_be_loaded_are_said_and_end_nothing() -> None:
    def fails() -> Any:
        raise ImportError("not there")

    log = io.StringIO()
    ahead = LazyPages(fails, make_logger(level="info", style="json", stream=log))
    ahead.expect()
    await ahead.run()
    assert '"event":"site.not_loaded"' in log.getvalue()
