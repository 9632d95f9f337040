"""When an upstream's id is in front of its names, and that a name that somebody has seen stays what it was."""

from __future__ import annotations

import msgspec
import pytest
from test_gateway_names import Ours, library
from upstreams import Caller, Double, Gate, gate, over_tcp, soon, tool, words

from server.agents.base.backend import Completing, PromptGet
from server.agents.base.catalog import Catalog, Source
from server.agents.mcp.mcp_settings import McpConfig, problems

CHANGE = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def double(*names: str) -> Double:
    found = Double(
        lists={"tools": [tool(name) for name in names]}, capabilities={"tools": {"listChanged": True}}
    )
    found.handlers |= dict.fromkeys(names, found.handlers["say"])
    return found


def sources(*doors: Gate | Ours) -> list[Source]:
    return [
        Source(name=f"{number}", backend=door.backend if isinstance(door, Gate) else door)
        for number, door in enumerate(doors)
    ]


async def offer(door: Gate, upstream: Double, *names: str) -> None:
    upstream.lists["tools"] = [tool(name) for name in names]
    before = door.changes
    await upstream.listeners[0](CHANGE)
    await soon(lambda: door.changes > before)


@pytest.mark.parametrize(
    ("prefix", "name"), [("always", "a__say"), ("on collision", "say"), ("never", "say")]
)
async def test_an_id_is_in_front_when_the_settings_say_so(prefix: str, name: str) -> None:
    async with over_tcp(library()) as tcp, gate(tcp=tcp, id="a", prefix=prefix) as door:
        catalog = Catalog(sources(door))
        assert list(catalog.tools) == [name]
        assert [each.prompt.name for each in catalog.prompts()] == [name.replace("say", "brief")]
        assert words(await door.call(name, arguments={"word": "x"})) == "x"


async def test_of_two_that_have_a_name_the_later_is_called_by_its_second() -> None:
    first, second = library(), library()
    async with (
        over_tcp(first) as one,
        over_tcp(second) as two,
        gate(tcp=one, id="a", prefix="on collision") as a,
        gate(tcp=two, id="b", prefix="on collision") as b,
    ):
        catalog = Catalog(sources(a, b))
        assert {name: entry.backend for name, entry in catalog.tools.items()} == {
            "say": a.backend,
            "b__say": b.backend,
        }
        assert [each.prompt.name for each in catalog.prompts()] == ["brief", "b__brief"]
        assert words(await b.call("b__say", arguments={"word": "x"})) == "x"
        assert [each["params"]["name"] for each in second.of("tools/call")] == ["say"]
        asked = PromptGet(prompt="b__brief", arguments={}, subject="ada", call_id="c")
        found = await b.backend.get_prompt(asked, Caller())
        assert found.messages[0].content.text == "brief"  # type: ignore[union-attr]
        completing = Completing(
            ref="prompt", name="b__brief", argument="style", value="s", subject="ada", call_id="c"
        )
        assert "'name': 'brief'" in (await b.backend.complete(completing)).values[0]
        assert ("prompt", "b__brief") in b.backend.completes()


async def test_names_that_cannot_be_others_come_first_wherever_they_stand() -> None:
    async with (
        over_tcp(double("say")) as one,
        over_tcp(double("look")) as two,
        over_tcp(double("look")) as three,
        gate(tcp=one, id="a", prefix="on collision") as a,
        gate(tcp=two, id="b", prefix="on collision") as b,
        gate(tcp=three, id="c", prefix="never") as c,
    ):
        catalog = Catalog(sources(a, b, c, Ours()))
        assert list(catalog.tools) == ["a__say", "b__look", "look", "say"]
        assert catalog.tools["look"].backend is c.backend


async def test_a_name_is_kept_while_the_server_runs_whoever_comes_and_goes() -> None:
    first, second = double("look"), double("read")
    async with (
        over_tcp(first) as one,
        over_tcp(second) as two,
        gate(tcp=one, id="a", prefix="on collision") as a,
        gate(tcp=two, id="b", prefix="on collision") as b,
    ):
        catalog = Catalog(sources(a, b))
        await offer(a, first, "look", "read")
        catalog.refresh()
        assert list(catalog.tools) == ["look", "a__read", "read"]
        assert catalog.tools["read"].backend is b.backend
        await offer(b, second, "other")
        catalog.refresh()
        assert list(catalog.tools) == ["look", "a__read", "other"], "who was called so is called so still"
        await offer(b, second, "other", "read")
        catalog.refresh()
        assert catalog.tools["read"].backend is b.backend
        # The settings are read again: those that run on keep their names, in whatever order they are written now.
        newer = Catalog(sources(b, a), before=catalog)
        assert set(newer.tools) == {"look", "a__read", "read", "other"}
        # At a start, the order says it.
        assert Catalog(sources(a, b)).tools["read"].backend is a.backend


async def test_one_of_others_that_comes_later_under_a_name_that_is_held_is_left_out() -> None:
    first, second = double("look"), double("read")
    async with (
        over_tcp(first) as one,
        over_tcp(second) as two,
        gate(tcp=one) as plain,
        gate(tcp=two, id="b", prefix="on collision") as b,
    ):
        catalog = Catalog(sources(plain, b))
        await offer(plain, first, "look", "read")
        catalog.refresh()
        assert catalog.tools["read"].backend is b.backend
        assert catalog.left_out == ("the tool read is offered by 1 and by 0: rename one of them",)
        # When the settings are read again, who cannot give way has the name.
        assert list(Catalog(sources(plain, b), before=catalog).tools) == ["look", "read", "b__read"]


async def test_a_second_name_is_never_that_of_another_tool_of_the_same_upstream() -> None:
    upstream = double("say", "a__say")
    async with over_tcp(upstream) as tcp, gate(tcp=tcp, id="a", prefix="on collision") as door:
        catalog = Catalog(sources(door, Ours()))
        assert list(catalog.tools) == ["a__say_2", "a__say", "say"]
        assert words(await door.call("a__say_2", arguments={"word": "x"})) == "x"
        assert [each["params"]["name"] for each in upstream.of("tools/call")] == ["say"]


async def test_a_page_calls_its_own_servers_tool_whatever_name_that_has_here() -> None:
    page = {"ui": {"resourceUri": "ui://app.html"}}
    first = Double(lists={"tools": [tool("keep")]})
    second = Double(lists={"tools": [tool("save", _meta=page)]})
    async with (
        over_tcp(first) as one,
        over_tcp(second) as two,
        gate(tcp=one, id="a", prefix="on collision") as a,
        gate(tcp=two, id="b", prefix="on collision", rename={"save": "keep"}) as b,
    ):
        catalog = Catalog(sources(a, b))
        assert list(catalog.tools) == ["keep", "b__keep"]
        entry = catalog.called_by_page("save")
        assert entry is not None and entry.backend is b.backend


def test_without_an_id_nothing_can_be_put_in_front() -> None:
    config = msgspec.convert({"url": "https://mcp.example.com", "prefix": "on collision"}, McpConfig)
    assert [key for key, _ in problems(config)] == ["prefix"]
