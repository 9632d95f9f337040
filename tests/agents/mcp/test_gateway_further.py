"""Members that are not known here: an upstream's tools, answers and contents keep them on the way to clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw
from upstreams import Caller, Double, Turn, gate, over_tcp, tool

from server.agents.base.backend import PromptGet, ResourceRead
from server.agents.mcp import offer_lists, upstream_results
from server.agents.mcp.resource_addresses import UpstreamAddresses
from server.agents.mcp.trust.definitions import define
from server.client.mcp_session.session_messages import ServerFailure
from server.mcp.messages import FURTHER, Implementation, Tool
from server.mcp.result_encoding import (
    ListResult,
    ReadResourceResult,
    ServerIdentity,
    ToolResult,
    encode_result,
)
from server.mcp.versions import LATEST, REVISIONS, Revision

SERVER = ServerIdentity(Implementation(name="n", version="1"))
EVERY = [LATEST, *(REVISIONS[each] for each in ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"))]
BLOCKS: list[dict[str, Any]] = [
    {
        "type": "text",
        "text": "a",
        "vendor": {"x": [1, None]},
        "annotations": {"priority": 1.0, "color": "red"},
    },
    {"type": "image", "data": "AA==", "mimeType": "image/png", "alt": "nothing"},
    {"type": "resource", "resource": {"uri": "a://1", "text": "b", "etag": "7"}, "collapsed": True},
]


def through(result: Mapping[str, Any], revision: Revision = LATEST) -> dict[str, Any]:
    """Return a result as a client gets it."""
    read = upstream_results.tool_result(Raw(json.dumps(result).encode()))
    return told(read, revision)


def told(result: Any, revision: Revision = LATEST) -> dict[str, Any]:
    given = msgspec.json.decode(encode_result(1, result, revision, SERVER))["result"]
    for key in ("_meta", "resultType", "ttlMs", "cacheScope"):
        given.pop(key, None)
    return given


@pytest.mark.parametrize("revision", EVERY, ids=lambda each: each.version)
def test_an_answer_keeps_them_in_every_revision(revision: Revision) -> None:
    result = {"content": BLOCKS, "isError": False, "vendor": "v", "_meta": {"a/b": 1}}
    assert through(result, revision) == {"content": BLOCKS, "isError": False, "vendor": "v"}


def test_structured_answers_and_failures_keep_them() -> None:
    result = {"content": BLOCKS[:1], "structuredContent": {"n": 1}, "isError": True}
    assert through(result) == result


@pytest.mark.parametrize(
    "block", [{"type": "text", "text": "a"}, {"type": "image", "data": "", "mimeType": "a/b"}]
)
def test_an_answer_without_such_goes_the_short_way(
    block: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(upstream_results, "_open_answer")
    read = upstream_results.tool_result(Raw(json.dumps({"content": [block], "_meta": {"a/b": 1}}).encode()))
    assert read.further is None


@pytest.mark.parametrize(
    "more",
    [
        {"task": {"taskId": "1", "status": "working"}},
        {"inputRequests": {}, "requestState": "x"},
        {"ttlMs": 1, "cacheScope": "public"},
        {"io.ostiary/receipt": "x", "x402/payment": "y", FURTHER: {"text": "z"}},
    ],
)
def test_names_of_the_protocol_and_of_ours_are_none_of_them(more: dict[str, Any]) -> None:
    plain = {"content": [{"type": "text", "text": "a"}], "isError": False}
    assert through({**plain, **more}) == plain
    block = {"type": "text", "text": "a", FURTHER: {"text": "z", "evil": 1}, "io.ostiary/x": 1}
    read = upstream_results.tool_result(Raw(json.dumps({"content": [block]}).encode()))
    assert read.content[0].further is UNSET and told(read) == plain
    inside = {"type": "resource", "resource": {"uri": "a://1", "text": "b", FURTHER: {"text": "z"}}}
    assert FURTHER not in json.dumps(through({"content": [inside]}))


def test_too_many_are_left_out_and_the_answer_goes_on() -> None:
    large = {"type": "text", "text": "a", "vendor": "x" * upstream_results.FURTHER_BYTES}
    assert through({"content": [large], "other": 1}) == {
        "content": [{"type": "text", "text": "a"}],
        "isError": False,
    }


def test_an_answer_that_wants_to_be_paid_keeps_none() -> None:
    wants = {"x402Version": 2, "error": "pay", "accepts": [{"scheme": "exact", "network": "eip155:84532"}]}
    with pytest.raises(ServerFailure):
        through({"content": [], "isError": True, "structuredContent": wants, "vendor": 1})


def test_they_outlive_being_kept() -> None:
    """As a task or a repeated call keeps it."""
    read = upstream_results.tool_result(Raw(json.dumps({"content": BLOCKS, "vendor": 1}).encode()))
    again = msgspec.json.decode(msgspec.json.encode(read), type=ToolResult)
    assert told(again) == {"content": BLOCKS, "isError": False, "vendor": 1}


def test_pages_that_they_name_are_named_as_they_are_here() -> None:
    block = {"type": "text", "text": "a", "view": ["ui://app.html"]}
    read = upstream_results.tool_result(Raw(json.dumps({"content": [block], "view": "ui://b"}).encode()))
    shown = told(UpstreamAddresses("shop").tool_result(read))
    assert (shown["content"][0]["view"], shown["view"]) == (["ui://shop/app.html"], "ui://shop/b")


def library() -> Double:
    async def read(turn: Turn) -> Any:
        return {"contents": [{"uri": "a://1", "text": "b", "etag": "7", FURTHER: {"uri": "z"}}]}

    async def prompt(turn: Turn) -> Any:
        return {"messages": [{"role": "user", "content": BLOCKS[0]}]}

    further = {"securitySchemes": [{"type": "noauth"}], "x402/price": 1}
    hints = {"readOnlyHint": True, "costly": True}
    tools = [
        tool("say", annotations=hints, **further, **{FURTHER: {"inputSchema": {}}}),
        tool("large", vendor="x" * offer_lists.FURTHER_BYTES),
    ]
    return Double(
        capabilities={"tools": {}, "resources": {}, "prompts": {}},
        handlers={"resources/read": read, "prompts/get": prompt},
        lists={
            "tools": tools,
            "resources": [{"uri": "a://1", "name": "r"}],
            "prompts": [{"name": "p"}],
        },
    )


async def test_contents_and_prompts_keep_them() -> None:
    async with over_tcp(library()) as tcp, gate(tcp=tcp) as door:
        asked: dict[str, Any] = {"subject": "ada", "call_id": "c"}
        read = await door.backend.read(ResourceRead(uri="a://1", **asked), Caller())
        assert told(ReadResourceResult(read)) == {"contents": [{"uri": "a://1", "text": "b", "etag": "7"}]}
        prompt = await door.backend.get_prompt(PromptGet(prompt="p", arguments={}, **asked), Caller())
        assert told(prompt) == {"messages": [{"role": "user", "content": BLOCKS[0]}]}


@pytest.mark.parametrize("revision", EVERY, ids=lambda each: each.version)
async def test_a_tool_keeps_them_and_they_are_part_of_what_is_accepted(revision: Revision) -> None:
    async with over_tcp(library()) as tcp, gate(tcp=tcp, id="shop") as door:
        (kept,) = door.backend.tools()
        assert any("large" in each and "KiB" in each for each in door.backend.left_out())
        (shown,) = told(ListResult("tools", [kept]), revision)["tools"]
        assert shown["securitySchemes"] == [{"type": "noauth"}]
        assert shown["annotations"]["costly"] is True and shown["name"] == "shop__say"
        assert FURTHER not in shown and "x402/price" not in shown
        if revision.annotations:
            assert shown["annotations"] == {"readOnlyHint": True, "costly": True}


def test_a_changed_member_is_another_definition_and_a_tool_without_such_is_what_it_was() -> None:
    plain = Tool(name="a", input_schema={})
    open_tools = [
        msgspec.structs.replace(plain, further={"securitySchemes": [{"type": each}]})
        for each in ("noauth", "oauth2")
    ]
    texts = {define("tool", "a", each).text for each in (plain, *open_tools)}
    assert len(texts) == 3 and '{"inputSchema":{},"name":"a"}' in texts
