"""Extensions through a gateway, of clients and of servers in either era: what each declares, the other hears."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from page_clients import PAGES, Caller
from programs import SOURCE, Program

UPSTREAM = """
    import json, sys
    modern = sys.argv[1] == "stateless"
    name = "io.modelcontextprotocol/"
    declared = {}
    for line in sys.stdin:
        message = json.loads(line)
        method, number, params = message["method"], message.get("id"), message.get("params", {})
        if number is None:
            continue
        answer = {"jsonrpc": "2.0", "id": number}
        theirs = {"tools": {}, "extensions": {name + "ui": {"mimeTypes": ["text/x"]}, "com.example/secret": {}}}
        if method == "server/discover" and modern:
            answer["result"] = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": theirs}
        elif method == "initialize":
            declared = params["capabilities"]
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": theirs, "serverInfo": {"name": "n", "version": "1"}}
        elif method == "tools/list":
            answer["result"] = {"resultType": "complete", "tools": [{"name": "heard", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            heard = params["_meta"][name + "clientCapabilities"] if modern else declared
            answer["result"] = {"resultType": "complete", "content": [{"type": "text", "text": json.dumps(heard.get("extensions"))}]}
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
"""


QUESTION_KEYS = "io.ostiary/question-keys"  # between two of ours


@pytest.mark.parametrize("theirs", ["stateless", "handshake"])
def test_what_one_side_declares_the_other_hears(home: Path, theirs: str) -> None:
    (home / "upstream.py").write_text(dedent(UPSTREAM), "utf-8")
    command = json.dumps([sys.executable, str(home / "upstream.py"), theirs])
    agent = f'kind = "mcp"\ntrust = "always"\nshare = "caller"\nera = "{theirs}"\ncommand = {command}\n'
    (home / "ostiary.toml").write_text(f'auth = "none"\n[[server]]\n[[server.agent]]\n{agent}', "utf-8")
    with Program(command=SOURCE, home=home).serving() as server:
        for ours in ("stateless", "handshake"):
            declared = {PAGES: {"mimeTypes": ["text/y"]}, "com.example/mine": {}}
            caller = Caller(server.endpoint, ours, declared)
            extensions = caller.server["capabilities"]["extensions"]
            assert (extensions[PAGES], "com.example/secret" in extensions) == (
                {"mimeTypes": ["text/x"]},
                False,
            )
            heard = json.loads(caller.call("heard"))
            heard.pop(QUESTION_KEYS, None)
            assert heard == {PAGES: {"mimeTypes": ["text/y"]}}
