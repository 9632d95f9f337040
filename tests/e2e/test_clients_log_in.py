"""Other people's programs log in to a running server by themselves and call a tool: what they print is what came of it.

Each finds the authorization server from the endpoint's address, registers itself where it can, and has a person say yes in a
browser or to a code. Nothing of the server is prepared for them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from person import Person
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Background, Program, Server, needed

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
NODE = NODE_BIN / "node"
PYTHON = ROOT / ".venvs" / "peers" / "bin" / "python"


@dataclass(frozen=True, kw_only=True)
class House:
    program: Program
    server: Server
    owner: Person

    def let_in(self, *command: str | Path, secret: str = "") -> dict[str, Any]:
        """Run a client to its end, saying yes whenever it asks for somebody; its answer."""
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=PEERS,
            env=self.program.environment(CLIENT_SECRET=secret, NODE_NO_WARNINGS="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        overdue = threading.Timer(2 * WAIT_SECONDS, process.kill)
        overdue.start()
        said: list[str] = []
        answer: dict[str, Any] | None = None
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if not line.startswith("{"):
                    continue
                what = json.loads(line)
                if "open" in what:
                    self.owner.allow(what["open"])
                elif "approve" in what:
                    self.owner.approve(what["approve"])
                else:
                    answer = what["answer"]
        finally:
            overdue.cancel()
            process.kill()
            _, complaints = process.communicate()
        assert answer is not None, f"it ended without an answer\n{''.join(said)}\n{complaints}"
        return answer


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        program = Program(command=SOURCE, home=tmp_path_factory.mktemp("house"))
        server = stack.enter_context(program.serving())
        owner = Person()
        stack.callback(owner.close)
        owner.claim(program, server)
        yield House(program=program, server=server, owner=owner)


def node(script: str) -> Sequence[Path]:
    return needed(NODE, "scripts/peers"), PEERS / script


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_the_typescript_sdk_logs_in_registers_and_refreshes(house: House, generation: str) -> None:
    found = house.let_in(*node("ts_login.mjs"), generation, house.server.endpoint)
    assert found["stopped"] == "UnauthorizedError"
    assert found["text"] == ["in by myself", "still in"]
    assert found["rotated"] is True
    assert found["issuer"] == house.server.url
    assert "mcp" in found["scope"].split()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_python_sdk_logs_in_and_registers(house: House, mode: str) -> None:
    script = PEERS / "python_sdk_login.py"
    found = house.let_in(needed(PYTHON, "scripts/peers"), script, house.server.endpoint, mode)
    assert found["text"] == ["in by myself"]
    assert found["refreshes"] is True
    # It names no method, and so gets a secret (RFC 7591 §2).
    assert found["method"] == "client_secret_basic"


@pytest.mark.parametrize("way", ["code", "device"])
def test_openid_client_logs_in_refreshes_and_ends_it(house: House, way: str) -> None:
    found = house.let_in(*node("openid_client.mjs"), way, house.server.url, house.server.endpoint)
    assert found == {"text": ["openid-client", "renewed"], "scope": "mcp", "afterwards": 401}


@pytest.mark.parametrize("way", ["code", "device", "par"])
def test_oauth4webapi_finds_nothing_to_object_to(house: House, way: str) -> None:
    found = house.let_in(*node("oauth4webapi.mjs"), way, house.server.url, house.server.endpoint)
    assert found == {"text": ["oauth4webapi", "renewed"], "scope": "mcp:tools", "afterwards": 401}


@pytest.mark.parametrize("way", ["code", "par", "device"])
def test_oauth4webapi_binds_all_it_gets_to_its_key(house: House, way: str) -> None:
    script = node("oauth4webapi_dpop.mjs")
    assert house.let_in(*script, way, house.server.url, house.server.endpoint) == {
        "kind": ["dpop", "dpop"],
        "said": ["with a key", "renewed"],
        "without": ["invalid_grant", "invalid_grant"],
        "opened": [200, "text/event-stream"],
        "stolen": {"POST": [401, 401, 401], "GET": [401, 401, 401], "DELETE": [401, 401, 401]},
        "ended": 204,
        "afterwards": ["bearer", "dpop invalid_token"],
    }


@pytest.mark.parametrize("secret", [False, True], ids=["public", "confidential"])
@pytest.mark.parametrize("library", ["authlib", "requests"])
def test_python_libraries_that_know_nothing_of_mcp_log_in(house: House, library: str, secret: bool) -> None:
    added = house.program.at_machine(
        "clients", "add", f"{library} program", "--grant", "authorization_code", "--grant", "refresh_token",
        "--redirect-uri", "http://127.0.0.1/callback", *(["--secret"] if secret else []),
    )  # fmt: skip
    found = house.let_in(
        needed(PYTHON, "scripts/peers"), PEERS / "python_oauth_login.py", library, house.server.url,
        house.server.endpoint, added["id"], secret=added["client_secret"] or "",
    )  # fmt: skip
    assert found == {"text": [library, "renewed"], "scope": "mcp", "ended": 200, "afterwards": 401}


def test_the_inspector_logs_in_with_a_browser_and_calls_a_tool(house: House) -> None:
    launcher = NODE_BIN.parent / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
    command = (
        needed(NODE, "scripts/peers"), launcher / "index.js", "--cli", house.server.endpoint,
        "--transport", "http", "--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=inspected",
    )  # fmt: skip
    with quiet_desktop(house, command, house.program.home / "inspector") as client:
        house.owner.allow(address_in(client))
        client.await_words("inspected")


@contextmanager
def quiet_desktop(house: House, command: Sequence[str | Path], home: Path) -> Generator[Background]:
    """A client on a desktop whose browser opens nothing: the person reads the address from what the client prints."""
    home.mkdir()
    opener = home / "xdg-open"
    opener.write_text("#!/bin/sh\n")
    opener.chmod(0o755)
    log = home / "said"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=house.program.environment(
                HOME=str(home), PATH=f"{home}:{os.environ['PATH']}", MCP_AUTO_OPEN_ENABLED="true",
                MCP_REMOTE_CONFIG_DIR=str(home),
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )  # fmt: skip
    client = Background(process=process, log=log)
    try:
        yield client
    finally:
        client.end()


def address_in(client: Background) -> str:
    return client.await_words(re.compile(r"https?://\S+/authorize\?\S+"))[0]
