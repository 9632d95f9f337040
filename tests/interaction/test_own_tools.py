"""Tools of the server's own: `getting_started` tells each caller what there is for them, `read_resource` reads for clients without resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from test_limited_calls import limits_of

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import (
    AgentRequest,
    Completing,
    NoSuchResource,
    PromptGet,
    ResourceRead,
    ToolCall,
)
from server.agents.base.catalog import Source
from server.calls.rights.visitors import VISITOR
from server.calls.servers.getting_started import guide, words_for
from server.calls.servers.resource_reader import reader
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Prompt, Resource, ResourceContents, ResourceTemplate, Tool
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.mcp.terms import PRICE_META, CallTerms
from server.store.limits.tool_limits import BoundRules
from tests.interaction.agents import USER, Agent, House, house, says

READS = frozenset({"mcp:resources"})
KEY = Principal(kind=PrincipalKind.API_KEY, subject="key-1", scopes=frozenset({"mcp:tools"}))
READER = replace(USER, scopes=frozenset({"mcp:tools", "mcp:resources"}))


async def does(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says("done")


class Library(Agent):
    """With something to read."""

    def resources(self) -> Sequence[Resource]:
        return (
            Resource(uri="data://words", name="words", title="Words", description="Some words"),
            Resource(uri="data://picture", name="picture", mime_type="image/png"),
            Resource(uri="data://raw", name="raw"),
            Resource(uri="data://empty", name="empty"),
        )

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return (ResourceTemplate(uri_template="row://{number}", name="row"),)

    def prompts(self) -> Sequence[Prompt]:
        return (Prompt(name="persuade"),)

    def completes(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        assert read.caller is not None and read.subject
        if read.template is not None:
            if read.arguments["number"] == "9":
                raise NoSuchResource("there are eight rows")
            return (ResourceContents(uri=read.uri, text=f"row {read.arguments['number']}"),)
        match read.uri:
            case "data://words":
                return (ResourceContents(uri=read.uri, text="some words"),)
            case "data://picture":
                return (ResourceContents(uri=read.uri, mime_type="image/png", blob="aGk="),)
            case "data://raw":
                return (ResourceContents(uri=read.uri, blob="aGk="),)
            case _:
                return ()

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        raise AssertionError

    async def complete(self, asked: Completing) -> CompletionResult:
        raise AssertionError


def tool(name: str, description: str, **more: Any) -> Tool:
    return Tool(name=name, description=description, input_schema={"type": "object"}, **more)


def furnished(who: Principal, **how: Any) -> House:
    listed = {
        "look": tool("look", "Looks at it. And more, which is not told."),
        "buy": tool("buy", "x" * 500, meta={PRICE_META: {"words": "$0.01 a call"}}),
    }
    made: list[House] = []
    library = Library({"look": does, "buy": does}, listed)
    source = Source(name="library", backend=library, library_terms=CallTerms(scopes=READS))
    own = (guide("", lambda: made[0].endpoint), reader("fetch", lambda: made[0].endpoint))
    made.append(house(source, *own, tokens={"t": who}, **how))
    return made[0]


async def ask(made: House, name: str, **arguments: Any) -> Any:
    params = {"name": name, "arguments": arguments}
    return await made.pair.modern("tools/call", params, authorization="Bearer t")


async def told(made: House, name: str, **arguments: Any) -> str:
    result = (await ask(made, name, **arguments)).json["result"]
    return "\n".join(block.get("text", "") for block in result["content"])


async def test_a_caller_is_told_what_there_is_for_them() -> None:
    limits = limits_of({"look": BoundRules(limit="60/min", limit_all="90/min")})
    text = await told(furnished(READER, limits=limits), "getting_started")
    assert text.splitlines() == [
        "House offers you 3 tools.",
        "",
        "For tests",
        "",
        "Knock first.",
        "",
        "- look: Looks at it. It may be called 60/min, 90/min by all callers together.",
        "- buy: " + "x" * 199 + "…",
        "- fetch: Reads a resource of this server by its uri.",
        "",
        "There are also 4 resources, 1 resource template and 1 prompt.",
    ]
    assert text == await told(furnished(READER, limits=limits), "getting_started"), "the same words"


async def test_what_a_caller_must_not_know_of_is_not_told() -> None:
    made = furnished(
        KEY, policy=lambda _who, entry: getattr(getattr(entry, "tool", None), "name", "") != "buy"
    )
    text = await told(made, "getting_started")
    assert text.startswith("House offers you 2 tools.")
    assert "buy" not in text and "resources" not in text.rpartition("\n")[2], "a key without the scope"


async def test_a_visitor_is_not_told_what_is_said_to_those_who_log_in() -> None:
    made = furnished(VISITOR)
    text = words_for(made.endpoint, VISITOR, "getting_started")
    assert text == "House offers you no tools.\n\nFor tests"


@pytest.mark.parametrize(
    ("uri", "block"),
    [
        ("data://words", {"type": "text", "text": "some words"}),
        ("data://picture", {"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        ("data://raw", {"type": "resource", "resource": {"uri": "data://raw", "blob": "aGk="}}),
        ("row://3", {"type": "text", "text": "row 3"}),
    ],
)
async def test_a_resource_is_read_as_what_a_client_shows(uri: str, block: dict[str, Any]) -> None:
    result = (await ask(furnished(READER), "fetch", uri=uri)).json["result"]
    assert result["content"] == [block]


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("data://none", "There is no such resource"),
        ("data://empty", "There is no such resource"),
        ("row://9", "there are eight rows"),
        ("ostiary://me", "There is no such resource"),
    ],
)
async def test_what_is_not_there_is_a_result_that_a_model_can_read(uri: str, words: str) -> None:
    result = (await ask(furnished(READER), "fetch", uri=uri)).json["result"]
    assert result["isError"] is True and words in result["content"][0]["text"]


async def test_the_list_has_what_the_caller_may_know_of() -> None:
    result = (await ask(furnished(READER), "fetch")).json["result"]
    assert result["content"][0]["text"].splitlines() == [
        "data://words: Words – Some words",
        "data://picture",
        "data://raw",
        "data://empty",
        "row://{number}",
    ]
    assert [each["uri"] for each in result["content"][1:]] == [
        "data://words",
        "data://picture",
        "data://raw",
        "data://empty",
    ]
    hidden = (await ask(furnished(KEY), "fetch")).json["result"]
    assert hidden["content"] == [{"type": "text", "text": "There are no resources."}]
    assert "no such" in await told(furnished(KEY), "fetch", uri="data://words")


async def test_a_person_is_asked_for_the_scope_as_by_resources_read() -> None:
    answer = await ask(furnished(USER), "fetch", uri="data://words")
    assert answer.status == 403
    assert "mcp:resources" in answer.headers["www-authenticate"]


LONGEST = 8192


class Personal(Library):
    """A library with something to read for each caller alone."""

    def resources(self) -> Sequence[Resource]:
        return [Resource(uri="data://".ljust(size, "x"), name="words") for size in (LONGEST, LONGEST + 1)]

    async def resources_of(self, asked: AgentRequest) -> Sequence[Resource]:
        long = f"{asked.subject}/".ljust(LONGEST + 1 - len("note://"), "x")
        return [Resource(uri=f"note://{name}", name="mine") for name in (asked.subject, long[:-1], long)]

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        return (ResourceContents(uri=read.uri, text=f"of {read.subject}"),)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        (f"note://{READER.subject}", True),
        ("note://somebody-else", False),
        (f"note://{READER.subject}/".ljust(LONGEST, "x"), True),
        (f"note://{READER.subject}/".ljust(LONGEST + 1, "x"), False),
        ("data://".ljust(LONGEST, "x"), True),
        ("data://".ljust(LONGEST + 1, "x"), False),
    ],
    ids=["mine", "another's", "long", "too long", "everybody's, long", "everybody's, too long"],
)
async def test_what_exists_for_one_caller_is_read_by_that_caller_at_its_address(
    address: str, found: bool
) -> None:
    source = Source(name="library", backend=Personal({}, {}), library_terms=CallTerms(scopes=READS))
    made = house(source, tokens={"t": READER})
    listed = await made.pair.modern("resources/list", {}, authorization="Bearer t")
    mine = [each["uri"] for each in listed.json["result"]["resources"] if each["uri"].startswith("note:")]
    assert mine[0] == f"note://{READER.subject}"
    answer = (await made.pair.modern("resources/read", {"uri": address}, authorization="Bearer t")).json
    if found:
        assert answer["result"]["contents"][0]["text"] == f"of {READER.subject}"
    else:
        assert answer["error"]["code"] == -32602
