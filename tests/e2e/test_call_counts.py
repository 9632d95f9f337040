"""How many Python functions one request costs: ceilings that hold on every machine. What they come to in time is scripts/bench's."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from server.admin import control
from tests.call_counts import WARM, Calls, Counted, NodeConversation, counting, tool_call

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT = "ostiary-cli"
TOOLS = """import ostiary


@ostiary.tool
def echo(text: str) -> str:
    "Returns the given text."
    return text
"""

# An MCP server of the stateless era over its pipes.
CHILD = """import json, sys

RESULTS = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "hello"}], "isError": False},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[message["method"]]}
        print(json.dumps(answer), flush=True)
"""

# What one request may cost in all, the event loop's share (27 for a request that waits for nothing) with it.
DEMO = 72
BEARER = 85
PYTHON_FILE = 202
CHAT = 245
GATEWAY = 220
GATEWAY_HANDSHAKE = 228
GATEWAY_COMMAND = 276
REFRESH = 180


def held(server: Counted, exchange: Callable[[], object], ceiling: int, *, warm: int = WARM) -> None:
    found = server.calls(exchange, warm=warm)
    assert 10 < found.total <= ceiling, found.table(shown=80)


def called(talk: NodeConversation, request: bytes) -> Callable[[], None]:
    def exchange() -> None:
        status, body = talk.exchange(request)
        assert status == 200, body
        assert json.loads(body)["result"]["content"][0]["text"] == "hello", body

    return exchange


def post(talk: NodeConversation, port: int, path: str, form: dict[str, str]) -> dict[str, str]:
    body = urlencode(form).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    status, answer = talk.exchange(head.encode() + body)
    assert status == 200, answer
    return json.loads(answer)


def log_in(talk: NodeConversation, port: int, data: Path) -> dict[str, str]:
    codes = post(talk, port, "/device_authorization", {"client_id": CLIENT})
    found = control.ask(data, "find", {"code": codes["user_code"]})
    control.ask(data, "approve", {"id": found.result["id"]})
    form = {"grant_type": DEVICE_CODE, "device_code": codes["device_code"], "client_id": CLIENT}
    return post(talk, port, "/token", form)


def chatting(_: bytes) -> bytes:
    return b'{"text": "hello"}'


STATELESS = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
}
HANDSHAKE = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "canned", "version": "1"},
    },
}
EVERY_ERA = {
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "hello"}], "isError": False},
}


def mcp_of(era: Mapping[str, object]) -> Callable[[bytes], bytes]:
    """An MCP server that says the same to everybody; nothing to what needs no answer."""
    results = {**era, **EVERY_ERA}

    def answer(body: bytes) -> bytes:
        message = json.loads(body or b"{}")  # a DELETE has none
        if "id" not in message:
            return b""
        found = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in results:
            return json.dumps({**found, "result": results[message["method"]]}).encode()
        return json.dumps({**found, "error": {"code": -32601, "message": "unknown"}}).encode()

    return answer


@contextmanager
def upstream(says: Callable[[bytes], bytes] = chatting) -> Generator[int]:
    """One over HTTP, on connections that stay open. In the handshake era it gives a session."""

    def answer(asked: bytes) -> bytes:
        body = says(asked)
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s" % (
            b"mcp-session-id: s1\r\n" if b'"initialize"' in asked else b"",
            len(body),
            body,
        )

    def serve(connection: socket.socket) -> None:
        with connection:
            data = b""
            while piece := connection.recv(65536):
                data += piece
                while (end := data.find(b"\r\n\r\n")) >= 0:
                    length = int(
                        data[:end].lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0
                    )
                    if len(data) < end + 4 + length:
                        break
                    asked, data = data[end + 4 : end + 4 + length], data[end + 4 + length :]
                    connection.sendall(answer(asked))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def configured(folder: Path, agent: str) -> list[str]:
    settings = folder / "ostiary.toml"
    settings.write_text(f'[[server]]\nname = "main"\n[[server.agent]]\n{agent}\n', "utf-8")
    return ["--auth", "none", "--config", str(settings)]


def test_the_demos_echo_costs_few_calls(tmp_path: Path) -> None:
    with counting(tmp_path, ["--auth", "none"]) as server, closing(NodeConversation(server.port)) as talk:
        held(server, called(talk, tool_call(server.port, "echo", {"text": "hello"})), DEMO)


def test_a_login_adds_little_to_a_call_and_a_refresh_stays_small(tmp_path: Path) -> None:
    with counting(tmp_path, []) as server, closing(NodeConversation(server.port)) as talk:
        tokens = log_in(talk, server.port, tmp_path / "data")
        request = tool_call(server.port, "echo", {"text": "hello"}, token=tokens["access_token"])
        held(server, called(talk, request), BEARER)

        def refresh() -> None:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": tokens["refresh_token"],
                "client_id": CLIENT,
            }
            tokens.update(post(talk, server.port, "/token", form))

        held(server, refresh, REFRESH, warm=30)


def test_a_login_adds_little_also_where_every_caller_is_counted(tmp_path: Path) -> None:
    settings = tmp_path / "ostiary.toml"
    limits = '[limits]\nloopback = true\naddress = "1000000/s"\ncaller = "1000000/s"'
    settings.write_text(f'{limits}\n[[server]]\n[[server.agent]]\nkind = "demo"\n', "utf-8")
    with (
        counting(tmp_path, ["--config", str(settings)]) as server,
        closing(NodeConversation(server.port)) as talk,
    ):
        tokens = log_in(talk, server.port, tmp_path / "data")
        request = tool_call(server.port, "echo", {"text": "hello"}, token=tokens["access_token"])
        held(server, called(talk, request), BEARER)


def test_a_tool_of_a_python_file_costs_little_more_than_the_way_to_its_process(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS, "utf-8")
    with (
        counting(tmp_path, configured(tmp_path, 'kind = "python"\nfile = "tools.py"')) as server,
        closing(NodeConversation(server.port)) as talk,
    ):
        held(server, called(talk, tool_call(server.port, "echo", {"text": "hello"})), PYTHON_FILE)


def test_a_chat_upstream_costs_little_more_than_the_way_to_it(tmp_path: Path) -> None:
    with upstream() as port:
        agent = f'kind = "chat"\nagent = "a"\nurl = "http://127.0.0.1:{port}/chat"'
        with (
            counting(tmp_path, configured(tmp_path, agent)) as server,
            closing(NodeConversation(server.port)) as talk,
        ):
            request = tool_call(server.port, "chat_with_agent", {"message": "hello"})
            held(server, called(talk, request), CHAT)


@pytest.mark.parametrize(
    ("era", "ceiling"), [(STATELESS, GATEWAY), (HANDSHAKE, GATEWAY_HANDSHAKE)], ids=["stateless", "handshake"]
)
def test_an_mcp_upstream_over_http_costs_little_more_than_the_way_to_it(
    tmp_path: Path, era: Mapping[str, object], ceiling: int
) -> None:
    with upstream(mcp_of(era)) as port:
        agent = f'kind = "mcp"\nurl = "http://127.0.0.1:{port}/mcp"\ntrust = "always"'
        with (
            counting(tmp_path, configured(tmp_path, agent)) as server,
            closing(NodeConversation(server.port)) as talk,
        ):
            held(server, called(talk, tool_call(server.port, "echo", {"text": "hello"})), ceiling)


def test_an_mcp_upstream_that_is_a_command_costs_little_more_than_the_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD, "utf-8")
    command = json.dumps([sys.executable, str(tmp_path / "child.py")])
    agent = f'kind = "mcp"\ncommand = {command}\ntrust = "always"'
    with (
        counting(tmp_path, configured(tmp_path, agent)) as server,
        closing(NodeConversation(server.port)) as talk,
    ):
        held(server, called(talk, tool_call(server.port, "echo", {"text": "hello"})), GATEWAY_COMMAND)


def test_a_call_that_touches_no_row_costs_as_much_on_a_database_that_others_use(
    tmp_path: Path, postgres_database: dict[str, str]
) -> None:
    """Its login was read once; that others may have ended it meanwhile is heard of, and not asked. Only the event loop looks, at each of
    its turns, whether what is heard is still all there is."""
    address = tmp_path / "address"
    address.write_text(
        f"postgresql://{postgres_database['user']}@/{postgres_database['dbname']}?host={postgres_database['host']}\n"
    )
    found: list[Calls] = []
    for name, arguments in (("file", []), ("postgres", ["--store", f"file:{address}"])):
        folder = tmp_path / name
        folder.mkdir()
        with counting(folder, arguments) as server, closing(NodeConversation(server.port)) as talk:
            tokens = log_in(talk, server.port, folder / "data")
            request = tool_call(server.port, "echo", {"text": "hello"}, token=tokens["access_token"])
            found.append(server.calls(called(talk, request)))
    file, postgres = found
    more = Counter(postgres.by_function)
    more.subtract(file.by_function)
    assert sorted(name.rpartition(":")[2] for name in (+more).elements()) == [
        "Confirmation.after_io_wait",
        "Instruments.call",
    ]
    assert postgres.total <= BEARER


def test_what_is_counted_is_there(tmp_path: Path) -> None:
    """A ceiling holds nothing if nothing is counted under it."""
    with counting(tmp_path, ["--auth", "none"]) as server, closing(NodeConversation(server.port)) as talk:
        found = server.calls(called(talk, tool_call(server.port, "echo", {"text": "hello"})))
        assert 20 < found.trio < 40
        assert any("server/calls/agent_use.py" in name for name in found.by_function)
