"""One person's logins with one program share their tasks, but not what they may: what came of a tool is for who may call it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from auth.model import Principal, PrincipalKind
from server.backends.catalog import Terms
from tests.interaction.everything import everything, task_tool
from tests.interaction.test_era_tasks import ABLE, asks_twice, begin, get
from tests.interaction.wires import client
from tests.pair import talk
from tests.requirements import Cell

# Two logins of one person with one program, as two computers have them.
WIDE = Principal(
    kind=PrincipalKind.USER,
    subject="s",
    client_id="c",
    grant_id="g1",
    scopes=frozenset({"mcp", "financial"}),
    reach=frozenset({"*"}),
)
NARROW = replace(WIDE, grant_id="g2", scopes=frozenset({"mcp:tools:read"}))
BEYOND = replace(NARROW, reach=frozenset({"mcp"}))


def shop() -> Any:
    listed = {**task_tool("pay", "optional"), **task_tool("look", "optional")}
    made = everything(listed=listed, pay=asks_twice, look=asks_twice)
    terms = {
        "pay": Terms(scopes=frozenset({"financial"}), tier="financial"),
        "look": Terms(scopes=frozenset({"mcp:tools:read"}), tier="read"),
    }
    return msgspec.structs.replace(made, tool_terms=terms)


@pytest.mark.requirement("tasks.bound")
@pytest.mark.requirement("core-tasks.bound")
@pytest.mark.parametrize("who", [NARROW, BEYOND])
async def test_a_narrower_login_neither_sees_nor_answers_nor_ends_a_task_of_a_tool_it_may_not_call(
    who: Principal, cell: Cell
) -> None:
    async with client(cell, shop(), capabilities=ABLE, tasks=True, tokens={"t": WIDE, "n": who}) as one:
        paying, looking = await begin(one, "pay"), await begin(one, "look")
        one.made.pair.headers = {"authorization": "Bearer n"}
        pay, look = {"taskId": paying["taskId"]}, {"taskId": looking["taskId"]}
        if one.modern:
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                assert (await one.ask(method, pay | {"inputResponses": {}})).code == -32602, method
            assert (await one.ask("tasks/get", look)).result["taskId"] == looking["taskId"]
        else:
            other = await talk(one.made.pair)
            for method in ("tasks/get", "tasks/cancel", "tasks/result"):
                assert (await other.ask(method, pay)).json["error"]["code"] == -32602, method
            assert "error" not in (await other.ask("tasks/get", look)).json
            (seen,) = (await other.ask("tasks/list")).json["result"]["tasks"]
            assert seen["taskId"] == looking["taskId"]
        one.made.pair.headers = {"authorization": "Bearer t"}
        assert (await get(one, paying))["status"] in ("working", "input_required")
