"""Upstreams that hang, crash, flood and lie, behind one server with one that is good: each is its own trouble, named to the owner, and nobody
else's."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from textwrap import dedent

from programs import SOURCE, Program, Server

UPSTREAM = """
    import json, os, sys, time
    manner = sys.argv[1]
    SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message["method"], message.get("id")
        if number is None or manner == "hangs":
            continue
        answer = {"jsonrpc": "2.0", "id": number}
        if method == "server/discover":
            answer["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            tool = {"name": "do", "inputSchema": {"type": "object"}}
            answer["result"] = {"tools": [tool | ({"outputSchema": SCHEMA} if manner == "lies" else {})]}
        elif method == "tools/call":
            if manner == "crashes":
                os._exit(3)
            if manner == "floods":
                while True:
                    sys.stdout.write("x" * 1_000_000)
            content = {"structuredContent": {"n": "seven"}} if manner == "lies" else {}
            answer["result"] = {"content": [{"type": "text", "text": "done"}], **content}
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
"""
MANNERS = ("good", "hangs", "crashes", "floods", "lies")


def failed(program: Program, server: Server, tool: str) -> str:
    refused = program.run("call", server.endpoint, tool, code=1)
    return refused.stdout + refused.stderr


def test_bad_upstreams_are_their_own_trouble_alone(home: Path) -> None:
    (home / "upstream.py").write_text(dedent(UPSTREAM), "utf-8")
    agents = "".join(
        f'[[server.agent]]\nkind = "mcp"\nid = "{manner}"\ntrust = "always"\nstart_seconds = {2 if manner == "hangs" else 60}\n'
        f"command = {json.dumps([sys.executable, str(home / 'upstream.py'), manner])}\n"
        for manner in MANNERS
    )
    (home / "ostiary.toml").write_text(f'auth = "none"\n[[server]]\n{agents}', "utf-8")
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:

        def good() -> str:
            return program.ask("call", server.endpoint, "good__do")["content"][0]["text"]

        listed = [tool["name"] for tool in program.ask("tools", server.endpoint)["tools"]]
        assert listed == ["good__do", "crashes__do", "floods__do", "lies__do"]
        assert "the upstream crashes has ended" in failed(program, server, "crashes__do")
        assert good() == "done"
        assert "said more than 262144 KiB in one message" in failed(program, server, "floods__do")
        assert good() == "done"
        assert "outputSchema" in failed(program, server, "lies__do")
        assert good() == "done"
        named = {
            each["name"].rpartition("/")[2]: (each["trouble"] or {}).get("words", "")
            for each in program.at_machine("status")["server"]["upstreams"]
        }
        assert set(named) == set(MANNERS)
        assert "did not answer within 2 s" in named["hangs"]
        assert not named["good"] and not named["lies"]
        assert server.end(signal.SIGTERM) == 0
