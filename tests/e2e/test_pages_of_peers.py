"""Pages of servers made with ext-apps and FastMCP, behind this one: drawn by ext-apps' bridge in a real browser, where they call their own tools."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from page_clients import Caller
from playwright.sync_api import Browser, expect
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Program, needed

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"


@contextmanager
def serving(home: Path, *agents: tuple[str, list[str], str]) -> Generator[str]:
    written = "".join(
        f'[[server.agent]]\nkind = "mcp"\nid = "{name}"\ntrust = "first-use"\ncommand = {json.dumps(command)}\n{more}'
        for name, command, more in agents
    )
    (home / "ostiary.toml").write_text(f'auth = "none"\n[[server]]\n{written}', "utf-8")
    with Program(command=SOURCE, home=home).serving() as running:
        yield running.endpoint


def app_server(name: str) -> list[str]:
    return [str(needed(NODE_BIN / "node", "scripts/peers")), str(PEERS / "app_server.mjs"), name]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a host: a page with its program, and nothing else."""
    folder = tmp_path_factory.mktemp("host")
    rolldown = needed(NODE_BIN / "rolldown", "scripts/peers")
    subprocess.run(
        [
            str(rolldown),
            "app_host.mjs",
            "--format",
            "iife",
            "--platform",
            "browser",
            "-o",
            str(folder / "host.js"),
        ],
        cwd=PEERS,
        env={**os.environ, "PATH": f"{NODE_BIN}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        timeout=WAIT_SECONDS,
    )
    (folder / "index.html").write_text("<!doctype html><body><script src=host.js></script>", "utf-8")
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(SilentFiles, directory=str(folder)))
    thread = threading.Thread(target=files.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{files.server_port}/"
    finally:
        files.shutdown()
        thread.join()
        files.server_close()


class SilentFiles(SimpleHTTPRequestHandler):
    """Files of a folder, without a word on what was asked for."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def test_each_page_is_drawn_with_its_own_servers_answer_and_calls_its_own_servers_tool(
    home: Path, chromium: Browser, host: str
) -> None:
    bounds = 'page_hosts = ["api.example.com"]\n'
    with serving(home, ("clock", app_server("clock"), bounds)) as url, chromium.new_context() as context:
        page = context.new_page()
        page.goto(host)
        shown: dict[str, Any] = page.evaluate("([url, tool]) => show(url, tool)", [url, "clock__show"])
        assert shown == {
            "uri": "ui://clock/app.html",
            "csp": {"connectDomains": ["https://api.example.com"]},
            "extensions": shown["extensions"],
            "hidden": ["clock__save"],
        }
        frame = page.frame_locator("iframe")
        expect(frame.locator("#told")).to_have_text("clock shows a page")
        expect(frame.locator("#saved")).to_have_text("clock saved kept")


def test_a_server_that_has_anothers_names_and_address_gets_neither_its_page_nor_its_calls(
    home: Path, chromium: Browser, host: str
) -> None:
    with (
        serving(home, ("evil", app_server("evil"), ""), ("clock", app_server("clock"), "")) as url,
        chromium.new_context() as context,
    ):
        page = context.new_page()
        page.goto(host)
        shown: dict[str, Any] = page.evaluate("([url, tool]) => show(url, tool)", [url, "clock__show"])
        assert (shown["uri"], shown["csp"]) == ("ui://clock/app.html", {"connectDomains": []})
        frame = page.frame_locator("iframe")
        expect(frame.locator("#told")).to_have_text("clock shows a page")
        # Which of the two is meant nobody can say, so neither is called.
        expect(frame.locator("#saved")).to_contain_text("unknown tool: save")


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_a_page_of_fastmcp_is_carried_in_both_eras(home: Path, era: str) -> None:
    python = needed(ROOT / ".venvs" / "fastmcp" / "bin" / "python", "scripts/peers python")
    command = [str(python), str(PEERS / "fastmcp_app.py")]
    with serving(home, ("notes", command, 'page_hosts = ["cdn.example.com"]\n')) as url:
        plain, drawing = Caller(url, era, {}), Caller(url, era)
        assert set(plain.tools()) == {"notes__notes"}
        tools = drawing.tools()
        assert set(tools) == {"notes__notes", "notes__keep"}
        address = tools["notes__notes"]["_meta"]["ui"]["resourceUri"]
        contents = drawing.read(address)
        assert (address, contents["text"]) == ("ui://notes/notes/app.html", "<h1>notes</h1>")
        assert drawing.call("keep", text="this") == "kept this"


def test_the_page_that_the_documents_show_is_drawn_and_calls_its_tool(
    home: Path, chromium: Browser, host: str
) -> None:
    shown = (ROOT / "docs" / "python" / "pages.md").read_text("utf-8")
    agent, html = (
        re.findall(rf"^```{kind}\n(.*?)^```$", shown, re.DOTALL | re.MULTILINE)[0]
        for kind in ("python", "html")
    )
    (home / "agent.py").write_text(agent, "utf-8")
    (home / "dice.html").write_text(html, "utf-8")
    settings = f'auth = "none"\n[[server]]\n[[server.agent]]\nkind = "python"\nfile = {json.dumps(str(home / "agent.py"))}\n'
    (home / "ostiary.toml").write_text(settings, "utf-8")
    with Program(command=SOURCE, home=home).serving() as running, chromium.new_context() as context:
        assert set(Caller(running.endpoint, "stateless", {}).tools()) == {"roll"}
        page = context.new_page()
        page.goto(host)
        drawn: dict[str, Any] = page.evaluate("([url, tool]) => show(url, tool)", [running.endpoint, "roll"])
        assert (drawn["uri"], drawn["hidden"]) == ("ui://agent/dice.html", ["again"])
        assert "io.modelcontextprotocol/ui" in drawn["extensions"]
        frame = page.frame_locator("iframe")
        expect(frame.locator("#shown")).to_have_text(re.compile("^[1-6] of 6$"))
        # The same number may come again, so what was there before goes first.
        frame.locator("#shown").evaluate("(it) => { it.textContent = '-'; }")
        frame.locator("#again").click()
        expect(frame.locator("#shown")).to_have_text(re.compile("^[1-6] of 6$"))
