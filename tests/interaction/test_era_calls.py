"""Tools, resources, prompts, completions and pages: the same on every wire, and in every era as that era has it."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from server.agents.base.backend import AgentRequest, Claim, ResourceRead, ToolCall
from server.agents.base.catalog import Source
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.messages import (
    AudioContent,
    Icon,
    Prompt,
    Resource,
    ResourceContents,
    ResourceLink,
    ResourceTemplate,
    TextContent,
    Tool,
    ToolAnnotations,
)
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import ANYTHING, agent, says
from tests.interaction.clients import Client
from tests.interaction.everything import Everything, everything, plain
from tests.interaction.wires import client
from tests.requirements import Cell

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("tools.unknown")
async def test_an_unknown_tool_is_an_error_of_the_protocol(cell: Cell) -> None:
    async with client(cell) as one:
        assert (await one.call("nothing")).code == -32602


@pytest.mark.requirement("tools.malformed")
@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": "plain", "arguments": [1]}])
async def test_parameters_that_are_not_a_calls_are_an_error_of_the_protocol(params: Any, cell: Cell) -> None:
    async with client(cell) as one:
        assert (await one.ask("tools/call", params)).code == -32602


@pytest.mark.requirement("tools.arguments")
@pytest.mark.requirement("rpc.own-meta")
async def test_wrong_arguments_are_a_result_to_learn_from(cell: Cell) -> None:
    async with client(cell) as one:
        result = (await one.call("plain", {"n": "secret-value"})).result
        assert result["isError"] is True
        text = result["content"][0]["text"]
        assert "n: " in text and "secret-value" not in text
        (own,) = result["_meta"].keys() - {"io.modelcontextprotocol/serverInfo"}
        assert own.startswith("io.ostiary/")


@pytest.mark.requirement("tools.failure")
async def test_a_tool_that_fails_says_so_in_its_result(cell: Cell) -> None:
    async with client(cell) as one:
        reply = await one.call("fails")
        assert reply.result["isError"] is True and reply.text == "no luck today"


@pytest.mark.requirement("tools.hidden")
async def test_a_hidden_tool_is_as_unknown_as_one_that_is_not_there(cell: Cell) -> None:
    def policy(_principal: Any, entry: Any) -> bool:
        return getattr(entry, "tool", None) is None or entry.tool.name != "logs"

    async with client(cell, policy=policy) as one:
        tools = (await one.ask("tools/list")).result["tools"]
        assert tools and "logs" not in [tool["name"] for tool in tools]
        hidden, unknown = await one.call("logs"), await one.call("nogs")
        assert hidden.error["message"].replace("logs", "nogs") == unknown.error["message"]
        assert hidden.code == unknown.code == -32602


@pytest.mark.requirement("tools.structured")
@pytest.mark.requirement("tools.structured-older")
async def test_structured_content_is_said_in_the_text_too(cell: Cell) -> None:
    async with client(cell) as one:
        reply = await one.call("structured")
        assert reply.text == '{"n":7}'
        older = cell.version < "2025-06-18"
        assert reply.result.get("structuredContent") == (None if older else {"n": 7})


@pytest.mark.requirement("tools.output")
async def test_an_answer_that_breaks_its_promise_is_our_fault(cell: Cell) -> None:
    async def liar(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), structured={"n": "seven"})

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    listed = {"liar": Tool(name="liar", input_schema=ANYTHING, output_schema=schema)}
    async with client(cell, agent(listed=listed, liar=liar)) as one:
        assert (await one.call("liar")).code == -32603


@pytest.mark.requirement("tools.content")
async def test_kinds_of_content_that_the_revision_lacks_are_said_in_text(cell: Cell) -> None:
    async def all_kinds(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(
            content=(
                TextContent(text="x"),
                AudioContent(data="AAAA", mime_type="audio/wav"),
                ResourceLink(uri="test://one", name="one"),
            )
        )

    async with client(cell, agent(all_kinds=all_kinds)) as one:
        content = (await one.call("all_kinds")).result["content"]
        assert [block["type"] for block in content] == [
            "text",
            "text" if cell.version < "2025-03-26" else "audio",
            "text" if cell.version < "2025-06-18" else "resource_link",
        ]
        assert content[2].get("uri") == "test://one" or "test://one" in content[2]["text"]


@pytest.mark.requirement("tools.fields")
@pytest.mark.requirement("resources.fields")
@pytest.mark.requirement("server.fields")
async def test_everything_is_listed_with_the_fields_that_the_revision_has(cell: Cell) -> None:
    icons = [Icon(src="https://example.com/icon.png")]
    full = Tool(
        name="full",
        title="Full",
        icons=icons,
        input_schema=ANYTHING,
        output_schema={"type": "object"},
        annotations=ToolAnnotations(read_only_hint=True),
        meta={"example.com/x": 1},
    )
    titled = cell.version >= "2025-06-18"
    iconic = cell.version >= "2025-11-25"
    expected = {"name", "inputSchema"}
    expected |= {"annotations"} if cell.version >= "2025-03-26" else set()
    expected |= {"title", "outputSchema", "_meta"} if titled else set()
    expected |= {"icons"} if iconic else set()
    async with client(cell, everything(listed={"full": full}, full=plain)) as one:
        (listed, *_) = (await one.ask("tools/list")).result["tools"]
        assert listed.keys() == expected
        for method, kind in LISTS.items():
            if kind != "tools":
                assert ("title" in (await one.ask(method)).result[kind][0]) is titled
        greeting = one.welcome or (await one.ask("server/discover")).result["_meta"]
        info = greeting.get("serverInfo") or greeting["io.modelcontextprotocol/serverInfo"]
        assert (info["name"], info["version"]) == ("house", "1.2.3")
        assert ("title" in info, "description" in info) == (titled, iconic)


@pytest.mark.requirement("timeout.calls")
async def test_a_call_is_stopped_at_its_deadline_however_much_it_reports(
    cell: Cell, autojump_clock: trio.testing.MockClock
) -> None:
    async def endless(call: ToolCall, outlet: Outlet) -> ToolResult:
        step = 0
        while True:
            step += 1
            await outlet.emit(Progress(progress=step))
            await trio.sleep(1)

    source = agent(terms=CallTerms(deadline_seconds=5), endless=endless)
    async with client(cell, source) as one, one.begins("tools/call", {"name": "endless", "_meta": {"progressToken": 1}}) as asked:  # fmt: skip
        reply = await asked.reply()
        assert reply.result["isError"] is True and "5 seconds" in reply.text


# ── lists and pages ──────────────────────────────────────────────────────────────────────────────────────────────────


async def names(one: Client, method: str) -> list[str]:
    """Everything of a list, page by page."""
    found: list[str] = []
    params: dict[str, Any] = {}
    while True:
        result = (await one.ask(method, params)).result
        found += [item["name"] for item in result[LISTS[method]]]
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


@pytest.mark.requirement("page.walk")
@pytest.mark.requirement("list.same-for-all")
@pytest.mark.parametrize("method", LISTS)
async def test_pages_lead_through_the_whole_list_in_the_order_of_everybody(method: str, cell: Cell) -> None:
    async with client(cell) as one:
        whole = await names(one, method)
    async with client(cell, page_size=2) as one:
        assert await names(one, method) == whole
        await one.call("plain")
        assert await names(one, method) == whole
    assert whole


@pytest.mark.requirement("page.invalid")
@pytest.mark.parametrize("method", LISTS)
async def test_a_cursor_that_was_not_given_out_for_the_list_is_refused(method: str, cell: Cell) -> None:
    async with client(cell, page_size=1) as one:
        others = "prompts/list" if method == "tools/list" else "tools/list"
        foreign = (await one.ask(others)).result["nextCursor"]
        for cursor in ("", "made up", foreign, foreign[:-1]):
            assert (await one.ask(method, {"cursor": cursor})).code == -32602


# ── resources ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("resources.read")
@pytest.mark.requirement("resources.templates")
@pytest.mark.parametrize("uri", ["test://one", "test://numbers/7"])
async def test_what_is_read_has_its_uri_and_its_content(uri: str, cell: Cell) -> None:
    async with client(cell) as one:
        read = (await one.ask("resources/read", {"uri": uri})).result
        assert read["contents"] == [{"uri": uri, "mimeType": "text/plain", "text": "content"}]
        (template,) = (await one.ask("resources/templates/list")).result["resourceTemplates"]
        assert template["uriTemplate"] == "test://numbers/{n}"


@pytest.mark.requirement("resources.missing")
@pytest.mark.requirement("resources.never-empty")
@pytest.mark.requirement("resources.traversal")
@pytest.mark.parametrize(
    "uri",
    ["test://nothing", "test://numbers/x", "test://empty", "test://numbers/..", "test://numbers/%2e%2e"],
)
async def test_a_resource_that_is_not_there_is_an_error_with_its_uri(uri: str, cell: Cell) -> None:
    async with client(cell) as one:
        reply = await one.ask("resources/read", {"uri": uri})
        assert reply.code == (-32602 if one.modern else -32002)
        assert reply.error["data"] == {"uri": uri}


@pytest.mark.requirement("resources.subscribe")
async def test_a_watched_resource_is_told_of_until_it_is_watched_no_more(cell: Cell) -> None:
    async with client(cell) as one, one.aside() as next_aside:
        sessions: Any = one.made.endpoint.sessions
        assert (await one.ask("resources/subscribe", {"uri": "test://one"})).result == {}
        assert (await one.ask("resources/subscribe", {"uri": "test://nothing"})).code == -32002
        sessions.updated("test://empty")
        sessions.updated("test://one")
        told = await next_aside()
        assert told["method"] == "notifications/resources/updated" and told["params"] == {"uri": "test://one"}
        assert (await one.ask("resources/unsubscribe", {"uri": "test://one"})).result == {}
        sessions.updated("test://one")
        sessions.publish("tools")
        assert (await next_aside())["method"] == "notifications/tools/list_changed"


class Linking(Everything):
    """A library with resources that it does not list, one of which another could have as well."""

    def __init__(self) -> None:
        super().__init__({"only": plain})
        self.followed: list[str] = []

    def claim(self, uri: str, asked: AgentRequest) -> Claim | None:
        assert asked.subject
        return "possible" if uri.startswith("link://") and uri != "link://hidden" else None

    def follow(self, uri: str, asked: AgentRequest | None = None) -> None:
        assert asked is not None
        assert asked.subject
        self.followed.append(uri)

    async def read(self, read: ResourceRead, outlet: Outlet) -> list[ResourceContents]:
        return [ResourceContents(uri=read.uri, text=f"of {read.uri}")]


class Another(Linking):
    """A library that lists nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.work = {"other": plain}

    def resources(self) -> list[Resource]:
        return []

    def resource_templates(self) -> list[ResourceTemplate]:
        return []

    def prompts(self) -> list[Prompt]:
        return []


