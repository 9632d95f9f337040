"""The page for those who come from Agents.KT: three servers behind ours over HTTP, pipes and TCP at once, one mock on three wires, and the runner's manners."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pages import DocumentPage
from programs import SOURCE, WAIT_SECONDS, Background, Program

from tests.free_ports import free_port

PAGE = DocumentPage("from/agents-kt.md")
TOKEN = "a-token-for-the-issues-0123456789"

pytestmark = pytest.mark.slow


def mock(tool: str, answer: str) -> str:
    return json.dumps({"name": tool, "tools": [{"name": tool, "scenarios": [{"respond": answer}]}]})


def written(home: Path) -> Program:
    (home / "stock.json").write_text(PAGE.of("json")[0], "utf-8")
    (home / "issues.json").write_text(mock("find", "two issues"), "utf-8")
    (home / "files.json").write_text(mock("read", "a file"), "utf-8")
    (home / "token").write_text(TOKEN, "utf-8")
    return Program(command=SOURCE, home=home)


@pytest.fixture
def program(home: Path) -> Program:
    return written(home)


@contextmanager
def issues(program: Program) -> Generator[str]:
    """An endpoint that wants a Bearer."""
    folder = program.home / "issues"
    folder.mkdir()
    (folder / "ostiary.toml").write_text(
        f"""
        [[server]]
        tokens = [{{ name = "desk", token = "file:{program.home / "token"}" }}]
        [[server.agent]]
        kind = "mock"
        file = "{program.home / "issues.json"}"
        """,
        "utf-8",
    )
    with program.starting("serve", "--port", "0", "--data-dir", "data", folder=folder) as server:
        yield server.await_words(r"Listening on (http://\S+)")[1] + "/mcp"


@contextmanager
def over_tcp(program: Program, *more: str) -> Generator[tuple[Background, str]]:
    with program.starting("serve", "stock.json", "--tcp", "0", *more) as server:
        yield server, server.await_words(r"Listening on tcp://(\S+)")[1]


@pytest.fixture(scope="module")
def stock(shared_home: Path) -> Generator[tuple[Background, str]]:
    """The mock of the page over TCP, for whoever closes what they open."""
    with over_tcp(written(shared_home)) as both:
        yield both


def settings(url: str, tcp: str, home: Path) -> str:
    (written,) = PAGE.of("toml")
    for before, after in (
        ("port = 8080", f"port = {free_port()}"),
        ("http://127.0.0.1:9101/mcp", url),
        ("env:ISSUES_TOKEN", f"file:{home / 'token'}"),
        ('["ostiary", "serve"', json.dumps([*SOURCE, "serve"])[:-1]),
        ("127.0.0.1:9103", tcp),
    ):
        assert before in written
        written = written.replace(before, after)
    return written


def test_three_servers_are_behind_one_address_over_http_pipes_and_tcp(
    program: Program, stock: tuple[Background, str]
) -> None:
    _, tcp = stock
    with issues(program) as url:
        (program.home / "ostiary.toml").write_text(settings(url, tcp, program.home), "utf-8")
        with program.starting("serve", "--data-dir", "data", "--auth", "none") as server:
            endpoint = server.await_words(r"Listening on (http://\S+)")[1] + "/mcp"
            tools = [tool["name"] for tool in program.ask("tools", endpoint)["tools"]]
            assert tools == ["issues__find", "files__read", "stock__count"]
            assert program.run("call", endpoint, "issues__find").stdout == "two issues\n"
            assert program.run("call", endpoint, "files__read").stdout == "a file\n"
            assert program.run("call", endpoint, "stock__count", "article=chair").stdout == "4 chairs\n"
            none = program.run("call", endpoint, "stock__count", "article=bed", code=1)
            assert "no such article" in none.stdout + none.stderr
            assert TOKEN not in server.said()
            assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("place", ["files", "stock"])
def test_a_credential_for_a_pipe_or_a_tcp_port_is_refused_at_the_start(program: Program, place: str) -> None:
    written = settings("http://127.0.0.1:1/mcp", "127.0.0.1:2", program.home)
    wrong = written.replace(f'id = "{place}"', f'id = "{place}"\ntoken = "env:ISSUES_TOKEN"')
    (program.home / "ostiary.toml").write_text(wrong, "utf-8")
    refused = program.run("serve", "--data-dir", "data", code=2)
    assert "token" in refused.stderr and "nothing else is sent credentials" in refused.stderr


# ── one mock on three wires ──────────────────────────────────────────────────────────────────────────────────────────

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
SAID = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    *(
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments},
        }
        for number, (name, arguments) in enumerate(
            [("count", {"article": "chair"}), ("count", {"article": "bed"}), ("count", {}), ("other", {})], 3
        )
    ),
]


def lines(messages: list[Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in messages)


def by_id(answers: list[Any]) -> dict[int, Any]:
    return {each["id"]: each.get("result", each.get("error")) for each in answers}


def over_a_socket(place: str, data: bytes) -> list[Any]:
    """What is answered until the other side has nothing more to say."""
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_SECONDS) as wire:
        wire.sendall(data)
        wire.shutdown(socket.SHUT_WR)
        with wire.makefile("rb") as answers:
            return [json.loads(line) for line in answers]


def test_one_mock_answers_alike_over_http_tcp_and_pipes(
    program: Program, stock: tuple[Background, str]
) -> None:
    assert [line.split()[2] for line in PAGE.of("sh")[0].splitlines()] == ["stock.json"] * 3
    on_tcp = by_id(over_a_socket(stock[1], lines(SAID).encode()))
    piped = subprocess.run(
        (*SOURCE, "serve", "stock.json", "--stdio"),
        cwd=program.home,
        env=program.environment(),
        input=lines(SAID),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert by_id([json.loads(line) for line in piped.stdout.splitlines()]) == on_tcp
    quiet = ("--port", "0", "--auth", "none", "--data-dir", "data")
    with program.starting("serve", "stock.json", *quiet) as server:
        endpoint = server.await_words(r"Listening on (http://\S+)")[1] + "/mcp"
        called = program.ask("call", endpoint, "count", "article=chair")
        assert called["content"] == on_tcp[3]["content"]
    assert on_tcp[1]["serverInfo"]["name"] == "stock"
    assert [tool["name"] for tool in on_tcp[2]["tools"]] == ["count"]
    assert on_tcp[3]["content"][0]["text"] == "4 chairs"
    assert on_tcp[4]["isError"] is True
    assert on_tcp[5]["isError"] is True
    assert on_tcp[6]["code"] == -32602


def test_a_connection_that_does_not_begin_with_a_message_is_closed_unread(
    stock: tuple[Background, str],
) -> None:
    server, place = stock
    page = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\n" + lines(SAID).encode()
    assert over_a_socket(place, page) == []
    server.await_words("begin with a message")
    assert len(over_a_socket(place, lines(SAID).encode())) == 6


def test_two_connections_have_a_conversation_each_and_a_65th_is_not_taken(program: Program) -> None:
    with over_tcp(program) as (server, place):
        host, _, port = place.rpartition(":")
        wires = [socket.create_connection((host, int(port)), WAIT_SECONDS) for _ in range(65)]
        try:
            for wire in wires[:64]:
                wire.sendall(lines(SAID[:1]).encode())
            for wire in wires[:64]:
                assert json.loads(wire.makefile("rb").readline())["id"] == 1
            assert wires[64].recv(1) == b""
            server.await_words("64 are open already")
        finally:
            for wire in wires:
                wire.close()
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--tcp", "0.0.0.0:0"), "over TCP nobody logs in"),
        (("--tcp", "70000"), "is no port"),
        (("--tcp", "x"), "is no port"),
        (("--tcp", "0", "--stdio"), "two ways"),
    ],
)
def test_what_would_open_it_to_the_network_or_means_nothing_is_refused(
    program: Program, words: tuple[str, ...], why: str
) -> None:
    assert why in program.run("serve", "stock.json", *words, code=2).stderr


def test_what_costs_something_is_not_served_where_nobody_can_pay(program: Program) -> None:
    (program.home / "ostiary.toml").write_text(
        '[payments]\npay_to = "0x52908400098527886E0F7030069857D2E4169EE7"\nnetworks = ["base-sepolia"]\n'
        '[[payments.facilitator]]\nurl = "http://127.0.0.1:1"\n'
        '[[server]]\nprice = "$0.02"\n[[server.agent]]\nkind = "demo"\n',
        "utf-8",
    )
    assert "nobody can pay" in program.run("serve", "--tcp", "0", code=2).stderr


# ── the runner ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("serve", "--help"), 0),
        (("serve", "-h"), 0),
        (("--version",), 0),
        (("serve", "--version"), 0),
        (("serve", "-V"), 0),
        (("serve", "--no-such-flag"), 2),
        (("serve", "--port", "65536"), 2),
        (("serve", "--port", "-1"), 2),
        (("serve", "--port", "many"), 2),
        (("serve", "stock.json", "--expose", "nothing", "--port", "0", "--data-dir", "data"), 1),
    ],
)
def test_it_ends_with_the_runners_codes(program: Program, words: tuple[str, ...], code: int) -> None:
    program.run(*words, code=code)


def test_expose_replaces_what_the_settings_list_and_the_first_line_says_where_it_listens(
    program: Program,
) -> None:
    (program.home / "ostiary.toml").write_text(
        '[[server]]\nexpose = ["echo"]\n[[server.agent]]\nkind = "demo"\n', "utf-8"
    )
    quiet = ("--port", "0", "--data-dir", "data", "--auth", "none")
    process = subprocess.Popen(
        (*SOURCE, "serve", *quiet, "--expose", "clock", "--expose", "countdown"),
        cwd=program.home,
        env=program.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        word, on, url = process.stdout.readline().split()
        assert (word, on) == ("Listening", "on")
        listed = program.ask("tools", f"{url}/mcp")["tools"]
        assert [tool["name"] for tool in listed] == ["clock", "countdown"]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
