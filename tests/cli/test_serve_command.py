"""`ostiary serve` as a process: its flags, its first line, signals, certificates, and a log that nobody reads any more."""

from __future__ import annotations

import json
import os
import signal
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import msgspec
import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from server.settings.plain_settings import PLAIN_SETTINGS
from server.settings.setting_shapes import Config
from tests.made_certificates import trusting, write_certificate
from tests.pair import modern


@dataclass(frozen=True, kw_only=True)
class Serving:
    process: trio.Process
    origin: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.origin.rpartition(":")[2])

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def logged(self, event: str, count: int = 1) -> None:
        """Returns once the log has so many of them."""
        while self.log.read_text("utf-8").count(f'"event":"{event}"') < count:
            await trio.sleep(0.02)

    def request(self, method: str, params: object = None) -> bytes:
        body, headers = modern(method, params)
        return self.head("POST /mcp", {**headers, "content-length": str(len(body))}) + body

    def head(self, line: str, headers: Mapping[str, str]) -> bytes:
        fields = {"host": f"127.0.0.1:{self.port}", **headers}
        return (
            f"{line} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items()) + "\r\n"
        ).encode()


@asynccontextmanager
async def serving(shell: Terminal, *flags: str, auth: str = "none") -> AsyncGenerator[Serving]:
    log = shell.home / "log"
    arguments = ("serve", "--port", "0", "--data-dir", str(shell.home / "data"), "--auth", auth, *flags)
    with trio.fail_after(WAIT_SECONDS), log.open("wb") as out:
        process = await trio.lowlevel.open_process(
            shell.command(arguments), stdout=PIPE, stderr=out, env=shell.environment(), cwd=shell.home
        )
        try:
            assert process.stdout is not None
            line = b""
            while not line.endswith(b"\n"):
                piece = await process.stdout.receive_some()
                assert piece, log.read_text("utf-8")
                line += piece
            origin = line.decode().removeprefix("Listening on ").strip()
            yield Serving(process=process, origin=origin, log=log)
        finally:
            process.kill()
            await process.wait()


async def rest(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([piece async for piece in stream])


SETTINGS = [row for rows in PLAIN_SETTINGS.values() for row in rows]


def test_every_setting_is_a_flag_of_the_same_name() -> None:
    assert sorted(name for name, _, _ in SETTINGS) == sorted(Config.__struct_fields__)


def test_a_flag_that_names_a_default_names_the_one_that_holds() -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(Config)}
    for name, _, text in SETTINGS:
        if text.endswith(")"):
            named = text.rpartition("(")[2].removesuffix(")")
            assert named == str(defaults[name]).removesuffix(".0"), name


async def test_agents_with_much_in_common_are_told_of_the_first_few_things(shell: Terminal) -> None:
    for name in ("one", "two"):
        tools = "".join(f"def tool_{number}(): ...\n" for number in range(8))
        (shell.home / f"{name}.py").write_text(tools, "utf-8")
    agents = "".join(f'[[server.agent]]\nkind = "python"\nfile = "{name}.py"\n' for name in ("one", "two"))
    (shell.home / "ostiary.toml").write_text(f'auth = "none"\n[[server]]\n{agents}', "utf-8")
    refused = await shell.run("serve", "--port", "0")
    assert refused.code == 1
    assert refused.stderr.splitlines()[:-1] == [
        *(
            f"  the tool tool_{number} is offered by main[1] (one.py) and by main[2] (two.py): rename one of them"
            for number in range(5)
        ),
        "  and 3 more",
        "error: 8 problems with what the agents offer",
    ]


async def test_what_init_writes_is_what_serve_reads_in_that_directory(shell: Terminal) -> None:
    assert (await shell.run("init")).code == 0
    file = shell.home / "ostiary.toml"
    file.write_text(file.read_text("utf-8").replace("# log_level =", "prot = 1\n# log_level ="), "utf-8")
    line = file.read_text("utf-8").splitlines().index("prot = 1") + 1
    refused = await shell.run("serve", "--port", "0")
    assert refused.code == 2
    assert refused.stderr.splitlines() == [
        f"  line {line}, prot: is not a setting; write port",
        "error: 1 problem in ostiary.toml",
    ]
    file.write_text(file.read_text("utf-8").replace("prot = 1\n", ""), "utf-8")
    async with serving(shell) as server:
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 0