@pytest.mark.requirement("resources.read")
@pytest.mark.requirement("resources.missing")
async def test_a_resource_that_is_not_listed_is_read_and_watched_where_an_agent_may_have_it(
    cell: Cell,
) -> None:
    linking = Linking()
    source = Source(name="linking", backend=linking, terms=CallTerms(scopes=frozenset({"mcp:tools"})))
    async with client(cell, source) as one:
        read = (await one.ask("resources/read", {"uri": "link://1"})).result
        assert read["contents"] == [{"uri": "link://1", "text": "of link://1"}]
        missing = await one.ask("resources/read", {"uri": "link://hidden"})
        assert missing.code == (-32602 if one.modern else -32002)
        if one.modern:
            wanted = {"notifications": {"resourceSubscriptions": ["link://1", "link://hidden"]}}
            async with one.begins("subscriptions/listen", wanted) as stream:
                told = await stream.next()
                assert told["params"]["notifications"] == {"resourceSubscriptions": ["link://1"]}
        else:
            assert (await one.ask("resources/subscribe", {"uri": "link://1"})).result == {}
            assert (await one.ask("resources/subscribe", {"uri": "link://hidden"})).code == -32002
        assert linking.followed == ["link://1"]

    sources = [source, Source(name="other", backend=Another())]
    async with client(cell, *sources) as one:
        unclear = await one.ask("resources/read", {"uri": "link://1"})
        assert unclear.error["message"].startswith("several servers")
        assert unclear.error["data"] == {"uri": "link://1"}

    def hidden(_: object, entry: Any) -> bool:
        return getattr(entry, "resource", None) is None

    async with client(cell, source, policy=hidden) as one:
        assert (await one.ask("resources/read", {"uri": "link://1"})).error["message"] == "resource not found"


