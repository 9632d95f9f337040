"""Other people's servers, asked directly and through this one, by clients of both eras: what each declares and says of itself, what it links
to, and members that no revision knows. Every difference that is meant stands here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx2
import pytest
from mcp_calls import MODERN
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Program, needed

from tests.free_ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
MODULES = PEERS / "node_modules" / "@modelcontextprotocol"
HANDSHAKE = "2025-11-25"
INFO = "io.modelcontextprotocol/serverInfo"
LINK = "report://result/42"


class Answer(NamedTuple):
    """A result, or the code of an error."""

    result: Any
    code: int | None

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Answer:
        return cls(message.get("result"), message.get("error", {}).get("code"))


class Client(Protocol):
    def ask(self, method: str, **params: Any) -> Answer: ...


class Web:
    """A client over HTTP."""

    def __init__(self, endpoint: str, *, modern: bool = False, token: str = "") -> None:
        self._endpoint = endpoint
        self._modern = modern
        self._headers = {"Accept": "application/json, text/event-stream"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._headers["MCP-Protocol-Version"] = MODERN if modern else HANDSHAKE

    def ask(self, method: str, **params: Any) -> Answer:
        headers = self._headers
        if self._modern:
            named = params.get("uri") or params.get("name")
            headers = {**headers, "Mcp-Method": method, **({"Mcp-Name": named} if named else {})}
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            params = {**params, "_meta": meta}
        answer = self._post({"id": 1, "method": method, "params": params}, headers)
        if method == "initialize" and "mcp-session-id" in answer.headers:
            self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
            self._post({"method": "notifications/initialized"}, self._headers)
        text = answer.text
        return Answer.of(json.loads(text if text.startswith("{") else text.rpartition("data:")[2]))

    def _post(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> httpx2.Response:
        body = {"jsonrpc": "2.0", **message}
        return httpx2.post(self._endpoint, json=body, headers=headers, timeout=WAIT_SECONDS, trust_env=False)


class Pipe:
    """A client of a child, in the handshake era."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def ask(self, method: str, **params: Any) -> Answer:
        assert self._child.stdin is not None and self._child.stdout is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._child.stdin.write(json.dumps(message).encode() + b"\n")
        self._child.stdin.flush()
        for line in self._child.stdout:
            found = json.loads(line)
            if "id" in found and "method" not in found:
                break
        else:
            raise AssertionError("it has ended")
        if method == "initialize":
            self._child.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            self._child.stdin.flush()
        return Answer.of(found)


class Peer(NamedTuple):
    """Settings of an upstream, and a way to ask it directly."""

    settings: str
    direct: Client
    modern: Client | None = None


@contextmanager
def script(program: Program, environment: str, name: str) -> Generator[Peer]:
    python = needed(ROOT / ".venvs" / environment / "bin" / "python", "scripts/peers python")
    with program.starting(str(PEERS / name), command=[str(python)]) as background:
        url = background.await_words(r"Listening on (\S+)")[1] + "/mcp"
        yield Peer(f'url = "{url}"', Web(url), Web(url, modern=True))


@contextmanager
def everything(program: Program) -> Generator[Peer]:
    port = free_port()
    file = needed(MODULES / "server-everything" / "dist" / "index.js", "scripts/peers node")
    command = ["/usr/bin/env", f"PORT={port}", str(NODE_BIN / "node"), str(file), "streamableHttp"]
    with program.starting(command=command) as background:
        background.await_words(r"listening on port")
        url = f"http://127.0.0.1:{port}/mcp"
        yield Peer(f'url = "{url}"', Web(url))


