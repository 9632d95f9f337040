"""Questions of servers of the handshake era, put while the request runs that they belong to; by each wire that the terminal has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from test_answering_client import WHO, Person

from server.client.access_token import Access
from server.client.client_errors import CallRefused, Unreachable
from server.client.http_exchange import open_client
from server.client.mcp_client import McpClient
from server.client.opened_clients import client_over_http, client_over_tcp
from server.client.server_info import ServerInfo
from server.client.server_questions import Mode, PageQuestion, Question, accepted
from server.client.token_file import TokenFile
from tests.agents.mcp.upstreams import Double, Refused, Turn, over_http, over_tcp, text, tool, with_streams

pytestmark = pytest.mark.usefixtures("in_time")

BOOK = tool("book")
PAGE = {"mode": "url", "message": "pay", "url": "https://a.example/", "elicitationId": "1"}


async def book(turn: Turn) -> Any:
    answer = await turn.ask("elicitation/create", **WHO["params"])
    return text(answer["result"]["content"]["name"] if "result" in answer else answer["error"]["message"])


def asking(version: str = "2025-11-25") -> Double:
    return Double(version=version, handlers={"book": book}, lists={"tools": [BOOK]})


@asynccontextmanager
async def opened(url: str, folder: Path, *modes: Mode) -> AsyncGenerator[McpClient]:
    async with open_client() as client:
        tokens = Access(TokenFile(folder), url, client=client)
        async with client_over_http(client, url, tokens, modes=frozenset(modes)) as mcp:
            yield mcp


@asynccontextmanager
async def by_wire(wire: str, double: Double, folder: Path, *modes: Mode) -> AsyncGenerator[McpClient]:
    if wire == "tcp":
        async with (
            over_tcp(double) as place,
            client_over_tcp(f"tcp://{place}", modes=frozenset(modes)) as mcp,
        ):
            yield mcp
    elif wire == "http":
        async with over_http(double) as url, opened(url, folder, *modes) as mcp:
            yield mcp
    else:
        async with with_streams(double, old=True) as (url, _), opened(url, folder, *modes) as mcp:
            yield mcp


@pytest.mark.parametrize("wire", ["http", "tcp", "2024-11-05"])
async def test_a_question_is_answered_while_the_call_runs(wire: str, tmp_path: Path) -> None:
    double, person = asking(), Person()
    async with by_wire(wire, double, tmp_path, "form") as mcp:
        assert [each["name"] for each in await mcp.tools()] == ["book"]
        assert await mcp.call(BOOK, {}, seconds=60, answerer=person) == text("Ada 1")
    (begun,) = double.of("initialize")
    assert begun["params"]["capabilities"]["elicitation"] == {"form": {}}


@pytest.mark.parametrize("wire", ["http", "tcp", "2024-11-05"])
async def test_where_nobody_answers_nothing_is_declared_and_the_server_is_refused(
    wire: str, tmp_path: Path
) -> None:
    double = asking()
    async with by_wire(wire, double, tmp_path) as mcp:
        assert await mcp.call(BOOK, {}, seconds=60) == text("not offered by this client")
    (begun,) = double.of("initialize")
    assert begun["params"]["capabilities"] == {}


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_the_time_that_a_person_takes_while_the_call_runs_is_not_the_servers(
    wire: str, tmp_path: Path
) -> None:
    deadlines: list[float] = []

    class Watched(Person):
        async def __call__(
            self, server: ServerInfo, questions: Mapping[str, Question], /
        ) -> Mapping[str, Mapping[str, Any]]:
            deadlines.append(trio.current_effective_deadline())
            return await super().__call__(server, questions)

    async with by_wire(wire, asking(), tmp_path, "form") as mcp:
        own = trio.current_effective_deadline()
        await mcp.call(BOOK, {}, seconds=30, answerer=Watched())
    assert deadlines == [own]


async def test_a_person_is_asked_one_thing_after_the_other(tmp_path: Path) -> None:
    asked = trio.Event()
    under_way: list[int] = [0]

    async def twice(turn: Turn) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(book, turn)
            await asked.wait()
            return await book(turn)

    class OneAtATime(Person):
        async def __call__(
            self, server: ServerInfo, questions: Mapping[str, Question], /
        ) -> Mapping[str, Mapping[str, Any]]:
            under_way[0] += 1
            assert under_way == [1]
            asked.set()
            await trio.testing.wait_all_tasks_blocked(0.05)
            under_way[0] -= 1
            return await super().__call__(server, questions)

    double = Double(handlers={"book": twice}, lists={"tools": [BOOK]})
    async with by_wire("http", double, tmp_path, "form") as mcp:
        assert await mcp.call(BOOK, {}, seconds=60, answerer=OneAtATime()) == text("Ada 2")


@pytest.mark.parametrize(("modes", "opens"), [(("form", "url"), True), (("form",), False)])
async def test_a_page_that_has_to_be_opened_first_is_put_to_whoever_can_open_it(
    tmp_path: Path, modes: tuple[Mode, ...], opens: bool
) -> None:
    tries: list[int] = []

    class Opener(Person):
        async def __call__(
            self, server: ServerInfo, questions: Mapping[str, Question], /
        ) -> Mapping[str, Mapping[str, Any]]:
            assert [isinstance(each, PageQuestion) for each in questions.values()] == [True]
            return {key: accepted() for key in questions}

    async def pay(turn: Turn) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise Refused(-32042, "open the page first", {"elicitations": [PAGE]})
        return text("paid")

    double = Double(handlers={"book": pay}, lists={"tools": [BOOK]})
    async with by_wire("http", double, tmp_path, *modes) as mcp:
        if opens:
            assert await mcp.call(BOOK, {}, seconds=60, answerer=Opener(*modes)) == text("paid")
        else:
            with pytest.raises(CallRefused, match="open the page first"):
                await mcp.call(BOOK, {}, seconds=60, answerer=Opener(*modes))


async def test_a_port_on_which_nobody_listens_is_said_to_be_that() -> None:
    async with over_tcp(asking()) as place:
        pass
    with pytest.raises(Unreachable, match="nobody answers there"):
        async with client_over_tcp(f"tcp://{place}"):
            pass
