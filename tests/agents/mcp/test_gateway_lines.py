"""Upstreams over a wire that all calls share: what is passed on, and whose it is."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from upstreams import (
    CAN_ALL,
    MODERN,
    Caller,
    Double,
    Refused,
    Turn,
    gate,
    over_http,
    over_tcp,
    soon,
    text,
    tool,
    words,
)

from server.agents.base.backend import BadArguments, ProtocolFailure
from server.client.mcp_session import message_channel
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered, Paused
from server.mcp.call_outlet import LogMessage, Progress

ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])
FORM = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}},
}


@ERAS
async def test_a_tool_is_offered_and_its_call_is_answered(era: str) -> None:
    async with over_tcp(Double(era=era)) as tcp, gate(tcp=tcp) as door:
        assert [each.name for each in door.backend.tools()] == ["say"]
        assert door.backend.trouble() is None
        assert await door.say("hello") == "hello"


async def test_the_stateless_era_is_tried_first_and_the_handshake_follows_where_it_is_refused() -> None:
    double = Double(era="handshake")
    async with over_tcp(double) as tcp, gate(tcp=tcp):
        methods = [each["method"] for each in double.heard[:3]]
        assert methods == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_server_that_is_slow_to_start_is_of_the_era_that_it_says_then(
    refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted, refused = trio.Event(), trio.Event()

    async def greet(turn: Turn) -> Any:
        monkeypatch.setattr(message_channel, "SILENCE_SECONDS", 60.0)
        greeted.set()
        if not refuses:
            await trio.sleep_forever()
        refused.set()
        raise Refused(-32601, "what is that?")

    async def discover(turn: Turn) -> Any:
        await (refused if refuses else greeted).wait()
        return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}

    monkeypatch.setattr(message_channel, "SILENCE_SECONDS", 0.0)
    double = Double(era="stateless")
    double.handlers |= {"server/discover": discover, "initialize": greet}
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        assert await door.say("hello") == "hello"
        assert [each["method"] for each in double.heard[:2]] == ["server/discover", "initialize"]
        assert not double.of("notifications/initialized")
        assert not double.cancelled, "nobody may cancel a handshake"


async def test_a_server_that_answers_only_what_it_knows_is_begun_with_by_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def say_nothing(turn: Turn) -> Any:
        await trio.sleep_forever()

    monkeypatch.setattr(message_channel, "SILENCE_SECONDS", 0.0)
    double = Double(era="handshake")
    double.handlers["server/discover"] = say_nothing
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        assert await door.say("hello") == "hello"
        methods = [each["method"] for each in double.heard[:3]]
        assert methods == ["server/discover", "initialize", "notifications/initialized"]


async def test_what_a_server_is_told_of_the_caller_is_what_it_can_be_asked_and_nothing_else() -> None:
    double = Double(era="stateless")
    async with over_tcp(double) as tcp, gate(tcp=tcp, questions=("elicitation",)) as door:
        await door.say("hello", can=frozenset({"elicitation", "sampling", "roots"}), subject="ada-lovelace")
        (call,) = double.of("tools/call")
        meta = call["params"]["_meta"]
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {"elicitation": {"form": {}}}
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "ostiary"
        assert "ada" not in str(double.heard)


@ERAS
async def test_progress_is_told_to_the_caller_who_wants_it(era: str) -> None:
    async def work(turn: Turn) -> Any:
        await turn.progress(1, "begun")
        await turn.progress(2, "half")
        return text("done")

    double = Double(era=era, handlers={"work": work}, lists={"tools": [tool("work")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Caller()
        assert words(await door.call("work", caller, wants_progress=True)) == "done"
        assert caller.events == [
            Progress(progress=1, total=3, message="begun"),
            Progress(progress=2, total=3, message="half"),
        ]


@ERAS
async def test_a_call_that_nobody_waits_for_is_cancelled_there(era: str) -> None:
    begun = trio.Event()

    async def hang(turn: Turn) -> Any:
        begun.set()
        await trio.sleep_forever()

    double = Double(era=era, handlers={"hang": hang}, lists={"tools": [tool("hang")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door, trio.open_nursery() as nursery:
        nursery.start_soon(door.call, "hang")
        await begun.wait()
        nursery.cancel_scope.cancel()
    (call,) = double.of("tools/call")
    assert call["id"] in double.cancelled


@pytest.mark.parametrize(
    ("code", "kind"),
    [(-32602, BadArguments), (-32603, BackendError), (-32000, BackendError), (4711, ProtocolFailure)],
)
async def test_an_error_of_the_protocol_stays_one(code: int, kind: type[BackendError]) -> None:
    async def refuse(turn: Turn) -> Any:
        raise Refused(code, "the moon is wrong", {"phase": "full"})

    double = Double(handlers={"refuse": refuse}, lists={"tools": [tool("refuse")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        with pytest.raises(BackendError) as caught:
            await door.call("refuse")
        assert type(caught.value) is kind
        assert str(caught.value) == "the moon is wrong"


async def test_a_failure_of_the_tool_stays_a_result_and_its_own_meta_passes() -> None:
    async def fail(turn: Turn) -> Any:
        meta = {"example.org/trace": 1, "io.modelcontextprotocol/serverInfo": {}, "io.ostiary/price": "$9"}
        return text("no luck", isError=True, structuredContent={"why": "rain"}, _meta=meta)

    double = Double(handlers={"fail": fail}, lists={"tools": [tool("fail")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        result = await door.call("fail")
        assert (result.is_error, result.structured) == (True, {"why": "rain"})
        assert result.meta == {"example.org/trace": 1}


async def test_a_question_of_a_server_that_waits_is_put_to_the_caller_whose_call_it_is() -> None:
    async def ask(turn: Turn) -> Any:
        answer = await turn.ask("elicitation/create", **FORM)
        return text(str(answer["result"]["content"]["yes"]))

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Caller(lambda asked: {key: {"action": "accept", "content": {"yes": True}} for key in asked})
        assert words(await door.call("ask", caller, can=CAN_ALL)) == "True"
        ((question,),) = [list(asked.values()) for asked in caller.asked]
        assert question.params["message"].endswith(f" at {tcp}, asks: Sure?")


async def test_nobody_is_asked_where_it_cannot_be_told_whose_question_it_is() -> None:
    both = trio.Event()
    running = 0

    async def ask(turn: Turn) -> Any:
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        await both.wait()
        return text(str("error" in await turn.ask("elicitation/create", **FORM)))

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="all") as door:
        callers = [Caller(), Caller()]
        said: list[str] = []

        async def call(caller: Caller, subject: str) -> None:
            said.append(words(await door.call("ask", caller, can=CAN_ALL, subject=subject)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, callers[0], "ada")
            nursery.start_soon(call, callers[1], "bob")
        assert said == ["True", "True"]
        assert [caller.asked for caller in callers] == [[], []]


async def test_roots_of_a_caller_are_no_business_of_a_server_that_all_share_unless_the_owner_says_so() -> (
    None
):
    async def look(turn: Turn) -> Any:
        return text(str((await turn.ask("roots/list")).get("error", {}).get("code")))

    double = Double(handlers={"look": look}, lists={"tools": [tool("look")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="all") as door:
        assert words(await door.call("look", can=CAN_ALL)) == "-32601"
        (opening,) = double.of("initialize")
        assert "roots" not in opening["params"]["capabilities"]


async def test_a_caller_who_cannot_be_asked_is_no_end_of_the_call() -> None:
    async def ask(turn: Turn) -> Any:
        return text("without" if "error" in await turn.ask("elicitation/create", **FORM) else "with")

    def refuse(_: object) -> Any:
        raise CannotAsk("nobody is there")

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        assert words(await door.call("ask", Caller(refuse), can=CAN_ALL)) == "without"


async def test_a_call_whose_caller_comes_back_with_the_answer_runs_once() -> None:
    runs = 0

    async def ask(turn: Turn) -> Any:
        nonlocal runs
        runs += 1
        answer = await turn.ask("elicitation/create", **FORM)
        return text(f"{answer['result']['action']} {runs}")

    def pause(_: object) -> Any:
        raise Paused

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        first = Caller(pause)
        with pytest.raises(Paused):
            await door.call("ask", first, can=CAN_ALL)
        second = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        result = await door.call("ask", second, can=CAN_ALL, resumed=first.kept[-1])
        assert words(result) == "decline 1"
        assert list(first.asked[0]) == list(second.asked[0])
        assert double.cancelled == []


async def test_a_parked_call_opens_for_nobody_else_and_once() -> None:
    async def ask(turn: Turn) -> Any:
        return text(str((await turn.ask("elicitation/create", **FORM))["result"]["action"]))

    def pause(_: object) -> Any:
        raise Paused

    def accept(asked: Any) -> Any:
        return {key: {"action": "accept", "content": {}} for key in asked}

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Caller(pause)
        with pytest.raises(Paused):
            await door.call("ask", caller, can=CAN_ALL)
        with pytest.raises(BackendError, match="make it again"):
            await door.call("ask", Caller(accept), can=CAN_ALL, resumed=caller.kept[-1], subject="bob")


async def test_a_stateless_server_that_asks_is_answered_with_its_own_state() -> None:
    async def ask(turn: Turn) -> Any:
        given = turn.params.get("inputResponses")
        if given is None:
            requests = {"sure": {"method": "elicitation/create", "params": {"mode": "form", **FORM}}}
            return {"resultType": "input_required", "inputRequests": requests, "requestState": "abc"}
        return text(f"{turn.params['requestState']} {given['sure']['action']}")

    double = Double(era="stateless", handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        assert words(await door.call("ask", caller, can=CAN_ALL)) == "abc decline"
        assert [list(asked) for asked in caller.asked] == [["sure"]]


async def test_a_key_that_stands_for_something_else_in_the_next_round_is_another_key_here() -> None:
    async def ask(turn: Turn) -> Any:
        number = int(turn.params.get("requestState", "0"))
        if number == 2:
            return text("done")
        question = {"method": "elicitation/create", "params": {**FORM, "message": f"Sure {number}?"}}
        return {
            "resultType": "input_required",
            "inputRequests": {"sure": question},
            "requestState": str(number + 1),
        }

    double = Double(era="stateless", handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        assert words(await door.call("ask", caller, can=CAN_ALL)) == "done"
        assert [list(asked) for asked in caller.asked] == [["sure"], ["sure-2"]]
        assert [list(call["params"].get("inputResponses", {})) for call in double.of("tools/call")] == [
            [],
            ["sure"],
            ["sure"],
        ]


async def test_a_stateless_caller_who_comes_back_goes_on_where_the_server_was() -> None:
    async def ask(turn: Turn) -> Any:
        given = turn.params.get("inputResponses")
        if given is None:
            requests = {"sure": {"method": "elicitation/create", "params": FORM}}
            return {"resultType": "input_required", "inputRequests": requests, "requestState": "abc"}
        return text(given["sure"]["action"])

    def pause(_: object) -> Any:
        raise Paused

    double = Double(era="stateless", handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        first = Caller(pause)
        with pytest.raises(Paused):
            await door.call("ask", first, can=CAN_ALL)
        second = Caller(lambda asked: {key: {"action": "cancel"} for key in asked})
        assert words(await door.call("ask", second, can=CAN_ALL, resumed=first.kept[-1])) == "cancel"
        assert len(double.of("tools/call")) == 2
        assert first.asked == second.asked


async def test_an_answer_that_does_not_come_ends_a_stateless_call_with_the_reason() -> None:
    async def ask(turn: Turn) -> Any:
        requests = {"sure": {"method": "elicitation/create", "params": FORM}}
        return {"resultType": "input_required", "inputRequests": requests}

    def refuse(_: object) -> Any:
        raise NotAnswered("they hung up")

    double = Double(era="stateless", handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        with pytest.raises(NotAnswered, match="they hung up"):
            await door.call("ask", Caller(refuse), can=CAN_ALL)


async def test_a_page_that_has_to_be_opened_first_is_shown_and_the_call_made_again() -> None:
    opened = 0

    async def ask(turn: Turn) -> Any:
        nonlocal opened
        opened += 1
        if opened == 1:
            page = {"mode": "url", "elicitationId": "e", "url": "https://a.example/x", "message": "Connect."}
            raise Refused(-32042, "a page first", {"elicitations": [page]})
        return text("connected")

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp, question_hosts=("a.example",)) as door:
        caller = Caller(lambda asked: {key: {"action": "accept"} for key in asked})
        assert words(await door.call("ask", caller, can=CAN_ALL)) == "connected"
        (asked,) = caller.asked
        page = dict(asked["page-1-1"].params)
        message = page.pop("message")
        assert page == {"mode": "url", "url": "https://a.example/x"}
        assert message.endswith(f" at {tcp}, asks you to open a page at a.example: Connect.")


async def test_a_page_that_nobody_wants_to_open_is_the_end_of_the_call() -> None:
    async def ask(turn: Turn) -> Any:
        page = {"mode": "url", "url": "https://a.example/x", "message": "Connect."}
        raise Refused(-32042, "a page first", {"elicitations": [page]})

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp, question_hosts=("a.example",)) as door:
        for action, told in (("decline", "nobody did"), ("accept", "a page first")):
            caller = Caller(lambda asked, action=action: {key: {"action": action} for key in asked})
            with pytest.raises(BackendError, match=told):
                await door.call("ask", caller, can=CAN_ALL)
        assert len(double.of("tools/call")) == 4


@pytest.mark.parametrize("somebody_else", [{"subject": "bob"}, {"sharer": "192.0.2.7"}])
async def test_a_log_message_is_the_callers_where_it_is_alone(somebody_else: dict[str, str]) -> None:
    async def log(turn: Turn) -> Any:
        await turn.tell("notifications/message", level="warning", data="hot", logger="stove")
        return text("done")

    double = Double(
        capabilities={"tools": {}, "logging": {}}, handlers={"log": log}, lists={"tools": [tool("log")]}
    )
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="all") as door:
        caller, other = Caller(), Caller()
        await door.call("log", caller, log_level="info")
        await door.call("log", other, log_level="info", **somebody_else)  # right behind the other's call
        assert caller.events == [LogMessage(level="warning", data="hot", logger="stove")]
        assert other.events == []
        assert double.of("logging/setLevel")[0]["params"] == {"level": "info"}


@pytest.mark.parametrize("over", [over_tcp, over_http])
async def test_a_session_is_told_a_level_where_it_is_lower_than_any_before(over: Any) -> None:
    double = Double(capabilities={"tools": {}, "logging": {}})
    async with over(double) as at, gate(**{"tcp" if over is over_tcp else "url": at}) as door:
        for level in ("warning", "warning", "error", "info", "info", None, "warning"):
            await door.say("hello", log_level=level)
    assert [each["params"]["level"] for each in double.of("logging/setLevel")] == ["warning", "info"]


async def test_changed_lists_are_read_again_and_announced() -> None:
    double = Double(capabilities={"tools": {"listChanged": True}})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        double.lists["tools"].append(tool("shout"))
        before = door.changes
        await double.listeners[0]({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await soon(lambda: door.changes > before)
        assert [each.name for each in door.backend.tools()] == ["say", "shout"]


async def test_an_upstream_that_is_down_at_the_start_appears_when_it_comes() -> None:
    async with over_tcp(Double()) as tcp:
        pass  # it was there, and is gone
    async with gate(tcp=tcp) as door:
        assert list(door.backend.tools()) == []
        trouble = door.backend.trouble()
        assert trouble is not None
        assert "nobody answers" in trouble.words
        double = Double()
        host, _, port = tcp.rpartition(":")
        assert host
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve_at, double, int(port))
            await soon(lambda: door.backend.trouble() is None)
            assert await door.say("hello") == "hello"
            nursery.cancel_scope.cancel()


async def _serve_at(double: Double, port: int) -> None:
    import json

    async def serve(stream: trio.SocketStream) -> None:
        async def say(message: Any) -> None:
            await stream.send_all(json.dumps(message).encode() + b"\n")

        held = b""
        async for data in stream:
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                double.hear(json.loads(line), {})
                await double.take(json.loads(line), say, {})

    await trio.serve_tcp(serve, port, host="127.0.0.1")
