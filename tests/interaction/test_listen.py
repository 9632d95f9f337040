"""`subscriptions/listen`: the acknowledgement first, then changes, signs of life, and a polite end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from server.calls.sessions.subscriptions import MAX_TOPICS, Subscriptions
from server.mcp.messages import Tool
from tests.interaction.agents import ANYTHING, USER, House, agent, house, says
from tests.pair import Exchange, legacy, modern

ID = "io.modelcontextprotocol/subscriptionId"
TOOLS = {"notifications": {"toolsListChanged": True}}


@asynccontextmanager
async def listening(
    made: House, params: Any = TOOLS, *, request_id: Any = 1, **headers: str
) -> AsyncGenerator[Exchange]:
    body, all_headers = modern("subscriptions/listen", params, request_id=request_id)
    with trio.fail_after(500):
        async with made.pair.open(body=body, headers=all_headers | headers) as exchange:
            yield exchange


@pytest.mark.parametrize("request_id", [0, 7, "", "a"])
async def test_the_acknowledgement_comes_first_and_everything_carries_the_id_with_its_type(
    request_id: Any,
) -> None:
    made = house()
    async with listening(made, request_id=request_id) as exchange:
        assert await exchange.event() == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": True}, "_meta": {ID: request_id}},
        }
        assert exchange.headers["content-type"] == "text/event-stream"
        made.subscriptions.publish("tools")
        assert await exchange.event() == {
            "jsonrpc": "2.0",
            "method": "notifications/tools/list_changed",
            "params": {"_meta": {ID: request_id}},
        }
        made.pair.draining.set()
        last = await exchange.event()
        assert last["id"] == request_id
        assert last["result"]["resultType"] == "complete" and last["result"]["_meta"][ID] == request_id
        assert await exchange.read() == b""
        await exchange.ended.wait()
    assert made.subscriptions.count() == 0


@pytest.mark.requirement("listen.nothing-lost", era="modern", transport="http")
async def test_a_change_made_as_soon_as_the_acknowledgement_is_out_is_not_lost() -> None:
    made = house()
    inner = made.pair.app

    async def changes_at_once(scope: Any, receive: Any, send: Any) -> None:
        async def watching(message: Any) -> None:
            if message["type"] == "http.response.start":
                made.subscriptions.publish("tools")
            await send(message)

        await inner(scope, receive, watching)

    made.pair.app = changes_at_once
    async with listening(made) as exchange:
        assert (await exchange.event())["method"] == "notifications/subscriptions/acknowledged"
        assert (await exchange.event())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"toolsListChanged": False},
        {"promptsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": ["file:///a"]},
    ],
)
async def test_what_does_not_exist_is_left_out_of_the_acknowledgement_and_never_sent(wanted: Any) -> None:
    made = house()
    async with listening(made, {"notifications": wanted}) as exchange:
        assert (await exchange.event())["params"]["notifications"] == {}
        made.subscriptions.publish("tools")
        made.pair.draining.set()
        assert "result" in await exchange.event()


@pytest.mark.parametrize(
    "params", [{}, {"notifications": None}, {"notifications": {"toolsListChanged": "yes"}}]
)
async def test_a_subscription_to_nothing_in_particular_is_refused(params: Any) -> None:
    answer = await house().pair.modern("subscriptions/listen", params)
    assert answer.json["error"]["code"] == -32602


async def test_a_client_that_takes_no_streams_cannot_listen() -> None:
    answer = await house().pair.modern("subscriptions/listen", TOOLS, accept="application/json")
    assert answer.status == 406


async def test_a_legacy_client_cannot_listen() -> None:
    answer = await house().pair.legacy("subscriptions/listen", TOOLS, version="2025-11-25")
    assert (answer.status, answer.json["error"]["code"]) == (200, -32601)


@pytest.mark.requirement("http.keep-alive", era="modern")
async def test_a_silent_subscription_shows_signs_of_life(autojump_clock: trio.testing.MockClock) -> None:
    made = house()
    async with listening(made) as exchange:
        await exchange.event()
        started = trio.current_time()
        for count in (1, 2, 3):
            assert await exchange.read() == b": keep-alive\n\n"
            assert trio.current_time() - started == pytest.approx(25 * count)


@pytest.mark.requirement("listen.client-ends", era="modern", transport="http")
async def test_a_client_that_leaves_ends_its_subscription() -> None:
    made = house()
    async with listening(made) as exchange:
        await exchange.event()
        assert made.subscriptions.count() == 1
        exchange.hang_up()
        await exchange.ended.wait()
        assert made.subscriptions.count() == 0


@pytest.mark.parametrize("by", ["change", "sign of life"])
async def test_a_client_that_is_found_gone_while_writing_ends_its_subscription(
    by: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = house()
    inner = made.pair.app

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        """A connection that learns of a hang-up only by writing."""
        asked = False

        async def only_the_body() -> Any:
            nonlocal asked
            if asked:
                await trio.sleep_forever()
            asked = True
            return await receive()

        await inner(scope, only_the_body, send)

    made.pair.app = deaf
    async with listening(made) as exchange:
        await exchange.event()
        exchange.hang_up()
        started = trio.current_time()
        if by == "change":
            made.subscriptions.publish("tools")
        await exchange.ended.wait()
        assert trio.current_time() - started == pytest.approx(0 if by == "change" else 25)
    assert made.subscriptions.count() == 0
    assert not [line for line in made.lines if line["level"] == "error"]


async def test_a_server_that_is_going_away_already_ends_a_subscription_after_its_acknowledgement() -> None:
    made = house()
    made.pair.draining.set()
    async with listening(made) as exchange:
        assert "method" in await exchange.event()
        assert "result" in await exchange.event()


@pytest.mark.requirement("listen.still-allowed")
async def test_a_subscription_ends_when_its_caller_may_no_longer_be_here(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made = house(tokens={"t": USER})
    async with listening(made, authorization="Bearer t") as exchange:
        await exchange.event()
        await trio.sleep(200)
        assert not exchange.ended.is_set()
        assert made.tokens is not None
        made.tokens.clear()
        while b"result" not in await exchange.read():
            pass
        assert trio.current_time() <= 261
        await exchange.ended.wait()


@pytest.mark.requirement("listen.bounds", era="modern", transport="http")
async def test_each_caller_has_a_number_of_subscriptions_and_no_more() -> None:
    other = USER.__class__(kind=USER.kind, subject="user-2")
    made = house(tokens={"t": USER, "o": other}, subscriptions=Subscriptions(per_caller=2, overall=4))
    async with (
        listening(made, authorization="Bearer t") as first,
        listening(made, authorization="Bearer t") as second,
    ):
        await first.event()
        await second.event()
        refused = await made.pair.modern("subscriptions/listen", TOOLS, authorization="Bearer t")
        assert refused.status == 429 and refused.json["error"]["code"] == 1429
        async with listening(made, authorization="Bearer o") as third:
            await third.event()
        second.hang_up()
        await second.ended.wait()
        async with listening(made, authorization="Bearer t") as fourth:
            await fourth.event()
    assert made.subscriptions.count() == 0


async def test_callers_without_a_login_share_the_overall_number_only() -> None:
    made = house(subscriptions=Subscriptions(per_caller=1, overall=2))
    async with listening(made) as first, listening(made) as second:
        await first.event()
        await second.event()
        assert (await made.pair.modern("subscriptions/listen", TOOLS)).status == 429


async def test_resources_of_which_none_can_be_read_are_counted_all_the_same() -> None:
    uris = [f"test://{number}" for number in range(MAX_TOPICS + 1)]
    answer = await house().pair.modern(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
    )
    assert answer.status == 429


async def test_several_subscriptions_of_one_client_each_get_their_own_copy() -> None:
    made = house()
    async with listening(made, request_id=1) as first, listening(made, request_id=2) as second:
        await first.event()
        await second.event()
        made.subscriptions.publish("tools")
        assert (await first.event())["params"]["_meta"] == {ID: 1}
        assert (await second.event())["params"]["_meta"] == {ID: 2}


@pytest.mark.requirement("listen.bounds", era="modern", transport="http")
async def test_changes_that_nobody_has_read_yet_are_told_once() -> None:
    subscriptions = Subscriptions()
    with subscriptions.open(None, frozenset({"tools", "prompts"})) as subscription:
        for _ in range(1000):
            subscriptions.publish("tools")
            subscriptions.publish("prompts")
            subscriptions.publish("resources")
        assert await subscription.next_change() == "tools"
        assert await subscription.next_change() == "prompts"
        subscription.end()
        assert await subscription.next_change() is None


async def test_a_catalogue_that_changed_shows_the_new_tools() -> None:
    async def work(call: Any, outlet: Any) -> Any:
        return says("x")

    source = agent(first=work)
    made = house(source)
    assert made.catalog.refresh() == frozenset()
    source.backend.work["second"] = work  # type: ignore[attr-defined]
    source.backend.listed["first"] = Tool(name="first", title="New", input_schema=ANYTHING)  # type: ignore[attr-defined]
    assert made.catalog.refresh() == {"tools"}
    tools = (await made.pair.modern("tools/list")).json["result"]["tools"]
    assert [(tool["name"], tool.get("title")) for tool in tools] == [("first", "New"), ("second", None)]


async def test_legacy_listing_has_no_stream_to_hear_of_changes_on() -> None:
    body, headers = legacy("initialize", {"protocolVersion": "2025-11-25"})
    answer = await house().pair.request(body=body, headers=headers)
    assert answer.json["result"]["capabilities"]["tools"] == {}
