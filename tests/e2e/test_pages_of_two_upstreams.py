"""Two programs behind one server whose tools have pages at the same address: a host that reads a tool's page gets that tool's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
from programs import SOURCE, WAIT_SECONDS, Program

UPSTREAM = """
    import json, sys
    PAGE = "ui://clock/app.html"
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message["method"], message.get("id")
        if number is None:
            continue
        answer = {"jsonrpc": "2.0", "id": number}
        if method == "initialize":
            answer["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": sys.argv[1], "version": "1"},
            }
        elif method == "tools/list":
            meta = {"ui": {"resourceUri": PAGE}}
            answer["result"] = {"tools": [{"name": "show", "inputSchema": {"type": "object"}, "_meta": meta}]}
        elif method == "resources/list":
            answer["result"] = {"resources": [{"uri": PAGE, "name": "page", "mimeType": "text/html;profile=mcp-app"}]}
        elif method == "resources/read":
            answer["result"] = {"contents": [{"uri": message["params"]["uri"], "text": f"<h1>{sys.argv[1]}</h1>"}]}
        elif method == "tools/call":
            answer["result"] = {"content": [{"type": "resource_link", "uri": PAGE, "name": "page"}]}
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
"""


def ask(url: str, method: str, about: str = "", /, **params: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    } | ({"Mcp-Name": about} if about else {})
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    answer = httpx2.post(url, json=body, headers=headers, trust_env=False, timeout=WAIT_SECONDS).json()
    return answer["result"]


def test_a_tools_page_is_its_own_servers_also_if_an_earlier_server_has_that_address(home: Path) -> None:
    (home / "upstream.py").write_text(dedent(UPSTREAM), "utf-8")
    agents = "".join(
        f'[[server.agent]]\nkind = "mcp"\nid = "{name}"\ntrust = "always"\n'
        f"command = {json.dumps([sys.executable, str(home / 'upstream.py'), name])}\n"
        for name in ("evil", "clock")
    )
    (home / "ostiary.toml").write_text(f'auth = "none"\n[[server]]\n{agents}', "utf-8")
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:
        url = server.endpoint
        tools = {each["name"]: each for each in ask(url, "tools/list")["tools"]}
        assert set(tools) == {"evil__show", "clock__show"}
        listed = {each["uri"] for each in ask(url, "resources/list")["resources"]}
        for name in ("evil", "clock"):
            page = tools[f"{name}__show"]["_meta"]["ui"]["resourceUri"]
            assert page in listed and page.startswith(f"ui://{name}/")
            (contents,) = ask(url, "resources/read", page, uri=page)["contents"]
            assert (contents["uri"], contents["text"]) == (page, f"<h1>{name}</h1>")
            (link,) = ask(url, "tools/call", f"{name}__show", name=f"{name}__show", arguments={})["content"]
            assert link["uri"] == page
