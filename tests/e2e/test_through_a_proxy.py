"""Everything that speaks to other people's servers, from a network that lets nothing out but CONNECT through its proxy, with a login:
the names are known to the proxy alone, so what comes back went through it."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from connect_proxy import ConnectProxy
from programs import ROOT, SOURCE, USER_CODE, WAIT_SECONDS, Background, Program, needed, until
from test_upstream_mcp_served import trouble_of

from tests.free_ports import free_port
from tests.made_certificates import write_certificate

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SHOP, NOTES, ECHOES = "shop.example", "notes.example", "echoes.example"
# An authorization server of others, and a server that sends its callers there.
DOOR, FILES = "door.example", "files.example"
PEERS = ROOT / "tests" / "peers"
# Servers of others that want a login, by the environment and the name of each, and a tool there with what it answers.
SDK = ("peers", "python_sdk_oauth_server.py")
FASTMCP = ("fastmcp", "fastmcp_server.py")
CALLS = {NOTES: ("remember", "note=milk", "remembered: milk"), ECHOES: ("echo", "text=milk", "milk")}


@dataclass
class Office:
    """A machine in that network, and what lies outside."""

    proxy: ConnectProxy
    shop: Program
    program: Program  # within
    trust: ssl.SSLContext


def peer(
    by: Program, which: tuple[str, str], name: str, chain: Path, key: Path, *more: str
) -> AbstractContextManager[Background]:
    """Start a server of others as the place that is called `name`."""
    environment, script = which
    python = needed(ROOT / ".venvs" / environment / "bin" / "python", "scripts/peers python")
    return by.starting(
        str(PEERS / script), f"https://{name}", str(chain), str(key), *more, command=[str(python)]
    )


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    chain, key = write_certificate(folder, "the outside", host=SHOP, others=[NOTES, ECHOES, DOOR, FILES])
    for name in ("shop", "within"):
        (folder / name).mkdir()
    shop = Program(command=SOURCE, home=folder / "shop")
    tls = f'issuer = "https://{SHOP}"\ntls_certificate = "{chain}"\ntls_key = "{key}"\n'
    (shop.home / "ostiary.toml").write_text(tls, "utf-8")
    node = needed(PEERS / "node_modules" / ".bin" / "node", "scripts/peers node")
    door = needed(PEERS / "oidc_provider" / "node_modules", "scripts/peers node").parent / "server.mjs"
    options = ("--port", "0", "--data-dir", str(shop.data_dir), "--log-format", "json")
    with (
        shop.starting("serve", *options) as server,
        peer(shop, SDK, NOTES, chain, key) as notes,
        peer(shop, FASTMCP, ECHOES, chain, key) as echoes,
        shop.starting(f"https://{DOOR}/", str(chain), str(key), command=[str(node), str(door)]) as oidc,
        peer(shop, FASTMCP, FILES, chain, key, f"https://{DOOR}/") as files,
    ):
        port = server.await_words(r'"listens": ?\["https://127.0.0.1:(\d+)"')[1]
        places = {f"{SHOP}:443": int(port)}
        for name, there in ((NOTES, notes), (ECHOES, echoes), (DOOR, oidc), (FILES, files)):
            places[f"{name}:443"] = int(there.await_words(r"Listening on http://127.0.0.1:(\d+)")[1])
        proxy = ConnectProxy(places)
        within = Program(
            command=SOURCE,
            home=folder / "within",
            settings={"HTTPS_PROXY": proxy.url, "SSL_CERT_FILE": str(chain)},
        )
        yield Office(proxy, shop, within, ssl.create_default_context(cafile=str(chain)))
        proxy.close()


@pytest.fixture(scope="module")
def logged_in(office: Office) -> Office:
    with office.program.starting("login", f"https://{SHOP}/mcp") as login:
        office.shop.at_machine("approve", login.await_words(USER_CODE)[0], "--yes")
        assert login.wait() == 0, login.said()
    return office


def test_a_login_and_a_call_go_through_it(logged_in: Office) -> None:
    assert "hi" in logged_in.program.run("call", "echo", "text=hi").stdout
    assert f"CONNECT {SHOP}:443 HTTP/1.1" in logged_in.proxy.asked
    assert all(line.startswith("CONNECT ") for line in logged_in.proxy.asked)


def test_the_bridge_goes_through_it(logged_in: Office) -> None:
    said = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "over the bridge"}}},
    ]  # fmt: skip
    done = subprocess.run(
        [*SOURCE, "connect", f"https://{SHOP}/mcp"],
        env=logged_in.program.environment(),
        cwd=logged_in.program.home,
        input="".join(json.dumps(each) + "\n" for each in said),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = {each.get("id"): each for each in map(json.loads, done.stdout.splitlines())}
    assert "over the bridge" in json.dumps(answers[2]["result"])


def test_doctor_says_that_it_looks_through_it(logged_in: Office) -> None:
    steps = logged_in.program.ask("doctor", f"https://{SHOP}/mcp")["steps"]
    assert {step["state"] for step in steps} <= {"ok", "skipped"}
    assert f"127.0.0.1:{logged_in.proxy.port}" in steps[0]["detail"]
    assert "p@ss" not in json.dumps(steps)


def agree(office: Office, link: str) -> None:
    """Do what a browser in that network does, at a server that agrees to everything."""
    with httpx2.Client(proxy=office.proxy.url, verify=office.trust, timeout=WAIT_SECONDS) as browser:
        page = browser.get(link)
        while urlsplit(page.headers["location"]).hostname == urlsplit(link).hostname:
            page = browser.get(page.headers["location"])
    assert "code" in dict(parse_qsl(urlsplit(page.headers["location"]).query))
    assert httpx2.get(page.headers["location"], trust_env=False, timeout=WAIT_SECONDS).status_code == 200


@pytest.mark.parametrize("name", [NOTES, ECHOES])
def test_a_login_in_the_browser_at_a_server_of_others_goes_through_it(office: Office, name: str) -> None:
    tool, argument, answer = CALLS[name]
    with office.program.starting("login", f"https://{name}/mcp", "--no-browser") as login:
        agree(office, login.await_words(rf"https://{name}/authorize\?\S+")[0])
        assert login.wait() == 0, login.said()
    assert answer in office.program.run("call", f"https://{name}/mcp", tool, argument).stdout


def test_a_login_by_code_at_an_oidc_provider_goes_through_it(office: Office) -> None:
    with office.program.starting("login", f"https://{FILES}/mcp", "--client-id", "bench") as login:
        code = login.await_words(USER_CODE)[0]
        with httpx2.Client(proxy=office.proxy.url, verify=office.trust, timeout=WAIT_SECONDS) as person:
            assert person.get(f"https://{DOOR}/approve", params={"user_code": code}).status_code == 200
        assert login.wait() == 0, login.said()
    assert "milk" in office.program.run("call", f"https://{FILES}/mcp", "echo", "text=milk").stdout


@pytest.mark.parametrize("name", [NOTES, ECHOES])
def test_an_upstream_and_the_login_there_go_through_it(office: Office, name: str) -> None:
    tool, argument, answer = CALLS[name]
    with office.program.serving("--upstream", f"https://{name}/mcp", "--auth", "none") as front:
        (upstream,) = [each["upstream"] for each in office.program.at_machine("upstream", "list")]
        data = str(office.program.data_dir)
        with office.program.starting(
            "upstream", "login", upstream, "--no-browser", "--data-dir", data
        ) as login:
            agree(office, login.await_words(rf"https://{name}/authorize\?\S+")[0])
            assert login.wait() == 0, login.said()
        until("the upstream", lambda: trouble_of(office.program, upstream) is None or None)
        assert answer in office.program.run("call", front.endpoint, tool, argument).stdout


def test_a_wrong_login_at_the_proxy_is_told_and_its_password_is_not(office: Office, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    wrong = f"http://staff:guessed@127.0.0.1:{office.proxy.port}"
    program = Program(
        command=SOURCE, home=tmp_path / "home", settings=office.program.settings | {"HTTPS_PROXY": wrong}
    )
    said = program.run("tools", f"https://{SHOP}/mcp", code=1).stderr
    assert "407" in said
    assert "guessed" not in said


def test_what_the_proxy_does_not_lead_to_is_told_as_such(office: Office) -> None:
    said = office.program.run("tools", "https://elsewhere.example/mcp", code=1).stderr
    assert "proxy" in said
    assert "403" in said


def test_a_port_that_is_free_is_not_asked_through_it(office: Office) -> None:
    before = len(office.proxy.asked)
    office.program.run("tools", f"http://127.0.0.1:{free_port()}/mcp", code=1)
    assert len(office.proxy.asked) == before
