"""What upstreams' tools, prompts and resources are called here, which are offered, and what happens where two have one name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from upstreams import Caller, Double, Turn, gate, over_tcp, parrot, soon, tool, words

from server.agents.base.backend import Completing, PromptGet, ResourceRead
from server.agents.base.catalog import Catalog, CatalogError, Source
from server.agents.mcp.offer_guard import OpenGuard, UpstreamLists
from server.agents.mcp.offered_names import selected
from server.calls.rights.tiers import ServerRules
from server.mcp.call_failures import BackendError
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.tool_names import fault_in_name, refused_names
from server.settings.policy_settings import ToolConfig

LIBRARY = {
    "tools": [tool("say", description="Says it.")],
    "prompts": [{"name": "brief", "description": "Briefly.", "arguments": [{"name": "style"}]}],
    "resources": [{"uri": "note://1", "name": "one"}],
    "resourceTemplates": [{"uriTemplate": "note://{id}", "name": "any"}],
}


def library() -> Double:
    async def read(turn: Turn) -> Any:
        return {"contents": [{"uri": turn.params["uri"], "text": "milk"}]}

    async def prompt(turn: Turn) -> Any:
        block = {"type": "text", "text": turn.params["name"]}
        return {"messages": [{"role": "user", "content": block}]}

    async def complete(turn: Turn) -> Any:
        return {"completion": {"values": [str(turn.params["ref"])], "total": 1}}

    double = Double(
        capabilities={"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}},
        lists={key: list(value) for key, value in LIBRARY.items()},
    )
    double.handlers |= {"resources/read": read, "prompts/get": prompt, "completion/complete": complete}
    return double


@pytest.mark.parametrize(("separator", "name"), [(".", "shop.say"), ("__", "shop__say")])
async def test_an_id_is_in_front_of_tools_and_prompts(separator: str, name: str) -> None:
    async with over_tcp(library()) as tcp, gate(tcp=tcp, id="shop", separator=separator, banner=True) as door:
        (offered,) = door.backend.tools()
        assert (offered.name, offered.description) == (name, "[shop] Says it.")
        (prompt,) = door.backend.prompts()
        assert prompt.name == f"shop{separator}brief"
        assert words(await door.call(name, arguments={"word": "hello"})) == "hello"
        asked = PromptGet(prompt=prompt.name, arguments={}, subject="ada", call_id="c")
        found = await door.backend.get_prompt(asked, Caller())
        assert found.messages[0].content.text == "brief"  # type: ignore[union-attr]


async def test_completions_are_asked_by_their_own_names() -> None:
    async with over_tcp(library()) as tcp, gate(tcp=tcp, id="shop") as door:
        assert ("prompt", "shop__brief") in door.backend.completes()
        asked = Completing(
            ref="prompt", name="shop__brief", argument="style", value="s", subject="ada", call_id="c"
        )
        assert "'name': 'brief'" in (await door.backend.complete(asked)).values[0]


async def test_tools_are_chosen_and_renamed() -> None:
    offered = {"tools": [tool(name) for name in ("read", "read_all", "write", "drop")]}
    double = Double(lists=offered)
    double.handlers["read_all"] = double.handlers["say"]
    async with (
        over_tcp(double) as tcp,
        gate(tcp=tcp, id="db", tools=("*", "!drop", "!wri*"), rename={"read_all": "all"}) as door,
    ):
        assert [each.name for each in door.backend.tools()] == ["db__read", "db__all"]
        assert words(await door.call("db__all", arguments={"word": "x"})) == "x"


@pytest.mark.parametrize(
    ("words", "name", "is_selected"),
    [
        ((), "read", True),
        (("read_*",), "read_file", True),
        (("read_*",), "write", False),
        (("!write",), "read", True),
        (("!write",), "write", False),
        (("read_*", "!read_secret"), "read_secret", False),
        (("*", "!*", "read"), "read", True),
    ],
)
def test_the_last_word_that_fits_counts(words: tuple[str, ...], name: str, is_selected: bool) -> None:
    assert selected(name, words) is is_selected


class OnlyReading(OpenGuard):
    """A guard who lets pass what is read."""

    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        tools = [each for each in offered.tools if each.name.startswith("read")]
        return msgspec.structs.replace(offered, tools=tools)


async def test_a_guard_sees_their_names_and_has_the_last_word_each_time_they_change() -> None:
    double = Double(
        lists={"tools": [tool("read"), tool("drop")]}, capabilities={"tools": {"listChanged": True}}
    )
    async with over_tcp(double) as tcp, gate(tcp=tcp, id="db", guard=OnlyReading()) as door:
        assert [each.name for each in door.backend.tools()] == ["db__read"]
        double.lists["tools"] += [tool("read_more"), tool("write")]
        before = door.changes
        await double.listeners[0]({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await soon(lambda: door.changes > before)
        assert [each.name for each in door.backend.tools()] == ["db__read", "db__read_more"]
        with pytest.raises(BackendError, match="the upstream db does not offer this tool any more"):
            await door.call("db__drop")


async def test_settings_that_name_a_tool_of_one_that_is_down_are_no_mistake() -> None:
    rules = ServerRules(tools={"db__read": ToolConfig(enabled=False), "db__raed": ToolConfig()})
    async with gate(tcp="127.0.0.1:9", id="db") as door:
        catalog = Catalog([Source(name="one", backend=door.backend)], rules)
        assert catalog.awaits_more
    async with (
        over_tcp(Double(lists={"tools": [tool("read")]})) as tcp,
        gate(tcp=tcp, id="db") as door,
    ):
        with pytest.raises(CatalogError, match=r"the tool db__raed, which no agent offers"):
            Catalog([Source(name="one", backend=door.backend)], rules)


class Ours:
    """A back-end of ours with one tool."""

    def tools(self) -> list[Tool]:
        return [Tool(name="say", input_schema={"type": "object"})]

    async def call(self, call: object, outlet: object) -> ToolResult:
        raise AssertionError("nobody calls it")

    async def aclose(self) -> None:
        """Nothing is held."""


async def test_two_tools_of_one_name_are_refused_at_the_start_with_both_that_offer_them() -> None:
    async with over_tcp(Double()) as tcp, gate(tcp=tcp) as door, gate(tcp=tcp) as other:
        with pytest.raises(CatalogError) as caught:
            Catalog([Source(name="one", backend=door.backend), Source(name="two", backend=other.backend)])
        assert caught.value.problems == ("the tool say is offered by one and by two: rename one of them",)


async def test_one_that_comes_later_under_a_name_of_ours_is_left_out_wherever_it_stands() -> None:
    double = Double(lists={"tools": [tool("fetch")]}, capabilities={"tools": {"listChanged": True}})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        catalog = Catalog([Source(name="one", backend=door.backend), Source(name="two", backend=Ours())])
        double.lists["tools"].append(tool("say"))
        before = door.changes
        await double.listeners[0]({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await soon(lambda: door.changes > before)
        assert catalog.refresh() == frozenset()
        assert [entry.tool.name for entry in catalog.entries()] == ["fetch", "say"]
        assert isinstance(catalog.tools["say"].backend, Ours)
        assert catalog.left_out == ("the tool say is offered by two and by one: rename one of them",)


async def test_a_resource_that_two_have_is_offered_at_two_addresses_and_read_at_each() -> None:
    double, twin = library(), library()
    async with (
        over_tcp(double) as tcp,
        over_tcp(twin) as other,
        gate(tcp=tcp, id="one") as door,
        gate(tcp=other, id="the_two") as second,
    ):
        catalog = Catalog(
            [Source(name="one", backend=door.backend), Source(name="two", backend=second.backend)]
        )
        assert [each.resource.uri for each in catalog.resources()] == ["note://1", "the-two+note://1"]
        assert [each.template.uri_template for each in catalog.templates()] == [
            "note://{id}",
            "the-two+note://{id}",
        ]
        entry = catalog.resource("the-two+note://1")
        assert entry is not None
        asked = ResourceRead(uri="the-two+note://1", subject="ada", call_id="c")
        (contents,) = await entry.backend.read(asked, Caller())
        assert (contents.uri, contents.text) == ("the-two+note://1", "milk")
        assert double.of("resources/read") == []
        second.backend.follow("the-two+note://1")
        await soon(lambda: twin.of("resources/subscribe"))
        changed = {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": "note://1"},
        }
        await twin.listeners[0](changed)
        await soon(lambda: second.updated)
        assert second.updated == ["note://1", "the-two+note://1"]


async def test_a_resource_that_somebody_listens_for_is_followed_by_the_next_connection_too() -> None:
    double = library()
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        door.backend.follow("note://1")
        await soon(lambda: double.of("resources/subscribe"))
        double.hang_up[0]()
        await soon(lambda: len(double.of("resources/subscribe")) == 2)


async def test_a_tool_behind_an_id_has_a_name_that_hosts_take() -> None:
    async with over_tcp(Double(lists={"tools": [tool("say")]})) as tcp, gate(tcp=tcp, id="notes") as door:
        assert [fault_in_name(each.name) for each in door.backend.tools()] == [None]


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("notes__say", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("notes.say", False),
        ("", False),
        ("sä", False),
        ("a\n", False),
    ],
)
def test_hosts_take_letters_digits_and_two_signs(name: str, taken: bool) -> None:
    assert (fault_in_name(name) is None) is taken
    assert refused_names([name]) == ([] if taken else [name])


async def test_names_that_are_none_here_are_mapped_and_called_by_their_own() -> None:
    longest = "n" * 140
    theirs = ["a/b", "a b", "näme", "größe:max", "日本", longest, longest[:-1] + "x", "plain"]
    double = Double(lists={"tools": [tool(name) for name in theirs]}, handlers={"a b": parrot})
    async with over_tcp(double) as tcp, gate(tcp=tcp, id="up") as door:
        offered = {each.name: each for each in door.backend.tools()}
        long = ("up__" + longest)[:128]
        ours = [
            "up__a_b",
            "up__a_b_2",
            "up__name",
            "up__gro_e_max",
            "up__unnamed",
            long,
            long[:126] + "_2",
            "up__plain",
        ]
        assert list(offered) == ours
        assert [offered[name].title for name in ours[:3]] == ["a/b", "a b", "näme"], "the originals are shown"
        assert offered["up__plain"].title is UNSET
        assert words(await door.call("up__a_b_2", arguments={"word": "hi"})) == "hi"
        assert [each["params"]["name"] for each in double.of("tools/call")] == ["a b"]


async def test_templates_with_wildcards_are_offered_and_read() -> None:
    templates = [
        {"uriTemplate": text, "name": text}
        for text in ("path://{file*}", "repo://{owner}/{path*}/x", "d://{a}/{b*}")
    ]
    double = Double(lists={"resourceTemplates": templates}, capabilities={"resources": {}})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        catalog = Catalog([Source(name="one", backend=door.backend)])
        assert [each.template.uri_template for each in catalog.templates()] == [
            each["uriTemplate"] for each in templates
        ]
        for uri in ("path://a/b/c.txt", "repo://me/a/b/x", "d://1/2/3"):
            assert catalog.fitting(uri) is not None, uri
        assert catalog.fitting("repo://me/a/b/y") is None
