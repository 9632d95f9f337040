"""The arguments of calls, which the upstream checks whose tool it is."""

from __future__ import annotations

from typing import Any

import pytest
from upstreams import Double, Refused, Turn, gate, over_tcp, tool

from server.agents.base.backend import BadArguments, ChecksArguments
from server.mcp.call_failures import BackendError


@pytest.mark.parametrize(("arguments", "checks"), [({}, True), ({"arguments": "here"}, False)])
async def test_an_upstream_checks_the_arguments_unless_the_settings_say_otherwise(
    arguments: dict[str, Any], checks: bool
) -> None:
    async with over_tcp(Double()) as tcp, gate(tcp=tcp, **arguments) as door:
        assert isinstance(door.backend, ChecksArguments)
        assert door.backend.checks_arguments is checks


async def test_the_words_in_which_an_upstream_refuses_arguments_are_its_own() -> None:
    async def refuse(turn: Turn) -> Any:
        raise Refused(-32602, f"n is {turn.arguments['n']!r}, not a number")

    double = Double(handlers={"count": refuse}, lists={"tools": [tool("count")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        with pytest.raises(BadArguments, match="n is 'x', not a number"):
            await door.call("count", arguments={"n": "x"})


async def test_what_is_nested_too_deeply_to_be_written_fails_its_call_alone() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    async with over_tcp(Double()) as tcp, gate(tcp=tcp) as door:
        with pytest.raises(BackendError, match="nested more deeply"):
            await door.call("say", arguments={"word": deep})
        assert await door.say("hello") == "hello"
