"""Two people behind a server of somebody else's: what one leaves in it is met by that one alone. With the official reference server and its
memory, and servers of FastMCP and the Python SDK that keep a state, over HTTP and pipes, as whomever they are called."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp_calls import MODERN, call_tool
from person import Person
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Program, Server, claim_in_browser, needed, until

from tests.free_ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
OFFICIAL = PEERS / "node_modules" / "@modelcontextprotocol"
EVERYTHING = OFFICIAL / "server-everything" / "dist" / "index.js"
MEMORY = OFFICIAL / "server-memory" / "dist" / "index.js"
PEOPLE = ("alice", "bob")
PASSPHRASE = "a passphrase of four words"
OAUTH = 'token_url = "{tokens}", client_id = "ostiary", client_secret = "file:shared"'
# As whom the upstream is called. A person's own account there is connected in a browser: tests/agents/mcp/test_gateway_sessions.py.
IDENTITIES = {
    "nobody": "",
    "one for all": 'token = "file:shared"',
    "token": 'identity = "token"',
    "client-credentials": 'identity = "client-credentials"\noauth = { TABLE }',
    "exchange": 'identity = "exchange"\noauth = { TABLE }',
    "person-key": 'id = "theirs"\nidentity = "person-key"\ntoken = "file:shared"',
    "id-jag": 'identity = "id-jag"\noauth = { TABLE, authorization_server = "https://login.example.com" }',
}


@pytest.fixture
def ostiary(home: Path) -> Program:
    (home / "shared").write_text(f"shared-{'x' * 40}")
    (home / "shared").chmod(0o600)
    return Program(command=SOURCE, home=home)


@pytest.fixture
def tokens() -> Generator[str]:
    """The token endpoint of an authorization server that gives a token to whoever asks."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"access_token": "given", "token_type": "Bearer", "expires_in": 300}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


def settings(program: Program, *upstream: str) -> None:
    agent = "\n".join(['[[server.agent]]\nkind = "mcp"\ntrust = "always"', *upstream])
    (program.home / "ostiary.toml").write_text(f"[[server]]\n{agent}\n", "utf-8")


def identified(identity: str, tokens: str) -> str:
    return IDENTITIES[identity].replace("TABLE", OAUTH.format(tokens=tokens))


def people(program: Program, server: Server, *, theirs: bool = False) -> None:
    """Give alice and bob an account and a key each; `theirs`: each pastes one for the upstream as well."""
    for name in PEOPLE:
        invitation = program.at_machine("invite", name)["url"]
        assert claim_in_browser(invitation, PASSPHRASE).status_code == 200
        if theirs:
            paste(server, name)
        made = program.at_machine("api-keys", "create", name, "--user", name)
        (program.home / name).write_text(made["key"])


def of(program: Program, person: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {(program.home / person).read_text()}"}


def asked(program: Program, endpoint: str, person: str, method: str, **params: Any) -> dict[str, Any]:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
        **({"Mcp-Name": params["uri"]} if "uri" in params else {}),
    }
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    answer = httpx2.post(
        endpoint,
        json=message,
        headers={**headers, **of(program, person)},
        timeout=WAIT_SECONDS,
        trust_env=False,
    )
    return json.loads(
        answer.text.rpartition("data:")[2] if answer.text.startswith(("event", "id", "data")) else answer.text
    )


def said(result: Mapping[str, Any]) -> str:
    return result["content"][0]["text"]


def paste(server: Server, name: str) -> None:
    """Sign in as a person, and paste a key for the upstream."""
    person = Person()
    page = person.browser.get(f"{server.url}/connect/main/theirs")
    page = person.press(page, "Sign in", {"name": name, "passphrase": PASSPHRASE})
    page = person.press(page, "Keep it", {"key": f"key-of-{name}"})
    assert "Your key is kept" in page.text
    person.close()


class Peer(NamedTuple):
    """A server that keeps something for whoever calls it: as the settings write it over its pipes, or over HTTP on a port."""

    pipes: Sequence[str]
    http: Sequence[str] = ()
    said: str = r"Listening on (\S+)"


def python(environment: str, file: str) -> Sequence[str]:
    interpreter = ROOT / ".venvs" / environment / "bin" / "python"
    return str(needed(interpreter, "scripts/peers python")), str(PEERS / file)


