"""The agent's side of the line protocol, reduced to the lines: the "agent" is a script that hears and says them itself, and
so can break every rule."""

from __future__ import annotations

import argparse
import json
import os
import runpy
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("--file")
parser.add_argument("--module")
parser.add_argument("--threads")
parser.add_argument("--fds", required=True)
options = parser.parse_args()
reading, writing = (int(number) for number in options.fds.split(","))
heard = os.fdopen(reading, "rb")


def hear() -> Any:
    """The next thing that the server says; ends the script when it has said its last."""
    line = heard.readline()
    if not line:
        raise SystemExit
    return json.loads(line)


def say_bytes(data: bytes) -> None:
    while data:
        data = data[os.write(writing, data) :]


def say(event: str, **fields: Any) -> None:
    say_bytes(json.dumps({"event": event, **fields}).encode() + b"\n")


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def ready(*tools: Any, **more: Any) -> None:
    say("ready", protocol=1, python="3.11.0", catalog={"tools": tools or [tool("say")], **more})


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


offered = {
    "hear": hear,
    "say": say,
    "say_bytes": say_bytes,
    "tool": tool,
    "ready": ready,
    "text": text,
    "writing": writing,
    "options": options,
}
runpy.run_path(options.file, init_globals=offered)
