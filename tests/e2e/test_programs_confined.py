"""Programs whose settings say what they may open: real servers work so, and what is not theirs stays closed."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp_calls import call_tool
from programs import NODE_BIN, ROOT, SOURCE, House, Program, Server

from server.lib.landlock import PORTS_ABI, landlock_abi

pytestmark = pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")

FASTMCP = ROOT / ".venvs" / "fastmcp" / "bin" / "python"
REAL = """
auth = "none"
[[server]]
[[server.agent]]
kind = "mcp"
id = "everything"
trust = "first-use"
command = ["npx", "--offline", "--no-install", "--prefix", "{node}", "mcp-server-everything"]
reads = ["{node}"]
connects = []
[[server.agent]]
kind = "mcp"
id = "files"
trust = "first-use"
command = ["{bin}/mcp-server-filesystem", "{home}/notes"]
writes = ["{home}/notes"]
[[server.agent]]
kind = "mcp"
id = "memory"
trust = "first-use"
command = ["{bin}/mcp-server-memory"]
env = {{ MEMORY_FILE_PATH = "{home}/memory/memory.json" }}
writes = ["{home}/memory"]
[[server.agent]]
kind = "mcp"
id = "own"
trust = "first-use"
command = ["{python}", "{home}/own/server.py"]
reads = []
"""
SERVER = """
from fastmcp import FastMCP

server = FastMCP("own")

@server.tool
def double(number: int) -> int:
    return 2 * number

server.run(show_banner=False)
"""
PROBE = """
import os, socket, subprocess, sys
from ostiary import tool

@tool
def read_it(path: str) -> str:
    try:
        return open(path).read()
    except OSError as error:
        return type(error).__name__

@tool
def list_it(path: str) -> str:
    try:
        return ' '.join(sorted(os.listdir(path)))
    except OSError as error:
        return type(error).__name__

@tool
def write_it(path: str) -> str:
    try:
        with open(os.path.expandvars(path), 'w') as file:
            file.write('mine')
        return 'written'
    except OSError as error:
        return type(error).__name__

@tool
def connect_to(port: int) -> str:
    try:
        socket.create_connection(('127.0.0.1', port), 20).close()
        return 'connected'
    except OSError as error:
        return type(error).__name__

@tool
def listen_there() -> str:
    try:
        socket.create_server(('127.0.0.1', 0)).close()
        return 'listening'
    except OSError as error:
        return type(error).__name__

