"""A Python file of somebody's, served: by the source and by the finished file, until both have ended."""

from __future__ import annotations

import signal
from pathlib import Path
from textwrap import dedent

import pytest
from programs import BINARY, SOURCE, Program, needed, until

from tests.killed_child import alive

AGENT = """
    import os
    from ostiary import Context, tool

    @tool
    async def greet(name: str, ctx: Context) -> str:
        '''Greets somebody.'''
        await ctx.progress(1, 2, "thinking")
        return f"Hello, {name}!"

    @tool
    def look() -> dict:
        return {"pid": os.getpid(), "sees": sorted(os.environ), "libraries": os.environ.get("LD_LIBRARY_PATH")}
"""
SETTINGS = """
    auth = "none"
    [[server]]
    [[server.agent]]
    kind = "python"
    file = "agent.py"
    environment = ["AGENT_REGION"]
"""


@pytest.fixture(
    params=[
        pytest.param(SOURCE, id="source"),
        pytest.param(BINARY, id="binary", marks=[pytest.mark.binary, pytest.mark.slow]),
    ]
)
def ostiary(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    program = Program(command=request.param, home=home)
    if request.param == BINARY:
        needed(Path(BINARY[0]), "scripts/build")
    (home / "agent.py").write_text(dedent(AGENT), "utf-8")
    (home / "ostiary.toml").write_text(dedent(SETTINGS), "utf-8")
    environment = program.environment
    monkeypatch.setattr(
        program, "environment", lambda: environment(AGENT_REGION="north", OSTIARY_AGENT_SECRET="s3cret")
    )
    return program


def test_its_functions_are_called_it_sees_what_it_may_and_it_ends_with_the_server(ostiary: Program) -> None:
    with ostiary.serving() as server:
        assert "Hello, Ada!" in ostiary.run("call", server.endpoint, "greet", "name=Ada").stdout
        seen = ostiary.ask("call", server.endpoint, "look")["structuredContent"]
        assert {"AGENT_REGION", "HOME", "PATH"} <= set(seen["sees"])
        assert "OSTIARY_AGENT_SECRET" not in seen["sees"]
        assert not [name for name in seen["sees"] if name.startswith(("_PYI", "_MEI"))]
        assert "_MEI" not in (seen["libraries"] or "")
        assert server.end(signal.SIGTERM) == 0
        assert not alive(seen["pid"])


def test_an_edit_is_served_without_a_restart(ostiary: Program) -> None:
    with ostiary.serving() as server:
        (ostiary.home / "agent.py").write_text("def goodbye() -> str:\n    return 'Goodbye!'\n", "utf-8")
        server.await_words("agent.reloaded")
        assert "Goodbye!" in ostiary.run("call", server.endpoint, "goodbye").stdout
        ostiary.run("call", server.endpoint, "greet", "name=Ada", code=1)


def test_it_does_not_outlive_a_server_that_is_killed(ostiary: Program) -> None:
    with ostiary.serving() as server:
        pid = ostiary.ask("call", server.endpoint, "look")["structuredContent"]["pid"]
        server.end(signal.SIGKILL)
        until("the agent's process to end", lambda: True if not alive(pid) else None)


def test_a_file_that_cannot_be_loaded_keeps_the_server_from_starting_and_says_why(ostiary: Program) -> None:
    (ostiary.home / "agent.py").write_text("import no_such_module_anywhere\n", "utf-8")
    done = ostiary.run("serve", "--port", "0", "--data-dir", str(ostiary.data_dir), code=1)
    assert "agent.py:1" in done.stderr
    assert "no_such_module_anywhere" in done.stderr
