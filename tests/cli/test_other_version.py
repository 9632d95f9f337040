"""A command line and a running server of different versions: after an update, until the server is restarted."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from shell import Terminal

from server import __version__
from server.admin.control import ADDRESS_FILE

HINT = "hint: restart the server with this file, or run the one that it was started from\n"
OURS = f"this command line {__version__}"
USER = {"name": "olivia", "role": "owner", "state": "enabled", "scope": "*", "tools": ""}
KNOWS_NOT = {"ok": False, "error": "this server knows no command 'users'", "hint": "it may be older"}


@asynccontextmanager
async def answering(shell: Terminal, answer: dict[str, Any]) -> AsyncGenerator[list[dict[str, Any]]]:
    """Something that listens where a server would, and gives everybody this answer. What it was asked."""
    asked: list[dict[str, Any]] = []
    data, address = shell.home / "data", shell.home / "control"
    data.mkdir(mode=0o700)
    (data / ADDRESS_FILE).write_text(str(address))

    async def converse(stream: trio.SocketStream) -> None:
        async with stream:
            line = b""
            while not line.endswith(b"\n"):
                line += await stream.receive_some()
            asked.append(json.loads(line))
            await stream.send_all(json.dumps(answer).encode() + b"\n")

    with trio.socket.socket(trio.socket.AF_UNIX) as sock:
        await sock.bind(str(address))
        sock.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, converse, [trio.SocketListener(sock)])
            yield asked
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(
            {"ok": True, "version": "9.9.9", "result": [USER]},
            f"error: the running server is 9.9.9, {OURS}: its answer lacks 'over'\n",
            id="a field that the answer lacks",
        ),
        pytest.param(
            {"ok": True, "result": [USER]},
            f"error: the running server is from before versions were compared, {OURS}: its answer lacks 'over'\n",
            id="a server that does not say its version",
        ),
        pytest.param(
            {"ok": True, "version": __version__, "result": [USER]},
            f"error: the running server is another build of {__version__} than this command line: its answer lacks"
            " 'over'\n",
            id="two builds of one version",
        ),
        pytest.param(
            {"ok": False, "version": "9.9.9", "unknown": True, "error": "?"},
            f"error: the running server is 9.9.9, {OURS}: it knows no command 'users'\n",
            id="a command that the server does not know",
        ),
        pytest.param(
            KNOWS_NOT,
            f"error: the running server is from before versions were compared, {OURS}: it knows no command 'users'\n",
            id="the same, from one that does not say its version",
        ),
    ],
)
async def test_a_server_of_another_version_is_named_with_what_to_do(
    shell: Terminal, answer: dict[str, Any], told: str
) -> None:
    async with answering(shell, answer):
        done = await shell.run("users", "list", "--data-dir", str(shell.home / "data"))
    assert (done.code, done.stdout, done.stderr) == (1, "", told + HINT)


async def test_a_refusal_by_another_version_keeps_its_own_words(shell: Terminal) -> None:
    answer = {"ok": False, "version": "9.9.9", "error": "lasts is missing"}
    async with answering(shell, answer) as asked:
        done = await shell.run("users", "list", "--data-dir", str(shell.home / "data"))
    assert done.stderr == f"error: lasts is missing\nhint: the running server is 9.9.9, {OURS}\n"
    assert asked == [{"name": "users", "arguments": {}}]


async def test_what_the_server_adds_is_no_trouble_and_is_in_the_json(shell: Terminal) -> None:
    answer = {"ok": True, "version": "9.9.9", "result": [{**USER, "more": [{"new": 1}]}], "later": True}
    async with answering(shell, answer):
        done = await shell.run("users", "list", "--json", "--data-dir", str(shell.home / "data"))
    assert (done.code, json.loads(done.stdout)) == (0, answer["result"])


async def test_doctor_goes_on_after_a_self_test_that_the_server_does_not_know(shell: Terminal) -> None:
    async with answering(shell, {"ok": True, "version": "9.9.9", "result": {}}):
        done = await shell.run("doctor", "--data-dir", str(shell.home / "data"), OSTIARY_PORT="1")
    assert (
        f"✗ self-test       the running server is 9.9.9, {OURS}: its answer lacks 'problems'\n" in done.stdout
    )
    assert "✗ connection" in done.stdout
