"""What functions return, as a client gets it: through a real child, and decoded as the server decodes it."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from shim_child import Serve

from server.mcp.messages import Content, PromptMessage, ResourceContents

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()

TOOLS = """
from __future__ import annotations
import base64, datetime as dt, enum
from dataclasses import dataclass
from typing import NamedTuple, TypedDict
from ostiary import *

PNG = b"\\x89PNG\\r\\n\\x1a\\n" + b"0" * 20

@dataclass
class Day:
    date: dt.date
    hot: bool = False

class Pair(TypedDict):
    a: int
    b: list[int]

class Spot(NamedTuple):
    x: int

class Kind(enum.Enum):
    A = "a"

@tool
def nothing(): ...
@tool
def text() -> str: return "text"
@tool
def number() -> float: return 1.5
@tool
def yes() -> bool: return True
@tool
def kind(): return Kind.A
@tool
def image() -> Image: return Image(PNG)
@tool
def said_image(): return Image(base64.b64encode(b"x").decode(), "image/x-icon", annotations={"audience": ["user"], "priority": 0.5, "last_modified": "2026-01-01T00:00:00Z"}, meta={"a": 1})
@tool
def formatted(): return [Image(data=b"?", format="PNG"), Audio(b"?", format="wav"), File(data=b"\\xff", name="a", format="pdf")]
@tool
def audio(): return Audio(b"RIFF0000WAVEfmt ")
@tool
def embedded(): return Embedded("test://e", text="inside", mime_type="text/plain", annotations={"priority": 1})
@tool
def blob(): return Embedded("test://b", blob=b"hi")
@tool
def link(): return Link("test://l", "l", title="L", description="d", mime_type="text/plain", size=3, icons=["https://example.org/i.png"])
@tool
def several(): return ["first", Image(PNG), Text("last", meta={"k": "v"})]
@tool
def words() -> list[str]: return ["a", "b"]
@tool
def day() -> Day: return Day(dt.date(2026, 1, 2))
@tool
def days() -> list[Day]: return [Day(dt.date(2026, 1, 2), True)]
@tool
def no_days() -> list[Day]: return []
@tool
def pair() -> Pair: return {"a": 1, "b": [2]}
@tool
def loose(): return {"when": dt.date(2026, 1, 2), 1: {3}, "spot": Spot(1), "umlaut": "ü"}
@tool
def numbers(): return [1, 2]
@tool
def whole(): return Result(["a", Text("b")], structured={"c": 1}, is_error=True, meta={"d": 2})
@tool
def only_structured(): return Result(structured={"c": 1})
@tool(output_schema={"type": "array", "items": {"type": "string"}})
def own(): return ["a"]
@tool(output_schema={"type": "integer"})
def own_number(): return 3
@tool
def failed(): raise ToolFailure("no luck")
@tool
def raw(): return b"bytes"
@tool
def unknown(): return object()
@tool
def not_a_number() -> dict: return {"x": float("nan")}
@tool
def itself():
    found = []
    found.append(found)
    return found
@tool
def unknown_image(): return Image(b"?")
@tool
def bad_base64(): return Image("not base64", "image/png")
@tool
def refused(): raise ProtocolError("odd", -32001, {"why": "because"})
@tool
def cannot(): raise CannotAsk("no way")
@tool
def takes(day: Day) -> str: return "fine"
@tool
async def letters():
    yield "a"; yield "b"; yield Image(PNG); yield Progress(9, 10); yield "c"
@tool
def counted():
    yield "working"
    return {"n": 1}
@tool
async def ended():
    yield "working"
    yield Result("the end")
    raise AssertionError("not run")
@tool
def yields_wrong():
    yield 3
