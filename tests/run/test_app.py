"""The whole program in this process: real sockets, a real store, real back-ends; only signals are left to the end-to-end tests."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from auth.identity import Identity
from auth.pages import page_admission
from auth.values import endpoint_paths
from server.admin import control
from server.calls.servers.server_opening import CannotStart
from server.lib.log.structured_log import make_logger
from server.run import app
from server.run.app import StartedServer
from server.run.one_process import OneProcess
from server.run.pages_ahead import LazyPages
from server.settings.resolved_settings import resolve
from server.settings.settings_reader import load
from server.store import soundness
from server.store.jobs import DiskFull, StoreDamaged
from server.store.sqlite_connect import connect_reader

NO_HEADERS: Mapping[str, str] = {}
PATIENCE = 60  # seconds that any wait here may take on a slow machine
MODERN = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Running:
    def __init__(self, started: StartedServer, log: io.StringIO) -> None:
        self.started = started
        self.log = log

    async def get(
        self, path: str, more: Mapping[str, str] = NO_HEADERS, *, admin: bool = False, **headers: str
    ) -> httpx2.Response:
        origin = self.started.admin_origin if admin else self.started.origin
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            return await client.get(f"{origin}{path}", headers={**more, **headers})

    async def call(self, tool: str, arguments: dict[str, Any], path: str = "/mcp") -> dict[str, Any]:
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": META},
        }
        headers = {**MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            reply = await client.post(self.started.origin + path, json=message, headers=headers)
        return json.loads(reply.content)


@asynccontextmanager
async def running(tmp_path: Path, text: str = "", **flags: object) -> AsyncGenerator[Running]:
    """The server until the block ends; then it is cancelled, which is no drain."""
    file = tmp_path / "ostiary.toml"
    file.write_text(text, "utf-8")
    resolved = resolve(load(file, {}, {"port": 0, "data_dir": str(tmp_path / "data"), **flags}))
    log = io.StringIO()
    said: list[StartedServer] = []
    ready = trio.Event()

    def announce(started: StartedServer) -> None:
        said.append(started)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, resolved, make_logger(level="info", style="json", stream=log), announce)
        with trio.fail_after(PATIENCE):
            await ready.wait()
            yield Running(said[0], log)
        nursery.cancel_scope.cancel()


async def serve(resolved: Any, log: Any, announce: Any) -> None:
    await app.serve(resolved, log, OneProcess(announce, shows_claim_link=True))


def start_refused(tmp_path: Path, text: str = "", **flags: object) -> CannotStart:
    file = tmp_path / "other.toml"
    file.write_text(text, "utf-8")
    resolved = resolve(load(file, {}, {"port": 0, "data_dir": str(tmp_path / "data"), **flags}))
    with pytest.raises(CannotStart) as caught:
        app.run(
            resolved,
            make_logger(level="error", style="json", stream=io.StringIO()),
            OneProcess(print, shows_claim_link=False),
        )
    return caught.value


async def test_an_agent_that_cannot_be_reached_is_named_to_its_owner_and_nobody_else_suffers(
    tmp_path: Path,
) -> None:
    text = """
        [[server]]
        name = "main"
        [[server.agent]]
        kind = "chat"
        url = "http://127.0.0.1:9/chat"
        headers = { authorization = "Bearer hunter2hunter2" }
        agent = "kaya"
        [[server.agent]]
        kind = "demo"
    """
    async with running(tmp_path, text, auth="none", admin_port=0) as server:
        with trio.fail_after(PATIENCE):  # from the start, though nobody has called
            while (ready := (await server.get("/readyz", admin=True)).text) == "ready\n":
                pass
        assert re.fullmatch(
            r"ready\nout of order: main\[1\] \(chat\): it cannot be reached: connection refused \(for \d+ seconds?\)\n",
            ready,
        )
        answer = await server.call("chat_with_agent", {"message": "hi"})
        assert "127.0.0.1" not in json.dumps(answer)
        assert (await server.call("echo", {"text": "hello"}))["result"]["content"][0]["text"] == "hello"
        metrics = (await server.get("/metrics", admin=True)).text
        assert 'ostiary_agent_out_of_order{agent="main[1] (chat)"} 1.0' in metrics
        status = await trio.to_thread.run_sync(partial(control.ask, tmp_path / "data"), "status")
        (agent,) = status.result["agents"]
        assert agent["name"] == "main[1] (chat)"
        assert agent["words"].startswith("it ")
        assert agent["since"] > 1_700_000_000_000
        assert "hunter2" not in json.dumps(status.result) + server.log.getvalue()


async def test_a_server_answers_at_every_way_to_it_and_tokens_are_for_one_address_alone(
    tmp_path: Path,
) -> None:
    text = """
        [[server]]
        name = "main"
        version = "7.1"
        path = "/weather/mcp"
        aliases = ["/api/mcp"]
        expose = ["echo"]
        [[server.agent]]
        kind = "demo"
    """
    async with running(tmp_path, text) as server:
        canonical = f"{server.started.origin}/weather/mcp"
        assert server.started.paths == ("/weather/mcp",)
        for path in ("/weather/mcp", "/api/mcp", "/api/mcp/"):
            reply = await server.get(path)
            assert reply.status_code == 401
            assert (
                f'{server.started.origin}/.well-known/oauth-protected-resource/weather/mcp"'
                in reply.headers["www-authenticate"]
            )
        for path in ("/weather/mcp", "/api/mcp"):
            document = await server.get(f"/.well-known/oauth-protected-resource{path}")
            assert document.json()["resource"] == canonical
            assert (await server.get(f"{path}/.well-known/mcp.json")).json()["server"]["url"] == canonical
        assert (await server.get("/mcp")).status_code == 404
        manifest = (await server.get("/.well-known/mcp.json")).json()
        assert manifest["server"]["version"] == "7.1"
        assert manifest["auth"]["type"] == "oauth-protected-resource"
        assert (await server.get("/.well-known/agent-card.json")).json()["skills"] == []
    async with running(tmp_path, text, auth="none") as server:
        assert (await server.call("echo", {"text": "hi"}, "/api/mcp"))["result"]["content"][0]["text"] == "hi"
        assert (await server.call("clock", {}, "/api/mcp"))["error"]["code"] == -32602
        skills = (await server.get("/.well-known/agent-card.json")).json()["skills"]
        assert [skill["id"] for skill in skills] == ["echo"]


@pytest.mark.parametrize("auth", ["oauth", "none"])
async def test_whom_to_tell_of_a_weakness_is_told_where_somebody_is_named_and_nowhere_else(
    tmp_path: Path, auth: str
) -> None:
    path, contact = "/.well-known/security.txt", "mailto:security@example.org"
    served = '[[server]]\nname = "main"\n[[server.agent]]\nkind = "demo"\n'
    async with running(tmp_path, served, auth=auth) as server:
        assert (await server.get(path)).status_code == 404
    async with running(tmp_path, f'security_contact = ["{contact}"]\n{served}', auth=auth) as server:
        told = await server.get(path)
        assert (told.status_code, told.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert f"Contact: {contact}" in told.text.splitlines()
        assert "Expires: " in told.text


async def test_a_tool_to_be_exposed_that_no_agent_offers_is_refused_at_the_start(tmp_path: Path) -> None:
    text = '[[server]]\nname = "main"\nexpose = ["ecko"]\n[[server.agent]]\nkind = "demo"\n'
    problem = await trio.to_thread.run_sync(start_refused, tmp_path, text)
    assert "ecko" in str(problem) and "echo" in str(problem)


async def test_a_call_is_on_record_at_once_for_who_asks_the_server_and_afterwards_in_its_database(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, auth="none") as server:
        await server.call("echo", {"text": "hunter2"})
        await server.call("echo", {})
        ask = partial(control.ask, tmp_path / "data")
        rows = (await trio.to_thread.run_sync(ask, "calls", {"oldest_first": True})).result["rows"]
        assert [(row["tool"], row["outcome"], row["kind"]) for row in rows] == [
            ("echo", "ok", "anonymous"),
            ("echo", "invalid", "anonymous"),
        ]
        assert "text" in rows[1]["reason"]
        assert "hunter2" not in repr(rows)
        usage = (await trio.to_thread.run_sync(ask, "usage", {"by": "tool"})).result["rows"]
        assert [(row["server"], row["tool"], row["count"], row["failed"]) for row in usage] == [
            ("main", "echo", 2, 1)
        ]
        with pytest.raises(control.CommandRefused, match="by is one of"):
            await trio.to_thread.run_sync(ask, "usage", {"by": "moon"})
        await server.call("echo", {"text": "the last one"})
    with closing(connect_reader(tmp_path / "data" / "ostiary.db")) as connection:
        # Whoever stops in order has written everything.
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (3,)


async def test_the_admin_listener_tells_health_and_counts_what_the_public_one_did(tmp_path: Path) -> None:
    async with running(tmp_path, auth="none", admin_port=0) as server:
        assert (await server.call("echo", {"text": "hello"}))["result"]["content"][0]["text"] == "hello"
        assert (await server.get("/readyz", admin=True)).text == "ready\n"
        assert (await server.get("/healthz", admin=True)).text == "ok\n"
        metrics = (await server.get("/metrics", admin=True)).text
        assert 'ostiary_tool_calls_total{outcome="ok",server="main",tool="echo"} 1.0' in metrics
        assert 'ostiary_http_requests_total{route="/mcp",status="200"} 1.0' in metrics
        assert "ostiary_connections_accepted_total" in metrics
        assert 'ostiary_store_writes_failed_total{reason="disk_full"} 0.0' in metrics
        assert re.search(r"\nostiary_store_waiting \d", metrics)
        assert float(re.findall(r"\nostiary_store_commit_seconds_total (\S+)", metrics)[0]) > 0
        assert float(re.findall(r"\nostiary_store_free_bytes (\S+)", metrics)[0]) > 0
        assert "ostiary_log_lines_dropped_total 0.0" in metrics
        assert (await server.get("/metrics")).status_code == 404
        assert (await server.get("/metrics", admin=True, host="evil.example")).status_code == 403


async def test_damage_that_is_found_makes_the_server_not_ready_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_damage(*_: object) -> None:
        raise StoreDamaged("the database file is damaged")

    monkeypatch.setattr(soundness, "CHECKED_AT_START_BYTES", 0)  # so that it is looked through beside
    monkeypatch.setattr(soundness, "check_file", find_damage)
    async with running(tmp_path, auth="none", admin_port=0) as server:
        with trio.fail_after(PATIENCE):
            while (ready := await server.get("/readyz", admin=True)).status_code == 200:
                await trio.lowlevel.checkpoint()
        assert ready.text == "not ready: the database file is damaged\n"
        assert (await server.get("/readyz", admin=True)).status_code == 503
        told = await server.get("/readyz")  # to everybody, and without why
        assert (told.status_code, told.text) == (503, "not ready\n")
        assert server.log.getvalue().count('"store.damaged"') == 1


async def test_a_newcomer_with_a_browser_is_told_what_this_is(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        front = await server.get("/")
        assert front.status_code == 200
        assert f"{server.started.origin}/mcp" in front.text
        assert "default-src 'none'" in front.headers["content-security-policy"]
        assert "no owner yet" in front.text and "claude mcp add" in front.text
        assert (await server.get("/nowhere")).status_code == 404
        assert server.started.claim_url is not None
        assert (
            await server.get(server.started.claim_url.removeprefix(server.started.origin))
        ).status_code == 200


BROWSING = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}


async def test_an_address_for_programs_is_a_page_to_whoever_opens_it_and_as_ever_to_them(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as server:
        page = await server.get("/mcp", BROWSING)
        assert page.status_code == 200 and "claude mcp add" in page.text
        for headers in (
            NO_HEADERS,
            {**BROWSING, "Authorization": "Bearer x"},
            {"Accept": "text/event-stream"},
        ):
            told = await server.get("/mcp", headers)
            assert told.status_code == 401 and told.json()["error"] and "www-authenticate" in told.headers

        page = await server.get("/token", BROWSING)
        assert (page.status_code, page.headers["allow"]) == (405, "POST, OPTIONS")
        assert "This address is for programs" in page.text
        told = await server.get("/token", Accept="text/html")
        assert told.status_code == 405 and told.json()["error"]
        metadata = await server.get("/.well-known/oauth-authorization-server", BROWSING)
        assert metadata.status_code == 200 and metadata.json()["issuer"]


async def test_without_a_login_no_authorization_server_is_announced(tmp_path: Path) -> None:
    async with running(tmp_path, auth="none") as server:
        assert server.started.claim_url is None
        for path in (
            "/.well-known/oauth-protected-resource/mcp",
            "/.well-known/oauth-authorization-server",
            "/device",
        ):
            assert (await server.get(path)).status_code == 404


async def test_several_servers_have_paths_names_and_tools_of_their_own(tmp_path: Path) -> None:
    text = '[[server]]\nname = "one"\n[[server.agent]]\nkind = "demo"\n[[server]]\nname = "two"\ntitle = "Second"\n[[server.agent]]\nkind = "demo"\n'
    async with running(tmp_path, text, auth="none") as server:
        assert server.started.paths == ("/mcp", "/two/mcp")
        answer = await server.call("echo", {"text": "x"}, path="/two/mcp")
        assert answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["title"] == "Second"


async def test_an_agent_behind_a_chat_endpoint_answers_through_the_whole_program(tmp_path: Path) -> None:
    async def reply(stream: trio.SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data or not data.endswith(b"}"):
                data += await stream.receive_some(65536)
            asked.append(json.loads(data.partition(b"\r\n\r\n")[2]))
            body = b'{"message": {"content": "I am fine"}}'
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (len(body), body)
            )

    asked: list[dict[str, Any]] = []
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, reply, 0)
        port = listeners[0].socket.getsockname()[1]
        text = f'[[server]]\n[[server.agent]]\nkind = "chat"\nurl = "http://127.0.0.1:{port}/api/chat"\nagent = "helper"\n'
        async with running(tmp_path, text, auth="none") as server:
            answer = await server.call("chat_with_agent", {"message": " how are you? "})
        nursery.cancel_scope.cancel()
    assert answer["result"]["content"][0]["text"] == "I am fine"
    assert asked[0]["agent"] == "helper"
    assert asked[0]["messages"] == [{"role": "user", "content": "how are you?"}]


async def test_a_second_instance_is_told_who_holds_the_directory_or_the_port(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        port = int(server.started.origin.rpartition(":")[2])
        held = await trio.to_thread.run_sync(lambda: start_refused(tmp_path))
        assert "in use by process" in str(held)
        assert not held.lasting
        taken = await trio.to_thread.run_sync(lambda: start_refused(tmp_path, port=port))
        assert str(taken) == f"port {port} on 127.0.0.1 is in use by another process"
        assert "--port" in taken.hint


def test_an_agent_whose_secret_is_missing_stops_the_start_with_its_name(tmp_path: Path) -> None:
    text = '[[server]]\n[[server.agent]]\nkind = "openai"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\napi_key = "env:OSTIARY_TEST_ABSENT"\n'
    problem = start_refused(tmp_path, text)
    assert str(problem) == "main[1] (openai): the environment variable OSTIARY_TEST_ABSENT is not set"


def test_two_agents_with_one_tool_name_stop_the_start(tmp_path: Path) -> None:
    problem = start_refused(tmp_path, "[[server]]\n" + '[[server.agent]]\nkind = "demo"\n' * 2)
    assert len(problem.details) > 1
    assert str(problem).startswith(f"{len(problem.details)} problems")
    twice = "the tool echo is offered by main[1] (demo) and by main[2] (demo): rename one of them"
    assert twice in problem.details


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (
            '{"type": "object", "properties": {"x": {"type": "strin"}}}',
            "the tool f: inputSchema is not a usable JSON Schema: at /properties/x/type: the value is not",
        ),
        ("1 / 0", "agent.py:2: ZeroDivisionError"),
        ("__import__('nomodule')", "No module named 'nomodule'"),
    ],
)
def test_an_agent_that_cannot_start_is_named_with_its_file(tmp_path: Path, schema: str, what: str) -> None:
    file = tmp_path / "agent.py"
    script = f"from ostiary import tool\n@tool(input_schema={schema})\ndef f(**given): return ''\n"
    file.write_text(script, "utf-8")
    text = f'[[server]]\nname = "notes"\n[[server.agent]]\nkind = "python"\nfile = "{file}"\n'
    problem = start_refused(tmp_path, text)
    said = str(problem)
    assert said.startswith(f"notes[1] ({file}): ")
    assert what in said
    assert said.count("cannot be") == 1
    assert problem.hint is not None and "[[server.agent]]" in problem.hint
    assert ("pip" in problem.hint) == ("nomodule" in schema)


def test_an_agent_whose_file_is_missing_is_named(tmp_path: Path) -> None:
    text = '[[server]]\n[[server.agent]]\nkind = "demo"\n[[server.agent]]\nkind = "python"\nfile = "/nowhere.py"\n'
    assert str(start_refused(tmp_path, text)) == "main[2] (/nowhere.py): there is no file /nowhere.py"


async def test_a_key_without_its_database_is_worth_a_warning(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        assert "store.database_missing" not in server.log.getvalue()
    for path in (tmp_path / "data").glob("ostiary.db*"):
        path.unlink()
    async with running(tmp_path) as server:
        assert server.log.getvalue().count('"store.database_missing"') == 1


def test_what_stays_so_until_somebody_mends_it_is_told_from_what_may_pass(tmp_path: Path) -> None:
    trio.run(_once, tmp_path)
    key = tmp_path / "data" / "master.key"
    text = key.read_text("utf-8")
    key.unlink()
    assert start_refused(tmp_path).lasting
    key.write_text(text, "utf-8")
    key.chmod(0o600)
    with (tmp_path / "data" / "ostiary.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 8192)
    damaged = start_refused(tmp_path)
    assert damaged.lasting and "damaged" in str(damaged) and "ostiary restore FILE" in damaged.hint


def test_a_database_without_its_key_is_not_opened_and_no_key_is_made(tmp_path: Path) -> None:
    trio.run(_once, tmp_path)
    (tmp_path / "data" / "master.key").unlink()
    assert "missing" in str(start_refused(tmp_path))
    assert not (tmp_path / "data" / "master.key").exists()


async def _once(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass


async def test_a_claim_links_secret_is_in_no_log_line_whatever_goes_wrong_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trouble: list[Exception] = [DiskFull("the disk is full"), ZeroDivisionError("a bug")]

    async def fail(*_: object) -> object:
        raise trouble.pop(0)

    async with running(tmp_path) as server:
        monkeypatch.setattr(page_admission, "recognised", fail)
        link = server.started.claim_url
        assert link is not None
        path = link.removeprefix(server.started.origin)
        full, broken = await server.get(path), await server.get(path)
    assert (full.status_code, broken.status_code) == (503, 500)
    # People get pages that say what to do.
    assert "its disk may be full" in full.text and full.headers["retry-after"] == "5"
    assert "Something went wrong" in broken.text
    assert "frame-ancestors 'none'" in broken.headers["content-security-policy"]
    assert "/claim/{token}" in server.log.getvalue() and "site.crashed" in server.log.getvalue()
    secret = path.removeprefix("/claim/")
    assert secret not in server.log.getvalue() and secret not in caplog.text


async def test_programs_can_read_why_nothing_could_be_done_whatever_page_they_are_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble: list[Exception] = [
        DiskFull("the disk is full"),
        StoreDamaged("the database file is damaged"),
        ZeroDivisionError("a bug"),
    ]

    async def fail(*_: object) -> object:
        raise trouble.pop(0)

    async with running(tmp_path) as server:
        monkeypatch.setattr(Identity, "handle", fail)
        path = "/.well-known/oauth-authorization-server"
        full, damaged, broken = [await server.get(path) for _ in range(3)]
    assert damaged.status_code == 503 and "damaged" in damaged.json()["error_description"]
    assert (full.status_code, full.json()["error"]) == (503, "temporarily_unavailable")
    assert (broken.status_code, broken.json()["error"]) == (500, "server_error")
    assert {answer.headers["access-control-allow-origin"] for answer in (full, broken)} == {"*"}


@pytest.mark.requirement("compat.arguments", era="modern", transport="http")
async def test_wrong_arguments_are_a_result_or_where_the_server_says_so_an_error(tmp_path: Path) -> None:
    async with running(tmp_path, auth="none") as server:
        told = (await server.call("echo", {}))["result"]
        assert told["isError"] is True
    text = '[[server]]\ncompat = { invalid_arguments = -32602 }\n[[server.agent]]\nkind = "demo"\n'
    async with running(tmp_path, text, auth="none") as server:
        error = (await server.call("echo", {}))["error"]
    assert error["code"] == -32602
    assert error["message"] == told["content"][0]["text"]
    assert [problem["field"] for problem in error["data"]["problems"]] == ["text"]


@pytest.mark.parametrize("asked", [endpoint_paths.AUTHORIZATION_SERVER, endpoint_paths.DEVICE_AUTHORIZATION])
async def test_a_program_that_begins_to_log_in_has_the_pages_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    expected = list[bool]()
    monkeypatch.setattr(LazyPages, "expect", lambda _: expected.append(True))
    async with running(tmp_path) as server:
        expected.clear()
        await server.get("/healthz")
        await server.get("/.well-known/jwks.json")
        assert expected == []
        await server.get(asked)
        assert expected == [True]
