"""A program that the server starts is not its owner: what it tries against the server's files and its admin socket comes to nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp_calls import call_tool
from programs import NODE_BIN, SOURCE, House, Program, Server, until

from server.lib.landlock import landlock_abi

pytestmark = pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")

# One that every user can start.
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable
HOSTILE = Path(__file__).with_name("hostile_server.py")
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
USERS = [
    pytest.param((), id="as-it-is"),
    pytest.param(
        AS_NOBODY,
        id="as-another-user",
        marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else"),
    ),
]
SETTINGS = """
auth = "none"
key_file = "{home}/keys/door.key"
[[server]]
hooks.before = {{ file = "{home}/hooks-by-a-link/hooks.py", function = "before", tools = ["*denied"] }}
[[server.agent]]
kind = "mcp"
id = "up"
trust = "first-use"
command = ["{python}", "{hostile}", "{home}"]
env = {{ SECRET = "file:{home}/secrets/upstream" }}
[[server.agent]]
kind = "python"
file = "agents/agent.py"
python = "{python}"
[[server.agent]]
kind = "command"
cwd = "agents"
[[server.agent.tool]]
name = "read_it"
input = {{ path = "string" }}
run = ["/bin/cat", "--", "{{path}}"]
"""
HOOKS = """
from beside import WHY

def before(call):
    return {"decision": "deny", "reason": WHY}
"""
AGENT = """
import subprocess
from ostiary import tool

@tool
def read_by_python(path: str) -> str:
    try:
        return open(path).read()
    except OSError as error:
        return type(error).__name__

