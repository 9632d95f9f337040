"""What every request and every result carries, and what discovery tells: the same on every wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from server.agents.base.backend import Feature
from server.agents.base.catalog import Source
from server.mcp.messages import Prompt, Resource, ResourceTemplate
from server.mcp.versions import MODERN_VERSIONS, REVISIONS
from tests.interaction.agents import agent
from tests.interaction.everything import Everything, everything, plain, task_tool
from tests.interaction.web_client import WebClient
from tests.interaction.wires import client
from tests.pair import META, MODERN, encode, request
from tests.requirements import Cell

PREFIX = "io.modelcontextprotocol/"
SUPPORTED = {"tools", "resources", "prompts", "completions", "logging"}


# ── metadata and results ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("meta.required")
@pytest.mark.parametrize(
    "meta",
    [
        {PREFIX + "protocolVersion": MODERN},
        {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": []},
        {PREFIX + "protocolVersion": 20260728, PREFIX + "clientCapabilities": {}},
    ],
)
async def test_a_modern_request_without_what_each_one_has_is_refused(meta: Any, cell: Cell) -> None:
    async with client(cell) as one:
        if isinstance(one, WebClient):
            headers = one._build("tools/list", {}, 1)[1]
            body = encode(request("tools/list", {"_meta": meta}))
            answer = await one.made.pair.request(body=body, headers=headers)
            assert (answer.status, answer.json["error"]["code"]) == (400, -32602)
        else:
            assert (await one.raw(encode(request("tools/list", {"_meta": meta}))))["error"]["code"] == -32602


@pytest.mark.requirement("meta.version")
@pytest.mark.requirement("discover.versions")
@pytest.mark.parametrize("version", ["2099-01-01", "2025-11-25", "nonsense"])
async def test_a_version_that_is_not_modern_is_refused_with_those_that_are(version: str, cell: Cell) -> None:
    async with client(cell) as one:
        known = (await one.ask("server/discover")).result["supportedVersions"]
        body = encode(request("tools/list", {"_meta": META | {PREFIX + "protocolVersion": version}}))
        if isinstance(one, WebClient):
            headers = one._build("tools/list", {}, 1)[1] | {"mcp-protocol-version": version}
            answer = await one.made.pair.request(body=body, headers=headers)
            assert answer.status == 400
            error = answer.json["error"]
        else:
            error = (await one.raw(body))["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": known, "requested": version}
        assert known == list(MODERN_VERSIONS) == [v for v in REVISIONS if REVISIONS[v].modern]


@pytest.mark.requirement("meta.unknown-method")
@pytest.mark.requirement("tasks.no-others")
@pytest.mark.parametrize(
    "method",
    ["nonsense", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result"],
)  # fmt: skip
async def test_a_method_that_the_era_does_not_have_is_not_found(method: str, cell: Cell) -> None:
    async with client(cell, tasks=True) as one:
        reply = await one.ask(method, {"uri": "test://one", "level": "info", "taskId": "x"})
        assert reply.code == -32601 and reply.status in (404, None)


@pytest.mark.requirement("legacy.unknown-method")
async def test_an_unknown_method_of_the_handshake_era_is_an_ordinary_error(cell: Cell) -> None:
    async with client(cell) as one:
        for method in ("nonsense", "server/discover", "subscriptions/listen", "tasks/update"):
            reply = await one.ask(method)
            assert reply.code == -32601 and reply.status in (200, None)


@pytest.mark.requirement("meta.missing-capability")
@pytest.mark.requirement("ask.only-declared")
@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}, "roots": {}}, {"elicitation": {"url": {}}}])
async def test_what_needs_more_than_was_declared_is_refused_and_not_asked(
    capabilities: Any, cell: Cell
) -> None:
    async with client(cell, capabilities=capabilities) as one:
        reply = await one.call("asks")
        assert reply.before == []
        if one.modern:
            assert reply.code == -32021 and reply.status in (400, None)
            assert reply.error["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}
        else:
            assert reply.result["isError"] is True


METHODS = (
    ("tools/list", {}),
    ("tools/call", {"name": "plain"}),
    ("tools/call", {"name": "fails"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "test://one"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}}),
)  # fmt: skip
CACHED = {"tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list"}


@pytest.mark.requirement("meta.result-type")
@pytest.mark.requirement("meta.server-info")
@pytest.mark.requirement("meta.legacy-clean")
@pytest.mark.requirement("cache.hints")
@pytest.mark.requirement("cache.private")
async def test_every_result_has_what_its_era_has_and_nothing_more(cell: Cell) -> None:
    async with client(cell) as one:
        for method, params in METHODS:
            result = (await one.ask(method, params)).result
            if not one.modern:
                assert not result.keys() & {"resultType", "ttlMs", "cacheScope"}
                assert "_meta" not in result
                continue
            assert result["resultType"] == "complete"
            assert result["_meta"][PREFIX + "serverInfo"]["version"] == "1.2.3"
            assert ("ttlMs" in result) is ("cacheScope" in result) is (method in CACHED)
            if method in CACHED:
                assert result["ttlMs"] >= 0 and result["cacheScope"] == "private"
        if not one.modern:
            assert (await one.ask("ping")).result == {}
            assert (await one.ask("logging/setLevel", {"level": "error"})).result == {}


@pytest.mark.requirement("meta.errors-plain")
@pytest.mark.requirement("meta.internal-error")
async def test_an_error_is_only_that_and_tells_nothing_of_our_insides(cell: Cell) -> None:
    async with client(cell) as one:
        reply = await one.call("crashes")
        assert reply.message.keys() == {"jsonrpc", "id", "error"}
        assert reply.code == -32603
        assert "hunter2" not in json.dumps(reply.message) and "Traceback" not in json.dumps(reply.message)


# ── discovery ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("discover.declared-works")
@pytest.mark.requirement("discover.logging")
async def test_what_is_declared_works_and_nothing_else_is_declared(cell: Cell) -> None:
    async with client(cell) as one:
        declared = one.welcome or (await one.ask("server/discover")).result
        assert declared["capabilities"] == {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }
        for method, params in METHODS:
            assert (await one.ask(method, params)).result

    async with client(cell, agent(only=plain)) as one:
        declared = one.welcome or (await one.ask("server/discover")).result
        assert declared["capabilities"] == {"tools": {"listChanged": True}}


class Growing(Everything):
    """A library as an upstream's is that comes late, and can neither log nor tell of changes."""

    features: frozenset[Feature] = frozenset()
    there = False

    def resources(self) -> Sequence[Resource]:
        return super().resources() if self.there else []

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return []

    def prompts(self) -> Sequence[Prompt]:
        return super().prompts() if self.there else []

    def completes(self) -> frozenset[tuple[str, str]]:
        return frozenset()


