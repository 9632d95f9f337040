"""The same service in a thread of this process, over a socket pair; and pydantic, where an interpreter has it."""

from __future__ import annotations

import importlib
import json
import socket
import textwrap
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from shim_child import Child

PEERS = Path(__file__).parents[4] / ".venvs" / "peers" / "bin" / "python"


@pytest.fixture
def serving(library: None) -> Any:
    return importlib.import_module("ostiary.serve").serve


class Neighbour:
    """One end of the pair; the other is served by a thread."""

    def __init__(self, serve: Any, **what: Any) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(60)
        self.status: list[int] = []

        def work() -> None:
            with theirs:
                self.status.append(serve(theirs.fileno(), theirs.fileno(), **what))

        self.thread = threading.Thread(target=work)
        self.thread.start()
        self.lines = self.ours.makefile("r", encoding="utf-8")

    def hear(self) -> dict[str, Any]:
        return json.loads(self.lines.readline())

    def call(self, name: str) -> dict[str, Any]:
        message = {"do": "call", "id": 1, "kind": "tool", "name": name, "arguments": {}, "context": {}}
        self.ours.sendall(json.dumps(message).encode() + b"\n")
        return self.hear()

    def close(self) -> int:
        self.ours.shutdown(socket.SHUT_WR)
        self.thread.join(60)
        self.lines.close()
        self.ours.close()
        return self.status[0]


def test_several_files_are_served_in_one_process_each_with_its_own_tools(
    serving: Any, tmp_path: Path
) -> None:
    text = "from ostiary import add_tool, tool\n@tool\ndef {0}(): return '{0}'\n@tool\ndef more(): add_tool({0}, name='new')\n"
    neighbours: list[Neighbour] = []
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(text.format(name))
        neighbours.append(Neighbour(serving, file=str(tmp_path / f"{name}.py"), module=""))
        ready = neighbours[-1].hear()
        assert [tool["name"] for tool in ready["catalog"]["tools"]] == [name, "more"]
    assert neighbours[0].call("first")["result"]["content"][0]["text"] == "first"
    assert neighbours[0].call("second")["kind"] == "failed"
    changed = neighbours[1].call("more")
    assert [tool["name"] for tool in changed["catalog"]["tools"]] == ["second", "more", "new"]
    assert neighbours[1].hear()["event"] == "final"
    assert [neighbour.close() for neighbour in neighbours] == [0, 0]


def test_a_file_is_loaded_anew_each_time(serving: Any, tmp_path: Path) -> None:
    for name in ("one", "another"):
        (tmp_path / "first.py").write_text(f"def {name}(): ...\n")
        neighbour = Neighbour(serving, file=str(tmp_path / "first.py"))
        assert [tool["name"] for tool in neighbour.hear()["catalog"]["tools"]] == [name]
        assert neighbour.close() == 0


def test_a_broken_file_ends_its_thread_alone(serving: Any, tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("raise SystemExit(3)\n")
    neighbour = Neighbour(serving, file=str(tmp_path / "first.py"))
    assert neighbour.hear()["error"].startswith("first.py:1: the file ended the program")
    assert neighbour.close() == 1


@pytest.mark.peers
def test_models_of_pydantic_bring_their_own_schema_and_conversion(
    tmp_path: Path, children: ExitStack
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        textwrap.dedent("""
        from datetime import date
        from typing import Annotated, List, Optional
        from pydantic import BaseModel, EmailStr, Field
        from ostiary import Context, tool
        class Part(BaseModel):
            size: Annotated[int, Field(gt=0)]
        class Thing(BaseModel):
            name: str = Field(alias="Name", description="what it is called")
            parts: List[Part] = []
            day: Optional[date] = None
        class Form(BaseModel):
            who: str = Field(description="your name", min_length=1)
            times: int = 1
        @tool
        def keep(thing: Thing, n: Annotated[int, Field(ge=1, description="how often")] = 1) -> Thing:
            return thing
        @tool
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("Well?", Form)
            return repr(answer.content)
        """),
        "utf-8",
    )
    child = children.enter_context(Child(file, python=str(PEERS)))
    ready = child.hear()
    assert ready["event"] == "ready", ready
    keep = ready["catalog"]["tools"][0]
    properties = keep["inputSchema"]["properties"]
    assert properties["n"] == {"type": "integer", "description": "how often", "minimum": 1, "default": 1}
    assert properties["thing"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert keep["inputSchema"]["$defs"]["Part"]["properties"]["size"]["exclusiveMinimum"] == 0
    assert keep["outputSchema"]["type"] == "object"
    thing = {"Name": "a", "parts": [{"size": 1}], "day": "2026-01-02"}
    assert child.call("keep", {"thing": thing})["structuredContent"] == thing
    wrong = child.call("keep", {"thing": {"Name": "a", "parts": [{"size": "x"}]}})
    assert wrong["isError"]
    assert wrong["content"][0]["text"].startswith(
        "wrong argument: thing.parts.0.size: Input should be a valid integer"
    )
    call = child.start("ask")
    asked = child.hear()
    assert asked["questions"]["ask-1"]["params"]["requestedSchema"] == {
        "type": "object",
        "properties": {
            "who": {"type": "string", "title": "Who", "description": "your name", "minLength": 1},
            "times": {"type": "integer", "title": "Times", "default": 1},
        },
        "required": ["who"],
    }
    answers = {"ask-1": {"action": "accept", "content": {"who": "Ada"}}}
    child.tell({"do": "answer", "id": call, "ask": asked["ask"], "answers": answers})
    assert child.end(call)["result"]["content"][0]["text"] == "Form(who='Ada', times=1)"


@pytest.mark.peers
def test_defaults_that_are_fields_of_pydantic_say_what_they_say_and_the_function_gets_their_value(
    tmp_path: Path, children: ExitStack
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        textwrap.dedent("""
        from typing import List
        from pydantic import Field, HttpUrl
        from ostiary import prompt, tool
        @tool
        def find(
            need: int = Field(ge=1),
            t: str = Field(default="q", description="what to find", max_length=3),
            tags: List[str] = Field(default_factory=lambda: ["a"]),
        ) -> str:
            tags.append(t)
            return repr((need, t, tags))
        @tool
        def fetch(page: HttpUrl) -> str:
            return f"{type(page).__name__} {page.host}"
        @prompt
        def ask(style: str = Field("kind", description="how")) -> str:
            return style
        """),
        "utf-8",
    )
    child = children.enter_context(Child(file, python=str(PEERS)))
    ready = child.hear()
    assert ready["event"] == "ready", ready
    find, fetch = ready["catalog"]["tools"]
    assert find["inputSchema"]["properties"] == {
        "need": {"type": "integer", "minimum": 1},
        "t": {"type": "string", "description": "what to find", "maxLength": 3, "default": "q"},
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
    }
    assert find["inputSchema"]["required"] == ["need"]
    assert child.text("find", {"need": 1}) == child.text("find", {"need": 1}) == "(1, 'q', ['a', 'q'])"
    assert child.text("find", {"need": 1, "t": "x"}) == "(1, 'x', ['a', 'x'])"
    assert fetch["inputSchema"]["properties"]["page"]["format"] == "uri"
    assert child.text("fetch", {"page": "https://a.example/b"}) == "HttpUrl a.example"
    assert child.call("fetch", {"page": "no address"})["isError"]
    (ask,) = ready["catalog"]["prompts"]
    assert ask["arguments"] == [{"name": "style", "description": "how", "required": False}]
    said = child.end(child.send("prompt", name="ask", arguments={}))["result"]["messages"]
    assert said[0]["content"]["text"] == "kind"
