"""`getting_started` and `read_resource` in the settings of a running server."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp_calls import call_tool
from programs import SOURCE, Program

pytestmark = pytest.mark.slow

SETTINGS = """
auth = "none"
[payments]
pay_to = "0x52908400098527886E0F7030069857D2E4169EE7"
networks = ["base-sepolia"]
[[payments.facilitator]]
url = "http://127.0.0.1:8402"
[[server]]
name = "main"
price = "$0.02"
{own}
[[server.agent]]
kind = "demo"
"""


def house(home: Path, own: str) -> Program:
    (home / "ostiary.toml").write_text(SETTINGS.format(own=own), "utf-8")
    return Program(command=SOURCE, home=home)


def test_they_cost_nothing_where_everything_else_does_and_come_with_new_settings(home: Path) -> None:
    with (program := house(home, "")).serving() as server:
        assert len(program.ask("tools", server.endpoint)["tools"]) == 3
        house(home, 'getting_started = true\nread_resource = "fetch"')
        server.await_words("settings.reloaded")
        names = [tool["name"] for tool in program.ask("tools", server.endpoint)["tools"]]
        assert names == ["echo", "clock", "countdown", "getting_started", "fetch"]
        text = call_tool(server.endpoint, "getting_started", {})["content"][0]["text"]
        assert "- echo: Returns the given text unchanged. It costs $0.02 a call." in text
        assert "fetch: Reads a resource of this server by its uri." in text
        assert call_tool(server.endpoint, "fetch", {})["content"][0]["text"] == "There are no resources."


def test_tools_are_found_by_searching_where_the_settings_say_so(home: Path) -> None:
    with (program := house(home, "")).serving() as server:
        house(home, 'discovery = "search"')
        server.await_words("settings.reloaded")
        # A person at a terminal looks for tools with their own eyes.
        names = [tool["name"] for tool in program.ask("tools", server.endpoint)["tools"]]
        assert names == ["echo", "clock", "countdown"]
        found = call_tool(server.endpoint, "find_tools", {"question": "what time is it in a zone?"})
        (clock,) = found["structuredContent"]["tools"]
        assert clock["name"] == "clock" and "io.ostiary/price" in clock["_meta"]
        named = call_tool(server.endpoint, "call_tool", {"name": "echo", "arguments": {"text": "hi"}})
        assert named["isError"] is True and "x402Version" in named["structuredContent"], (
            "the price is the tool's"
        )


@pytest.mark.parametrize("setting", ["getting_started", "read_resource"])
def test_a_name_that_an_agent_has_is_refused_at_the_start(home: Path, setting: str) -> None:
    said = house(home, f'{setting} = "echo"').run("serve", code=1).stderr
    assert "the tool echo is offered by" in said and setting in said