def peer(name: str, port: int) -> Peer:
    node = str(NODE_BIN / "node")
    match name:
        case "server-everything":
            script = str(needed(EVERYTHING, "scripts/peers node"))
            http = ("/usr/bin/env", f"PORT={port}", node, script, "streamableHttp")
            return Peer((node, script, "stdio"), http, r"listening on port")
        case "FastMCP":
            command = python("fastmcp", "fastmcp_state.py")
            return Peer((*command, "stdio"), command)
        case _:
            command = python("peers", "python_sdk_state.py")
            return Peer(command, (*command, "http"))


@contextmanager
def upstream(program: Program, name: str, wire: str) -> Generator[str]:
    """Give the settings that name it."""
    port = free_port()
    found = peer(name, port)
    if wire == "stdio":
        yield f"command = {json.dumps(found.pipes)}"
        return
    with program.starting(command=found.http) as background:
        said = background.await_words(found.said)
        url = said[1] if said.groups() else f"http://127.0.0.1:{port}"
        yield f'url = "{url}/mcp"'


def listed(program: Program, endpoint: str, person: str) -> list[str]:
    found = asked(program, endpoint, person, "resources/list")["result"]["resources"]
    return [each["uri"] for each in found if "session" in each["uri"]]


def files_are_apart(program: Program, endpoint: str, prefix: str) -> None:
    """Have each make a file in the reference server, and look for both."""
    for person in PEOPLE:
        made = {"name": f"{person}.gz", "data": f"data:text/plain,of-{person}", "outputType": "resourceLink"}
        result = call_tool(endpoint, f"{prefix}gzip-file-as-resource", made, more=of(program, person))
        assert not result.get("isError"), result
    for person, other in (PEOPLE, PEOPLE[::-1]):
        mine, theirs = (f"demo://resource/session/{each}.gz" for each in (person, other))
        until(f"the file of {person}", lambda person=person: listed(program, endpoint, person) or None)
        assert listed(program, endpoint, person) == [mine]
        assert "result" in asked(program, endpoint, person, "resources/read", uri=mine)
        assert "error" in asked(program, endpoint, person, "resources/read", uri=theirs)


def words_are_apart(program: Program, endpoint: str, prefix: str) -> None:
    """Have alice keep a word, and both look for one."""

    def show(person: str) -> str:
        return said(call_tool(endpoint, f"{prefix}show", {}, more=of(program, person)))

    call_tool(endpoint, f"{prefix}keep", {"word": "of alice"}, more=of(program, "alice"))
    assert [show(each) for each in PEOPLE] == ["of alice", "nothing"]
    call_tool(endpoint, f"{prefix}keep", {"word": "of bob"}, more=of(program, "bob"))
    assert [show(each) for each in PEOPLE] == ["of alice", "of bob"]


@pytest.mark.parametrize("name", ["server-everything", "FastMCP", "Python SDK"])
@pytest.mark.parametrize(
    ("wire", "identity"), [("stdio", "nobody"), *(("http", each) for each in IDENTITIES)]
)
def test_what_one_leaves_in_a_server_of_others_is_met_by_that_one_alone(
    ostiary: Program, tokens: str, name: str, wire: str, identity: str
) -> None:
    with upstream(ostiary, name, wire) as place:
        settings(ostiary, place, 'era = "handshake"', identified(identity, tokens))
        with ostiary.serving() as server:
            people(ostiary, server, theirs=identity == "person-key")
            apart = files_are_apart if name == "server-everything" else words_are_apart
            apart(ostiary, server.endpoint, "theirs__" if identity == "person-key" else "")
            assert "key-of-" not in server.said()