"""


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


RESULTS: dict[str, dict[str, Any]] = {
    "nothing": {"content": []},
    "text": {"content": [text_block("text")]},
    "number": {"content": [text_block("1.5")]},
    "yes": {"content": [text_block("true")]},
    "image": {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]},
    "formatted": {"content": [
        {"type": "image", "data": "Pw==", "mimeType": "image/png"},
        {"type": "audio", "data": "Pw==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "application/pdf", "blob": "/w=="}},
    ]},
    "said_image": {"content": [{
        "type": "image", "data": "eA==", "mimeType": "image/x-icon", "_meta": {"a": 1},
        "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
    }]},
    "audio": {"content": [{"type": "audio", "data": base64.b64encode(b"RIFF0000WAVEfmt ").decode(), "mimeType": "audio/wav"}]},
    "embedded": {"content": [{"type": "resource", "resource": {"uri": "test://e", "mimeType": "text/plain", "text": "inside"}, "annotations": {"priority": 1}}]},
    "blob": {"content": [{"type": "resource", "resource": {"uri": "test://b", "blob": "aGk="}}]},
    "link": {"content": [{
        "type": "resource_link", "uri": "test://l", "name": "l", "title": "L", "description": "d",
        "mimeType": "text/plain", "size": 3, "icons": [{"src": "https://example.org/i.png"}],
    }]},
    "several": {"content": [text_block("first"), {"type": "image", "data": PNG, "mimeType": "image/png"}, {**text_block("last"), "_meta": {"k": "v"}}]},
    "words": {"content": [text_block("a"), text_block("b")]},
    "day": {"content": [text_block('{"date": "2026-01-02", "hot": false}')], "structuredContent": {"date": "2026-01-02", "hot": False}},
    "days": {"content": [text_block('{"result": [{"date": "2026-01-02", "hot": true}]}')], "structuredContent": {"result": [{"date": "2026-01-02", "hot": True}]}},
    "no_days": {"content": [text_block('{"result": []}')], "structuredContent": {"result": []}},
    "pair": {"content": [text_block('{"a": 1, "b": [2]}')], "structuredContent": {"a": 1, "b": [2]}},
    "loose": {
        "content": [text_block('{"when": "2026-01-02", "1": [3], "spot": {"x": 1}, "umlaut": "ü"}')],
        "structuredContent": {"when": "2026-01-02", "1": [3], "spot": {"x": 1}, "umlaut": "ü"},
    },
    "numbers": {"content": [text_block('{"result": [1, 2]}')], "structuredContent": {"result": [1, 2]}},
    "whole": {"content": [text_block("a"), text_block("b")], "structuredContent": {"c": 1}, "isError": True, "_meta": {"d": 2}},
    "only_structured": {"content": [text_block('{"c": 1}')], "structuredContent": {"c": 1}},
    "own": {"content": [text_block('["a"]')], "structuredContent": ["a"]},
    "own_number": {"content": [text_block("3")], "structuredContent": 3},
    "failed": {"content": [text_block("no luck")], "isError": True},
    "letters": {"content": [text_block("ab"), {"type": "image", "data": PNG, "mimeType": "image/png"}, text_block("c")]},
    "counted": {"content": [text_block('{"n": 1}')], "structuredContent": {"n": 1}},
    "ended": {"content": [text_block("the end")]},
}  # fmt: skip

FAILURES = {
    "unknown": "TypeError: a value of type object cannot be turned into JSON",
    "not_a_number": "ValueError: Out of range float values are not JSON compliant",
    "itself": "TypeError: a value nested this deeply (or in itself) cannot be sent",
    "unknown_image": "ValueError: what kind of image is this? Say it: mime_type='image/…'",
    "bad_base64": "ValueError: text given as data must be base64; for other data, give bytes",
    "yields_wrong": "TypeError: a generator yields text, content, Progress or Result, not int",
}


def test_every_kind_of_return_value_becomes_the_result_that_a_client_expects(serve: Serve) -> None:
    child = serve(TOOLS)
    for name, expected in RESULTS.items():
        result = child.call(name)
        assert result == expected, name
        msgspec.convert(result["content"], list[Content])
    assert child.call("kind")["content"] == [text_block("a")]


def test_what_is_no_answer_fails_with_what_to_return_instead(serve: Serve) -> None:
    child = serve(TOOLS)
    for name, message in FAILURES.items():
        event = child.end(child.start(name))
        assert (event["kind"], event["message"].partition(": nan")[0]) == ("failed", message), name
    assert child.end(child.start("refused")) | {"id": 0} == {
        "event": "error", "kind": "protocol", "message": "odd", "code": -32001, "data": {"why": "because"}, "id": 0,
    }  # fmt: skip
    refused = child.end(child.start("cannot"))
    assert (refused["kind"], refused["message"]) == ("refused", "no way")


def test_an_argument_that_fits_the_schema_and_not_the_type_is_an_error_the_model_can_read(
    serve: Serve,
) -> None:
    child = serve(TOOLS)
    result = child.call("takes", {"day": {"date": "tomorrow"}})
    assert result == {"content": [text_block("wrong argument: day.date: not a date")], "isError": True}


def test_what_generators_yield_is_shown_as_progress_while_they_run(serve: Serve) -> None:
    child = serve(TOOLS)
    call = child.start("letters", progress=True)
    seen = [child.hear() for _ in range(4)]
    assert [(event["progress"], event.get("total"), event.get("message")) for event in seen] == [
        (1, None, "a"), (2, None, "b"), (9, 10, None), (10, None, "c"),
    ]  # fmt: skip
    assert child.end(call)["result"] == RESULTS["letters"]
    call = child.start("counted", progress=True)
    assert child.hear()["message"] == "working"
    assert child.end(call)["result"] == RESULTS["counted"]


LIBRARY = """
from __future__ import annotations
import enum
from typing import Literal
from ostiary import *

