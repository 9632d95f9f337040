"""A task at a server of somebody else's, followed by a task of ours whose server is killed: the next process goes on with it."""

from __future__ import annotations

import signal
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
import pytest
from programs import SOURCE, Program, Server, until

pytestmark = pytest.mark.slow

AGENT = """
    import asyncio
    from pathlib import Path
    from ostiary import tool

    HERE = Path(__file__).parent / "notes"

    @tool(task="optional")
    async def dig(depth: int) -> str:
        with (HERE / "begun").open("a") as begun:
            begun.write("x")
        while not (HERE / "go").exists():
            await asyncio.sleep(0.02)
        return f"gold at {depth} m"
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


def ask(server: Server, method: str, about: str, /, **params: Any) -> Any:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": about,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    answer = httpx2.post(server.endpoint, json=message, headers=headers, timeout=60, trust_env=False).json()
    assert "result" in answer, answer
    return answer["result"]


@pytest.fixture
def behind(home: Path) -> Program:
    folder = home / "behind"
    (folder / "notes").mkdir(parents=True)
    (folder / "agent.py").write_text(dedent(AGENT), "utf-8")
    (folder / "ostiary.toml").write_text(
        'auth = "none"\n[[server]]\n[[server.agent]]\nkind = "python"\nfile = "agent.py"\n', "utf-8"
    )
    return Program(command=SOURCE, home=folder)


def test_a_task_behind_a_server_that_is_killed_is_followed_by_the_next(home: Path, behind: Program) -> None:
    program = Program(command=SOURCE, home=home)
    with behind.serving() as upstream:
        options = ("--upstream", upstream.endpoint, "--auth", "none")
        with program.serving(*options) as server:
            made = ask(server, "tools/call", "dig", name="dig", arguments={"depth": 3})
            assert made["resultType"] == "task"
            task_id = made["taskId"]
            until("the work to begin", lambda: (behind.home / "notes" / "begun").exists() or None)
            assert ask(server, "tasks/get", task_id, taskId=task_id)["status"] == "working"
            server.end(signal.SIGKILL)
        with program.serving(*options) as server:

            def over() -> Any:
                found = ask(server, "tasks/get", task_id, taskId=task_id)
                return None if found["status"] == "working" else found

            assert over() is None
            (behind.home / "notes" / "go").touch()
            found = until("the task to end", over)
        assert found["status"] == "completed"
        assert found["result"]["content"][0]["text"] == "gold at 3 m"
        assert (behind.home / "notes" / "begun").read_text("utf-8") == "x"
