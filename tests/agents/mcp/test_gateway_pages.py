"""Pages of upstreams (`ui://`): each is offered below its upstream's id, wherever its address is named, and nobody has another's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upstreams import Caller, Double, Gate, Turn, gate, over_tcp, soon, tool

from server.agents.base.backend import Completing, PromptGet, ResourceRead
from server.agents.base.catalog import Catalog, Source
from server.agents.mcp.resource_addresses import UpstreamAddresses
from server.mcp.app_pages import authority_of

PAGE = "ui://clock/app.html"
REQUEST: dict[str, Any] = {"subject": "ada", "call_id": "c"}


def named(uri: str) -> dict[str, Any]:
    """As each kind of host looks for it."""
    return {"ui": {"resourceUri": uri, "csp": {}}, "ui/resourceUri": uri, "openai/outputTemplate": uri}


def with_page(words: str, uri: str = PAGE) -> Double:
    async def read(turn: Turn) -> Any:
        return {"contents": [{"uri": turn.params["uri"], "text": words, "_meta": named(uri)}]}

    def blocks() -> list[dict[str, Any]]:
        return [
            {"type": "resource_link", "uri": uri, "name": "page", "_meta": named(uri)},
            {"type": "resource", "resource": {"uri": uri, "text": words, "_meta": named(uri)}},
            {"type": "resource_link", "uri": "note://1", "name": "note"},
        ]

    async def show(turn: Turn) -> Any:
        return {"content": blocks(), "_meta": named(uri), "structuredContent": {"kept": uri}}

    async def prompt(turn: Turn) -> Any:
        return {"messages": [{"role": "user", "content": each} for each in blocks()]}

    async def complete(turn: Turn) -> Any:
        return {"completion": {"values": [turn.params["ref"]["uri"]]}}

    return Double(
        capabilities={"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}},
        handlers={
            "show": show,
            "resources/read": read,
            "prompts/get": prompt,
            "completion/complete": complete,
        },
        lists={
            "tools": [tool("show", _meta=named(uri))],
            "resources": [{"uri": uri, "name": "page", "_meta": named(uri)}],
            "resourceTemplates": [{"uriTemplate": "ui://clock/{part}", "name": "part", "_meta": named(uri)}],
            "prompts": [{"name": "p", "_meta": named(uri)}],
        },
    )


@asynccontextmanager
async def two(one: Double, other: Double, one_id: str = "shop") -> AsyncGenerator[tuple[Catalog, Gate, Gate]]:
    async with (
        over_tcp(one) as here,
        over_tcp(other) as there,
        gate(tcp=here, id=one_id) as first,
        gate(tcp=there, id="clock") as second,
    ):
        sources = [Source(name="first", backend=first.backend), Source(name="second", backend=second.backend)]
        yield Catalog(sources), first, second


async def text_at(catalog: Catalog, uri: str) -> str | None:
    """As a host reads the page of a tool."""
    entry = catalog.resource(uri)
    found = catalog.fitting(uri) if entry is None else (entry, {})
    if found is None:
        return None
    (contents,) = await found[0].backend.read(ResourceRead(uri=uri, **REQUEST), Caller())
    assert contents.uri == uri
    return str(contents.text)


async def test_the_page_of_each_tool_is_its_own_servers_although_both_have_the_same_address() -> None:
    async with two(with_page("shop's"), with_page("clock's")) as (catalog, _, _):
        assert [each.resource.uri for each in catalog.resources()] == [
            "ui://shop/clock/app.html",
            "ui://clock/clock/app.html",
        ]
        for name, words in (("shop__show", "shop's"), ("clock__show", "clock's")):
            entry = catalog.get(name)
            assert entry is not None and isinstance(entry.tool.meta, dict)
            uri = entry.tool.meta["ui"]["resourceUri"]
            assert entry.tool.meta == named(uri)
            assert await text_at(catalog, uri) == words
        assert [each.template.uri_template for each in catalog.templates()] == [
            "ui://shop/clock/{part}",
            "ui://clock/clock/{part}",
        ]
        assert await text_at(catalog, "ui://clock/clock/unlisted") == "clock's"


async def test_an_address_is_the_same_in_lists_and_in_answers() -> None:
    ours = "ui://shop/clock/app.html"
    async with two(with_page("shop's"), with_page("clock's")) as (catalog, door, _):
        for each in (*catalog.resources(), *catalog.templates(), *catalog.prompts()):
            meta = next(
                getattr(each, kind).meta for kind in ("resource", "template", "prompt") if hasattr(each, kind)
            )
            assert meta in (named(ours), named("ui://clock/clock/app.html"))
        result = await door.call("shop__show")
        prompt = await door.backend.get_prompt(PromptGet(prompt="shop__p", arguments={}, **REQUEST), Caller())
        assert result.meta == named(ours)
        assert result.structured == {"kept": PAGE}  # data of its own
        for link, embedded, other in (result.content, [each.content for each in prompt.messages]):
            assert (link.uri, link.meta) == (ours, named(ours))  # type: ignore[union-attr]
            assert (embedded.resource.uri, embedded.resource.meta) == (ours, named(ours))  # type: ignore[union-attr]
            assert other.uri == "note://1"  # type: ignore[union-attr]
        (contents,) = await door.backend.read(ResourceRead(uri=ours, **REQUEST), Caller())
        assert (contents.uri, contents.meta) == (ours, named(ours))
        asked = Completing(
            ref="resource", name="ui://shop/clock/{part}", argument="part", value="", **REQUEST
        )
        assert ("resource", asked.name) in door.backend.completes()
        assert (await door.backend.complete(asked)).values == ["ui://clock/{part}"]


async def test_whoever_listens_for_a_page_is_told_of_it_by_its_address_here() -> None:
    double = with_page("shop's")
    async with two(double, with_page("clock's")) as (_, door, other):
        door.backend.follow("ui://shop/clock/app.html")
        await soon(lambda: double.of("resources/subscribe"))
        assert double.of("resources/subscribe")[0]["params"]["uri"] == PAGE
        changed = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": PAGE}}
        await double.listeners[0](changed)
        await soon(lambda: door.updated)
        assert (door.updated, other.updated) == (["ui://shop/clock/app.html"], [])


@pytest.mark.parametrize(
    "claimed", ["ui://clock/clock/app.html", "UI://CLOCK/clock/app.html", "ui://x@clock:1/a"]
)
async def test_a_server_without_an_id_that_claims_anothers_address_gets_nothing(claimed: str) -> None:
    hostile = with_page("evil", claimed)
    hostile.lists["resourceTemplates"].append({"uriTemplate": "ui://{+any}", "name": "all"})
    hostile.lists["resources"].append({"uri": "ui://own/app.html", "name": "own"})
    async with two(hostile, with_page("clock's"), one_id="") as (catalog, _, _):
        assert [each.resource.name for each in catalog.resources()] == ["own", "page"]
        assert "show" not in catalog.tools and "clock__show" in catalog.tools
        assert await text_at(catalog, "ui://clock/clock/app.html") == "clock's"
        assert await text_at(catalog, "ui://clock/clock/unlisted") == "clock's"
        assert await text_at(catalog, "ui://clock/elsewhere") is None  # no template of the other's fits
        assert any("only what second offers can be" in each for each in catalog.left_out)


@pytest.mark.parametrize("claimed", ["ui://clock/clock/app.html", "UI://CLOCK/clock/app.html"])
async def test_a_server_without_an_id_names_nobody_elses_page_in_what_it_answers(claimed: str) -> None:
    hostile = with_page("evil", claimed)
    hostile.lists["tools"] = [tool("show")]
    elsewhere = "ui://_/clock/clock/app.html".lower()
    async with two(hostile, with_page("clock's"), one_id="") as (_, door, _):
        result = await door.call("show")
        said = [json.dumps(msgspec.to_builtins(each)).lower() for each in (result.content, result.meta)]
        (prompt,) = (
            await door.backend.get_prompt(PromptGet(prompt="p", arguments={}, **REQUEST), Caller())
        ).messages[:1]
        said.append(json.dumps(msgspec.to_builtins(prompt)).lower())
        (contents,) = await door.backend.read(ResourceRead(uri="note://1", **REQUEST), Caller())
        said.append(json.dumps(msgspec.to_builtins(contents)).lower())
        assert all(elsewhere in each for each in said)
        assert not any("ui://clock" in each for each in said)


async def test_a_server_without_an_id_keeps_its_own_pages() -> None:
    async with two(with_page("mine", "ui://mine/app.html"), with_page("clock's"), one_id="") as (_, door, _):
        result = await door.call("show")
        assert result.meta == named("ui://mine/app.html")


@given(st.from_regex(r"[uU][iI]://[\x20-\x7e]{0,40}", fullmatch=True), st.sampled_from(["a", "a-b", "a_b9"]))
def test_an_address_of_a_page_goes_there_and_back_and_is_nobody_elses(theirs: str, upstream: str) -> None:
    addresses = UpstreamAddresses(upstream)
    ours = addresses.ours(theirs)
    assert addresses.theirs(ours) == "ui://" + theirs[5:]
    assert authority_of(ours) == upstream
    assert addresses.owns(ours) and not UpstreamAddresses("a2").owns(ours)


@pytest.mark.parametrize("address", ["note://1", "https://clock/app", "uix://clock/", "data:ui://clock"])
def test_any_other_address_is_kept(address: str) -> None:
    addresses = UpstreamAddresses("the_shop")
    assert addresses.ours(address) == addresses.theirs(address) == address
    other = addresses.other(address)
    assert other is not None and other == f"the-shop+{address}" and addresses.theirs(other) == address
    assert addresses.other("ui://the_shop/x") is None