def test_each_person_has_a_memory_where_the_command_gives_each_a_file_and_one_is_shared_where_not(
    ostiary: Program,
) -> None:
    """The file of server-memory is the same for every process of it, unless what starts it says another."""
    memory = [str(NODE_BIN / "node"), str(needed(MEMORY, "scripts/peers node"))]
    apart = f'MEMORY_FILE_PATH="$PWD/$OSTIARY_CALLER.jsonl" exec {shlex.join(memory)}'
    folder = ostiary.home / "memories"
    folder.mkdir()
    shared = f"env = {{ MEMORY_FILE_PATH = {json.dumps(str(folder / 'all.jsonl'))} }}"
    for command, more, seen in (
        (memory, shared, ["alice", "alice"]),
        (["sh", "-c", apart], "", ["alice", ""]),
    ):
        place = f"command = {json.dumps(command)}\nworking_dir = {json.dumps(str(folder))}"
        settings(ostiary, place, more)
        for again in (False, True):  # what is in a file outlives the processes
            with ostiary.serving() as server:
                if not (ostiary.home / "alice").exists():
                    people(ostiary, server)
                if not again:
                    entity = {"name": "alice", "entityType": "person", "observations": []}
                    call_tool(
                        server.endpoint, "create_entities", {"entities": [entity]}, more=of(ostiary, "alice")
                    )
                found = [
                    call_tool(server.endpoint, "read_graph", {}, more=of(ostiary, each))["structuredContent"]
                    for each in PEOPLE
                ]
                assert ["".join(each["name"] for each in graph["entities"]) for graph in found] == seen


def test_one_child_serves_all_where_the_settings_say_so_and_that_is_said(ostiary: Program) -> None:
    with upstream(ostiary, "server-everything", "stdio") as place:
        settings(ostiary, place, 'share = "all"')
        with ostiary.serving() as server:
            server.await_words("all who call share what")
            people(ostiary, server)
            made = {"name": "mine.gz", "data": "data:text/plain,x", "outputType": "resourceLink"}
            call_tool(server.endpoint, "gzip-file-as-resource", made, more=of(ostiary, "alice"))
            until("the file of alice", lambda: listed(ostiary, server.endpoint, "bob") or None)


