"""Resources that an upstream lists nowhere: answers link to them, and whoever was given such a link reads it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from upstreams import Caller, Double, Gate, Handler, Turn, gate, over_tcp, soon, tool

from server.agents.base.backend import AgentRequest, NoSuchResource, PromptGet, ResourceRead
from server.agents.base.catalog import Catalog, Source
from server.agents.mcp import given_addresses
from server.agents.mcp.given_addresses import GivenAddresses, Withheld
from server.agents.mcp.offer_guard import OpenGuard, UpstreamLists
from server.mcp.messages import Resource, ResourceTemplate

RESOURCES: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}}


def asking(who: str = "ada", uri: str = "") -> ResourceRead:
    return ResourceRead(uri=uri, subject=who, call_id="c")


def with_results(words: str, uri: str = "rl://result/42", **more: Any) -> Double:
    """An upstream whose tool links to a result, and whose prompt is of one."""

    async def make(turn: Turn) -> Any:
        return {"content": [{"type": "resource_link", "uri": uri, "name": "result"}]}

    async def prompt(turn: Turn) -> Any:
        block = {"type": "resource", "resource": {"uri": f"{uri}/prompt", "text": "-"}}
        return {"messages": [{"role": "user", "content": block}]}

    async def read(turn: Turn) -> Any:
        parts = [turn.params["uri"], f"{uri}/part"]
        return {"contents": [{"uri": each, "text": f"{words} {each}"} for each in parts]}

    handlers: dict[str, Handler] = {"make": make, "resources/read": read, "prompts/get": prompt}
    lists: dict[str, list[Any]] = {"tools": [tool("make")], "prompts": [{"name": "p"}]} | more
    return Double(capabilities=RESOURCES, handlers=handlers, lists=lists)


@asynccontextmanager
async def behind(**doubles: Double) -> AsyncGenerator[tuple[Catalog, dict[str, Gate]]]:
    async with AsyncExitStack() as stack:
        gates: dict[str, Gate] = {}
        for name, double in doubles.items():
            tcp = await stack.enter_async_context(over_tcp(double))
            gates[name] = await stack.enter_async_context(gate(tcp=tcp, id=name if len(doubles) > 1 else ""))
        yield Catalog([Source(name=name, backend=each.backend) for name, each in gates.items()]), gates


async def read(catalog: Catalog, uri: str, who: str = "ada") -> str | None:
    entry = catalog.unlisted(uri, asking(who, uri))
    if entry is None:
        return None
    return str((await entry.backend.read(asking(who, uri), Caller()))[0].text)


async def test_what_a_single_upstream_does_not_list_is_asked_of_it() -> None:
    async with behind(one=with_results("one")) as (catalog, gates):
        assert catalog.resource("rl://result/42") is None
        assert await read(catalog, "rl://result/42") == "one rl://result/42"
        await gates["one"].call("make")
        assert await read(catalog, "rl://result/42", "bob") == "one rl://result/42"


async def test_of_several_the_one_is_asked_that_gave_the_link_to_this_caller() -> None:
    async with behind(one=with_results("one"), two=with_results("two")) as (catalog, gates):
        with pytest.raises(NoSuchResource, match="several servers"):
            catalog.unlisted("rl://result/42", asking())
        await gates["two"].call("two__make")
        assert await read(catalog, "rl://result/42") == "two rl://result/42"
        assert await read(catalog, "rl://result/42/part") == "two rl://result/42/part"  # of what was read
        with pytest.raises(NoSuchResource):
            catalog.unlisted("rl://result/42", asking("bob"))
        await gates["one"].backend.get_prompt(
            PromptGet(prompt="one__p", arguments={}, subject="bob", call_id="c"), Caller()
        )
        assert await read(catalog, "rl://result/42/prompt", "bob") == "one rl://result/42/prompt"
        assert await read(catalog, "one+rl://result/7", "bob") == "one rl://result/7"


async def test_of_several_the_one_is_asked_that_alone_lists_addresses_of_the_kind() -> None:
    listed: dict[str, Any] = {"resources": [{"uri": "RL://index", "name": "index"}]}
    template: dict[str, Any] = {"resourceTemplates": [{"uriTemplate": "other://{x}", "name": "other"}]}
    doubles = {"one": with_results("one", **template), "two": with_results("two", **listed)}
    async with behind(**doubles) as (catalog, _):
        assert await read(catalog, "rl://result/42") == "two rl://result/42"
        assert await read(catalog, "other:/9") == "one other:/9"


async def test_a_link_can_be_listened_to() -> None:
    double = with_results("one")
    async with behind(one=double) as (catalog, gates):
        entry = catalog.unlisted("rl://result/42", asking())
        assert entry is not None and entry.backend is gates["one"].backend
        gates["one"].backend.follow("rl://result/42")
        await soon(lambda: double.of("resources/subscribe"))
        assert double.of("resources/subscribe")[0]["params"] == {"uri": "rl://result/42"}


async def test_an_upstream_without_resources_is_not_asked() -> None:
    double = Double()
    async with behind(one=double) as (catalog, _):
        assert catalog.unlisted("rl://result/42", asking()) is None


async def test_a_page_is_read_where_a_tool_names_it_alone() -> None:
    named = tool("make", _meta={"ui": {"resourceUri": "ui://app/main.html"}})
    async with behind(one=with_results("one", tools=[named])) as (catalog, _):
        assert await read(catalog, "ui://app/main.html") == "one ui://app/main.html"
        assert catalog.unlisted("ui://app/other.html", asking()) is None


@pytest.mark.parametrize(
    "uri", ["file:///a/../b", "file:///a/%2E%2e/b", "file:///a\\..\\b", "a://b c", "a://b\n", "a://%00"]
)
async def test_an_address_that_could_lead_out_of_a_directory_is_not_asked_for(uri: str) -> None:
    async with behind(one=with_results("one", uri)) as (catalog, gates):
        await gates["one"].call("make")
        assert catalog.unlisted(uri, asking()) is None


class Choosy(OpenGuard):
    """Lets through what a test says."""

    def __init__(self, **allowed: Any) -> None:
        self.kept = allowed

    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        return msgspec.structs.replace(offered, **self.kept)


@pytest.mark.parametrize(
    ("kept", "readable"),
    [
        ({"resource_templates": ()}, ["rl://result/42"]),
        ({}, ["rl://result/42", "file:///etc/x"]),
        ({"tools": (), "prompts": (), "resource_templates": ()}, []),
    ],
)
async def test_nothing_is_asked_for_that_its_owner_has_not_accepted(
    kept: dict[str, Any], readable: Sequence[str]
) -> None:
    double = with_results("one", resourceTemplates=[{"uriTemplate": "FILE:///{+path}", "name": "f"}])
    async with over_tcp(double) as tcp, gate(tcp=tcp, guard=Choosy(**kept)) as door:
        asked = ["rl://result/42", "file:///etc/x"]
        assert [uri for uri in asked if door.backend.claim(uri, asking())] == readable


def test_a_withheld_resource_and_a_template_without_a_scheme_are_not_asked_for() -> None:
    kept = UpstreamLists(resources=[Resource(uri="a://kept", name="k")])
    offered = UpstreamLists(resources=[*kept.resources, Resource(uri="a://new", name="n")])
    withheld = Withheld(offered, kept)
    assert [withheld.has(uri) for uri in ("a://kept", "a://new", "a://else")] == [False, True, False]
    any_scheme = UpstreamLists(resource_templates=[ResourceTemplate(uri_template="{+all}", name="all")])
    assert Withheld(any_scheme, UpstreamLists()).has("b://c")
    assert not Withheld(any_scheme, any_scheme).has("b://c")


def test_what_was_given_is_kept_within_bounds_and_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_addresses, "CALLERS", 2)
    monkeypatch.setattr(given_addresses, "ADDRESSES", 2)
    now = [0.0]
    given = GivenAddresses(lambda: now[0])

    def kept(who: str, *addresses: str) -> list[str]:
        return [each for each in addresses if given.has(asked(who), each)]

    def asked(who: str) -> AgentRequest:
        return AgentRequest(subject=who, call_id="c")

    given.note(asked("ada"), ["a://1", "a://2"])
    given.note(asked("ada"), ["a://1", "a://3"])
    assert kept("ada", "a://1", "a://2", "a://3") == ["a://1", "a://3"]
    given.note(asked("bob"), ["a://1"])
    given.note(asked("ada"), ["a://3"])
    given.note(asked("cy"), ["a://1"])
    assert (kept("bob", "a://1"), kept("ada", "a://1", "a://3")) == ([], ["a://1", "a://3"])
    stranger = AgentRequest(subject="ada", sharer="192.0.2.1", call_id="c")
    assert not given.has(stranger, "a://1"), "strangers are told apart by where they are"
    now[0] = given_addresses.SECONDS
    assert kept("ada", "a://1", "a://3") == []