@pytest.mark.slow
async def test_a_python_file_is_served_without_any_settings_and_a_file_that_lies_there_is_not_read(
    shell: Terminal,
) -> None:
    (shell.home / "ostiary.toml").write_text("nonsense = true", "utf-8")
    tools = "def one() -> str:\n    'One.'\n    return 'first'\n\n\ndef two() -> str:\n    'Two.'\n    return 'second'\n"
    (shell.home / "weather.py").write_text(tools, "utf-8")
    async with serving(shell, "weather.py", "--expose", "two") as server:
        stream = await server.connect()
        await stream.send_all(server.request("tools/list"))
        answer = b""
        while b'"tools"' not in answer or not answer.endswith(b"}"):
            answer += await stream.receive_some()
        assert b'"name":"two"' in answer
        assert b'"name":"one"' not in answer
        await stream.aclose()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("agent.exe",), 2, "agent.exe is nothing that can be served by itself"),
        (
            ("missing.py",),
            1,
            "there is no file missing.py\nhint: `ostiary serve --data-dir {data}` by itself serves a demo agent",
        ),
        (("agent.py", "--config", "two.toml"), 2, "--config names what is served"),
        (("--port", "70000"), 2, "port"),
        (("--port", "x"), 2, "port"),
        (("--prot", "1"), 2, "no such option"),
        (("--config", "two.toml", "--expose", "echo"), 2, "--expose is for one server"),
        (("--expose", "ecko"), 1, "expose names ecko, which no agent offers; did you mean echo?"),
        (("--expose", "zzz"), 1, "there is clock, countdown, echo"),
    ],
)
async def test_what_cannot_be_served_is_said_and_the_code_tells_misuse_from_failure(
    shell: Terminal, arguments: tuple[str, ...], code: int, said: str
) -> None:
    two = "".join(
        f'[[server]]\nname = "{name}"\n[[server.agent]]\nkind = "demo"\n' for name in ("one", "two")
    )
    (shell.home / "two.toml").write_text(two, "utf-8")
    (shell.home / "agent.py").touch()
    done = await shell.run("serve", "--data-dir", str(shell.home / "data"), "--auth", "none", *arguments)
    assert done.code == code
    assert said.replace("{data}", str(shell.home / "data")) in done.stderr


@pytest.mark.parametrize("arguments", [("-h",), ("serve", "-h"), ("-V",)])
async def test_short_flags_for_help_and_version_end_well(shell: Terminal, arguments: tuple[str, ...]) -> None:
    done = await shell.run(*arguments)
    assert (done.code, done.stderr) == (0, "")
    assert "ostiary" in done.stdout


async def test_one_ctrl_c_that_arrives_twice_lets_the_call_in_flight_finish(shell: Terminal) -> None:
    async with serving(shell) as server, await server.connect() as peer:
        params = {"name": "countdown", "arguments": {"from": 2}, "_meta": {"progressToken": 1}}
        await peer.send_all(server.request("tools/call", params))
        assert b"200 OK" in await peer.receive_some()
        server.process.send_signal(signal.SIGINT)
        await server.logged("server.draining")
        server.process.send_signal(signal.SIGINT)
        assert b"Counted down from 2." in await rest(peer)
        assert await server.process.wait() == 0


@pytest.mark.slow
async def test_a_drain_tells_streams_to_end_and_a_later_ctrl_c_ends_everything_at_once(
    shell: Terminal,
) -> None:
    async with (
        serving(shell, "--drain-seconds", "600") as server,
        await server.connect() as listener,
        await server.connect() as caller,
    ):
        await listener.send_all(server.request("subscriptions/listen", {"notifications": {}}))
        assert b"200 OK" in await listener.receive_some()
        params = {
            "name": "countdown",
            "arguments": {"from": 30, "seconds": 10},
            "_meta": {"progressToken": 1},
        }
        await caller.send_all(server.request("tools/call", params))
        assert b"200 OK" in await caller.receive_some()
        server.process.send_signal(signal.SIGINT)
        assert b'"resultType":"complete"' in await rest(listener)
        ended = trio.Event()

        async def insist() -> None:
            # Until it counts as a second one: how soon that is, is not what is tested. Not until the process has gone: on its way out, when
            # nobody heeds signals any more, another one would end it as signals do.
            while not ended.is_set():
                server.process.send_signal(signal.SIGINT)
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(insist)
            assert b"Counted down" not in await rest(caller)
            ended.set()
        assert await server.process.wait() == 0
        assert '"outcome":"cancelled"' in server.log.read_text("utf-8")