@pytest.mark.requirement("tools.changed")
@pytest.mark.requirement("resources.changed")
@pytest.mark.requirement("legacy.pushed")
@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
async def test_a_changed_list_is_told_to_who_can_hear_of_it(kind: str, cell: Cell) -> None:
    async with client(cell) as one:
        if one.modern:
            wanted = {"notifications": {f"{kind}ListChanged": True}}
            async with one.begins("subscriptions/listen", wanted) as stream:
                await stream.next()
                one.made.subscriptions.publish(kind)
                assert (await stream.next())["method"] == f"notifications/{kind}/list_changed"
            return
        async with one.aside() as next_aside:
            one.made.endpoint.sessions.publish(kind)  # type: ignore[union-attr]
            assert (await next_aside())["method"] == f"notifications/{kind}/list_changed"


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("prompts.get")
async def test_a_prompt_is_messages(cell: Cell) -> None:
    async with client(cell) as one:
        (first, _) = (await one.ask("prompts/list")).result["prompts"]
        assert first["arguments"] == [{"name": "name", "required": True}]
        found = (await one.ask("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}})).result
        assert found["messages"] == [{"role": "user", "content": {"type": "text", "text": "{'name': 'Ann'}"}}]


@pytest.mark.requirement("prompts.unknown")
async def test_an_unknown_prompt_is_the_callers_mistake(cell: Cell) -> None:
    async with client(cell) as one:
        assert (await one.ask("prompts/get", {"name": "nothing"})).code == -32602


@pytest.mark.requirement("prompts.missing-argument")
async def test_a_prompt_without_what_it_needs_is_the_callers_mistake(cell: Cell) -> None:
    async with client(cell) as one:
        for params in ({"name": "greet"}, {"name": "greet", "arguments": {"other": "x"}}):
            assert (await one.ask("prompts/get", params)).code == -32602


# ── completion ───────────────────────────────────────────────────────────────────────────────────────────────────────


def completing(ref: dict[str, str], name: str, **more: Any) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": name, "value": "v"}, **more}


GREET = {"type": "ref/prompt", "name": "greet"}
NUMBERS = {"type": "ref/resource", "uri": "test://numbers/{n}"}


@pytest.mark.requirement("complete.values")
@pytest.mark.requirement("complete.no-capability")
@pytest.mark.parametrize(("ref", "name"), [(GREET, "name"), (NUMBERS, "n")])
async def test_a_completion_shows_a_hundred_and_says_that_there_are_more(
    ref: Any, name: str, cell: Cell
) -> None:
    async with client(cell) as one:
        if cell.version == "2024-11-05":
            assert "completions" not in one.welcome["capabilities"]
        found = (await one.ask("completion/complete", completing(ref, name))).result["completion"]
        assert found["values"] == [f"v{n}" for n in range(100)]
        assert (found["total"], found["hasMore"]) == (150, True)


@pytest.mark.requirement("complete.context")
async def test_a_completion_knows_what_is_settled(cell: Cell) -> None:
    async with client(cell) as one:
        context = {"arguments": {"town": "Oslo"}}
        reply = await one.ask("completion/complete", completing(GREET, "name", context=context))
        assert reply.result["completion"]["values"] == ["town=Oslo"]


@pytest.mark.requirement("complete.unknown")
@pytest.mark.parametrize(
    "params",
    [
        completing({"type": "ref/prompt", "name": "nothing"}, "name"),
        completing(GREET, "nothing"),
        completing(NUMBERS, "nothing"),
        completing({"type": "ref/resource", "uri": "test://nothing/{n}"}, "n"),
        completing({"type": "ref/other", "name": "greet"}, "name"),
        {"ref": GREET},
    ],
)
async def test_completing_what_does_not_exist_is_the_callers_mistake(params: Any, cell: Cell) -> None:
    async with client(cell) as one:
        assert (await one.ask("completion/complete", params)).code == -32602


@pytest.mark.requirement("complete.hidden")
async def test_what_is_hidden_is_as_unknown_to_completion_as_what_is_not_there(cell: Cell) -> None:
    def policy(_principal: Any, entry: Any) -> bool:
        return not (hasattr(entry, "prompt") or hasattr(entry, "template"))

    async with client(cell, policy=policy) as one:
        for ref, name in ((GREET, "name"), (NUMBERS, "n")):
            reply = await one.ask("completion/complete", completing(ref, name))
            assert reply.code == -32602
        assert (await one.ask("prompts/list")).result["prompts"] == []


@pytest.mark.requirement("complete.capability")
async def test_completions_are_declared(cell: Cell) -> None:
    async with client(cell) as one:
        declared = one.welcome or (await one.ask("server/discover")).result
        assert declared["capabilities"]["completions"] == {}


# ── what each revision has ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("legacy.echo")
async def test_each_revision_with_a_handshake_is_agreed_on_and_served(cell: Cell) -> None:
    async with client(cell) as one:
        assert one.welcome["protocolVersion"] == cell.version
        assert (await one.call("plain")).text == "done"


@pytest.mark.requirement("headers.mirror-elsewhere")
async def test_an_argument_that_is_repeated_in_a_header_needs_none_on_a_pipe(cell: Cell) -> None:
    async def query(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("ran")

    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    listed = {"query": Tool(name="query", input_schema=schema)}
    source = Source(name="a", backend=Everything({"query": query}, listed))
    async with client(cell, source) as one:
        assert (await one.call("query", {"region": "eu"})).text == "ran"
