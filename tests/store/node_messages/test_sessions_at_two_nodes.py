"""A session whose requests come to either of two nodes, each the next to another one: nobody feels that there are two."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from server.calls.sessions.ended_sessions import topic_of
from server.calls.sessions.shared_sessions import ABOUT
from server.lib.rates.rates import rate
from server.store.jobs import JobTooSlow
from server.store.node_messages.node_messages import MAX_BODY
from tests.interaction.agents import agent
from tests.interaction.everything import everything
from tests.interaction.session_house import PROGRESS, Steps, asks
from tests.pair import NodeConversation, next_frame, next_message, patience, talk
from tests.store.node_messages.neighbours import Street, neighbour, two

pytestmark = pytest.mark.usefixtures("autojump_clock")

CAPABILITIES: dict[str, Any] = {"elicitation": {}}
ANN = {"action": "accept", "content": {"name": "Ann"}}


async def settled() -> None:
    """All that was said has arrived."""
    await trio.testing.wait_all_tasks_blocked(0.02)


@asynccontextmanager
async def asked(one: NodeConversation) -> AsyncGenerator[tuple[Any, Any]]:
    """A call that has asked who its caller is: its stream, and the question."""
    async with one.opens("tools/call", {"name": "asks", "arguments": {}}) as stream:
        with trio.fail_after(patience()):
            yield stream, await next_message(stream)


async def letters(of: Street) -> list[Any]:
    return await of.store.read(lambda db: db.fetch_all("SELECT * FROM letters ORDER BY seq"))


async def text_of(stream: Any) -> str:
    with trio.fail_after(patience()):
        answer = await next_message(stream)
    return answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]


async def next_update(stream: Any) -> str:
    """Of a resource; lists may have changed before it was listened to."""
    while (message := await next_message(stream))["method"] != "notifications/resources/updated":
        pass
    return message["params"]["uri"]


async def test_an_answer_that_comes_to_the_other_node_reaches_the_call() -> None:
    async with two(agent(asks=asks)) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        async with asked(one) as (stream, question):
            assert (await b.talk(one).reply(question, result=ANN)).status == 202
            assert "Ann" in await text_of(stream)
        assert a.sessions.count() == b.sessions.count() == 1


async def test_a_refusal_comes_over_as_well() -> None:
    async with two(agent(asks=asks)) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        async with asked(one) as (stream, question):
            await b.talk(one).reply(question, error={"code": -1, "message": "no"})
            assert "rejected" in await text_of(stream)


async def test_an_answer_that_is_too_large_to_go_over_is_told_in_words() -> None:
    async with two(agent(asks=asks)) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        async with asked(one) as (stream, question):
            large = {"action": "accept", "content": {"name": "A" * (MAX_BODY + 1)}}
            assert (await b.talk(one).reply(question, result=large)).status == 202
            assert "1,024 KiB" in await text_of(stream)


async def test_answers_to_nothing_go_nowhere_however_many_come() -> None:
    async with two(agent(asks=asks)) as (of, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        theirs = b.talk(one)
        async with asked(one) as (stream, question):
            await settled()
            before = len(await letters(of))
            name = question["id"]
            other = await talk(a.pair, capabilities=CAPABILITIES)
            forged = [
                "server-1",
                "x" * 10_000,
                name[:-1] + ("0" if name[-1] != "0" else "1"),
                name.replace("server-1", "server-2"),
                f"server-1-{'a' * 8}-{'0' * 8}-{'0' * 16}",
            ]
            for request_id in forged * 20:
                await theirs.reply({"id": request_id}, result=ANN)
            # One of another session, though it is its own.
            await b.talk(other).reply(question, result=ANN)
            await settled()
            assert len(await letters(of)) == before
            for _ in range(20):
                await theirs.reply(question, result=ANN)
            await settled()
            assert len(await letters(of)) == before + 1, "and once, what is asked for"
            assert "Ann" in await text_of(stream)


async def test_an_answer_where_it_was_asked_for_writes_nothing() -> None:
    async with two(agent(asks=asks)) as (of, a, _):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        await settled()
        before = of.store.written
        async with asked(one) as (stream, question):
            await one.reply(question, result=ANN)
            assert "Ann" in await text_of(stream)
            await one.reply(question, result=ANN)
        await settled()
        assert of.store.written == before


async def test_both_ask_at_once_and_no_answer_is_taken_for_the_others() -> None:
    async with two(agent(asks=asks)) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        theirs = b.talk(one)
        async with asked(one) as (here, first), asked(theirs) as (there, second):
            assert first["id"] != second["id"]
            bob = {"action": "accept", "content": {"name": "Bob"}}
            await theirs.reply(first, result=ANN)
            await one.reply(second, result=bob)
            assert "Ann" in await text_of(here)
            assert "Bob" in await text_of(there)


async def test_a_call_is_cancelled_through_the_other_node() -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (_, a, b):
        one = await talk(a.pair)
        async with one.opens("tools/call", {"name": "steps", "arguments": {}, **PROGRESS}, request_id="r-1"):
            with trio.fail_after(patience()):
                await steps.begun.wait()
                assert (await b.talk(one).note("notifications/cancelled", {"requestId": "r-1"})).status == 202
                await steps.ended.wait()
            assert steps.how == "cancelled"


async def test_cancelling_what_does_not_run_is_carried_so_often_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.store.node_messages.node_messages.OF_CALLER", rate(1, 86_400, burst=20))
    async with two(agent(asks=asks)) as (of, a, b):
        one = b.talk(await talk(a.pair))
        for number in range(60):
            await one.note("notifications/cancelled", {"requestId": number})
        await settled()
        assert len(await letters(of)) == 20


async def test_the_handshake_may_be_finished_at_the_other_node() -> None:
    async with two(agent(asks=asks)) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES, initialized=False)
        assert not a.living.session(one).ready
        await b.talk(one).note("notifications/initialized")
        async with asked(one) as (stream, question):
            await one.reply(question, result=ANN)
            assert "Ann" in await text_of(stream)


async def test_a_session_that_is_ended_at_one_node_is_ended_at_both() -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (_, a, b):
        one = await talk(a.pair)
        async with one.opens("tools/call", {"name": "steps", "arguments": {}}):
            with trio.fail_after(patience()):
                await steps.begun.wait()
                assert (await b.talk(one).end()).status == 204
                await steps.ended.wait()
        assert steps.how == "cancelled" and a.sessions.count() == 0
        for node in (a, b):
            assert (await node.talk(one).ask("tools/list")).status == 404


async def test_a_session_ended_before_anybody_was_told_is_not_taken_up_elsewhere() -> None:
    async with two(agent(asks=asks)) as (of, a, b):
        one = await talk(a.pair)
        of.alive.clear()  # nobody is told
        assert (await one.end()).status == 204
        assert (await b.talk(one).ask("tools/list")).status == 404


async def test_a_node_that_was_cut_off_for_long_looks_which_sessions_were_ended_meanwhile() -> None:
    async with two(agent(asks=asks)) as (of, a, b):
        one, other = await talk(a.pair), await talk(a.pair)
        for each in (one, other):
            await b.talk(each).ask("tools/list")
        of.alive.remove(b.name)  # what it would be told is lost
        assert (await one.end()).status == 204
        assert b.sessions.count() == 2
        b.letters._tell_missed()
        await trio.sleep(1)
        assert b.sessions.count() == 1 and b.living.session(other)


async def test_what_a_session_watches_it_hears_of_from_every_node_and_at_every_node() -> None:
    async with two(everything()) as (_, a, b):
        one = await talk(a.pair)
        assert (await one.ask("resources/subscribe", {"uri": "test://one"})).status == 200
        async with b.talk(one).listens() as stream:
            assert await stream.read() == b": keep-alive\n\n"
            await settled()
            for node in (a, b):
                node.house.endpoint.resource_changed("test://one")
                with trio.fail_after(patience()):
                    told = await next_message(stream)
                assert told["params"] == {"uri": "test://one"}
            node = b.talk(one)
            assert (await node.ask("resources/unsubscribe", {"uri": "test://one"})).status == 200
            await settled()
            assert a.living.session(one).watched == b.living.session(one).watched == set()


async def test_what_changes_before_a_node_knows_that_it_is_watched_is_told_when_it_does(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(everything()) as (of, a, b):
        one = await talk(a.pair)
        async with b.talk(one).listens() as stream:
            assert await stream.read() == b": keep-alive\n\n"
            b.house.endpoint.resource_changed("test://empty")
            await trio.sleep(61)  # more than a minute ago is no news to anybody
            read, goes = of.store.kept.read, trio.Event()

            async def later(job: Any) -> Any:
                if "function after" in str(job):  # letters
                    await goes.wait()
                return await read(job)

            monkeypatch.setattr(of.store.kept, "read", later)
            for name in ("one", "empty"):
                answer = await one.ask("resources/subscribe", {"uri": f"test://{name}"})
                assert answer.json["result"] == {}
            b.house.endpoint.resource_changed("test://one")
            b.house.endpoint.resource_changed("test://not-watched")
            await settled()
            assert not b.living.session(one).watched
            goes.set()
            with trio.fail_after(patience()):
                assert await next_update(stream) == "test://one"
            await settled()
            b.house.endpoint.resource_changed("test://empty")  # the next that it hears of: nothing came twice
            with trio.fail_after(patience()):
                assert await next_update(stream) == "test://empty"


async def test_a_node_that_comes_later_knows_what_a_session_watches_and_where_it_listens() -> None:
    async with two(everything()) as (of, a, b):
        one = await talk(a.pair)
        await one.ask("resources/subscribe", {"uri": "test://one"})
        await one.ask("logging/setLevel", {"level": "error"})
        async with b.talk(one).listens() as stream:
            await stream.read()
            async with neighbour(of, "c" * 16, everything()) as c:
                assert (await c.talk(one).ask("tools/list")).status == 200
                session = c.living.session(one)
                assert (session.watched, session.log_level) == ({"test://one"}, "error")
                assert session.reader == b.name and session.heard
                rows = await of.store.read(lambda db: db.fetch_all("SELECT sealed FROM session_watches"))
                assert len(rows) == 1 and b"test://one" not in rows[0]["sealed"]


async def test_a_store_that_is_too_slow_for_a_while_ends_nothing_but_what_was_to_be_written_then(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(everything()) as (of, a, b):
        one = await talk(a.pair)
        write, slow = of.store.kept.write, True

        async def sometimes(job: Any) -> Any:
            if slow:
                raise JobTooSlow("it was stopped")
            return await write(job)

        monkeypatch.setattr(of.store.kept, "write", sometimes)
        await one.ask("logging/setLevel", {"level": "error"})
        await trio.sleep(30)
        slow = False
        assert (await one.ask("resources/subscribe", {"uri": "test://one"})).status == 200
        assert (await b.talk(one).ask("tools/list")).status == 200
        await trio.sleep(30)
        assert b.living.session(one).watched == {"test://one"}


async def test_what_is_said_of_a_session_while_it_is_looked_up_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(everything()) as (of, a, b):
        one = await talk(a.pair)
        read, held, goes = of.store.kept.read, trio.Event(), trio.Event()

        async def slowly(job: Any) -> Any:
            found = await read(job)
            if "look_up" in str(job):
                held.set()
                await goes.wait()
            return found

        monkeypatch.setattr(of.store.kept, "read", slowly)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.talk(one).ask, "tools/list")
            await held.wait()
            assert (await one.ask("resources/subscribe", {"uri": "test://one"})).status == 200
            await settled()
            goes.set()
        assert b.living.session(one).watched == {"test://one"}


@pytest.mark.parametrize("known_there", [True, False])
async def test_what_a_newer_version_says_of_a_session_harms_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, known_there: bool
) -> None:
    """`known_there`: to the older node; else it is just looking the session up, and finds a level that it does not know."""
    async with two(everything()) as (of, a, b):
        one = await talk(a.pair)
        read, held, goes = of.store.kept.read, trio.Event(), trio.Event()

        async def slowly(job: Any) -> Any:
            found = await read(job)
            if "look_up" in str(job):
                held.set()
                await goes.wait()
                return replace(found, log_level="of-tomorrow")
            return found

        monkeypatch.setattr(of.store.kept, "read", slowly)
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await b.talk(one).ask("tools/list")).status)

        if known_there:
            goes.set()
            await ask()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await held.wait()
            topic = topic_of(a.living.session(one).id)
            for body in (
                b'{"type": "of-tomorrow", "uri": "test://one"}',
                b'{"type": "level", "level": "of-tomorrow"}',
            ):
                assert a.letters.send(ABOUT, topic, body)
            assert (await one.ask("resources/subscribe", {"uri": "test://one"})).status == 200
            await settled()
            goes.set()
        assert answers == [200] * len(answers)
        assert b.living.session(one).watched == {"test://one"}
        said = [(line["event"], line["kind"]) for line in of.lines if line["event"].startswith("letter.")]
        assert said == [("letter.not_understood", ABOUT)]


async def test_of_a_session_that_is_not_taken_up_nothing_is_kept() -> None:
    async with two(everything()) as (_, a, b):
        one = await talk(a.pair)
        b.sessions._per_caller = 1
        other = await talk(b.pair)
        async with other.listens() as stream:
            await stream.read()
            assert "error" in (await b.talk(one).ask("tools/list")).json
            for uri in ("test://one", "test://empty"):
                assert (await one.ask("resources/subscribe", {"uri": uri})).status == 200
            await settled()
            assert not b.shared._expected
        b.sessions._per_caller = 2
        assert (await b.talk(one).ask("tools/list")).status == 200
        assert b.living.session(one).watched == {"test://one", "test://empty"}
        assert not b.shared._expected


async def test_an_answer_for_which_there_is_no_room_may_be_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(agent(asks=asks)) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        async with asked(one) as (stream, question):
            await settled()
            with monkeypatch.context() as full:
                full.setattr(b.letters, "_has_room", lambda *_: False)
                await b.talk(one).reply(question, result=ANN)
            await b.talk(one).reply(question, result=ANN)
            assert "Ann" in await text_of(stream)


async def test_what_belongs_to_no_request_goes_where_the_client_listens_and_only_there() -> None:
    async with two(agent(asks=asks)) as (of, a, b):
        one = await talk(a.pair)
        async with b.talk(one).listens() as stream:
            await stream.read()
            await settled()
            here, there = a.living.session(one), b.living.session(one)
            assert here.heard and not here.unsolicited.attended
            await here.send(b'{"jsonrpc":"2.0","method":"notifications/x"}')
            with trio.fail_after(patience()):
                assert (await next_message(stream))["method"] == "notifications/x"
        await settled()
        assert not here.heard and not there.heard
        async with one.listens() as stream:
            await stream.read()
            await settled()
            b.die(of)
            await here.send(b'{"jsonrpc":"2.0","method":"notifications/y"}')
            with trio.fail_after(patience()):
                assert (await next_message(stream))["method"] == "notifications/y"


async def test_a_client_that_listens_elsewhere_now_is_told_there_what_it_had_not_heard() -> None:
    async with two(everything()) as (_, a, b):
        one = await talk(a.pair)
        await one.ask("resources/subscribe", {"uri": "test://one"})
        a.living.session(one).changed("made up", b'{"jsonrpc":"2.0","method":"notifications/x"}')
        async with b.talk(one).listens() as stream:
            with trio.fail_after(patience()):
                assert (await next_message(stream))["method"] == "notifications/x"
            async with one.listens() as again:
                await again.read()
                with trio.fail_after(patience()):
                    await stream.ended.wait()
            assert a.living.session(one)._changes == {}


async def test_a_list_that_changes_at_one_node_is_told_at_both_and_goes_to_and_fro_no_more() -> None:
    async with two(everything()) as (of, a, b):
        one = await talk(a.pair)
        async with b.talk(one).listens() as stream:
            await stream.read()
            await settled()
            a.house.endpoint._tell(frozenset({"tools"}))
            with trio.fail_after(patience()):
                assert (await next_message(stream))["method"] == "notifications/tools/list_changed"
            await settled()
            told = [row for row in await letters(of) if row["kind"] == "list"]
            assert [row["node"] for row in told] == [a.name]


async def test_a_session_that_comes_to_another_node_is_told_to_look_only_where_something_may_have_changed() -> (
    None
):
    async with two(everything()) as (of, a, b):
        one = await talk(a.pair)
        await b.talk(one).ask("tools/list")
        assert b.living.session(one)._changes == {}
        async with neighbour(of, "c" * 16, everything(), age_ms=0) as c:
            await c.talk(one).ask("tools/list")
            assert len(c.living.session(one)._changes) == 3, (
                "a node that has begun since may have other lists"
            )
        two_of_them = await talk(a.pair)
        b.house.endpoint._tell(frozenset({"prompts"}))
        await b.talk(two_of_them).ask("tools/list")
        (changed,) = b.living.session(two_of_them)._changes
        assert changed == "notifications/prompts/list_changed"


async def test_a_client_that_goes_to_and_fro_is_given_nothing_twice() -> None:
    async with two(everything()) as (_, a, b):
        one = await talk(a.pair)
        theirs, last = b.talk(one), None
        for number in range(4):
            here, node = (one, a) if number % 2 else (theirs, b)
            async with here.listens(last) as stream:
                await stream.read()
                await settled()
                message = b'{"jsonrpc":"2.0","method":"notifications/%d"}' % number
                await node.living.session(one).send(message)
                with trio.fail_after(patience()):
                    frame = await next_frame(stream)
                assert frame.json["method"] == f"notifications/{number}"
                last = frame.id
            await settled()


async def test_where_the_node_that_waits_dies_the_client_hears_what_it_hears_after_a_restart() -> None:
    async with two(agent(asks=asks)) as (of, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        theirs = b.talk(one)
        async with asked(one) as (_, question):
            a.die(of)
            assert (await theirs.reply(question, result=ANN)).status == 202
            answer = await theirs.ask("tools/list")
            assert answer.status == 200
