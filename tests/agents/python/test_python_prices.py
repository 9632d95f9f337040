"""A Python agent is asked what a call costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.agents.base.backend import PriceAsked, Pricing
from server.mcp.call_failures import BackendError
from tests.agents.python.python_pair import REAL, at_work

AGENT = """
from ostiary import price, tool

@tool(price="$0.01")
def look_up(word: str) -> str:
    return word

@tool
def render(pages: int) -> str:
    return "done"

@price("render")
def cost(pages: int) -> str:
    return f"$0.0{pages}"

@price
def asks(ctx) -> str:
    ctx.elicit("How much?", {"type": "object", "properties": {}})
    return "$1"
"""

# Says what is no price.
LIAR = """
ready()
while True:
    call = hear()
    if call["do"] == "call":
        say("final", id=call["id"], result={"price": 5})
"""


def asked(function: str, **arguments: object) -> PriceAsked:
    return PriceAsked(function=function, tool="render", arguments=arguments, subject="ada", call_id="c1")


async def test_the_agent_says_what_its_tools_cost(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as agent:
        assert isinstance(agent.backend, Pricing)
        assert agent.backend.price_functions == {"cost", "asks"}
        meta = {tool.name: tool.meta for tool in agent.backend.tools()}
        assert meta["look_up"] == {"io.ostiary/price": "$0.01"}
        assert meta["render"] == {"io.ostiary/price": {"function": "cost"}}
        assert await agent.backend.price(asked("cost", pages=2)) == "$0.02"
        with pytest.raises(BackendError, match="pages"):
            await agent.backend.price(asked("cost"))
        with pytest.raises(BackendError, match="nobody can be asked"):
            await agent.backend.price(asked("asks"))


async def test_what_a_process_says_and_is_no_price_fails_the_question_alone(tmp_path: Path) -> None:
    async with at_work(tmp_path, LIAR) as agent:
        for _ in range(2):
            with pytest.raises(BackendError, match="a result that is none"):
                await agent.backend.price(asked("cost"))
