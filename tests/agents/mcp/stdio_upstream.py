"""An MCP server of the handshake era as a program of its own: `python stdio_upstream.py HOW`, where HOW says how it misbehaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

HOW = sys.argv[1] if len(sys.argv) > 1 else "well"


def say(message: object) -> None:
    print(json.dumps(message), flush=True)


def text(words: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": words}]}


def call(name: str) -> dict[str, object]:
    if name == "crash":
        print("the secret is swordfish", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "where":
        return text(os.getcwd())
    if name == "spawn":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return text(str(child.pid))
    return text("hello")


if HOW == "silent":
    time.sleep(600)
if HOW == "prints":
    print("Server started on stdio!")
if HOW == "falls":
    print("no such thing as a database", file=sys.stderr)
    sys.exit(7)
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}} for name in ("hello", "crash", "env", "where", "spawn")
]
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None:
        continue
    if HOW == "strict" and method == "server/discover":
        sys.exit(1)  # the first that it takes is `initialize`
    if method == "initialize":
        info = {"name": "stdio", "version": "1"}
        say(
            {
                "jsonrpc": "2.0",
                "id": number,
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                },
            }
        )
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": number, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        say({"jsonrpc": "2.0", "id": number, "result": call(message["params"]["name"])})
    else:
        say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "what?"}})