class Size(enum.Enum):
    S = "small"
    L = "large"

@resource("test://text", name="static", title="T", mime_type="text/markdown", size=3, annotations={"priority": 1})
def text() -> str:
    "A text."
    return "# hi"
@resource("test://bytes")
async def some_bytes() -> bytes: return b"\\x89PNG\\r\\n\\x1a\\n"
@resource("test://json")
def json_(): return {"a": [1]}
@resource("test://parts")
def parts(): return ["a", b"b", Embedded("test://other", text="c"), Text("d", meta={"k": 1}), Image(b"GIF89a")]
@resource("test://linked")
def linked(): return Link("test://x", "x")
@resource("note://{owner}/{number}", mime_type="application/json")
async def note(owner: str, number: int, ctx: Context):
    if number == 404: raise NotFound("no such note")
    if number == 500: return None
    if number == 501: raise NotFound
    return {"owner": owner, "number": number, "for": ctx.subject}
@resource("q://{+path}{?size,deep*}")
def query(path, size: Size = Size.S, deep: str = ""): return f"{path} {size.name} {deep}"

@prompt
def simple() -> str:
    "Says hello."
    return "hello"
@prompt(name="talk", title="Talk", icons=[{"src": "data:,", "mime_type": "image/png"}])
def talk(mood: Literal["good", "bad"], times: int = 1):
    return [user("hi", Image(b"GIF89a")), assistant(mood * times), "raw", {"role": "assistant", "content": Text("x")}]
