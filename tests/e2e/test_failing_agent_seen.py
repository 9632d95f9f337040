"""Agents break behind a running server while somebody calls. An owner who knows nothing but the Overview can say which one fails, why, since when
and whom it hits; and the same words are in `status`, in `doctor`, in the log and at /readyz. When it works again, that is said as well."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
import pytest
from person import NAME, Person
from programs import ROOT, SOURCE, WAIT_SECONDS, Program, Server, until

from tests.free_ports import free_port

pytestmark = pytest.mark.slow

REFUSED = "it cannot be reached: connection refused"
# Told to die it leaves a note, and with the note it does not start.
UPSTREAM = """
    import json, os, sys
    if os.path.exists("notes/dead"):
        sys.exit("the licence is over")
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message["method"], message.get("id")
        if number is None:
            continue
        answer = {"jsonrpc": "2.0", "id": number}
        if method == "server/discover":
            answer["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            answer["result"] = {"tools": [{"name": "look_up", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            open("notes/dead", "w").close()
            os._exit(3)
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
"""


class _Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"content": "hello"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@contextmanager
def an_agent(port: int) -> Generator[None]:
    listener = ThreadingHTTPServer(("127.0.0.1", port), _Agent)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join(WAIT_SECONDS)


class Words(HTMLParser):
    """What somebody reads of a page, section by section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {"": ""}
        self._title = ""
        self._in_title = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "h2"
        if self._in_title:
            self._title = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "h2":
            self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title += data
            self.sections.setdefault(self._title, "")
        else:
            self.sections[self._title] = " ".join(f"{self.sections.get(self._title, '')} {data}".split())


def overview_of(person: Person, server: Server) -> dict[str, str]:
    page = person.browser.get(f"{server.url}/account")
    assert page.status_code == 200, page.text
    return Words(page.text).sections


def documented() -> list[str]:
    """The lines of `ostiary status` in docs/operating.md, each as a pattern for any numbers and durations."""
    text = (ROOT / "docs" / "operating.md").read_text("utf-8")
    block = text.split("## Watching agents and calls")[1].split("```")[1]
    lines = [
        " ".join(line.split()) for line in block.splitlines() if line.startswith(("last", "agent", "  "))
    ]
    assert len(lines) == 3
    return [
        re.sub(r"(\d\\\.)?\d+(?=\\ (calls|failed|%|minutes|s\\\)))", r"[0-9.]+", re.escape(line))
        .replace("minutes", r"(?:second|minute)s?")
        .replace(r"\ s\)", r"\ m?s\)")
        for line in lines
    ]


def events(server: Server, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in server.said().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def test_whoever_looks_at_the_overview_knows_which_agent_fails_why_since_when_and_whom_it_hits(
    home: Path,
) -> None:
    port = free_port()
    (home / "upstream.py").write_text(dedent(UPSTREAM), "utf-8")
    (home / "notes").mkdir()
    command = json.dumps([sys.executable, "upstream.py"])
    (home / "ostiary.toml").write_text(
        '[[server]]\nname = "main"\n'
        f'[[server.agent]]\nkind = "chat"\nurl = "http://127.0.0.1:{port}/chat"\nagent = "kaya"\n'
        f'[[server.agent]]\nkind = "mcp"\nid = "files"\ntrust = "always"\nshare = "all"\ncommand = {command}\n',
        "utf-8",
    )
    program, person = Program(command=SOURCE, home=home), Person()
    data = ("--data-dir", str(program.data_dir))
    agent = ExitStack()
    agent.enter_context(an_agent(port))  # before the server: at its start it is tried
    with agent, program.serving("--config", "ostiary.toml", "--admin-port", "0") as server:
        person.claim(program, server)
        program.log_in(server)
        admin = server.await_words(r'admin"?[:=] ?"?(http://127[0-9.:]+)')[1]

        def readyz() -> str:
            return httpx2.get(f"{admin}/readyz", trust_env=False, timeout=WAIT_SECONDS).text

        def ask_agent(code: int) -> None:
            program.run("call", server.endpoint, "chat_with_agent", "message=hi", code=code)

        ask_agent(0)
        seen = overview_of(person, server)
        assert "Every agent is in order" in seen["Needs you"]
        assert readyz() == "ready\n"
        agent.close()

        # Its port is closed now, and somebody calls.
        ask_agent(1)
        ask_agent(1)
        hit = f"2 calls failed, of {NAME}"
        needs = overview_of(person, server)["Needs you"]
        assert re.search(
            rf"main\[1\] \(chat\) has been out of order for \d+ (?:second|minute)s? {REFUSED.capitalize()} {hit}",
            needs,
        ), needs
        failures = overview_of(person, server)["Last failures"]
        assert failures.count("agent endpoint cannot be reached: connection refused") == 2
        (agent,) = program.at_machine("status")["server"]["agents"]
        assert (agent["name"], agent["words"]) == ("main[1] (chat)", REFUSED)
        status = " ".join(program.run("status", *data).stdout.split())
        for line in documented():
            assert re.search(line, status), (line, status)
        assert re.search(r"last 24 hours 3 calls, 2 failed \(67 %\), slowest chat_with_agent", status)
        assert re.fullmatch(
            rf"ready\nout of order: main\[1\] \(chat\): {REFUSED} \(for \d+ (?:second|minute)s?\)\n", readyz()
        )
        doctor = program.run("doctor", *data, "--config", "ostiary.toml", code=1).stdout
        assert re.search(rf"main\[1\] \(chat\) is out of order for [^:]+: {REFUSED}; {hit}", doctor)
        (begun,) = until("a line of the log", lambda: events(server, "agent.out_of_order") or None)
        assert (begun["level"], begun["agent"], begun["reason"]) == ("warning", "main[1] (chat)", REFUSED)
        assert begun["failed_calls"] >= 1 and begun["people"] == [NAME]

        # It is there again: that is seen without anybody's call. `doctor` looks at once.
        with an_agent(port):
            assert "is out of order" not in program.run("doctor", *data, "--config", "ostiary.toml").stdout
            (over,) = until("a line of the log", lambda: events(server, "agent.in_order_again") or None)
            assert (over["agent"], over["failed_calls"], over["people"]) == ("main[1] (chat)", 2, [NAME])
            ask_agent(0)

        # The other one dies while it is called, and does not come back.
        program.run("call", server.endpoint, "files__look_up", code=1)
        until("it does not start", lambda: "the licence is over" in server.said() or None)

        def told() -> str | None:
            found = overview_of(person, server)["Needs you"]
            return found if "1 call failed" in found else None

        needs = until("the upstream on the Overview", told)
        assert re.search(
            rf"main\[2\] \(files\) has been out of order for \d+ (?:second|minute)s? .*1 call failed, of {NAME}",
            needs,
        )

        # It is tried again and again: what is in its way changes, and is the same everywhere.
        def same() -> Mapping[str, Any] | None:
            seen = readyz()
            (found,) = program.at_machine("status")["server"]["upstreams"]
            return found if found["trouble"] and found["trouble"]["words"] in seen else None

        upstream = until("the upstream in status and at /readyz", same)
        assert (upstream["calls"], upstream["people"]) == (1, [NAME])
        doctor = program.run("doctor", *data, "--config", "ostiary.toml", code=1).stdout
        assert re.search(rf"main/files: .+; 1 call failed, of {NAME}", doctor)
        assert any(
            line["agent"] == "main[2] (files)"
            for line in until("its line of the log", lambda: events(server, "agent.out_of_order")[1:] or None)
        )

        # And "used" is the last call.
        (login,) = program.at_machine("sessions")
        assert login["called_at"] > login["last_used_at"]
        assert "last call" in program.run("sessions", *data).stdout
        assert "last call" in program.run("whoami", server.endpoint).stdout
    person.close()

    # No server runs any more: `doctor` tries the agents itself, and says the same of them.
    doctor = program.run("doctor", *data, "--config", "ostiary.toml", code=1).stdout
    assert f"main[1] (chat) is out of order: {REFUSED}" in doctor
    assert "main/files: " in doctor  # what it said at its end is not always heard in time
