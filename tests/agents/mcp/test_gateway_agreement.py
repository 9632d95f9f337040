"""Agreements with upstreams (server/client/mcp_session/agreement.py): the era that their answers tell of, and the declarations of each request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from server.agents.base.backend import AgentRequest
from server.client.mcp_session import agreement
from server.client.mcp_session.agreement import (
    Agreement,
    capabilities_of,
    handshake_params,
    initialize_params,
    modern_params,
    read_discovered,
    read_initialized,
)
from server.client.mcp_session.handshake_questions import abilities_for
from server.client.mcp_session.session_messages import NoMcpServer, ServerRefusal
from server.mcp.carried_extensions import QUESTION_KEYS

MODERN = "2026-07-28"
EVERYTHING = frozenset({"elicitation", "sampling", "roots"})
NOT_FOUND, UNSUPPORTED, HEADER_MISMATCH, MISSING_CAPABILITY = -32601, -32022, -32020, -32021


def raw(**members: Any) -> Raw:
    return Raw(json.dumps(members).encode())


@pytest.mark.parametrize(
    ("capabilities", "path", "has"),
    [
        ({"tools": {}}, ("tools",), True),
        ({}, ("tools",), False),
        ({"tools": {"listChanged": True}}, ("tools", "listChanged"), True),
        ({"tools": {"listChanged": {}}}, ("tools", "listChanged"), True),
        ({"tools": {"listChanged": False}}, ("tools", "listChanged"), False),
        ({"tools": {"listChanged": 1}}, ("tools", "listChanged"), False),
        ({"tools": True}, ("tools", "listChanged"), False),
    ],
)
def test_what_an_upstream_has_is_what_it_declares(
    capabilities: dict[str, Any], path: tuple[str, ...], has: bool
) -> None:
    assert Agreement(version="", modern=False, capabilities=capabilities).has(*path) is has


@pytest.mark.parametrize("modern", [False, True])
def test_tasks_are_declared_in_each_era_at_its_place(modern: bool) -> None:
    handshake = {"tasks": {"requests": {"tools": {"call": {}}}}}
    stateless = {"extensions": {agreement.TASKS_EXTENSION: {}}}
    for declared, place in ((handshake, False), (stateless, True)):
        found = Agreement(version="", modern=modern, capabilities=declared)
        assert found.has_tasks is (place is modern)


@pytest.mark.parametrize(
    ("code", "data", "not_found", "modern"),
    [
        (UNSUPPORTED, {"supported": [MODERN]}, False, True),
        (UNSUPPORTED, {"supported": ["2099-01-01"]}, False, False),
        (UNSUPPORTED, {"supported": MODERN}, False, False),
        (UNSUPPORTED, None, True, False),
        (NOT_FOUND, None, True, True),
        (NOT_FOUND, None, False, False),
        (-32602, None, True, False),
        (-32602, {"supported": [MODERN]}, False, False),
    ],
)
def test_a_refusal_to_say_what_there_is_tells_of_the_era(
    code: int, data: dict[str, Any] | None, not_found: bool, modern: bool
) -> None:
    found = read_discovered(ServerRefusal(code, "no", data), not_found=not_found)
    assert (found is not None and found.modern) is modern


@pytest.mark.parametrize("code", [HEADER_MISMATCH, MISSING_CAPABILITY])
def test_whoever_is_of_the_stateless_era_and_refuses_is_no_upstream(code: int) -> None:
    with pytest.raises(NoMcpServer):
        read_discovered(ServerRefusal(code, "no", None))


@pytest.mark.parametrize("versions", [None, MODERN, [], ["2025-11-25"], [7]])
def test_whoever_does_not_support_the_stateless_era_is_spoken_to_by_handshake(versions: Any) -> None:
    assert read_discovered(raw(supportedVersions=versions)) is None


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ({"name": "files"}, "files"),
        ({"name": "x" * 201}, "x" * 200),
        ({"name": "two\nlines"}, ""),
        ({"name": 1}, ""),
        ({}, ""),
        (None, ""),
        ("files", ""),
    ],
)
def test_each_era_says_who_it_is_and_what_it_has(info: Any, name: str) -> None:
    has = {"capabilities": {"tools": {}}, "instructions": "Ask first."}
    told = {**has, "supportedVersions": [MODERN], "_meta": {f"{agreement.PREFIX}/serverInfo": info}}
    modern = read_discovered(raw(**told))
    handshake = read_initialized(raw(**has, protocolVersion="2025-11-25", serverInfo=info))
    assert modern is not None
    assert (modern.version, modern.modern, handshake.version, handshake.modern) == (
        MODERN, True, "2025-11-25", False,
    )  # fmt: skip
    for found in (modern, handshake):
        assert (found.server, found.instructions, found.capabilities) == (name, "Ask first.", {"tools": {}})


@pytest.mark.parametrize("odd", [None, [], "tools"])
def test_what_is_no_object_is_nothing(odd: Any) -> None:
    found = read_discovered(raw(supportedVersions=[MODERN], capabilities=odd, _meta=odd))
    assert found is not None
    assert (found.capabilities, found.server) == ({}, "")


@pytest.mark.parametrize("version", [None, 7, "2099-01-01", MODERN])
def test_a_handshake_in_no_version_of_its_era_is_no_upstream(version: Any) -> None:
    with pytest.raises(NoMcpServer):
        read_initialized(raw(protocolVersion=version, capabilities={}))


@pytest.mark.parametrize(
    ("can", "questions", "declared"),
    [
        ({"elicitation"}, EVERYTHING, {"elicitation": {"form": {}}}),
        ({"elicitation.url"}, EVERYTHING, {"elicitation": {"url": {}}}),
        ({"elicitation", "elicitation.url"}, EVERYTHING, {"elicitation": {"form": {}, "url": {}}}),
        ({"sampling"}, EVERYTHING, {"sampling": {}}),
        ({"sampling", "sampling.tools"}, EVERYTHING, {"sampling": {"tools": {}}}),
        ({"sampling.tools"}, EVERYTHING, {}),
        ({"roots"}, EVERYTHING, {"roots": {}}),
        ({"elicitation", "sampling", "roots"}, frozenset[str](), {}),
        (set(), EVERYTHING, {}),
    ],
)
def test_a_caller_can_be_asked_what_they_can_answer_and_is_passed_on(
    can: set[str], questions: frozenset[str], declared: dict[str, Any]
) -> None:
    assert capabilities_of(frozenset(can), questions, tasks=False) == declared
    with_tasks = declared | {"extensions": {agreement.TASKS_EXTENSION: {}}}
    assert capabilities_of(frozenset(can), questions, tasks=True) == with_tasks


def test_a_session_is_begun_with_all_that_is_passed_on() -> None:
    for kind, declared in (
        ("elicitation", {"form": {}, "url": {}}),
        ("sampling", {"tools": {}}),
        ("roots", {}),
    ):
        capabilities = initialize_params(abilities_for(frozenset({kind})))["capabilities"]
        assert capabilities == {kind: declared, "extensions": {QUESTION_KEYS: {}}}
    params = initialize_params(frozenset(), "2025-03-26")
    assert (params["protocolVersion"], params["capabilities"]) == ("2025-03-26", {})


def test_a_stateless_request_says_for_whom_it_is_and_what_they_wish() -> None:
    def meta(call: AgentRequest | None, token: int | None = None, **carried: Any) -> dict[str, Any]:
        params = {"name": "say", **({"_meta": carried} if carried else {})}
        made = modern_params(params, call, questions=EVERYTHING, tasks=True, token=token)
        assert made["name"] == "say"
        found = dict(made["_meta"])
        assert found.pop(f"{agreement.PREFIX}/protocolVersion") == MODERN
        assert found.pop(f"{agreement.PREFIX}/clientInfo")["name"] == "ostiary"
        return found

    wishes = f"{agreement.PREFIX}/clientCapabilities"
    tasks = {"extensions": {agreement.TASKS_EXTENSION: {}}}
    call = AgentRequest(subject="ada", call_id="c", can=frozenset({"roots"}))
    quiet = AgentRequest(subject="ada", call_id="c", log_level="error")
    assert meta(None) == {wishes: {}}
    assert meta(call) == {wishes: {"roots": {}, **tasks}}
    assert meta(quiet) == {wishes: tasks, f"{agreement.PREFIX}/logLevel": "error"}
    assert meta(None, token=0) == {wishes: {}, "progressToken": 0}
    assert meta(None, traceparent="t") == {wishes: {}, "traceparent": "t"}
    theirs: dict[str, Any] = {wishes: "theirs"}
    assert meta(None, **theirs) == {wishes: {}}


def test_in_the_handshake_era_a_request_says_where_progress_goes_and_no_more() -> None:
    params = {"name": "say", "_meta": {"traceparent": "t"}}
    assert handshake_params(params, None) is params
    assert handshake_params(params, 0)["_meta"] == {"traceparent": "t", "progressToken": 0}
    assert handshake_params({}, 7) == {"_meta": {"progressToken": 7}}


PAGES = "io.modelcontextprotocol/ui"
PAGE_TYPES = {"mimeTypes": ["text/html;profile=mcp-app"]}


def test_a_callers_extensions_are_declared_with_its_request_and_usual_ones_for_ourselves() -> None:
    passed = frozenset({"elicitation", PAGES})

    def declared(can: set[str] | None) -> Any:
        asked = None if can is None else AgentRequest(subject="s", call_id="c", can=frozenset(can))
        told = modern_params({}, asked, questions=passed, tasks=False, token=None)
        return told["_meta"]["io.modelcontextprotocol/clientCapabilities"].get("extensions")

    assert declared({"elicitation"}) is None
    assert declared({PAGES, "com.example/other"}) == {PAGES: PAGE_TYPES}
    assert declared({PAGES + ' {"mimeTypes":["text/x"]}'}) == {PAGES: {"mimeTypes": ["text/x"]}}
    assert declared(None) == {PAGES: PAGE_TYPES}


def test_a_session_declares_what_its_caller_has_of_extensions() -> None:
    can = abilities_for(frozenset({"elicitation", PAGES}))

    def declared(of: frozenset[str] | None) -> Any:
        return initialize_params(can, of=of)["capabilities"]["extensions"]

    ours = {QUESTION_KEYS: {}}
    assert declared(None) == {PAGES: PAGE_TYPES, **ours}
    assert declared(frozenset()) == ours
    assert declared(frozenset({PAGES, "elicitation"})) == {PAGES: PAGE_TYPES, **ours}
    assert declared(frozenset({"com.example/other"})) == ours