@tool
def type_it(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr

@tool
def where_is_home() -> str:
    return os.environ['HOME']
"""
PROBED = """
auth = "none"
[[server]]
hooks.before = {{ file = "{home}/hooks/hooks.py", function = "before", tools = ["asked_of_a_hook"], reads = [] }}
[[server.agent]]
kind = "python"
file = "{home}/probe/probe.py"
reads = ["{home}/given", "{home}/data"]
writes = ["{home}/drafts"]
connects = [{port}]
[[server.agent]]
kind = "command"
reads = []
[[server.agent.tool]]
name = "cat"
input = {{ path = "string" }}
run = ["/bin/cat", "--", "{{path}}"]
[[server.agent.tool]]
name = "asked_of_a_hook"
run = ["/bin/echo"]
"""
HOOKS = """
def before(call):
    try:
        return {"decision": "deny", "reason": open("HOME/given/it").read()}
    except OSError as error:
        return {"decision": "deny", "reason": type(error).__name__}
"""


@dataclass(frozen=True, kw_only=True)
class Probed(House):
    port: int  # that its program may connect to


def called(server: Server, tool: str, **arguments: Any) -> Any:
    answer = call_tool(server.endpoint, tool, arguments)
    assert not answer.get("isError"), answer
    return answer["content"][0]["text"]


@pytest.mark.peers
def test_real_servers_work_with_no_more_than_they_are_given(home: Path) -> None:
    program = Program(command=SOURCE, home=home, serves_alone=True)
    for name in ("notes", "memory", "own"):
        (home / name).mkdir()
    (home / "own" / "server.py").write_text(SERVER, "utf-8")
    (home / "notes" / "one.txt").write_text("of today", "utf-8")
    settings = home / "ostiary.toml"
    known = {"node": NODE_BIN.parent.parent, "bin": NODE_BIN, "python": FASTMCP}
    settings.write_text(REAL.format(home=home, **known), "utf-8")
    with program.serving("--config", str(settings)) as server:
        assert called(server, "everything__echo", message="hello") == "Echo: hello"
        assert called(server, "files__read_text_file", path=str(home / "notes" / "one.txt")) == "of today"
        called(server, "files__write_file", path=str(home / "notes" / "two.txt"), content="of now")
        assert (home / "notes" / "two.txt").read_text("utf-8") == "of now"
        thing = {"name": "door", "entityType": "thing", "observations": ["open"]}
        called(server, "memory__create_entities", entities=[thing])
        assert "door" in called(server, "memory__read_graph")
        assert "door" in (home / "memory" / "memory.json").read_text("utf-8")
        assert called(server, "own__double", number=21) == "42"
        assert server.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def probed() -> Iterator[Probed]:
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        for name in ("probe", "hooks", "given", "drafts", "other", "data"):
            (home / name).mkdir(mode=0o700)
        (home / "probe" / "probe.py").write_text(PROBE, "utf-8")
        (home / "hooks" / "hooks.py").write_text(HOOKS.replace("HOME", folder), "utf-8")
        for name in ("given", "other"):
            (home / name / "it").write_text(f"of {name}", "utf-8")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            settings = home / "ostiary.toml"
            settings.write_text(PROBED.format(home=home, port=listening.getsockname()[1]), "utf-8")
            program = Program(command=SOURCE, home=home, serves_alone=True)
            with program.serving("--config", str(settings)) as server:
                yield Probed(program=program, server=server, port=listening.getsockname()[1])
                assert server.end(signal.SIGTERM) == 0


def test_what_settings_do_not_give_is_closed(probed: Probed) -> None:
    home = probed.program.home
    assert called(probed.server, "read_it", path=str(home / "given" / "it")) == "of given"
    assert called(probed.server, "read_it", path=str(home / "other" / "it")) == "PermissionError"
    assert called(probed.server, "list_it", path=str(home / "other")) == "PermissionError"
    for closed in ("/etc/shadow", "/root/.bashrc", "/dev/mem"):
        assert called(probed.server, "read_it", path=closed) in ("PermissionError", "FileNotFoundError")


def test_what_settings_give_opens_nothing_of_the_servers(probed: Probed) -> None:
    kept = probed.program.data_dir / "ostiary.db"
    assert kept.is_file()
    assert called(probed.server, "read_it", path=str(kept)) == "PermissionError"


def test_a_program_writes_where_it_may_and_in_a_home_of_its_own(probed: Probed) -> None:
    home = probed.program.home
    assert called(probed.server, "write_it", path=str(home / "drafts" / "new")) == "written"
    for closed in ("given/it", "given/new", "other/it", "probe/probe.py", "new", "tmp/new"):
        assert called(probed.server, "write_it", path=str(home / closed)) == "PermissionError"
    assert called(probed.server, "write_it", path="$HOME/new") == "written"
    assert called(probed.server, "write_it", path="$TMPDIR/new") == "written"
    own = Path(called(probed.server, "where_is_home"))
    assert own.is_relative_to(home / ".local" / "state") and (own / "new").read_text("utf-8") == "mine"
    assert (home / "given" / "it").read_text("utf-8") == "of given"


def test_a_caller_gives_a_program_no_rights_with_its_words(probed: Probed) -> None:
    script = probed.program.home / "other" / "it.py"
    script.write_text("secret", "utf-8")
    answer = call_tool(probed.server.endpoint, "cat", {"path": str(script)})
    assert answer["isError"] and "secret" not in str(answer)


def test_a_hook_is_kept_to_what_it_is_given(probed: Probed) -> None:
    answer = call_tool(probed.server.endpoint, "asked_of_a_hook", {})
    assert answer["isError"] and "PermissionError" in str(answer)


@pytest.mark.skipif(landlock_abi() < PORTS_ABI, reason="this kernel keeps no program to ports")
def test_a_program_connects_to_the_ports_that_it_is_given(probed: Probed) -> None:
    server_port = int(probed.server.url.rpartition(":")[2])
    assert called(probed.server, "connect_to", port=probed.port) == "connected"
    assert called(probed.server, "connect_to", port=server_port) == "PermissionError"
    assert called(probed.server, "listen_there") == "PermissionError"


def test_what_a_program_starts_is_confined_as_it_is(probed: Probed) -> None:
    words = ["setsid", "sh", "-c", f"cat {probed.program.home}/other/it & wait"]
    assert "of other" not in called(probed.server, "type_it", words=words)
