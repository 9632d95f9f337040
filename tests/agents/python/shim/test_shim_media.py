"""Files and bytes in answers, and answers that are structured whatever their type."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from shim_child import Child, Serve

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)

TOOLS = """
from __future__ import annotations
import os, pathlib
from dataclasses import dataclass
from typing import Any, Literal, Optional, Union
from ostiary import *

HERE = pathlib.Path(__file__).parent

@tool
def image():
    return Image(path=HERE / "a.bin")

@tool
def svg():
    return Image(path=str(HERE / "drawing.svg"))

@tool
def sound():
    return [Audio(path=HERE / "voice.opus"), "listen"]

@tool
def text_file():
    return File(HERE / "notes.md")

@tool
def blob():
    return File(data=b"%PDF", name="my report.pdf")

@tool
def said():
    return File(data="a,b", name="x.csv")

@tool
def not_text():
    return File(data=b"\\xff", name="x.txt")

@tool
def raw_png() -> bytes:
    return (HERE / "a.bin").read_bytes()

@tool
def raw() -> bytes:
    return b"\\x00\\x01"

@tool
def large():
    return File(HERE / "large.bin")

@tool
def pipe():
    return File(HERE / "pipe")

@tool
def neither():
    return Image()

@tool
def both():
    return Image(b"", path="x")

@resource("test://file")
def read_file():
    return File(HERE / "notes.md")

@dataclass
class Point:
    x: int

@tool(structured=True)
def number() -> int:
    return 5

@tool(structured=True)
async def words() -> list[str]:
    return ["a", "b"]

@tool(structured=True)
def maybe(there: bool) -> Optional[str]:
    return "x" if there else None

@tool(structured=True)
def either(text: bool) -> Union[str, Point]:
    return "x" if text else Point(1)

@tool(structured=True)
def point() -> Point:
    return Point(2)

@tool(structured=True)
def by_hand() -> int:
    return Result("five", structured=5)

@tool(structured=True)
def nothing() -> None:
    pass

@tool
def plain() -> int:
    return 5

defaults(structured=True)

@tool
def settled() -> bool:
    return True

@tool
def mixed() -> list[Union[str, Image]]:
    return ["x"]

@tool(structured=False)
def unlike() -> int:
    return 5
"""


@pytest.fixture
def child(serve: Serve, tmp_path: Path) -> Child:
    (tmp_path / "a.bin").write_bytes(PNG)
    (tmp_path / "drawing.svg").write_bytes(b"<svg/>")
    (tmp_path / "voice.opus").write_bytes(b"....")
    (tmp_path / "notes.md").write_text("# é", "utf-8")
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(6_000_001)
    os.mkfifo(tmp_path / "pipe")
    return serve(TOOLS)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


SENT: dict[str, list[dict[str, Any]]] = {
    "image": [{"type": "image", "data": b64(PNG), "mimeType": "image/png"}],
    "svg": [{"type": "image", "data": b64(b"<svg/>"), "mimeType": "image/svg+xml"}],
    "sound": [
        {"type": "audio", "data": b64(b"...."), "mimeType": "audio/opus"},
        {"type": "text", "text": "listen"},
    ],
    "text_file": [
        {
            "type": "resource",
            "resource": {"uri": "file:///notes.md", "mimeType": "text/markdown", "text": "# é"},
        }
    ],
    "blob": [
        {
            "type": "resource",
            "resource": {
                "uri": "file:///my%20report.pdf",
                "mimeType": "application/pdf",
                "blob": b64(b"%PDF"),
            },
        }
    ],
    "said": [
        {"type": "resource", "resource": {"uri": "file:///x.csv", "mimeType": "text/csv", "text": "a,b"}}
    ],
    "not_text": [
        {
            "type": "resource",
            "resource": {"uri": "file:///x.txt", "mimeType": "text/plain", "blob": b64(b"\xff")},
        }
    ],
    "raw_png": [{"type": "image", "data": b64(PNG), "mimeType": "image/png"}],
    "raw": [
        {
            "type": "resource",
            "resource": {
                "uri": "file:///data.bin",
                "mimeType": "application/octet-stream",
                "blob": b64(b"\x00\x01"),
            },
        }
    ],
}
REFUSED = {
    "large": "ValueError: large.bin has more than 6 MB, the most that goes into an answer: return a Link to it",
    "pipe": "ValueError: pipe is no ordinary file",
    "neither": "ValueError: Image takes either data or path=",
    "both": "ValueError: Image takes either data or path=",
}
STRUCTURED: list[tuple[str, dict[str, Any], Any, list[str]]] = [
    ("number", {}, {"result": 5}, ["5"]),
    ("words", {}, {"result": ["a", "b"]}, ["a", "b"]),
    ("maybe", {"there": True}, {"result": "x"}, ["x"]),
    ("maybe", {"there": False}, {"result": None}, []),
    ("either", {"text": True}, {"result": "x"}, ["x"]),
    ("either", {"text": False}, {"result": {"x": 1}}, ['{"x": 1}']),
    ("point", {}, {"x": 2}, ['{"x": 2}']),
    ("by_hand", {}, {"result": 5}, ["five"]),
    ("settled", {}, {"result": True}, ["true"]),
    ("nothing", {}, ..., []),
    ("plain", {}, ..., ["5"]),
    ("mixed", {}, ..., ["x"]),
    ("unlike", {}, ..., ["5"]),
]


def test_files_and_bytes_are_content(child: Child) -> None:
    for name, content in SENT.items():
        assert child.call(name)["content"] == content, name
    read = child.end(child.send("read", uri="test://file", template=None, arguments={}))
    assert read["result"]["contents"] == [
        {"uri": "file:///notes.md", "mimeType": "text/markdown", "text": "# é"}
    ]


def test_what_is_no_file_or_too_much_is_refused_in_words(child: Child) -> None:
    for name, words in REFUSED.items():
        assert child.end(child.start(name))["message"] == words, name


def test_what_is_structured_has_its_text_beside_it(child: Child) -> None:
    for name, arguments, structured, texts in STRUCTURED:
        result = child.call(name, arguments)
        assert result.get("structuredContent", ...) == structured, name
        assert [block["text"] for block in result["content"]] == texts, name


def test_a_structured_answer_has_its_schema(tmp_path: Path, serve: Serve, children: Any) -> None:
    file = tmp_path / "another.py"
    file.write_text(TOOLS, "utf-8")
    (tmp_path / "a.bin").write_bytes(PNG)
    ready = children.enter_context(Child(file)).hear()
    schemas = {tool["name"]: tool.get("outputSchema") for tool in ready["catalog"]["tools"]}
    wrapped = {"type": "object", "required": ["result"]}
    assert schemas["number"] == {**wrapped, "properties": {"result": {"type": "integer"}}}
    assert schemas["maybe"] == {
        **wrapped,
        "properties": {"result": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    }
    assert schemas["settled"] == {**wrapped, "properties": {"result": {"type": "boolean"}}}
    assert schemas["point"]["required"] == ["x"]
    for name in ("plain", "mixed", "unlike", "nothing", "raw"):
        assert schemas[name] is None, name


def test_a_type_without_a_form_in_json_cannot_be_structured(tmp_path: Path, children: Any) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        "from ostiary import Image, tool\n@tool(structured=True)\ndef f() -> list[Image]: ...\n", "utf-8"
    )
    broken = children.enter_context(Child(file)).hear()
    assert broken["event"] == "broken"
    assert "the type Image has no form in JSON" in broken["error"]