# A server that keeps one word for as long as it runs.
KEEPER = """
import json, sys
word = "nothing"
for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params") or {}
    if asked.get("method") == "initialize":
        can = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
        result = {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": {"name": "k", "version": "1"}}
    elif asked.get("method") == "tools/list":
        shape = {"inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
        result = {"tools": [{"name": name, **shape} for name in ("keep", "show")]}
    elif asked.get("method") == "tools/call":
        word = params["arguments"].get("word", word)
        result = {"content": [{"type": "text", "text": word}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


class Begun:
    """A session of the handshake era."""

    def __init__(self, endpoint: str, roots: Sequence[Mapping[str, str]] = ()) -> None:
        """Begin it. `roots`: what is said when they are asked for."""
        self.heard: list[str] = []  # by `listen`
        self._endpoint = endpoint
        self._roots = roots
        self._headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        }
        client = {"name": "client", "version": "1"}
        can = {"roots": {}} if roots else {}
        self.ask("initialize", protocolVersion="2025-11-25", capabilities=can, clientInfo=client)
        self._tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with self._send("POST", message) as answer:
            self._headers.setdefault("Mcp-Session-Id", answer.headers.get("mcp-session-id", ""))
            for line in answer.iter_lines():
                said = json.loads(line.removeprefix("data: ")) if line.startswith(("{", "data: {")) else {}
                if said.get("method") == "roots/list":
                    answered = {"jsonrpc": "2.0", "id": said["id"], "result": {"roots": self._roots}}
                    self._tell(answered)
                if "result" in said:
                    return said["result"]
        raise AssertionError(f"{method} was not answered")

    def _tell(self, message: Mapping[str, Any]) -> None:
        with self._send("POST", message) as answer:
            answer.raise_for_status()

    def _send(self, method: str, message: object = None) -> AbstractContextManager[httpx2.Response]:
        seconds = None if message is None else WAIT_SECONDS
        return httpx2.stream(
            method, self._endpoint, json=message, headers=self._headers, timeout=seconds, trust_env=False
        )

    def listen(self) -> None:
        """Hear what belongs to no request, until the server ends."""
        with suppress(httpx2.HTTPError), self._send("GET") as answer:
            for line in answer.iter_lines():
                self.heard.append(line)

    def logs(self) -> list[str]:
        return [line for line in self.heard if "notifications/message" in line]

    def updates(self) -> list[str]:
        return [line for line in self.heard if "notifications/resources/updated" in line]

    def end(self) -> None:
        httpx2.delete(
            self._endpoint, headers=self._headers, timeout=WAIT_SECONDS, trust_env=False
        ).raise_for_status()


def test_a_task_runs_in_the_child_of_the_session_that_ordered_it(ostiary: Program) -> None:
    (ostiary.home / "keeper.py").write_text(KEEPER, "utf-8")
    command = json.dumps([sys.executable, str(ostiary.home / "keeper.py")])
    upstream = f'kind = "mcp"\ntrust = "always"\ncommand = {command}\nera = "handshake"'
    (ostiary.home / "ostiary.toml").write_text(
        f'auth = "none"\n[[server]]\n[[server.agent]]\n{upstream}\n', "utf-8"
    )
    with ostiary.serving() as server:
        for word in ("one", "two"):
            ask = Begun(server.endpoint).ask
            assert said(ask("tools/call", name="keep", arguments={"word": word})) == word
            task = ask("tools/call", name="show", arguments={}, task={"ttl": 60_000})["task"]
            assert said(ask("tasks/result", taskId=task["taskId"])) == word


@contextmanager
def everything(ostiary: Program) -> Generator[Server]:
    """Serve the reference server over HTTP to everybody, in the handshake era."""
    with upstream(ostiary, "server-everything", "http") as place:
        agent = f'kind = "mcp"\ntrust = "always"\n{place}\nera = "handshake"\nquestions = ["roots"]'
        (ostiary.home / "ostiary.toml").write_text(
            f'auth = "none"\n[[server]]\n[[server.agent]]\n{agent}\n', "utf-8"
        )
        with ostiary.serving() as server:
            yield server


def test_what_the_reference_server_logs_between_two_calls_reaches_its_session_alone(ostiary: Program) -> None:
    with everything(ostiary) as server:
        mine, theirs = Begun(server.endpoint), Begun(server.endpoint)
        for each in (mine, theirs):
            Thread(target=each.listen, daemon=True).start()
            each.ask("logging/setLevel", level="debug")
            each.ask("tools/call", name="echo", arguments={"message": "x"})
        mine.ask("tools/call", name="toggle-simulated-logging", arguments={})
        until("what it logs", lambda: mine.logs() or None)
        assert theirs.logs() == []


def test_what_the_reference_server_asks_on_the_stream_of_a_session_reaches_its_caller(
    ostiary: Program,
) -> None:
    with everything(ostiary) as server:
        mine = Begun(server.endpoint, [{"uri": "file:///mine", "name": "mine"}])
        Thread(target=mine.listen, daemon=True).start()
        assert "file:///mine" in said(mine.ask("tools/call", name="get-roots-list", arguments={}))


def test_what_changes_in_a_session_of_the_reference_server_is_told_there_alone(ostiary: Program) -> None:
    uri = "demo://resource/dynamic/text/1"
    with everything(ostiary) as server:
        mine, theirs = Begun(server.endpoint), Begun(server.endpoint)
        for each in (mine, theirs):
            Thread(target=each.listen, daemon=True).start()
            each.ask("resources/subscribe", uri=uri)
            each.ask("tools/call", name="echo", arguments={"message": "x"})
        mine.ask("tools/call", name="toggle-subscriber-updates", arguments={})
        until("what has changed", lambda: mine.updates() or None)
        assert theirs.updates() == []


def processes_of(script: Path) -> int:
    """Count the processes that run it."""
    found = 0
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += str(script).encode() in each.read_bytes().split(b"\0")
    return found


def test_the_child_of_a_session_ends_with_it(ostiary: Program) -> None:
    script = ostiary.home / "keeper.py"
    script.write_text(KEEPER, "utf-8")
    agent = f'kind = "mcp"\ntrust = "always"\ncommand = {json.dumps([sys.executable, str(script)])}'
    (ostiary.home / "ostiary.toml").write_text(
        f'auth = "none"\n[[server]]\n[[server.agent]]\n{agent}\n', "utf-8"
    )
    with ostiary.serving() as server:
        one, two = Begun(server.endpoint), Begun(server.endpoint)
        for each, word in ((one, "one"), (two, "two")):
            each.ask("tools/call", name="keep", arguments={"word": word})
        assert processes_of(script) == 3
        one.end()
        until("the child of the session that ended to end", lambda: processes_of(script) == 2 or None)
        assert said(two.ask("tools/call", name="show", arguments={})) == "two"