@contextmanager
def child(file: Path, *arguments: str) -> Generator[Peer]:
    command = [str(NODE_BIN / "node"), str(needed(file, "scripts/peers node")), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        try:
            yield Peer(f"command = {json.dumps(command)}", Pipe(running))
        finally:
            running.kill()


@contextmanager
def filesystem(program: Program) -> Generator[Peer]:
    with child(MODULES / "server-filesystem" / "dist" / "index.js", str(program.home)) as peer:
        yield peer


@contextmanager
def fastmcp(program: Program) -> Generator[Peer]:
    with script(program, "fastmcp", "fastmcp_links.py") as peer:
        yield peer


@contextmanager
def python_sdk(program: Program) -> Generator[Peer]:
    with script(program, "peers", "python_sdk_server.py") as peer:
        yield peer


@contextmanager
def typescript(_program: Program) -> Generator[Peer]:
    with child(PEERS / "ts_links.mjs") as peer:
        yield peer


Opens = Callable[[Program], Any]
SERVERS: Sequence[Opens] = (everything, filesystem, fastmcp, python_sdk, typescript)
LINKING: Sequence[Opens] = (fastmcp, typescript)


@pytest.fixture
def ostiary(home: Path) -> Program:
    (home / "key").write_text("k" * 48)
    (home / "key").chmod(0o600)
    return Program(command=SOURCE, home=home)


@contextmanager
def through(program: Program, *upstreams: str) -> Generator[Callable[[bool], Web]]:
    """A client of either era, where these upstreams are behind."""
    agents = "".join(f'[[server.agent]]\nkind = "mcp"\ntrust = "always"\n{each}\n' for each in upstreams)
    (program.home / "ostiary.toml").write_text(
        f'[[server]]\n[[server.tokens]]\nname = "ada"\ntoken = "file:key"\n{agents}', "utf-8"
    )
    with program.serving() as server:
        yield lambda modern: Web(server.endpoint, modern=modern, token="k" * 48)


def welcomed(client: Client, *, modern: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the capabilities, and what the server says of itself."""
    if modern:
        found = client.ask("server/discover").result
        return found["capabilities"], found["_meta"][INFO]
    who = {"name": "test", "version": "1"}
    found = client.ask("initialize", protocolVersion=HANDSHAKE, capabilities={}, clientInfo=who).result
    return found["capabilities"], found["serverInfo"]


def features(capabilities: Mapping[str, Any]) -> set[str]:
    """Return those that agents have. Whoever logs in can read `ostiary://me`, so there are always resources."""
    found = {key for key in ("prompts", "completions", "logging") if key in capabilities}
    return found | ({"subscribe"} if capabilities.get("resources", {}).get("subscribe") else set())


@pytest.mark.parametrize("opens", SERVERS, ids=lambda each: each.__name__)
def test_a_server_declares_and_is_what_it_declares_and_is_directly(ostiary: Program, opens: Opens) -> None:
    with opens(ostiary) as peer:
        declared, info = welcomed(peer.direct)
        # The Python SDK declares "subscribe" in this era alone, and it is the one that is spoken.
        if peer.modern is not None:
            declared, info = welcomed(peer.modern, modern=True)
        info.pop("description", None)  # words that nobody has accepted
        with through(ostiary, peer.settings) as client_of:
            for modern in (False, True):
                client = client_of(modern)
                ours, shown = welcomed(client, modern=modern)
                assert features(ours) == features(declared)
                assert shown == info
                refused: dict[str, tuple[str, dict[str, Any]]] = {"prompts": ("prompts/get", {"name": "x"})}
                refused["completions"] = (
                    "completion/complete",
                    {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}},
                )
                if not modern:
                    refused["subscribe"] = ("resources/subscribe", {"uri": "a://1"})
                    refused["logging"] = ("logging/setLevel", {"level": "info"})
                for feature, (method, params) in refused.items():
                    code = client.ask(method, **params).code
                    assert (code == -32601) == (feature not in features(declared)), method


@pytest.mark.parametrize("opens", LINKING, ids=lambda each: each.__name__)
def test_what_an_answer_links_to_is_read_by_clients_of_both_eras(ostiary: Program, opens: Opens) -> None:
    with opens(ostiary) as peer:
        welcomed(peer.direct)
        answer = peer.direct.ask("tools/call", name="make", arguments={}).result
        read = peer.direct.ask("resources/read", uri=LINK).result
        (tool,) = peer.direct.ask("tools/list").result["tools"]
        with through(ostiary, peer.settings) as client_of:
            for modern in (False, True):
                client = client_of(modern)
                welcomed(client, modern=modern)
                assert plain(client.ask("tools/list").result["tools"][0]) == plain(tool)
                got = client.ask("tools/call", name="make", arguments={}).result
                assert {**plain(got), "isError": False} == {**plain(answer), "isError": False}
                assert plain(client.ask("resources/read", uri=LINK).result) == plain(read)


def test_of_two_servers_the_one_is_asked_that_gave_the_link(ostiary: Program) -> None:
    with (
        typescript(ostiary) as one,
        fastmcp(ostiary) as other,
        through(ostiary, f'id = "ts"\n{one.settings}', f'id = "py"\n{other.settings}') as client_of,
    ):
        client = client_of(True)
        unclear = client.ask("resources/read", uri=LINK)
        assert unclear.code == -32602
        assert client.ask("tools/call", name="ts__make", arguments={}).result
        (contents,) = client.ask("resources/read", uri=LINK).result["contents"]
        assert contents["etag"] == "7"
        _, info = welcomed(client, modern=True)
        assert info["name"] == "ostiary"


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return it without what every result of an era has."""
    meta = {key: value for key, value in found.get("_meta", {}).items() if key != INFO}
    rest = {
        key: value
        for key, value in found.items()
        if key not in ("_meta", "resultType", "ttlMs", "cacheScope")
    }
    return {**rest, "_meta": meta} if meta else rest
