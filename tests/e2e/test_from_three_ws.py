"""The page for those who come from three.ws: the commands of its tutorial, as the page shows them, and what it says of the differences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from pages import DocumentPage, differs, in_a_shell
from programs import SOURCE, WAIT_SECONDS, Program, Server

PAGE = DocumentPage("from/three-ws.md")
PUBLIC, PROTECTED = PAGE.of("toml")
DOCUMENTED = "http://127.0.0.1:8420"
LEGACY = {"MCP-Protocol-Version": "2025-06-18"}


class ChatEndpoint(BaseHTTPRequestHandler):
    """The agent of the tutorial."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert asked.keys() == {"agent", "messages", "session_id", "stream"}
        (message,) = asked["messages"]
        body = json.dumps({"message": {"content": f"{asked['agent']} heard {message['content']}"}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Nobody reads it."""


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), ChatEndpoint) as endpoint:
        thread = Thread(target=endpoint.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{endpoint.server_port}/api/chat"
        endpoint.shutdown()
        thread.join()


def settled(home: Path, settings: str, agent: str) -> Program:
    (home / "ostiary.toml").write_text(settings.replace("http://127.0.0.1:3000/api/chat", agent), "utf-8")
    return Program(command=SOURCE, home=home)


@pytest.fixture(scope="module")
def public(shared_home: Path, agent: str) -> Iterator[Server]:
    with settled(shared_home, PUBLIC, agent).serving() as server:
        yield server


def post(server: Server, message: Any, path: str = "/api/mcp", **headers: str) -> httpx2.Response:
    """As curl does it."""
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    sent = {"content-type": "application/json", "accept": "*/*"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return httpx2.post(server.url + path, content=raw, headers=sent, trust_env=False, timeout=WAIT_SECONDS)


def request(method: str, number: int = 1, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def check_typed(server: Server, program: Program, commands: list[tuple[str, str]]) -> None:
    for line, shown in commands:
        said = in_a_shell(
            line.replace(DOCUMENTED, server.url).replace("curl ", "curl -sS --noproxy '*' "), program
        )
        wrong = differs(json.loads(shown.replace(DOCUMENTED, server.url)), json.loads(said))
        assert not wrong, f"{line}\n{wrong}\n{said}"


def test_the_commands_of_the_tutorial_are_answered_as_the_page_shows(
    public: Server, program: Program
) -> None:
    commands = PAGE.typed()
    assert len(commands) == 5
    check_typed(public, program, commands[:-1])


def test_with_a_login_the_document_is_where_the_tutorial_has_it(home: Path, agent: str) -> None:
    program = settled(home, PROTECTED, agent)
    with program.serving() as server:
        check_typed(server, program, PAGE.typed()[-1:])
        for path in ("/mcp", "/api/mcp"):
            refused = post(server, request("tools/list"), path)
            assert refused.status_code == 401
            challenge = refused.headers["www-authenticate"]
            assert challenge.startswith("Bearer ") and "resource_metadata=" in challenge
            assert httpx2.get(server.url + path, trust_env=False, timeout=WAIT_SECONDS).status_code == 401
        everywhere = {
            httpx2.get(server.url + path, trust_env=False, timeout=WAIT_SECONDS).text
            for path in (
                "/.well-known/oauth-protected-resource",
                "/.well-known/oauth-protected-resource/api/mcp",
                "/api/mcp/.well-known/oauth-protected-resource",
                "/mcp/.well-known/oauth-protected-resource",
            )
        }
        assert len(everywhere) == 1
        issuer = httpx2.get(
            f"{server.url}/.well-known/oauth-authorization-server", trust_env=False, timeout=WAIT_SECONDS
        ).json()
        assert "urn:ietf:params:oauth:grant-type:device_code" in issuer["grant_types_supported"]


def test_what_the_page_says_of_errors_batches_and_verbs_is_so(public: Server) -> None:
    call: dict[str, Any] = {"name": "chat_with_agent", "arguments": {"agent_id": "a"}}
    for message, status, code in (
        (b"{", 400, -32700),
        (request("no/such"), 200, -32601),
        (request("tools/call", name="other"), 200, -32602),
        ([request("ping")] * 33, 400, -32600),
        (request("initialize", protocolVersion="2025-06-18"), 200, -32602),
    ):
        answered = post(public, message)
        assert (answered.status_code, answered.json()["error"]["code"]) == (status, code), answered.text
    batch = post(
        public,
        [request("ping", 1), {"jsonrpc": "2.0", "method": "notifications/initialized"}, request("ping", 2)],
    )
    assert [each["id"] for each in batch.json()] == [1, 2]
    assert post(public, [request("ping")]).json() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert post(public, [request("ping")], **LEGACY).status_code == 400
    quiet = post(public, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (quiet.status_code, quiet.content) == (202, b"")
    missing = post(public, request("tools/call", **call)).json()["result"]
    assert missing["isError"] and "message" in missing["content"][0]["text"]
    for method, kind in (
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ):
        assert post(public, request(method)).json()["result"] == {kind: []}
    for verb in ("GET", "DELETE", "PUT"):
        other = httpx2.request(verb, f"{public.url}/api/mcp", trust_env=False, timeout=WAIT_SECONDS)
        assert (other.status_code, "POST" in other.headers["allow"]) == (405, True)
    preflight = httpx2.options(
        f"{public.url}/api/mcp",
        headers={
            "origin": public.url,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,mcp-protocol-version",
        },
        trust_env=False,
        timeout=WAIT_SECONDS,
    )
    assert preflight.status_code == 204
    assert "mcp-protocol-version" in preflight.headers["access-control-allow-headers"].lower()
    assert post(public, request("ping")).headers["mcp-protocol-version"]


def test_a_session_of_the_tutorials_version_is_begun_and_ended(public: Server) -> None:
    hello: dict[str, Any] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    begun = post(public, request("initialize", **hello))
    assert begun.json()["result"]["protocolVersion"] == begun.headers["mcp-protocol-version"] == "2025-06-18"
    session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
    assert (
        httpx2.delete(
            f"{public.url}/api/mcp", headers=session, trust_env=False, timeout=WAIT_SECONDS
        ).status_code
        == 204
    )
    assert post(public, request("ping"), **session).status_code == 404


@pytest.mark.parametrize(
    ("compat", "message", "expected"),
    [
        (
            'protocol_version = "2025-06-18"',
            request("initialize"),
            ("result", "protocolVersion", "2025-06-18"),
        ),
        (
            "invalid_arguments = -32602",
            request("tools/call", name="chat_with_agent", arguments={"agent_id": "a"}),
            ("error", "code", -32602),
        ),
    ],
)
def test_the_switches_that_the_page_names_bring_the_tutorials_answers_back(
    home: Path, agent: str, compat: str, message: Any, expected: tuple[str, str, Any]
) -> None:
    settings = PUBLIC.replace("[[server.agent]]", f"compat = {{ {compat} }}\n\n[[server.agent]]")
    with settled(home, settings, agent).serving() as server:
        kind, key, value = expected
        assert post(server, message).json()[kind][key] == value