async def test_whoever_reads_the_log_may_leave_and_callers_are_served_all_the_same(shell: Terminal) -> None:
    reader, writer = os.pipe()
    arguments = ("serve", "--port", "0", "--data-dir", str(shell.home / "data"), "--auth", "none", "--json")
    with trio.fail_after(WAIT_SECONDS):
        process = await trio.lowlevel.open_process(
            shell.command(arguments), stdout=PIPE, stderr=writer, env=shell.environment(), cwd=shell.home
        )
        os.close(writer)
        os.close(reader)
        try:
            assert process.stdout is not None
            said = b""
            while not said.endswith(b"}\n"):
                said += await process.stdout.receive_some()
            started = json.loads(said)
            assert started["endpoints"] == [started["origin"] + "/mcp"]
            server = Serving(process=process, origin=started["origin"], log=shell.home)
            async with await server.connect() as peer:
                call = {"name": "echo", "arguments": {"text": "still here"}}
                await peer.send_all(server.request("tools/call", call))
                assert b"still here" in await peer.receive_some()
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        finally:
            process.kill()
            await process.wait()


async def test_certificates_come_from_the_settings_and_are_read_again_on_sighup(shell: Terminal) -> None:
    certificate, key = write_certificate(shell.home, "one")
    flags = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    async with serving(shell, *flags, auth="oauth") as server:
        assert server.origin.startswith("https://127.0.0.1:")

        async def ask(line: str, context: ssl.SSLContext) -> str:
            stream = trio.SSLStream(
                await server.connect(), context, server_hostname="localhost", https_compatible=True
            )
            async with stream:
                await stream.send_all(
                    server.head(line, {"host": f"localhost:{server.port}", "connection": "close"})
                )
                return (await rest(stream)).decode()

        first = trusting(certificate)
        own = f"https://localhost:{server.port}"
        refused = await ask("GET /mcp", first)
        assert f'resource_metadata="{own}/.well-known/oauth-protected-resource/mcp"' in refused
        metadata = await ask("GET /.well-known/oauth-authorization-server", first)
        assert json.loads(metadata.partition("\r\n\r\n")[2])["token_endpoint"] == f"{own}/token"

        write_certificate(shell.home, "two")
        server.process.send_signal(signal.SIGHUP)
        await server.logged("tls.reloaded")
        assert "401" in await ask("GET /mcp", trusting(certificate))
        with pytest.raises(trio.BrokenResourceError):
            await ask("GET /mcp", first)

        certificate.write_text("junk", "utf-8")
        server.process.send_signal(signal.SIGHUP)
        await server.logged("tls.not_reloaded")
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 0


async def test_a_key_with_a_passphrase_is_refused_and_never_asked_for(shell: Terminal) -> None:
    certificate, key = write_certificate(shell.home, "one", password=b"hidden")
    done = await shell.run("serve", "--tls-certificate", str(certificate), "--tls-key", str(key))
    assert done.code == 2
    assert "without a passphrase" in done.stderr
    assert "Enter PEM" not in done.stdout + done.stderr


async def test_a_server_that_asks_nobody_to_log_in_gives_out_no_claim_link(shell: Terminal) -> None:
    async with serving(shell):
        done = await shell.run("claim", "--json", "--data-dir", str(shell.home / "data"))
    assert done.code == 1
    assert "has no owner" in done.stderr


async def test_a_group_without_a_command_shows_its_help_as_help(shell: Terminal) -> None:
    done = await shell.run("clients")
    assert done.code == 2
    assert done.stderr.startswith("usage: ostiary clients")
    assert "error:" not in done.stderr
