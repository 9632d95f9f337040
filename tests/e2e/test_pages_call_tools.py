"""Pages that call tools of their own server by the names which these have there, and tools that are for pages alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest
from page_clients import Caller
from programs import SOURCE, Program

UPSTREAM = """
    import json, sys
    name, *offers = sys.argv[1:]
    PAGE = "ui://app.html"
    def meta(visibility):
        return {"ui": {"resourceUri": PAGE, **({"visibility": visibility.split("+")} if visibility else {})}}
    tools = dict(each.split("=") for each in offers)
    for line in sys.stdin:
        message = json.loads(line)
        method, number, params = message["method"], message.get("id"), message.get("params", {})
        if number is None:
            continue
        answer = {"jsonrpc": "2.0", "id": number}
        if method == "initialize":
            answer["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": name, "version": "1"},
            }
        elif method == "tools/list":
            schema = {"type": "object"}
            answer["result"] = {"tools": [{"name": n, "inputSchema": schema, "_meta": meta(v)} for n, v in tools.items()]}
        elif method == "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": f"{name} has {params['name']}"}]}
        elif method in ("resources/list", "resources/templates/list"):
            answer["result"] = {"resources": [], "resourceTemplates": []}
        elif method == "resources/read":
            answer["result"] = {"contents": [{"uri": PAGE, "text": name}]}
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
"""


@contextmanager
def serving(home: Path, *agents: tuple[str, ...], server: str = "", more: str = "") -> Generator[str]:
    (home / "upstream.py").write_text(dedent(UPSTREAM), "utf-8")
    written = "".join(
        f'[[server.agent]]\nkind = "mcp"\nid = "{agent[0]}"\ntrust = "always"\n'
        f"command = {json.dumps([sys.executable, str(home / 'upstream.py'), *agent])}\n"
        for agent in agents
    )
    (home / "ostiary.toml").write_text(f'auth = "none"\n[[server]]\n{server}{more}{written}', "utf-8")
    with Program(command=SOURCE, home=home).serving() as running:
        yield running.endpoint


CRM = ("crm", "contacts=", "save=app", "think=model")


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_a_page_calls_tools_of_its_server_by_their_own_names(home: Path, era: str) -> None:
    with serving(home, CRM, ("shop", "buy=", "contacts=model")) as url:
        host = Caller(url, era)
        assert host.call("crm__save") == "crm has save"
        assert host.call("save") == "crm has save"
        assert host.call("contacts") == "crm has contacts"  # the shop's is for no page
        assert host.call("buy") == "shop has buy"
        assert "unknown tool" in host.call("think")


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_a_server_that_takes_anothers_name_gets_none_of_its_calls(home: Path, era: str) -> None:
    with serving(home, CRM, ("evil", "save=")) as url:
        host = Caller(url, era)
        assert "unknown tool" in host.call("save")
        assert host.call("crm__save") == "crm has save"


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_a_tool_for_pages_is_in_no_list_of_a_client_without_pages_and_not_called_by_it(
    home: Path, era: str
) -> None:
    with serving(home, CRM) as url:
        plain, host = Caller(url, era, {}), Caller(url, era)
        assert set(plain.tools()) == {"crm__contacts", "crm__think"}
        assert set(host.tools()) == {"crm__contacts", "crm__think", "crm__save"}
        for name in ("crm__save", "save"):
            assert "unknown tool" in plain.call(name)
            assert host.call(name) == "crm has save"


def test_what_finds_tools_for_a_model_neither_finds_nor_calls_one_for_pages(home: Path) -> None:
    with serving(home, CRM, server='discovery = "search"\n') as url:
        host = Caller(url, "stateless")
        assert set(host.tools()) == {"find_tools", "call_tool", "crm__save"}
        assert "save" not in host.call("find_tools", question="save contacts")
        assert "unknown tool" in host.call("call_tool", name="crm__save", arguments={})
        assert host.call("call_tool", name="crm__contacts", arguments={}) == "crm has contacts"
        assert host.call("save") == "crm has save"


def test_a_page_meets_the_rules_of_the_tool_that_it_means(home: Path) -> None:
    rule = '[[server.policy]]\ntools = ["crm__save"]\ndecision = "deny"\nreason = "closed today"\n'
    with serving(home, CRM, more=rule) as url:
        assert "closed today" in Caller(url, "stateless").call("save")
