"""`ostiary facilitator --test` as a process: what it says, what it refuses, and that its coins are there after a restart."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from tests.payments.test_facilitator.payer import Payer, body_2, requirements

LOUD = (
    "THIS IS A TEST FACILITATOR: its coins are worthless, and no real facilitator or chain is ever contacted"
)
FAR = 4_000_000_000  # seconds since 1970: the clock of a process is the real one


@dataclass(frozen=True, kw_only=True)
class Facilitator:
    process: trio.Process
    started: dict[str, Any]
    said: Path

    async def ask(self, path: str, body: object = None) -> dict[str, Any]:
        port = int(self.started["origin"].rpartition(":")[2])
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(
                f"{head}connection: close\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
            )
            answer = b"".join([piece async for piece in stream])
        return json.loads(answer.partition(b"\r\n\r\n")[2])


@asynccontextmanager
async def facilitating(shell: Terminal, *flags: str) -> AsyncGenerator[Facilitator]:
    said = shell.home / "said"
    arguments = ("facilitator", "--test", "--port", "0", "--json", *flags)
    with trio.fail_after(WAIT_SECONDS), said.open("wb") as out:
        process = await trio.lowlevel.open_process(
            shell.command(arguments), stdout=PIPE, stderr=out, env=shell.environment(), cwd=shell.home
        )
        try:
            assert process.stdout is not None
            line = b""
            while not line.endswith(b"}\n"):
                piece = await process.stdout.receive_some()
                assert piece, said.read_text("utf-8")
                line += piece
            yield Facilitator(process=process, started=json.loads(line), said=said)
        finally:
            process.kill()
            await process.wait()


def payment(nonce: int = 1, amount: int = 10_000) -> dict[str, Any]:
    return body_2(Payer().signed(amount, nonce=nonce, valid_before=FAR), requirements(amount))


async def test_it_settles_says_what_it_is_and_ends_politely(shell: Terminal) -> None:
    async with facilitating(shell) as facilitator:
        assert facilitator.started == {
            "origin": facilitator.started["origin"],
            "networks": ["eip155:84532"],
            "rpc": facilitator.started["origin"] + "/rpc",
            "state": None,
        }
        body = payment()
        assert (await facilitator.ask("/verify", body))["isValid"]
        assert (await facilitator.ask("/settle", body))["success"]
        facilitator.process.send_signal(signal.SIGTERM)
        assert await facilitator.process.wait() == 0
        said = facilitator.said.read_text("utf-8")
        assert LOUD in said
        assert '"event":"payment.settled"' in said
        assert '"outcome":"settled"' in said
        # A signature is a cheque that anybody could cash.
        assert body["paymentPayload"]["payload"]["signature"][2:20] not in said


async def test_coins_and_used_authorizations_are_there_after_a_kill(shell: Terminal) -> None:
    flags = ("--state", "coins.json", "--coins", "$0.02")
    async with facilitating(shell, *flags) as facilitator:
        assert facilitator.started["state"] == "coins.json"
        settled = await facilitator.ask("/settle", payment())
        assert settled["success"]
    async with facilitating(shell, *flags) as facilitator:
        again = await facilitator.ask("/settle", payment())
        assert again["errorReason"] == "invalid_exact_evm_nonce_already_used"
        too_much = await facilitator.ask("/settle", payment(2, 10_001))
        assert too_much["errorReason"] == "invalid_exact_evm_insufficient_balance"
        other = await shell.run("facilitator", "--test", "--port", "0", *flags)
        assert other.code == 1
        assert other.stderr == (
            "error: coins.json is in use by another facilitator\nhint: end it first, or name another file\n"
        )


async def test_switches_of_the_command_line_hold_from_the_start(shell: Terminal) -> None:
    flags = ("--verify", "fail:expired", "--settle", "pending", "--times", "1")
    async with facilitating(shell, *flags) as facilitator:
        assert (await facilitator.ask("/verify", payment()))["invalidReason"] == "expired"
        assert (await facilitator.ask("/settle", payment()))["errorReason"] == "settlement_pending"
        assert (await facilitator.ask("/settle", payment()))["success"]


async def test_a_person_is_told_what_it_has_and_what_to_try(shell: Terminal) -> None:
    ours, theirs = pty.openpty()
    arguments = (
        "facilitator",
        "--test",
        "--port",
        "0",
        "--host",
        "0.0.0.0",
        "--settle",
        "lost",
        "--times",
        "3",
    )
    with trio.fail_after(WAIT_SECONDS):
        process = await trio.lowlevel.open_process(
            shell.command(arguments),
            stdout=PIPE,
            stderr=theirs,
            env=shell.environment(NO_COLOR="1"),
            cwd=shell.home,
        )
        os.close(theirs)
        try:
            said = ""
            while "/test/switch" not in said:
                said += (await trio.to_thread.run_sync(os.read, ours, 4096)).decode()
        finally:
            process.kill()
            await process.wait()
            os.close(ours)
    assert "worthless" in said
    assert "IT LISTENS TO THE NETWORK" in said
    assert "every address has $1000.00 until it spends them" in said
    assert "lost (3 times)" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [],
            "error: this facilitator is for tests alone: its coins are worthless\n"
            "hint: ostiary facilitator --test\n",
        ),
        (
            ["--test", "--network", "base"],
            "error: Base is a real network, with real money: nothing here is\n"
            "hint: take base-sepolia, avalanche-fuji\n",
        ),
        (
            ["--test", "--network", "eip155:1"],
            "error: eip155:1 is no network that is known to be one for tests\n"
            "hint: take base-sepolia, avalanche-fuji\n",
        ),
        (
            ["--test", "--settle", "explode"],
            "error: settle is one of ok, fail, hang, lost, slow, late, 500, 504-after-settle, garbage, pending\n"
            "hint: ostiary facilitator --help\n",
        ),
        (
            ["--test", "--times", "3"],
            "error: --times goes with --verify or --settle\nhint: ostiary facilitator --help\n",
        ),
        (
            ["--test", "--coins", "lots"],
            'error: --coins is no amount: write it like "$0.01", with at most six digits behind the point\n',
        ),
    ],
)
async def test_what_cannot_be_meant_is_refused_in_words(
    shell: Terminal, arguments: list[str], said: str
) -> None:
    done = await shell.run("facilitator", *arguments)
    assert (done.code, done.stdout, done.stderr) == (2, "", said)


async def test_a_taken_port_and_a_file_that_cannot_be_are_failures(shell: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await shell.run("facilitator", "--test", "--port", str(port))
        assert done.code == 1
        assert done.stderr == (
            f"error: port {port} on 127.0.0.1 is in use by another process\n"
            f"hint: ostiary facilitator --test --port {port + 1}\n"
        )
    done = await shell.run("facilitator", "--test", "--port", "0", "--state", "missing/coins")
    assert done.code == 1
    assert done.stderr.startswith("error: cannot make missing/coins.lock: no such file or directory\n")
    (shell.home / "other").write_text("[]", "utf-8")
    done = await shell.run("facilitator", "--test", "--port", "0", "--state", "other")
    assert done.code == 1
    assert done.stderr.startswith("error: other is no file of test coins\n")
