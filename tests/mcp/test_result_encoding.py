"""One result, five revisions: what each gets to see of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.mcp.errors import UnsupportedVersion
from server.mcp.messages import (
    AudioContent,
    EmbeddedResource,
    Icon,
    ImageContent,
    Implementation,
    Prompt,
    PromptArgument,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
)
from server.mcp.result_encoding import (
    CompletionResult,
    DiscoverResult,
    EmptyResult,
    InitializeResult,
    ListenResult,
    ListResult,
    Offers,
    PromptResult,
    RawResult,
    ReadResourceResult,
    Result,
    ServerIdentity,
    ToolResult,
    encode_error,
    encode_notification,
    encode_progress,
    encode_result,
)
from server.mcp.versions import REVISIONS, Revision

INFO = Implementation(
    name="n", version="1", title="T", description="D", icons=[Icon(src="https://a.example/i.png")]
)
SERVER = ServerIdentity(INFO)
ALL = tuple(REVISIONS.values())
LEGACY = tuple(revision for revision in ALL if not revision.modern)
MODERN = REVISIONS["2026-07-28"]
EVERYTHING = Offers(resources=True, prompts=True, completions=True, logging=True, tasks=True)
RESULTS: tuple[Result, ...] = (
    EmptyResult(),
    InitializeResult(EVERYTHING),
    DiscoverResult(EVERYTHING),
    ListResult("tools", []),
    ListResult("prompts", [], "next"),
    ListResult("resources", []),
    ListResult("resourceTemplates", []),
    ReadResourceResult([ResourceContents(uri="a:b", text="t")]),
    PromptResult([PromptMessage(role="user", content=TextContent(text="x"))], "d"),
    CompletionResult(["a"], 1, False),
    RawResult({"taskId": "t"}),
    ToolResult(content=[]),
    ToolResult(content=[], is_error=True, meta={"k": 1}),
    ListenResult(0),
)


def encoded(result: Result, revision: Revision) -> Any:
    message = json.loads(encode_result("id", result, revision, SERVER))
    assert message.keys() == {"jsonrpc", "id", "result"}
    assert (message["jsonrpc"], message["id"]) == ("2.0", "id")
    return message["result"]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_modern_results_say_what_they_are_and_who_sent_them_and_legacy_results_do_not(result: Result) -> None:
    modern = encoded(result, MODERN)
    assert modern["resultType"] == "complete"
    assert modern["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "n"
    for revision in LEGACY:
        legacy = encoded(result, revision)
        assert not {"resultType", "ttlMs", "cacheScope"} & legacy.keys()
        assert "io.modelcontextprotocol/serverInfo" not in legacy.get("_meta", {})


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_only_what_may_be_kept_says_for_how_long(result: Result) -> None:
    cacheable = isinstance(result, ListResult | DiscoverResult | ReadResourceResult)
    modern = encoded(result, MODERN)
    assert ("ttlMs" in modern) is ("cacheScope" in modern) is cacheable


@pytest.mark.requirement("tools.fields")
def test_a_tool_is_listed_with_what_the_revision_knows() -> None:
    tool = Tool(
        name="t",
        title="T",
        description="D",
        icons=[Icon(src="https://a.example/i.png")],
        input_schema={"type": "object"},
        output_schema={"type": "object"},
        annotations=ToolAnnotations(read_only_hint=True),
    )
    always = {"name", "description", "inputSchema"}
    expected = {
        "2024-11-05": always,
        "2025-03-26": always | {"annotations"},
        "2025-06-18": always | {"annotations", "title", "outputSchema"},
        "2025-11-25": always | {"annotations", "title", "outputSchema", "icons"},
        "2026-07-28": always | {"annotations", "title", "outputSchema", "icons"},
    }
    assert {
        version: set(encoded(ListResult("tools", [tool]), REVISIONS[version])["tools"][0])
        for version in expected
    } == expected


@pytest.mark.requirement("tools.fields")
def test_an_output_schema_that_is_no_object_is_for_the_revision_that_allows_it() -> None:
    tool = Tool(name="t", input_schema={"type": "object"}, output_schema={"type": "array"})
    having = [
        revision.version
        for revision in ALL
        if "outputSchema" in encoded(ListResult("tools", [tool]), revision)["tools"][0]
    ]
    assert having == ["2026-07-28"]


@pytest.mark.requirement("tools.structured")
@pytest.mark.requirement("tools.structured-older")
@pytest.mark.parametrize(
    ("structured", "versions"),
    [
        ({"a": 1}, ["2025-06-18", "2025-11-25", "2026-07-28"]),
        ([1], ["2026-07-28"]),
        (None, ["2026-07-28"]),
        (0, ["2026-07-28"]),
    ],
)
def test_structured_content_is_sent_where_its_kind_is_known(structured: Any, versions: list[str]) -> None:
    result = ToolResult(content=[], structured=structured)
    assert [r.version for r in ALL if "structuredContent" in encoded(result, r)] == versions
    assert encoded(result, MODERN)["structuredContent"] == structured


@pytest.mark.requirement("tools.content")
def test_kinds_of_content_that_a_revision_lacks_become_text() -> None:
    result = ToolResult(
        content=[
            TextContent(text="x"),
            ImageContent(data="", mime_type="image/png"),
            AudioContent(data="", mime_type="audio/wav"),
            EmbeddedResource(resource=ResourceContents(uri="a:b", text="t")),
            ResourceLink(uri="a:b", name="n"),
        ]
    )
    kinds = {r.version: [block["type"] for block in encoded(result, r)["content"]] for r in ALL}
    everything = ["text", "image", "audio", "resource", "resource_link"]
    assert kinds == {
        "2024-11-05": ["text", "image", "text", "resource", "text"],
        "2025-03-26": ["text", "image", "audio", "resource", "text"],
        "2025-06-18": everything,
        "2025-11-25": everything,
        "2026-07-28": everything,
    }
    assert encoded(result, REVISIONS["2025-03-26"])["content"][4]["text"] == "n: a:b"


@pytest.mark.requirement("tools.content")
def test_a_link_has_its_icons_where_the_revision_has_icons() -> None:
    link = ResourceLink(uri="a:b", name="n", title="T", icons=[Icon(src="https://a.example/i.png")])
    bare = ResourceLink(uri="a:b", name="n", title="T")
    having = ["2025-11-25", "2026-07-28"]
    for revision in ALL:
        tool = encoded(ToolResult(content=[link, bare]), revision)["content"]
        message = PromptMessage(role="user", content=link)
        prompt = encoded(PromptResult([message]), revision)["messages"][0]["content"]
        assert ("icons" in tool[0]) is ("icons" in prompt) is (revision.version in having)
        assert "icons" not in tool[1]
        if revision.structured:
            assert {**tool[0], "icons": None} == {**prompt, "icons": None} == {**tool[1], "icons": None}


def test_a_prompts_arguments_have_titles_where_the_revision_has_titles() -> None:
    arguments = [PromptArgument(name="a", title="A", description="D", required=True)]
    prompts = [Prompt(name="p", title="P", arguments=arguments), Prompt(name="q")]
    for revision in ALL:
        listed = encoded(ListResult("prompts", prompts), revision)["prompts"]
        (argument,) = listed[0]["arguments"]
        titled = revision.version >= "2025-06-18"
        assert ("title" in argument) is ("title" in listed[0]) is titled
        assert argument == {"name": "a", "description": "D", "required": True} | (
            {"title": "A"} if titled else {}
        )
        assert listed[1] == {"name": "q"}


@pytest.mark.requirement("server.fields")
def test_the_servers_name_is_given_as_the_revision_knows_it() -> None:
    keys = {r.version: set(encoded(InitializeResult(EVERYTHING), r)["serverInfo"]) for r in LEGACY}
    assert keys["2024-11-05"] == keys["2025-03-26"] == {"name", "version"}
    assert keys["2025-06-18"] == {"name", "version", "title"}
    assert keys["2025-11-25"] == {"name", "version", "title", "description", "icons"}


@given(st.integers() | st.text(st.characters(exclude_categories=["Cs"])))
def test_a_subscription_ends_under_its_own_id(subscription_id: Any) -> None:
    meta = encoded(ListenResult(subscription_id), MODERN)["_meta"]
    assert meta["io.modelcontextprotocol/subscriptionId"] == subscription_id


def test_a_result_adds_its_own_metadata_to_the_servers() -> None:
    meta = encoded(ToolResult(content=[], meta={"com.example/k": 1}), MODERN)["_meta"]
    assert meta.keys() == {"com.example/k", "io.modelcontextprotocol/serverInfo"}


@pytest.mark.requirement("meta.errors-plain")
def test_an_error_has_an_id_when_the_request_had_one_and_data_when_there_is_any() -> None:
    error = UnsupportedVersion("2099-01-01", ["2026-07-28"])
    with_id = json.loads(encode_error(0, error, MODERN))
    assert with_id == {
        "jsonrpc": "2.0",
        "id": 0,
        "error": {
            "code": -32022,
            "message": "unsupported protocol version",
            "data": {"supported": ["2026-07-28"], "requested": "2099-01-01"},
        },
    }
    assert "id" not in json.loads(encode_error(None, error, MODERN))


def test_notifications_have_no_id() -> None:
    assert json.loads(encode_notification("n/x", {"a": 1})) == {
        "jsonrpc": "2.0",
        "method": "n/x",
        "params": {"a": 1},
    }
    progress = json.loads(encode_progress(0, MODERN, progress=0, total=None, message=None))
    assert progress["params"] == {"progressToken": 0, "progress": 0}
