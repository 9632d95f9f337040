"""Agents are tried without a server (server/run/agent_dry_run.py). How `doctor` says what came of it is tests/cli/test_doctor_command.py's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import Announce, ToolCall
from server.agents.base.catalog import Source
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.run import agent_dry_run
from server.run.agent_dry_run import NO_LOGIN, TRY_SECONDS, AgentDryRun, rehearse
from server.run.whole_settings import read_whole
from server.settings.resolved_settings import Resolved

DEMO = '[[server.agent]]\nkind = "demo"\n'
UNAUTHORIZED = (
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


def written(folder: Path, *agents: str) -> Resolved:
    file = folder / "ostiary.toml"
    file.write_text(f'[[server]]\nname = "main"\n{"".join(agents)}', "utf-8")
    return read_whole(file, {}, {"data_dir": str(folder / "data")})


def told(found: AgentDryRun) -> list[tuple[str, str, str]]:
    return [(each.name, each.outcome, each.words) for each in found.agents]


class Sleeper:
    """Never ready, if it is slow."""

    def __init__(self, *, slow: bool) -> None:
        self.slow = slow
        self.running = self.closed = False

    def tools(self) -> Sequence[Tool]:
        return ()

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        self.running = True
        try:
            if not self.slow:
                task_status.started()
            await trio.sleep_forever()
        finally:
            self.running = False


async def test_one_that_does_not_get_ready_holds_up_nothing_but_the_end_and_all_are_let_go(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Sleeper] = []

    def make(server: str, position: int, agent: object, **given: Any) -> Source:
        made.append(Sleeper(slow=position == 2))
        return Source(name=f"{server}[{position}] (demo)", backend=made[-1])

    monkeypatch.setattr(agent_dry_run, "make_source", make)
    began = trio.current_time()
    found = await rehearse(written(tmp_path, DEMO, DEMO))
    assert trio.current_time() - began == TRY_SECONDS
    assert told(found) == [
        ("main[1] (demo)", "well", ""),
        ("main[2] (demo)", "unseen", "it was not ready within 30 s, for which this waits"),
    ]
    assert [(each.running, each.closed) for each in made] == [(False, True), (False, True)]


async def test_what_agents_offer_together_is_looked_at_once_all_of_them_run(tmp_path: Path) -> None:
    found = await rehearse(written(tmp_path, DEMO, DEMO))
    assert [each.outcome for each in found.agents] == ["well", "well"]
    assert any("echo" in problem for problem in found.problems)
    (tmp_path / "bad.py").write_text("import nonesuch\n", "utf-8")
    bad = f'[[server.agent]]\nkind = "python"\nfile = "{tmp_path / "bad.py"}"\npython = "{sys.executable}"\n'
    found = await rehearse(written(tmp_path, DEMO, DEMO, bad))
    assert [each.outcome for each in found.agents] == ["well", "well", "refused"]
    assert "bad.py): the agent cannot be loaded: bad.py:1: ModuleNotFoundError" in found.agents[2].words
    assert not found.problems
    assert not (tmp_path / "data").exists()


async def _refuse(stream: trio.SocketStream) -> None:
    data = b""
    while b"\r\n\r\n" not in data and (more := await stream.receive_some()):
        data += more
    await stream.send_all(UNAUTHORIZED)
    await stream.aclose()


@pytest.mark.parametrize("identity", ["login", "token"])
async def test_an_upstream_that_wants_a_login_is_there(tmp_path: Path, identity: str) -> None:
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, _refuse, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        agent = (
            f'[[server.agent]]\nkind = "mcp"\nid = "files"\nurl = "http://127.0.0.1:{port}/mcp"\n'
            f'identity = "{identity}"\n'
        )
        found = await rehearse(written(tmp_path, agent))
        assert told(found) == [("main/files", "unseen", NO_LOGIN)]
        nursery.cancel_scope.cancel()