@tool
def type_it(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    return f"{done.returncode} {done.stdout} {done.stderr}"

@tool
def denied() -> str:
    return "done"

@tool
def leave_an_orphan() -> str:
    return subprocess.run(["/bin/sh", "-c", "(exec true >&2) & echo $!"], capture_output=True, text=True).stdout

@tool
def attach(pid: int) -> str:
    import ctypes, errno
    libc = ctypes.CDLL(None, use_errno=True)
    tries = [lambda: libc.ptrace(16, pid, 0, 0), lambda: libc.syscall(438, libc.syscall(434, pid, 0), 0, 0)]
    buffer, word = ctypes.create_string_buffer(8), ctypes.c_size_t * 2
    ours, theirs = word(ctypes.addressof(buffer), 8), word(ctypes.addressof(buffer), 8)
    tries.append(lambda: libc.process_vm_readv(pid, ours, 1, theirs, 1, 0))
    return " ".join("done" if each() >= 0 else errno.errorcode[ctypes.get_errno()] for each in tries)

@tool
def write_here(text: str) -> str:
    import os, pathlib, tempfile
    here = pathlib.Path(__file__).parent
    (here / "notes.txt").write_text(text)
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write(text)
    return (here / "notes.txt").read_text()
"""


def settled(home: Path, user: tuple[str, ...]) -> Program:
    """Put everything in its place, for that user."""
    program = Program(command=(*user, *SOURCE), home=home, serves_alone=True)
    program.environment()  # which makes the folders
    for name in ("data", "keys", "secrets", "agents", "settings"):
        (home / name).mkdir(mode=0o700)
    (home / "secrets" / "upstream").write_text("of-another-agent", "utf-8")
    (home / "agents" / "agent.py").write_text(AGENT, "utf-8")
    (home / "hooks" / "__pycache__").mkdir(parents=True)
    (home / "hooks" / "hooks.py").write_text(HOOKS, "utf-8")
    (home / "hooks" / "beside.py").write_text("WHY = 'never'\n", "utf-8")
    (home / "hooks-by-a-link").symlink_to("hooks")
    (home / "hostile.py").write_bytes(HOSTILE.read_bytes())
    (home / "settings" / "ostiary.toml").write_text(
        SETTINGS.format(home=home, python=PYTHON, hostile=home / "hostile.py"), "utf-8"
    )
    if user:
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        try:
            subprocess.run((*program.command, "--version"), cwd=home, env=program.environment(), check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("another user than root cannot start this checkout")
    return program


@pytest.fixture(params=USERS)
def ostiary(request: pytest.FixtureRequest, home: Path) -> Program:
    return settled(home, request.param)


@pytest.fixture(scope="module", params=USERS)
def served(request: pytest.FixtureRequest) -> Iterator[House]:
    """The server of each user that all tests share which neither stop it nor need other settings."""
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        program = settled(Path(folder), request.param)
        with program.serving("--config", str(program.home / "settings" / "ostiary.toml")) as server:
            yield House(program=program, server=server)
            assert server.end(signal.SIGTERM) == 0


def key_names(ostiary: Program) -> list[str]:
    return [each["name"] for each in ostiary.at_machine("api-keys", "list")]


def called(server: Server, tool: str, **arguments: Any) -> Any:
    """Return what a tool answers, which has no error to tell."""
    answer = call_tool(server.endpoint, tool, arguments)
    assert not answer.get("isError"), answer
    return answer.get("structuredContent", answer["content"][0]["text"])


def secrets_of(home: Path) -> list[Path]:
    found = [home / "data" / "ostiary.db", home / "data" / "control.path", home / "keys" / "door.key"]
    found += [home / "settings" / "ostiary.toml", home / "secrets" / "upstream"]
    assert all(path.is_file() for path in found)
    return found


def test_a_program_that_looks_for_its_servers_keys_finds_none_and_makes_none(served: House) -> None:
    ostiary = served.program
    found = called(served.server, "up__take_over")
    assert found["data_dir"] == str(ostiary.data_dir)
    assert set(found["files"].values()) == {"PermissionError"}
    assert found["files of an orphan"] == found["files"]
    assert found["socket"], "it found no socket to try"
    assert all("server started" in way["error"] for way in found["socket"].values())
    assert "mine" not in key_names(ostiary)


def test_a_program_that_changes_what_it_says_cannot_accept_that_itself(served: House) -> None:
    found = called(served.server, "up__change")
    assert found["socket"], "it found no socket to try"
    assert all("server started" in way["error"] for way in found["socket"].values())


def test_no_kind_of_agent_opens_what_is_the_servers(served: House) -> None:
    ostiary = served.program
    for path in secrets_of(ostiary.home):
        assert called(served.server, "read_by_python", path=str(path)) == "PermissionError"
        told = call_tool(served.server.endpoint, "read_it", {"path": str(path)})
        assert told["isError"] and path.read_bytes()[:8].decode("latin-1") not in str(told)


def test_no_program_reads_the_memory_of_its_server_or_of_another_program(served: House) -> None:
    found = called(served.server, "up__take_over")
    for pid in (found["pid"], found["parent"]):
        for name in ("environ", "mem", "maps", "fd/0", "cwd/agents/agent.py", "root/etc/hostname"):
            assert called(served.server, "read_by_python", path=f"/proc/{pid}/{name}") == "PermissionError"
        assert called(served.server, "attach", pid=pid) == "EPERM EPERM EPERM"


def test_no_program_changes_a_hook(served: House) -> None:
    ostiary = served.program
    tried = called(served.server, "up__rewrite")
    assert set(tried.values()) <= {"PermissionError", "FileNotFoundError"}, tried
    assert (ostiary.home / "hooks-by-a-link").is_symlink()
    told = call_tool(served.server.endpoint, "denied", {})
    assert told["isError"] and "never" in str(told)


def test_programs_read_what_is_put_beside_a_hook_later(served: House) -> None:
    ostiary = served.program
    (ostiary.home / "hooks" / "later.txt").write_text("of today", "utf-8")
    later = ostiary.home / "hooks" / "later.txt"
    later.chmod(0o644)
    assert called(served.server, "read_by_python", path=str(later)) == "of today"


def test_an_agent_reads_and_writes_what_is_its_own(served: House) -> None:
    ostiary = served.program
    assert called(served.server, "write_here", text="hello") == "hello"
    assert (ostiary.home / "agents" / "notes.txt").read_text("utf-8") == "hello"


def test_what_a_killed_server_left_behind_is_no_owner_of_the_next(ostiary: Program) -> None:
    settings = str(ostiary.home / "settings" / "ostiary.toml")
    with ostiary.serving("--config", settings) as server:
        left = called(server, "up__linger")["pid"]
        server.end(signal.SIGKILL)
    try:
        with ostiary.serving("--config", settings):
            (ostiary.home / "tmp" / "go").touch()
            told = ostiary.home / "tmp" / "told"
            until("what it was told", lambda: True if told.exists() else None)
            answers = json.loads(told.read_text("utf-8"))
            assert answers, "it found no socket to try"
            assert all("new privileges" in each.get("error", "") for each in answers.values())
            assert ostiary.at_machine("api-keys", "list") == []
    finally:
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("ostiary", [()], indirect=True, ids=["as-it-is"])
def test_a_stop_ends_what_programs_have_left_behind(ostiary: Program) -> None:
    settings = str(ostiary.home / "settings" / "ostiary.toml")
    with ostiary.serving("--config", settings) as server:
        left = called(server, "up__linger")["pid"]
        assert Path(f"/proc/{left}").exists()
        assert server.end(signal.SIGTERM) == 0
        assert not Path(f"/proc/{left}").exists()


def test_what_another_server_of_that_user_started_is_no_owner_of_this_one(served: House) -> None:
    ostiary = served.program
    other = (*ostiary.command, "serve", "--stdio", "--data-dir", str(ostiary.data_dir))
    config = ("--config", str(ostiary.home / "settings" / "ostiary.toml"))
    with subprocess.Popen(
        (*other, *config),
        cwd=ostiary.home,
        env=ostiary.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        client = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        found: Any = None
        for method, params in (
            ("initialize", client),
            ("tools/call", {"name": "up__take_over", "arguments": {}}),
        ):
            question = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            answers = (json.loads(line) for line in process.stdout)
            found = next(each for each in answers if each.get("id") == method)
        process.stdin.close()
    socket = found["result"]["structuredContent"]["socket"]
    assert socket, "it found no socket to try"
    assert all("new privileges" in way.get("error", "") for way in socket.values())
    assert "mine" not in key_names(ostiary)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make what containers are made of")
@pytest.mark.parametrize("ostiary", [()], indirect=True, ids=["as-it-is"])
def test_where_a_container_gives_nobody_new_privileges_its_owner_is_let_in_and_programs_are_not(
    ostiary: Program,
) -> None:
    bare = ("setpriv", "--no-new-privs", *SOURCE)
    settings = str(ostiary.home / "settings" / "ostiary.toml")
    container = Program(
        command=("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", *bare), home=ostiary.home
    )
    with container.serving("--config", settings) as server:
        (inside,) = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        try:
            assert called(server, "up__linger")["pid"]
            (ostiary.home / "tmp" / "go").touch()
            told = ostiary.home / "tmp" / "told"
            until("what it was told", lambda: True if told.exists() else None)
            answers = json.loads(told.read_text("utf-8"))
            assert answers, "it found no socket to try"
            assert all("server started" in each.get("error", "") for each in answers.values())
            person = Program(command=("nsenter", "-t", inside, "-p", "-m", *bare), home=ostiary.home)
            assert person.at_machine("api-keys", "create", "mine")["name"] == "mine"
        finally:
            os.kill(int(inside), signal.SIGTERM)  # `unshare` passes none on


@pytest.mark.parametrize("served", [()], indirect=True, ids=["as-it-is"])
def test_a_command_that_an_agent_types_is_refused_and_its_owners_is_not(served: House) -> None:
    ostiary = served.program
    words = [*SOURCE, "api-keys", "create", "typed", "--data-dir", str(ostiary.data_dir)]
    told = called(served.server, "type_it", words=words)
    assert "server started" in told
    assert "typed" not in key_names(ostiary)
    assert ostiary.at_machine("api-keys", "create", "typed")["name"] == "typed"


@pytest.mark.slow
@pytest.mark.parametrize("ostiary", [()], indirect=True, ids=["as-it-is"])
def test_a_program_that_a_worker_started_is_kept_out_of_its_parents_socket_and_files(
    ostiary: Program, postgres_database: dict[str, str]
) -> None:
    where, store = postgres_database, ostiary.home / "settings" / "store"
    store.write_text(
        f"postgresql://{where['user']}:hunter2@/{where['dbname']}?host={where['host']}\n", "utf-8"
    )
    kept = [ostiary.home / name for name in ("keys/door.key", "secrets/upstream", "settings/ostiary.toml")]
    options = ("--config", str(kept[-1]), "--store", f"file:{store}", "--workers", "2")
    with ostiary.serving(*options) as server:
        server.await_words(r'"event":"server.started"')
        lines = [json.loads(line) for line in server.said().splitlines() if '"event":"worker.ready"' in line]
        workers = {line["pid"] for line in lines}
        assert len(workers) == 2
        for tool in ("up__take_over", "up__change"):
            found = called(server, tool)
            assert found["parent"] in workers
            assert found["socket"], "it found no socket to try"
            assert all("server started" in way["error"] for way in found["socket"].values())
            opened = {name: how for name, how in found.get("files", {}).items() if how != "PermissionError"}
            assert not [name for name in opened if Path(name).exists()], opened
        kept += [store, *(path for path in ostiary.data_dir.iterdir() if path.is_file())]
        kept += [Path(f"/proc/{pid}/environ") for pid in (server.process.pid, *workers)]
        for path in kept:
            assert called(server, "read_by_python", path=str(path)) == "PermissionError"
        assert ostiary.at_machine("api-keys", "list") == []
        assert ostiary.at_machine("api-keys", "create", "mine")["name"] == "mine"
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("ostiary", [()], indirect=True, ids=["as-it-is"])
def test_orphans_of_an_agent_leave_nothing_behind(ostiary: Program) -> None:
    with ostiary.serving("--config", str(ostiary.home / "settings" / "ostiary.toml")) as server:
        orphan = int(called(server, "leave_an_orphan"))
        until("the end of an orphan", lambda: None if Path(f"/proc/{orphan}").exists() else True)
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("ostiary", [()], indirect=True, ids=["as-it-is"])
def test_an_agent_that_is_unconfined_opens_what_its_user_may_and_is_named(ostiary: Program) -> None:
    settings = ostiary.home / "settings" / "ostiary.toml"
    settings.write_text(
        settings.read_text("utf-8").replace('file = "agents', 'unconfined = true\nfile = "agents'), "utf-8"
    )
    with ostiary.serving("--config", str(settings)) as server:
        secret = ostiary.home / "secrets" / "upstream"
        assert called(server, "read_by_python", path=str(secret)) == "of-another-agent"
        assert "agents/agent.py" in server.await_words(r'"reason":"(unconfined[^"]*)"')[1]
        told = ostiary.ask("doctor", "--config", str(settings), "--data-dir", str(ostiary.data_dir))
        assert any(
            "agents/agent.py" in step["detail"] for step in told["steps"] if step["step"] == "programs"
        )


@pytest.mark.peers
@pytest.mark.parametrize("ostiary", [()], indirect=True, ids=["as-it-is"])
def test_npx_begins_its_cache_in_a_home_that_has_none_and_holds_the_data(ostiary: Program) -> None:
    npx = ("npx", "--offline", "--no-install", "--prefix", str(NODE_BIN.parent.parent))
    command = (*npx, "mcp-server-filesystem", str(ostiary.home / "agents"))
    with ostiary.serving("--auth", "none", "--", *command) as server:
        listed = called(server, "list_directory", path=str(ostiary.home / "agents"))
        assert "agent.py" in str(listed)
    assert (ostiary.home / ".npm").is_dir()
