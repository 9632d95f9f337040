"""One call of each method, in each era, as a client sees it."""

from __future__ import annotations

import pytest

from tests.interaction.agents import house
from tests.pair import MODERN, legacy, modern

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ECHO = {"name": "echo", "arguments": {"text": "hello"}}
SERVER_INFO = {"name": "house", "version": "1.2.3", "title": "House", "description": "For tests"}


@pytest.mark.requirement("http.json-or-stream", era="modern")
@pytest.mark.requirement("http.version-on-answers", era="modern")
async def test_a_modern_call_is_answered_with_json_that_names_the_server() -> None:
    answer = await house().pair.modern("tools/call", ECHO)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "content": [{"type": "text", "text": "hello"}],
            "isError": False,
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO},
        },
    }


@pytest.mark.requirement("http.json-or-stream", era="legacy")
@pytest.mark.requirement("meta.legacy-clean", era="legacy", transport="http")
@pytest.mark.parametrize("version", LEGACY)
async def test_a_legacy_call_is_answered_without_any_modern_field(version: str) -> None:
    answer = await house().pair.legacy("tools/call", ECHO, version=version)
    assert answer.status == 200
    assert answer.json["result"] == {"content": [{"type": "text", "text": "hello"}], "isError": False}


@pytest.mark.requirement("era.without-session")
async def test_a_bare_tools_list_is_answered_as_the_revision_without_version_headers() -> None:
    answer = await house().pair.legacy("tools/list")
    assert answer.headers["mcp-protocol-version"] == "2025-03-26"
    tools = answer.json["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["echo", "clock", "countdown"]
    assert not any("title" in tool or "outputSchema" in tool for tool in tools)
    assert all("annotations" in tool for tool in tools)


async def test_the_modern_list_has_every_field_and_says_how_long_it_keeps() -> None:
    result = (await house().pair.modern("tools/list")).json["result"]
    assert result["resultType"] == "complete"
    assert result["ttlMs"] > 0 and result["cacheScope"] == "private"
    clock = result["tools"][1]
    assert clock["title"] == "Clock" and clock["outputSchema"]["type"] == "object"


@pytest.mark.requirement("list.same-for-all", era="modern", transport="http")
async def test_the_list_comes_in_the_same_order_every_time() -> None:
    pair = house().pair
    first = await pair.modern("tools/list")
    assert (await pair.modern("tools/list")).body == first.body


@pytest.mark.requirement("era.session-header")
async def test_discover_names_modern_versions_only_and_no_session() -> None:
    answer = await house().pair.modern("server/discover")
    result = answer.json["result"]
    assert result["supportedVersions"] == [MODERN]
    assert result["capabilities"] == {"tools": {"listChanged": True}}
    assert result["instructions"] == "Knock first."
    assert result["resultType"] == "complete" and result["ttlMs"] > 0 and result["cacheScope"] == "private"
    assert "mcp-session-id" not in answer.headers


@pytest.mark.requirement("http.version-on-answers", era="legacy")
@pytest.mark.parametrize("version", LEGACY)
async def test_initialize_is_answered_with_the_version_that_was_asked_for(version: str) -> None:
    answer = await house().pair.legacy(
        "initialize",
        {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "0"}},
    )
    result = answer.json["result"]
    assert result["protocolVersion"] == version == answer.headers["mcp-protocol-version"]
    assert result["capabilities"] == {"tools": {}}
    assert ("description" in result["serverInfo"]) is (version == "2025-11-25")
    assert "mcp-session-id" not in answer.headers


@pytest.mark.requirement("legacy.counter", era="legacy", transport="http")
@pytest.mark.parametrize("params", [{"protocolVersion": MODERN}, {"protocolVersion": "1999-01-01"}])
async def test_initialize_without_a_version_that_has_a_handshake_gets_our_latest_that_has(
    params: object,
) -> None:
    answer = await house().pair.legacy("initialize", params)
    assert answer.status == 200
    assert answer.json["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.requirement("era.initialize-any-header")
@pytest.mark.parametrize("header", [MODERN, "2099-01-01", "nonsense"])
async def test_initialize_is_answered_whatever_its_version_header_says(header: str) -> None:
    answer = await house().pair.legacy("initialize", {"protocolVersion": "2025-06-18"}, version=header)
    assert (answer.status, answer.json["result"]["protocolVersion"]) == (200, "2025-06-18")


async def test_initialize_with_a_session_that_is_gone_starts_over() -> None:
    answer = await house().pair.legacy("initialize", {"protocolVersion": "2025-06-18"}, mcp_session_id="old")
    assert answer.status == 200


async def test_legacy_ping_is_answered_with_exactly_nothing() -> None:
    assert (await house().pair.legacy("ping")).json == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.requirement("discover.empty-lists", era="legacy", transport="http")
@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ],
)
async def test_a_legacy_client_may_list_what_was_never_declared(method: str, key: str) -> None:
    pair = house().pair
    assert (await pair.legacy(method)).json["result"] == {key: []}
    modern = await pair.modern(method)
    assert (modern.status, modern.json["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("cursor", ["", "made-up"])
async def test_a_cursor_that_was_never_given_out_is_refused(cursor: str) -> None:
    pair = house().pair
    assert (await pair.modern("tools/list", {"cursor": cursor})).json["error"]["code"] == -32602
    assert (await pair.legacy("tools/list", {"cursor": cursor})).json["error"]["code"] == -32602


@pytest.mark.requirement("headers.legacy")
async def test_method_and_name_headers_on_a_legacy_request_are_not_looked_at() -> None:
    answer = await house().pair.legacy("tools/call", ECHO, mcp_method="initialize", mcp_name="other")
    assert answer.json["result"]["content"][0]["text"] == "hello"


@pytest.mark.parametrize("request_id", [0, -1, 2**70, "", "é", "0"])
async def test_the_answer_carries_the_id_of_the_request_with_its_type(request_id: object) -> None:
    pair = house().pair
    for make in (legacy, modern):
        body, headers = make("tools/list", request_id=request_id)
        assert (await pair.request(body=body, headers=headers)).json["id"] == request_id


async def test_structured_content_reaches_the_revisions_that_have_it() -> None:
    pair = house().pair
    call = {"name": "clock", "arguments": {"zone": "Asia/Tokyo"}}
    modern = (await pair.modern("tools/call", call)).json["result"]
    assert modern["structuredContent"]["utc_offset_minutes"] == 540
    newer = (await pair.legacy("tools/call", call, version="2025-06-18")).json["result"]
    assert newer["structuredContent"]["zone"] == "Asia/Tokyo"
    older = (await pair.legacy("tools/call", call, version="2025-03-26")).json["result"]
    assert "structuredContent" not in older and "Asia/Tokyo" in older["content"][0]["text"]
