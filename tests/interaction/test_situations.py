"""What goes wrong, in each era: status, code and data of every refusal."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import MAX_NAME, TextContent, Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import USER, Agent, agent, house, says
from tests.pair import ACCEPT_BOTH, META, MODERN, Answer, encode, legacy, modern

ECHO = {"name": "echo", "arguments": {"text": "hello"}}
JSON = {"content-type": "application/json", "accept": ACCEPT_BOTH}


def code(answer: Answer) -> tuple[int, int]:
    """Status and code; every refusal is a JSON-RPC error, or a client of both eras would take us for an old server."""
    body = answer.json
    assert body["jsonrpc"] == "2.0" and isinstance(body["error"]["message"], str)
    assert "mcp-protocol-version" in answer.headers
    return answer.status, body["error"]["code"]


@pytest.mark.requirement("rpc.parse-error", era="modern", transport="http")
@pytest.mark.requirement("rpc.parse-error", era="legacy", transport="http")
@pytest.mark.requirement("era.readable-refusal")
@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff", b'{"jsonrpc":"2.0","x":"\xff"}', b"[" * 100_000, b"nul"]
)
async def test_a_body_that_is_not_json_is_a_parse_error_without_an_id(body: bytes) -> None:
    pair = house().pair
    for headers in (JSON, JSON | {"mcp-protocol-version": MODERN}):
        answer = await pair.request(body=body, headers=headers)
        assert code(answer) == (400, -32700)
        assert "id" not in answer.json


@pytest.mark.requirement("rpc.invalid-request", era="legacy", transport="http")
@pytest.mark.requirement("rpc.id-type", era="legacy", transport="http")
@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, None),
        ({"jsonrpc": "1.0", "id": 7, "method": "ping"}, 7),
        ({"id": "a", "method": "ping"}, "a"),
        ({"jsonrpc": "2.0", "id": 0}, 0),
        ({"jsonrpc": "2.0", "id": 3, "method": 4}, 3),
        ("text", None),
        (17, None),
        (None, None),
    ],
)
async def test_json_that_is_no_message_is_an_invalid_request_with_the_id_if_it_can_be_read(
    message: object, request_id: object
) -> None:
    answer = await house().pair.request(body=encode(message), headers=JSON)
    assert code(answer) == (400, -32600)
    assert answer.json.get("id") == request_id


@pytest.mark.requirement("rpc.no-batches", era="modern", transport="http")
@pytest.mark.requirement("era.readable-refusal")
async def test_an_array_is_refused_in_every_revision_that_has_no_batches() -> None:
    body = encode([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    for version in ("2024-11-05", "2025-06-18", "2025-11-25", MODERN, "2099-01-01"):
        answer = await house().pair.request(body=body, headers=JSON | {"mcp-protocol-version": version})
        assert code(answer) == (400, -32600)


@pytest.mark.requirement("meta.unknown-method", era="modern", transport="http")
@pytest.mark.requirement("era.readable-refusal")
@pytest.mark.parametrize(
    "method",
    [
        "nonsense",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "initialize",
    ],
)
async def test_a_method_that_the_modern_era_does_not_have_is_not_found(method: str) -> None:
    assert code(await house().pair.modern(method)) == (404, -32601)


@pytest.mark.parametrize("method", ["nonsense", "logging/setLevel", "completion/complete", "tasks/list"])
async def test_an_unknown_legacy_method_is_said_with_200(method: str) -> None:
    assert code(await house().pair.legacy(method, version="2025-11-25")) == (200, -32601)


async def test_a_modern_method_on_a_legacy_version_is_unknown() -> None:
    assert code(await house().pair.legacy("server/discover", version="2025-06-18")) == (200, -32601)


@pytest.mark.requirement("meta.required", era="modern", transport="http")
async def test_discover_without_the_modern_fields_is_told_which_are_missing() -> None:
    assert code(await house().pair.legacy("server/discover")) == (400, -32602)


@pytest.mark.requirement("http.handler-errors", era="modern")
@pytest.mark.requirement("http.handler-errors", era="legacy")
async def test_an_unknown_tool_is_a_protocol_error_in_both_eras() -> None:
    pair = house().pair
    call = {"name": "nothing-like-it", "arguments": {}}
    assert code(await pair.modern("tools/call", call)) == (200, -32602)
    assert code(await pair.legacy("tools/call", call)) == (200, -32602)


@pytest.mark.parametrize(
    "params", [{}, {"name": 4}, {"name": "echo", "arguments": []}, {"name": "echo", "arguments": "x"}]
)
async def test_parameters_that_are_not_the_methods_are_a_protocol_error(params: dict[str, Any]) -> None:
    pair = house().pair
    assert code(await pair.modern("tools/call", params, mcp_name=str(params.get("name")))) == (200, -32602)
    assert code(await pair.legacy("tools/call", params)) == (200, -32602)


async def test_parameters_that_are_no_object_are_a_protocol_error() -> None:
    assert code(await house().pair.legacy("tools/call", [1])) == (200, -32602)
    body, headers = legacy("tools/call", [1], version=MODERN)
    assert code(await house().pair.request(body=body, headers=headers)) == (400, -32602)


@pytest.mark.requirement("tools.arguments", era="modern", transport="http")
@pytest.mark.requirement("tools.arguments", era="legacy", transport="http")
async def test_wrong_arguments_are_a_result_that_names_each_field() -> None:
    pair = house().pair
    call = {"name": "countdown", "arguments": {"seconds": "secret-value", "more": 1}}
    for answer in (await pair.modern("tools/call", call), await pair.legacy("tools/call", call)):
        assert answer.status == 200
        result = answer.json["result"]
        assert result["isError"] is True
        problems = result["_meta"]["io.ostiary/invalidArguments"]
        assert {problem["field"] for problem in problems} == {"from", "seconds", "more"}
        text = result["content"][0]["text"]
        assert all(f"{problem['field']}: {problem['reason']}" in text for problem in problems)
        assert "secret-value" not in text


async def test_deep_arguments_are_a_result_to_learn_from_and_no_crash() -> None:
    made = house()
    deep = json.loads("[" * 400 + "]" * 400)
    answer = await made.pair.modern("tools/call", {"name": "echo", "arguments": {"text": deep}})
    assert answer.json["result"]["isError"] is True
    assert not [line for line in made.lines if line["level"] == "error"]


async def test_arguments_may_be_left_out() -> None:
    pair = house().pair
    for params in ({"name": "clock"}, {"name": "clock", "arguments": None}):
        assert (await pair.modern("tools/call", params)).json["result"]["isError"] is False
        assert (await pair.legacy("tools/call", params)).json["result"]["isError"] is False


@pytest.mark.requirement("meta.version", era="modern", transport="http")
@pytest.mark.requirement("era.readable-refusal")
async def test_an_unknown_modern_version_is_refused_with_the_ones_that_discover_names() -> None:
    body, headers = modern("tools/list")
    body = body.replace(MODERN.encode(), b"2099-01-01")
    answer = await house().pair.request(body=body, headers=headers | {"mcp-protocol-version": "2099-01-01"})
    assert code(answer) == (400, -32022)
    assert answer.json["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}
    assert answer.json["id"] == 1


async def test_a_legacy_version_in_the_modern_place_is_not_a_modern_version() -> None:
    body, headers = modern("tools/list")
    body = body.replace(MODERN.encode(), b"2025-11-25")
    answer = await house().pair.request(body=body, headers=headers | {"mcp-protocol-version": "2025-11-25"})
    assert code(answer) == (400, -32022)


@pytest.mark.requirement("meta.version", era="modern", transport="http")
async def test_a_newer_version_header_alone_is_answered_with_what_is_supported() -> None:
    answer = await house().pair.legacy("tools/list", version="2099-01-01")
    assert code(answer) == (400, -32022)


@pytest.mark.parametrize("version", ["2025-01-01", "nonsense", "", "2025-06-18, 2025-06-18"])
async def test_a_version_header_that_names_nothing_is_refused(version: str) -> None:
    assert code(await house().pair.legacy("tools/list", version=version)) == (400, -32600)


@pytest.mark.requirement("meta.required", era="modern", transport="http")
@pytest.mark.requirement("era.readable-refusal")
@pytest.mark.parametrize("lost", ["protocolVersion", "clientCapabilities"])
async def test_a_modern_request_without_a_required_field_is_refused(lost: str) -> None:
    meta = {key: value for key, value in META.items() if not key.endswith(lost)}
    body, headers = modern("tools/list")
    body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    assert code(await house().pair.request(body=body, headers=headers)) == (400, -32602)


@pytest.mark.parametrize(
    ("key", "value"),
    [("protocolVersion", 20260728), ("clientCapabilities", None), ("clientCapabilities", [])],
)
async def test_a_modern_field_of_the_wrong_type_is_refused(key: str, value: object) -> None:
    meta = META | {f"io.modelcontextprotocol/{key}": value}
    _, headers = modern("tools/list")
    body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    assert code(await house().pair.request(body=body, headers=headers)) == (400, -32602)


async def test_a_name_that_is_sent_back_with_every_message_has_a_bound() -> None:
    made = house()
    for request_id, status in (("x" * MAX_NAME, 200), ("x" * (MAX_NAME + 1), 400)):
        body, headers = modern("tools/list", request_id=request_id)
        answer = await made.pair.request(body=body, headers=headers)
        assert answer.status == status
        assert ("id" in answer.json) == (status == 200)
    params = {"name": "echo", "arguments": {}, "_meta": {"progressToken": "x" * (MAX_NAME + 1)}}
    answer = await made.pair.modern("tools/call", params)
    assert answer.json["error"]["code"] == -32602


async def test_the_clients_own_description_may_be_missing_or_anything() -> None:
    meta = {"io.modelcontextprotocol/clientInfo": 17, "com.example/own": None}
    assert (await house().pair.modern("tools/list", {"_meta": meta})).status == 200


@pytest.mark.requirement("http.version-header")
@pytest.mark.requirement("headers.method")
@pytest.mark.requirement("headers.name")
@pytest.mark.requirement("headers.case")
@pytest.mark.requirement("headers.characters")
@pytest.mark.requirement("era.readable-refusal")
@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
@pytest.mark.parametrize(
    "value", [None, "", "other", "2025-06-18", "ECHO", "TOOLS/CALL", "echo, echo", "\u00e9cho", "ec\x01ho"]
)
async def test_a_header_that_does_not_repeat_the_body_is_a_mismatch(name: str, value: str | None) -> None:
    body, headers = modern("tools/call", ECHO)
    if value is None:
        del headers[name]
    else:
        headers[name] = value
    answer = await house().pair.request(body=body, headers=headers)
    assert code(answer) == (400, -32020)
    assert answer.json["id"] == 1


@pytest.mark.requirement("headers.name")
async def test_a_header_sent_twice_is_a_mismatch() -> None:
    body, headers = modern("tools/call", ECHO)
    answer = await house().pair.request(body=body, headers=[*headers.items(), ("mcp-name", "echo")])
    assert code(answer) == (400, -32020)


@pytest.mark.requirement("headers.space")
async def test_space_around_a_header_is_not_part_of_it() -> None:
    body, headers = modern("tools/call", ECHO)
    headers |= {"mcp-name": " echo\t", "mcp-method": "\ttools/call ", "mcp-protocol-version": f" {MODERN} "}
    assert (await house().pair.request(body=body, headers=headers)).status == 200


@pytest.mark.requirement("headers.base64")
async def test_the_name_may_be_sent_in_its_base64_form() -> None:
    body, headers = modern("tools/call", ECHO)
    encoded = b64encode(b"echo").decode()
    assert (
        await house().pair.request(body=body, headers=headers | {"mcp-name": f"=?base64?{encoded}?="})
    ).status == 200
    for wrong in (
        f"=?BASE64?{encoded}?=",
        f"=?base64?{encoded}",
        "=?base64?ZWNobw?=",
        "=?base64?ZWNo*w==?=",
        "=?base64?=",
    ):
        answer = await house().pair.request(body=body, headers=headers | {"mcp-name": wrong})
        assert code(answer) == (400, -32020)


@pytest.mark.requirement("headers.base64")
async def test_a_second_spelling_of_a_base64_header_is_refused() -> None:
    made = house()
    for spelt, status in (("ZWNobw==", 200), ("ZWNobx==", 400), ("ZWNobw", 400)):
        answer = await made.pair.modern(
            "tools/call", {"name": "echo", "arguments": {"text": "a"}}, mcp_name=f"=?base64?{spelt}?="
        )
        assert answer.status == status


@pytest.mark.requirement("headers.body-counts")
async def test_what_runs_is_what_the_headers_were_compared_with_when_a_key_comes_twice() -> None:
    _, headers = modern("tools/call", ECHO)
    meta = encode(META).decode()
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        f'{{"name":"clock","name":"echo","arguments":{{"text":"last"}},"_meta":{meta}}}}}'
    )
    answer = await house().pair.request(body=body.encode(), headers=headers)
    assert answer.json["result"]["content"][0]["text"] == "last"
    swapped = body.replace('"clock","name":"echo"', '"echo","name":"clock"')
    assert code(await house().pair.request(body=swapped.encode(), headers=headers)) == (400, -32020)


@pytest.mark.requirement("era.session-header")
@pytest.mark.requirement("session.gone")
async def test_a_session_that_nobody_knows_is_not_found_in_the_handshake_era_only() -> None:
    pair = house().pair
    assert (await pair.legacy("tools/list", mcp_session_id="gone")).status == 404
    assert (await pair.legacy("tools/list", version="2025-11-25", mcp_session_id="gone")).status == 404
    assert (await pair.legacy("tools/list", [1], mcp_session_id="gone")).status == 404
    assert (await pair.legacy("tools/list", version=MODERN, mcp_session_id="gone")).status == 404
    answer = await pair.modern("tools/list", mcp_session_id="gone", last_event_id="4")
    assert answer.status == 200 and "mcp-session-id" not in answer.headers


@pytest.mark.requirement("http.notification", era="modern")
@pytest.mark.requirement("http.notification", era="legacy")
async def test_notifications_are_taken_without_a_word() -> None:
    pair = house().pair
    for version in (None, "2025-06-18", MODERN):
        headers = JSON | ({} if version is None else {"mcp-protocol-version": version})
        for method in ("notifications/initialized", "notifications/cancelled", "notifications/unheard-of"):
            answer = await pair.request(body=encode({"jsonrpc": "2.0", "method": method}), headers=headers)
            assert (answer.status, answer.body) == (202, b"")
            assert "content-type" not in answer.headers
    body = encode({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (await pair.request(body=body, headers=JSON | {"mcp-session-id": "gone"})).status == 404


@pytest.mark.requirement("http.response")
@pytest.mark.requirement("rpc.no-client-responses")
async def test_a_clients_response_is_taken_in_the_handshake_era_and_refused_in_the_modern() -> None:
    pair = house().pair
    for message in (
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}},
    ):
        assert (await pair.request(body=encode(message), headers=JSON)).status == 202
        answer = await pair.request(body=encode(message), headers=JSON | {"mcp-protocol-version": MODERN})
        assert code(answer) == (400, -32600)


async def test_a_tool_that_could_not_be_run_is_an_error_with_the_back_ends_words() -> None:
    async def broken(call: ToolCall, outlet: Outlet) -> ToolResult:
        raise BackendError("agent endpoint 502: bad gateway")

    pair = house(agent(broken=broken)).pair
    for answer in (
        await pair.modern("tools/call", {"name": "broken"}),
        await pair.legacy("tools/call", {"name": "broken"}),
    ):
        assert code(answer) == (200, -32603)
        assert answer.json["error"]["message"] == "agent endpoint 502: bad gateway"


@pytest.mark.requirement("meta.internal-error", era="modern", transport="http")
async def test_a_bug_is_logged_once_and_shown_as_an_internal_error_with_the_requests_id() -> None:
    async def buggy(call: ToolCall, outlet: Outlet) -> ToolResult:
        raise RuntimeError("the password is hunter2")

    made = house(agent(buggy=buggy))
    answer = await made.pair.modern("tools/call", {"name": "buggy"})
    assert code(answer) == (200, -32603)
    assert answer.json["error"]["message"] == "internal error (request request-1)"
    crashes = [line for line in made.lines if line["level"] == "error"]
    assert len(crashes) == 1 and crashes[0]["request"] == "request-1"


async def test_an_answer_that_json_cannot_say_is_an_internal_error() -> None:
    async def odd(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(TextContent(text="x"),), structured={"when": object()})

    async def bare(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), structured={"when": object()})

    made = house(agent(odd=odd, bare=bare))
    for name in ("odd", "bare"):
        assert code(await made.pair.modern("tools/call", {"name": name})) == (200, -32603)
    assert len([line for line in made.lines if line["level"] == "error"]) == 2


@pytest.mark.requirement("tools.scope", era="modern")
@pytest.mark.requirement("tools.scope", era="legacy")
@pytest.mark.requirement("auth.scopes", era="modern")
@pytest.mark.requirement("auth.scopes", era="legacy")
async def test_a_tool_beyond_the_callers_scopes_is_listed_and_challenged_in_both_eras() -> None:
    async def deploy(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("deployed")

    source = agent(terms=CallTerms(scopes=frozenset({"mcp:deploy", "mcp:tools"})), deploy=deploy)
    pair = house(source, tokens={"t": USER}).pair
    pair.headers = {"authorization": "Bearer t"}
    assert [tool["name"] for tool in (await pair.modern("tools/list")).json["result"]["tools"]] == ["deploy"]
    for answer in (
        await pair.modern("tools/call", {"name": "deploy"}),
        await pair.legacy("tools/call", {"name": "deploy"}),
    ):
        assert answer.status == 403
        assert (
            answer.headers["www-authenticate"]
            == 'Bearer error="insufficient_scope", scope="mcp:deploy mcp:tools"'
        )


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_who_declined_to_grant_more_is_told_by_the_tool_and_not_asked_again(
    era: str, quick: bool
) -> None:
    async def deploy(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("deployed")

    terms = CallTerms(scopes=frozenset({"mcp:deploy", "mcp:tools"}), quick=quick)
    again = msgspec.structs.replace(USER, grant_id="grant-2")
    granted = msgspec.structs.replace(again, grant_id="grant-3", scopes=terms.scopes)
    tokens = {"first": USER, "again": again, "granted": granted}
    made = house(agent(terms=terms, deploy=deploy), tokens=tokens)

    async def call(token: str) -> Answer:
        ask = made.pair.modern if era == "modern" else made.pair.legacy
        return await ask("tools/call", {"name": "deploy"}, authorization=f"Bearer {token}")

    assert [(await call("first")).status for _ in range(2)] == [403, 403]
    for _ in range(2):
        told = await call("again")
        assert told.status == 200 and told.json["result"]["isError"] is True
        assert "needs the scope mcp:deploy, which was asked for" in told.json["result"]["content"][0]["text"]
    assert (await call("granted")).json["result"]["content"][0]["text"] == "deployed"
    assert ("deploy", "refused") in made.measured


@pytest.mark.requirement("auth.hierarchy", era="modern")
async def test_a_wider_scope_covers_a_narrower_one() -> None:
    async def deploy(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("deployed")

    wide = msgspec.structs.replace(USER, scopes=frozenset({"mcp"}))
    pair = house(
        agent(terms=CallTerms(scopes=frozenset({"mcp:deploy"})), deploy=deploy), tokens={"t": wide}
    ).pair
    answer = await pair.modern("tools/call", {"name": "deploy"}, authorization="Bearer t")
    assert answer.json["result"]["content"][0]["text"] == "deployed"


@pytest.mark.requirement("tools.hidden", era="modern", transport="http")
async def test_a_tool_that_policy_hides_is_unknown() -> None:
    async def secret(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("should not be seen")

    pair = house(agent(secret=secret), policy=lambda _principal, entry: entry.tool.name != "secret").pair
    assert (await pair.modern("tools/list")).json["result"]["tools"] == []
    hidden = await pair.modern("tools/call", {"name": "secret"})
    unknown = await pair.modern("tools/call", {"name": "sesame"})
    assert code(hidden) == code(unknown) == (200, -32602)
    assert hidden.body.replace(b"secret", b"sesame") == unknown.body


async def test_a_tool_that_nobody_could_grant_is_unknown_to_a_caller_without_a_login() -> None:
    async def deploy(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("deployed")

    pair = house(agent(terms=CallTerms(scopes=frozenset({"mcp:deploy"})), deploy=deploy)).pair
    assert (await pair.modern("tools/list")).json["result"]["tools"] == []
    assert code(await pair.modern("tools/call", {"name": "deploy"})) == (200, -32602)


MIRRORING = Tool(
    name="query",
    input_schema={
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "page": {
                "type": "object",
                "properties": {"size": {"type": "integer", "x-mcp-header": "Page-Size"}},
            },
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        },
    },
)


@pytest.mark.requirement("headers.mirror")
@pytest.mark.requirement("headers.legacy")
@pytest.mark.parametrize(
    ("arguments", "headers", "fits"),
    [
        ({"region": "eu"}, {"mcp-param-region": "eu"}, True),
        ({"region": "é"}, {"mcp-param-region": f"=?base64?{b64encode('é'.encode()).decode()}?="}, True),
        ({"page": {"size": 42}}, {"mcp-param-page-size": "42.0"}, True),
        ({"page": {"size": 42.0}}, {"mcp-param-page-size": "42"}, True),
        ({"dry": True}, {"mcp-param-dry": "true"}, True),
        ({}, {"mcp-param-other": "x"}, True),
        ({}, {}, True),
        ({"region": "eu"}, {}, False),
        ({"region": "eu"}, {"mcp-param-region": "EU"}, False),
        ({}, {"mcp-param-region": "eu"}, False),
        ({"region": None}, {"mcp-param-region": "eu"}, False),
        ({"page": {"size": 42}}, {"mcp-param-page-size": "42.5"}, False),
        ({"page": {"size": 2**53}}, {"mcp-param-page-size": str(2**53)}, False),
        ({"page": 4}, {"mcp-param-page-size": "4"}, False),
        ({"dry": True}, {"mcp-param-dry": "True"}, False),
        ({"dry": True}, {"mcp-param-dry": "1"}, False),
        ({"region": "a\nb"}, {"mcp-param-region": "a b"}, False),
    ],
)
async def test_arguments_that_are_repeated_in_headers_must_be_the_same_there(
    arguments: dict[str, Any], headers: dict[str, str], fits: bool
) -> None:
    async def query(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("ran")

    pair = house(Source(name="a", backend=Agent({"query": query}, {"query": MIRRORING}))).pair
    body, all_headers = modern("tools/call", {"name": "query", "arguments": arguments})
    answer = await pair.request(body=body, headers=all_headers | headers)
    assert answer.status == 200 if fits else code(answer) == (400, -32020)
    # A handshake-era client knows nothing of such headers.
    assert (await pair.legacy("tools/call", {"name": "query", "arguments": {"region": "eu"}})).status == 200