@pytest.mark.requirement("discover.declared-works")
@pytest.mark.requirement("discover.not-offered")
async def test_features_are_those_that_an_agent_has_now(cell: Cell) -> None:
    late = Growing({"only": plain})
    async with client(cell, Source(name="late", backend=late)) as one:
        declared = one.welcome or (await one.ask("server/discover")).result
        assert declared["capabilities"] == {"tools": {"listChanged": True}}
        catalog = one.made.catalog
        late.there = True
        assert catalog.refresh() == {"resources", "prompts"}
        assert catalog.features == {"resources", "prompts"}
        if cell.modern:
            declared = (await one.ask("server/discover")).result["capabilities"]
            assert declared == {key: {"listChanged": True} for key in ("tools", "resources", "prompts")}
        assert (await one.ask("resources/read", {"uri": "test://one"})).result["contents"]
        assert (await one.ask("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})).result
        refused: list[tuple[str, dict[str, Any]]] = [
            (method, params) for method, params in METHODS if method == "completion/complete"
        ]
        if not cell.modern:
            refused += [
                ("resources/subscribe", {"uri": "test://one"}),
                ("resources/unsubscribe", {"uri": "test://one"}),
                ("logging/setLevel", {"level": "debug"}),
            ]
        for method, params in refused:
            assert (await one.ask(method, params)).code == -32601, method


@pytest.mark.requirement("discover.not-offered")
async def test_what_is_not_offered_is_not_found(cell: Cell) -> None:
    async with client(cell, agent(only=plain)) as one:
        for method, params in METHODS:
            if not method.startswith("tools/"):
                reply = await one.ask(method, params)
                assert reply.code == -32601 and reply.status in (404, None)


@pytest.mark.requirement("discover.empty-lists")
async def test_lists_of_what_is_not_offered_are_empty(cell: Cell) -> None:
    async with client(cell, agent(only=plain)) as one:
        for method in ("resources/list", "resources/templates/list", "prompts/list"):
            (found,) = (await one.ask(method)).result.values()
            assert found == []


@pytest.mark.requirement("discover.no-core-tasks")
@pytest.mark.requirement("tasks.declared")
async def test_tasks_are_declared_as_an_extension_where_a_tool_may_be_one(cell: Cell) -> None:
    source = everything(listed=task_tool("plain", "optional"))
    async with client(cell, source, tasks=True) as one:
        capabilities = (await one.ask("server/discover")).result["capabilities"]
        assert capabilities["extensions"] == {PREFIX + "tasks": {}}
        assert "tasks" not in capabilities
        assert all("execution" not in tool for tool in (await one.ask("tools/list")).result["tools"])
    async with client(cell, everything(), tasks=True) as one:
        assert "extensions" not in (await one.ask("server/discover")).result["capabilities"]