@prompt
async def broken(): raise ToolFailure("not today")
@completion("talk", "times")
def times(value: str, known: dict): return [n for n in map(str, range(1, 500)) if n.startswith(value)] + [known.get("mood", "?")]
@completion("note://{owner}/{number}", "owner")
async def owners(typed, ctx: Context): return (name for name in ("ada", "bob") if name.startswith(typed))
"""


def test_resources_are_read_as_text_bytes_json_and_in_parts(serve: Serve) -> None:
    child = serve(LIBRARY)

    def read(uri: str, template: str | None = None, **arguments: str) -> dict[str, Any]:
        return child.end(child.send("read", uri=uri, template=template, arguments=arguments))

    def contents(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        found = read(*args, **kwargs)["result"]["contents"]
        msgspec.convert(found, list[ResourceContents])
        return found

    assert contents("test://text") == [{"uri": "test://text", "mimeType": "text/markdown", "text": "# hi"}]
    assert contents("test://bytes") == [
        {"uri": "test://bytes", "mimeType": "image/png", "blob": "iVBORw0KGgo="}
    ]
    assert contents("test://json") == [{"uri": "test://json", "mimeType": "application/json", "text": '{"a": [1]}'}]  # fmt: skip
    assert contents("test://parts") == [
        {"uri": "test://parts", "mimeType": "text/plain", "text": "a"},
        {"uri": "test://parts", "mimeType": "application/octet-stream", "blob": "Yg=="},
        {"uri": "test://other", "text": "c"},
        {"uri": "test://parts", "mimeType": "text/plain", "text": "d", "_meta": {"k": 1}},
        {"uri": "test://parts", "mimeType": "image/gif", "blob": base64.b64encode(b"GIF89a").decode()},
    ]
    assert (
        read("test://linked")["message"]
        == "TypeError: a resource cannot be a Link: return text, bytes or Embedded"
    )
    note = "note://{owner}/{number}"
    assert contents("note://ada/7", note, owner="ada", number="7") == [
        {
            "uri": "note://ada/7",
            "mimeType": "application/json",
            "text": '{"owner": "ada", "number": 7, "for": "ada"}',
        }
    ]
    for number in ("404", "500", "seven"):
        assert read(f"note://ada/{number}", note, owner="ada", number=number)["kind"] == "not_found"
    assert read("test://gone")["kind"] == "not_found"
    query = "q://{+path}{?size,deep*}"
    assert contents("q://a/b?size=large", query, path="a/b", size="large")[0]["text"] == "a/b L "


def test_prompts_are_messages_of_both_sides_and_their_arguments_are_converted(serve: Serve) -> None:
    child = serve(LIBRARY)

    def get(prompt: str, **arguments: str) -> dict[str, Any]:
        return child.end(child.send("prompt", name=prompt, arguments=arguments))

    assert get("simple")["result"] == {
        "description": "Says hello.",
        "messages": [{"role": "user", "content": text_block("hello")}],
    }
    talk = get("talk", mood="bad", times="2")["result"]
    image = {"type": "image", "data": base64.b64encode(b"GIF89a").decode(), "mimeType": "image/gif"}
    assert talk["messages"] == [
        {"role": "user", "content": text_block("hi")},
        {"role": "user", "content": image},
        {"role": "assistant", "content": text_block("badbad")},
        {"role": "user", "content": text_block("raw")},
        {"role": "assistant", "content": text_block("x")},
    ]
    msgspec.convert(talk["messages"], list[PromptMessage])
    for arguments, problem in (
        ({"mood": "odd"}, "mood: not one of good, bad"),
        ({}, "mood: missing"),
        ({"mood": "bad", "x": "1"}, "x: unknown"),
    ):
        wrong = get("talk", **arguments)
        assert (wrong["kind"], wrong["message"]) == ("bad_arguments", f"wrong argument: {problem}")
    failed = get("broken")
    assert (failed["kind"], failed["message"]) == ("failed", "not today")


def test_completions_come_from_their_function_or_from_the_choices_of_a_hint(serve: Serve) -> None:
    child = serve(LIBRARY)

    def complete(name: str, argument: str, value: str, **known: str) -> dict[str, Any]:
        ref = "resource" if "{" in name else "prompt"
        return child.end(
            child.send("complete", ref=ref, name=name, argument=argument, value=value, known=known)
        )

    many = complete("talk", "times", "", mood="bad")["result"]
    assert len(many["values"]) == 100
    assert (many["total"], many["hasMore"]) == (500, True)
    assert complete("talk", "times", "499", mood="bad")["result"] == {"values": ["499", "bad"], "total": 2, "hasMore": False}  # fmt: skip
    assert complete("note://{owner}/{number}", "owner", "a")["result"]["values"] == ["ada"]
    assert complete("talk", "mood", "g")["result"]["values"] == ["good"]
    assert complete("q://{+path}{?size,deep*}", "size", "")["result"]["values"] == ["small", "large"]
    assert complete("note://{owner}/{number}", "number", "1")["result"]["values"] == []
    assert complete("talk", "nothing", "")["kind"] == "bad_arguments"


def test_what_has_choices_is_listed_as_what_can_be_completed(tmp_path: Any) -> None:
    from shim_child import Child

    file = tmp_path / "agent.py"
    file.write_text(LIBRARY, "utf-8")
    with Child(file) as child:
        catalog = child.hear()["catalog"]
    assert catalog["completes"] == [
        ["prompt", "talk"],
        ["resource", "note://{owner}/{number}"],
        ["resource", "q://{+path}{?size,deep*}"],
    ]


def test_a_choice_that_is_no_variable_of_a_template_cannot_be_completed(tmp_path: Any) -> None:
    from shim_child import Child

    file = tmp_path / "agent.py"
    file.write_text(
        "from typing import Literal\n"
        "from ostiary import prompt, resource\n"
        "@resource('test://{id}')\n"
        "def item(id: str, how: Literal['a', 'b'] = 'a'): ...\n"
        "@resource('test://plain')\n"
        "def plain(how: Literal['a', 'b'] = 'a'): ...\n"
        "@prompt\n"
        "def review(code: str, style: Literal['short', 'long'] = 'short'): ...\n",
        "utf-8",
    )
    with Child(file) as child:
        assert child.hear()["catalog"]["completes"] == [["prompt", "review"]]


def test_what_is_not_found_is_told_in_the_authors_words_or_in_none(serve: Serve) -> None:
    child = serve(LIBRARY)
    note = "note://{owner}/{number}"

    def message(number: str) -> str:
        arguments = {"owner": "ada", "number": number}
        return child.end(child.send("read", uri=f"note://ada/{number}", template=note, arguments=arguments))[
            "message"
        ]

    assert message("404") == "no such note"
    assert message("500") == ""
    assert message("501") == ""
    assert message("seven") == "wrong argument: number: not a whole number"


@pytest.mark.parametrize("what", ["resources", "resourceTemplates", "prompts", "completes"])
def test_the_library_is_listed(serve: Serve, tmp_path: Any, what: str) -> None:
    from contextlib import ExitStack

    from shim_child import Child

    serve(LIBRARY)
    with ExitStack() as stack:
        catalog = stack.enter_context(Child(tmp_path / "agent.py")).hear()["catalog"]
    expected: dict[str, Any] = {
        "resources": {
            "uri": "test://text", "name": "static", "title": "T", "description": "A text.",
            "mimeType": "text/markdown", "size": 3, "annotations": {"priority": 1},
        },
        "resourceTemplates": {"uriTemplate": "note://{owner}/{number}", "name": "note", "mimeType": "application/json"},
        "prompts": {"name": "simple", "description": "Says hello."},
        "completes": ["prompt", "talk"],
    }  # fmt: skip
    assert catalog[what][0] == expected[what]
