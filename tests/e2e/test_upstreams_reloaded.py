"""MCP upstreams come, change and go while the server runs; those that stay as they were written keep their connections and sessions."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from textwrap import dedent

from programs import SOURCE, Program, Server, until

# Tells who it is, and writes down each start of it and each call.
UPSTREAM = """
    import json, os, pathlib, sys, time
    name = sys.argv[1]
    home = pathlib.Path(__file__).parent / "notes"
    with (home / "started").open("a") as started:
        started.write(f"{name}\\n")
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message["method"], message.get("id")
        if number is None:
            continue
        answer = {"jsonrpc": "2.0", "id": number}
        if method == "server/discover":
            answer["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "instructions": f"I am {name}."}
        elif method == "tools/list":
            answer["result"] = {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            if message["params"]["arguments"].get("waits"):
                (home / "ready").touch()
                while not (home / "go").exists():
                    time.sleep(0.02)
            answer["result"] = {"content": [{"type": "text", "text": f"{name} {os.getpid()}"}]}
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
"""


def agent(home: Path, name: str, *, as_: str = "", trust: str = "always", **more: object) -> str:
    command = json.dumps([sys.executable, str(home / "upstream.py"), as_ or name])
    lines = [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    written = f'\n[[server.agent]]\nkind = "mcp"\nid = "{name}"\ntrust = "{trust}"\ncommand = {command}\n'
    return written + "\n".join(lines) + "\n"


def house(home: Path, agents: str) -> Program:
    (home / "upstream.py").write_text(dedent(UPSTREAM), "utf-8")
    (home / "notes").mkdir()  # a program may make nothing beside the settings
    write(home, agents)
    return Program(command=SOURCE, home=home)


def write(home: Path, agents: str) -> None:
    (home / "next.toml").write_text(f'auth = "none"\n[[server]]\nname = "main"\n{agents}', "utf-8")
    (home / "next.toml").rename(home / "ostiary.toml")


def tools(program: Program, server: Server) -> list[str]:
    return [tool["name"] for tool in program.ask("tools", server.endpoint)["tools"]]


def said(program: Program, server: Server, tool: str) -> str:
    return program.ask("call", server.endpoint, tool)["content"][0]["text"]


def reloaded(server: Server, times: int) -> None:
    server.await_words("(?s)" + ".*".join(["settings.reloaded"] * times))


def starts(home: Path) -> list[str]:
    return (home / "notes" / "started").read_text("utf-8").split()


def test_upstreams_come_and_change_and_go_and_the_others_keep_their_connections(home: Path) -> None:
    stays = agent(home, "stays")
    program = house(home, stays)
    with program.serving() as server:
        first = said(program, server, "stays__who")
        write(home, stays + agent(home, "comes"))
        reloaded(server, 1)
        assert tools(program, server) == ["stays__who", "comes__who"]
        assert said(program, server, "comes__who").startswith("comes ")
        write(home, stays + agent(home, "comes", as_="changed"))
        reloaded(server, 2)
        assert said(program, server, "comes__who").startswith("changed ")
        write(home, stays)
        reloaded(server, 3)
        assert tools(program, server) == ["stays__who"]
        assert said(program, server, "stays__who") == first
        # Each once for what it offers, and once for its caller.
        assert [*dict.fromkeys(starts(home))] == ["stays", "comes", "changed"]
        assert starts(home).count("stays") == 2
        listed = [each["upstream"] for each in program.at_machine("upstream", "list")]
        assert listed == ["main/stays"]
        assert "wait_for_restart" not in server.said()
        assert server.end(signal.SIGTERM) == 0


def test_the_first_upstream_of_a_server_comes_and_the_last_one_goes(home: Path) -> None:
    demo = '[[server.agent]]\nkind = "demo"\n'
    program = house(home, demo)
    with program.serving() as server:
        write(home, demo + agent(home, "files", trust="pinned"))
        reloaded(server, 1)
        assert "files__who" not in tools(program, server)  # nobody has looked at it
        program.at_machine("upstream", "accept", "files", "--yes")
        assert "files__who" in tools(program, server)
        # What was accepted is known to what comes in its place, and is not looked up anew.
        write(home, demo + agent(home, "files", trust="pinned", deadline_seconds=60))
        reloaded(server, 2)
        assert "files__who" in tools(program, server)
        write(home, demo)
        reloaded(server, 3)
        assert program.at_machine("status")["server"]["upstreams"] is None
        assert server.end(signal.SIGTERM) == 0


def test_a_bad_one_changes_nothing_and_what_it_was_met_with_is_not_believed(home: Path) -> None:
    good = agent(home, "files", trust="first-use")
    program = house(home, good)
    with program.serving() as server:
        pid = said(program, server, "files__who")
        gone = good + '\n[[server.agent]]\nkind = "mcp"\nid = "gone"\ntcp = "127.0.0.1:9"\n'
        write(home, gone)
        server.await_words("settings.not_reloaded")
        assert said(program, server, "files__who") == pid
        told = program.at_machine("status")["server"]["settings"]["problems"]
        assert "nobody answers there" in told[0] and 'connect = "lazy"' in told[0]
        # Another command under the name of the first, beside one that is not there: neither is taken.
        write(home, gone.replace('"files"]', '"turncoat"]'))
        server.await_words("(?s)settings.not_reloaded.*settings.not_reloaded")
        assert said(program, server, "files__who") == pid
        assert [each["accepted"] for each in program.at_machine("upstream", "list")] == [2]
        write(home, good + good)
        server.await_words("(?s)(settings.not_reloaded.*){3}")
        assert "the same id" in program.at_machine("status")["server"]["settings"]["problems"][0]
        write(home, gone + 'connect = "lazy"\n')
        reloaded(server, 1)
        assert said(program, server, "files__who") == pid
        assert server.end(signal.SIGTERM) == 0


def test_a_call_of_one_that_goes_is_answered_and_then_it_is_ended(home: Path) -> None:
    program = house(home, agent(home, "old"))
    with (
        program.serving() as server,
        program.starting("call", server.endpoint, "old__who", "waits=yes") as call,
    ):
        until("the call", lambda: (home / "notes" / "ready").exists() or None)
        write(home, agent(home, "new"))
        reloaded(server, 1)
        assert tools(program, server) == ["new__who"]
        (home / "notes" / "go").touch()
        assert call.wait() == 0 and "old " in call.said()
        server.await_words("agent.gone")


def test_an_upstream_in_trouble_is_named_once(home: Path) -> None:
    program = house(home, '\n[[server.agent]]\nkind = "mcp"\nid = "gone"\ntcp = "127.0.0.1:9"\n')
    with program.serving() as server:
        shown = program.run("status", "--data-dir", str(program.data_dir)).stdout
        assert shown.count("nobody answers there") == 1
        state = program.at_machine("status")["server"]
        assert state["agents"] == [] and state["upstreams"][0]["name"] == "main/gone"
        examined = program.run("doctor", "--data-dir", str(program.data_dir), code=1)
        assert (examined.stdout + examined.stderr).count("nobody answers there") == 1
        assert server.end(signal.SIGTERM) == 0
