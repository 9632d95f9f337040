"""New settings for a server that runs: taken whole when the file changes or at SIGHUP, left alone when they are bad."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from programs import SOURCE, Background, Program, Server, until

AGENT = '''
    import time

    def wait(ready: str, go: str) -> str:
        """Waits until it may go on."""
        open(ready, "w").close()
        while True:
            try:
                return open(go).read()
            except FileNotFoundError:
                time.sleep(0.02)
'''
SETTINGS = """
    auth = "none"
    [[server]]
    [[server.agent]]
    kind = "python"
    file = "agent.py"
"""
DEMO = '\n[[server.agent]]\nkind = "demo"\n'


def house(home: Path) -> Program:
    (home / "agent.py").write_text(dedent(AGENT), "utf-8")
    write(home, "")
    return Program(command=SOURCE, home=home)


def write(home: Path, more: str, settings: str = SETTINGS) -> None:
    (home / "ostiary.toml").write_text(dedent(settings) + more, "utf-8")


def tools(ostiary: Program, server: Server) -> set[str]:
    return {tool["name"] for tool in ostiary.ask("tools", server.endpoint)["tools"]}


def test_an_agent_comes_with_an_edit_and_goes_with_the_next(home: Path) -> None:
    ostiary = house(home)
    with ostiary.serving() as server:
        assert tools(ostiary, server) == {"wait"}
        write(home, DEMO)
        server.await_words("settings.reloaded")
        assert {"wait", "echo"} < tools(ostiary, server)
        assert ostiary.ask("call", server.endpoint, "echo", "text=new")["content"][0]["text"] == "new"
        write(home, DEMO + "[server.tools.echo]\nenabled = false\n", SETTINGS)
        server.await_words("(?s)settings.reloaded.*settings.reloaded")
        assert "echo" not in tools(ostiary, server)
        assert server.end(signal.SIGTERM) == 0


def test_a_call_of_an_agent_that_is_let_go_is_answered(home: Path) -> None:
    ostiary = house(home)
    marks = home / "marks"  # a program may make nothing beside the settings
    marks.mkdir()
    ready, go = marks / "ready", marks / "go"
    with (
        ostiary.serving() as server,
        ostiary.starting("call", server.endpoint, "wait", f"ready={ready}", f"go={go}") as call,
    ):
        until("the call", lambda: ready.exists() or None)
        write(home, "", SETTINGS.replace('kind = "python"\n    file = "agent.py"', 'kind = "demo"'))
        server.await_words("settings.reloaded")
        assert "wait" not in tools(ostiary, server)
        (marks / "answer").write_text("it was answered", "utf-8")
        (marks / "answer").rename(go)
        assert call.wait() == 0 and "it was answered" in call.said()
        server.await_words("agent.gone")


def test_what_is_bad_is_told_and_what_was_served_still_is(home: Path) -> None:
    ostiary = house(home)
    with ostiary.serving() as server:
        write(home, '[[server.agent]]\nkind = "dmeo"\n')
        server.await_words("settings.not_reloaded")
        assert tools(ostiary, server) == {"wait"}
        # A clash of two agents is found out only when both run.
        (home / "second.py").write_text("def wait() -> str:\n    return ''\n", "utf-8")
        write(home, '[[server.agent]]\nkind = "python"\nfile = "second.py"\n')
        server.await_words("the tool wait is offered by")
        assert tools(ostiary, server) == {"wait"}
        told = ostiary.run("status", "--data-dir", str(ostiary.data_dir)).stdout
        assert "not as they are written" in told and "the tool wait is offered by" in told
        write(home, DEMO)  # and the next good ones are taken
        server.await_words("settings.reloaded")
        assert ostiary.at_machine("status")["server"]["settings"]["problems"] == []
        assert server.end(signal.SIGTERM) == 0


def test_what_waits_for_a_restart_is_named_and_the_rest_is_taken(home: Path) -> None:
    ostiary = house(home)
    with ostiary.serving() as server:
        write(home, DEMO, "max_connections = 100\n" + dedent(SETTINGS))
        server.await_words("settings.wait_for_restart")
        assert "echo" in tools(ostiary, server)
        shown = ostiary.run("status", "--data-dir", str(ostiary.data_dir))
        assert "max_connections" in shown.stdout + shown.stderr


def test_sighup_reads_again_what_the_settings_refer_to(home: Path) -> None:
    """Without a terminal that could have been closed."""
    ostiary = house(home)
    with ostiary.serving() as server:
        server.process.send_signal(signal.SIGHUP)
        write(home, DEMO)
        server.await_words("settings.reloaded")
        assert "echo" in tools(ostiary, server)
        assert server.end(signal.SIGTERM) == 0


def test_a_terminal_that_is_closed_drains_the_server(home: Path) -> None:
    ostiary = house(home)
    master, slave = os.openpty()
    in_it = (
        "import fcntl, os, signal, sys, termios; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.setsid(); fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0);"
        "os.close(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
    )
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            (sys.executable, "-c", in_it, str(slave), *SOURCE, "serve", "--port", "0", "--data-dir", str(home / "data"), "--log-format", "json"),
            cwd=home, env=ostiary.environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(slave,),
        )  # fmt: skip
    os.close(slave)
    server = Background(process=process, log=log)
    try:
        server.await_words("server.started")
        process.send_signal(signal.SIGHUP)  # from another terminal
        write(home, DEMO)
        server.await_words("settings.reloaded")
        os.close(master)
        assert server.wait() == 0
        assert "server.draining" in server.said()
    finally:
        server.end()


def test_bounds_of_a_tool_come_and_go_and_what_was_used_of_them_stays_used(home: Path) -> None:
    limited = DEMO + '[server.tools.echo]\nlimit = "1/h"\n'
    ostiary = house(home)

    def echo(server: Server) -> str:
        return ostiary.ask("call", server.endpoint, "echo", "text=hello")["content"][0]["text"]

    def held_back(server: Server) -> bool:
        refused = ostiary.run("call", server.endpoint, "echo", "text=hello", code=1)
        return "1/h is the limit" in refused.stdout + refused.stderr

    with ostiary.serving() as server:
        write(home, limited)
        server.await_words("settings.reloaded")
        assert echo(server) == "hello" and held_back(server)
        write(home, limited + 'tier = "read"\n')  # another word of it makes no new allowance
        server.await_words("(?s)settings.reloaded.*settings.reloaded")
        assert held_back(server)
        write(home, DEMO)
        server.await_words("(?s)(settings.reloaded.*){3}")
        assert echo(server) == "hello" == echo(server)
        assert server.end(signal.SIGTERM) == 0
