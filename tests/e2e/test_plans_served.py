"""Prices and plans of the running program: what a caller is shown, and what the owner grants at the machine."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from programs import SOURCE, WAIT_SECONDS, Program

pytestmark = pytest.mark.slow

SETTINGS = """
[payments]
pay_to = "0x52908400098527886E0F7030069857D2E4169EE7"
networks = ["base-sepolia"]

[[payments.facilitator]]
url = "https://facilitator.example"

[[plan]]
name = "pro"
calls = 100
days = 30

[[server]]
name = "main"

[server.tools.echo]
price = "$0.01"

[[server.agent]]
kind = "demo"

[[server.agent]]
kind = "python"
file = "agent.py"
"""
AGENT = """
from ostiary import price, tool

@tool(price="$0.02")
def look_up(word: str) -> str:
    return word

@tool
def render(pages: int) -> str:
    return "done"

@price("render")
def cost(pages: int) -> int:
    return pages
"""
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def test_what_tools_cost_is_listed_and_plans_are_granted_at_the_machine(tmp_path: Path) -> None:
    program = Program(command=SOURCE, home=tmp_path)
    (tmp_path / "ostiary.toml").write_text(SETTINGS, "utf-8")
    (tmp_path / "agent.py").write_text(AGENT, "utf-8")
    with program.serving("--config", "ostiary.toml") as server:
        key = program.at_machine("api-keys", "create", "ci")["key"]
        headers = {
            "X-API-Key": key,
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        }
        answer = httpx2.post(
            server.endpoint, json=LIST, headers=headers, trust_env=False, timeout=WAIT_SECONDS
        )
        tools = {tool["name"]: tool for tool in answer.json()["result"]["tools"]}
        words = {
            name: tool["_meta"]["io.ostiary/price"]["words"]
            for name, tool in tools.items()
            if "io.ostiary/price" in tool.get("_meta", {})
        }
        assert words == {
            "echo": "$0.01 a call",
            "look_up": "$0.02 a call",
            "render": "priced by its arguments",
        }
        assert tools["echo"]["annotations"]["idempotentHint"] is False

        made = program.ask(
            "plans", "grant", "owner", "pro", "--config", "ostiary.toml", "--data-dir", str(program.data_dir)
        )
        assert made["ends_at"] - made["created_at"] == 30 * 86_400_000
        (listed,) = program.at_machine("plans", "list")
        assert listed == made
        program.at_machine("plans", "end", made["id"])
        assert program.at_machine("plans", "list") == []
        events = [row["event"] for row in program.at_machine("audit")]
        assert {"plan.granted", "plan.ended"} <= set(events)
