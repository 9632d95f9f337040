"""Who gets a session, whose it is, what is said to requests that name one, and its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from auth.values.identity_model import Principal, PrincipalKind
from server.calls.sessions.sessions import Sessions
from server.mcp.messages import Implementation
from server.mcp.result_encoding import ServerIdentity
from tests.interaction.agents import USER, agent, house
from tests.interaction.session_house import living
from tests.pair import MODERN, legacy, modern, talk

OTHER = Principal(
    kind=PrincipalKind.USER, subject="user-2", client_id="client-1", scopes=frozenset({"mcp:tools"})
)
TOKENS = {"a": USER, "b": OTHER}


@pytest.mark.requirement("session.given")
async def test_initialize_begins_a_session_and_says_so_in_a_header() -> None:
    async with living() as made:
        one = await talk(made.pair)
        assert one.welcome.headers["content-type"] == "application/json"
        assert one.welcome.json["result"]["protocolVersion"] == "2025-11-25"
        assert one.id.isascii() and len(one.id) >= 22
        assert (await one.ask("tools/list")).json["result"]["tools"]
        assert "mcp-session-id" not in (await one.ask("ping")).headers
        assert (await one.ask("ping")).json["result"] == {}
        assert made.sessions.count() == 1
        assert made.session(one).client == "pair/1" and made.session(one).ready


async def test_what_a_client_that_may_hear_of_changes_is_offered() -> None:
    async with living() as made:
        offered = (await talk(made.pair)).welcome.json["result"]["capabilities"]
        assert offered["tools"] == {"listChanged": True}


async def test_a_proxy_that_begins_two_sessions_has_two() -> None:
    """As mcp-remote does: a probe, a session to try, and then the one it uses, each with a stream of its own."""
    async with living() as made:
        assert (await made.pair.request("GET")).status == 405
        probe = await talk(made.pair, version="2025-06-18")
        used = await talk(made.pair, version="2025-03-26", mcp_method="initialize")
        assert probe.id != used.id
        with trio.fail_after(60):
            async with probe.listens() as first, used.listens() as second:
                await first.started.wait()
                await second.started.wait()
                assert (first.status, second.status) == (200, 200)
                for one in (probe, used):
                    answer = await one.ask("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
                    assert answer.json["result"]["content"][0]["text"] == "hi"
                    assert answer.headers["mcp-protocol-version"] == one.headers["mcp-protocol-version"]


@pytest.mark.requirement("session.only-initialize")
@pytest.mark.parametrize("verb", ["GET", "HEAD", "DELETE"])
async def test_nothing_but_a_handshake_that_succeeded_begins_one(verb: str) -> None:
    async with living(tokens=TOKENS) as made:
        allowed = {"authorization": "Bearer a"}
        stream = allowed | {"accept": "text/event-stream"}
        assert (await made.pair.request(verb, headers=stream)).status == 405
        body, headers = legacy("initialize", {"protocolVersion": "2025-11-25"})
        for more, status in (
            ({}, 401),
            ({"authorization": "Bearer c"}, 401),
            ({"authorization": "Bearer a", "origin": "http://evil.example"}, 403),
            ({"authorization": "Bearer a", "content-type": "text/plain"}, 415),
        ):
            assert (await made.pair.request(body=body, headers=headers | more)).status == status
        bad, _ = legacy("initialize", {"protocolVersion": 7})
        assert (await made.pair.request(body=bad, headers=headers | allowed)).json["error"]["code"] == -32602
        for method in ("tools/list", "ping"):
            other, _ = legacy(method)
            assert (
                "mcp-session-id"
                not in (await made.pair.request(body=other, headers=headers | allowed)).headers
            )
        body, headers = modern("initialize", {"protocolVersion": "2025-11-25"})
        refused = await made.pair.request(body=body, headers=headers | {"authorization": "Bearer a"})
        assert refused.status == 404 and "mcp-session-id" not in refused.headers
        assert made.sessions.count() == 0


async def test_a_handshake_that_goes_wrong_leaves_no_session() -> None:
    async with living() as made:
        mcp: Any = made.house.mcp
        no_json: Any = object()
        mcp.endpoint = replace(
            mcp.endpoint,
            identity=ServerIdentity(Implementation(name="x", version="1"), instructions=no_json),
        )
        body, headers = legacy("initialize", {"protocolVersion": "2025-11-25"})
        answer = await made.pair.request(body=body, headers=headers)
        assert answer.json["error"]["code"] == -32603 and "mcp-session-id" not in answer.headers
        assert made.sessions.count() == 0


@pytest.mark.requirement("session.gone")
@pytest.mark.requirement("session.delete")
async def test_a_session_that_has_ended_is_not_found_and_one_begins_anew() -> None:
    async with living() as made:
        one = await talk(made.pair)
        ended = await one.end()
        assert (ended.status, ended.body) == (204, b"")
        for answer in (
            await one.ask("tools/list"),
            await one.note("notifications/initialized"),
            await one.say({"jsonrpc": "2.0", "id": 1, "result": {}}),
            await one.say([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], mcp_protocol_version="2025-03-26"),
            await one.end(),
            await made.pair.request("GET", headers=one.headers | {"accept": "text/event-stream"}),
            await made.pair.request("HEAD", headers=one.headers),
        ):
            assert answer.status == 404
        again = await talk(made.pair, mcp_session_id=one.id)
        assert again.id != one.id


@pytest.mark.requirement("session.bound")
async def test_a_session_is_not_found_by_another_caller() -> None:
    async with living(tokens=TOKENS) as made:
        mine = await talk(made.pair, authorization="Bearer a")
        theirs = {**mine.headers, "authorization": "Bearer b"}
        body, headers = legacy("tools/list")
        assert (await made.pair.request(body=body, headers=headers | theirs)).status == 404
        assert (await made.pair.request("DELETE", headers=theirs)).status == 404
        assert (
            await made.pair.request("GET", headers=theirs | {"accept": "text/event-stream"})
        ).status == 404
        assert (
            await made.pair.request("DELETE", headers=mine.headers | {"authorization": "Bearer c"})
        ).status == 401
        assert (await mine.ask("tools/list")).status == 200


@pytest.mark.requirement("legacy.version-header")
async def test_the_version_header_may_be_left_out_or_name_another_that_we_know() -> None:
    async with living() as made:
        one = await talk(made.pair, version="2025-06-18")
        del one.headers["mcp-protocol-version"]
        for version in (None, "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            more: dict[str, Any] = {} if version is None else {"mcp_protocol_version": version}
            answer = await one.ask("tools/list", **more)
            assert (answer.status, answer.headers["mcp-protocol-version"]) == (200, "2025-06-18")


@pytest.mark.requirement("legacy.version-header")
@pytest.mark.parametrize("version", ["banana", "2025-01-01", "1", ""])
async def test_a_version_header_that_names_none_is_refused(version: str) -> None:
    async with living() as made:
        one = await talk(made.pair)
        assert (await one.ask("tools/list", mcp_protocol_version=version)).status == 400
        async with one.listens(mcp_protocol_version=version) as stream:
            assert (await stream.answer()).status == 400
        assert made.sessions.count() == 1


@pytest.mark.requirement("era.session-header")
async def test_a_modern_request_knows_nothing_of_sessions() -> None:
    async with living() as made:
        one = await talk(made.pair)
        for named in (one.id, "never was"):
            answer = await made.pair.modern("tools/list", mcp_session_id=named)
            assert answer.json["result"]["resultType"] == "complete"
            for verb in ("GET", "DELETE"):
                headers = {"mcp-protocol-version": MODERN, "mcp-session-id": named}
                assert (await made.pair.request(verb, headers=headers)).status == 405
        assert made.sessions.count() == 1


@pytest.mark.requirement("session.bounds")
async def test_a_caller_with_too_many_sessions_loses_the_one_unused_for_longest() -> None:
    async with living(sessions=Sessions(per_caller=3), tokens=TOKENS) as made:
        first = await talk(made.pair, authorization="Bearer a")
        with trio.fail_after(60):
            async with first.listens() as stream:
                await stream.started.wait()
                second = await talk(made.pair, authorization="Bearer a")
                third = await talk(made.pair, authorization="Bearer a")
                await talk(made.pair, authorization="Bearer b")
                made.session(second).last_used -= 60
                fourth = await talk(made.pair, authorization="Bearer a")
                assert second.id not in made.sessions._all
                for one in (first, third, fourth):
                    assert (await one.ask("ping")).status == 200
                assert made.sessions.count() == 4
                assert (await second.ask("ping")).status == 200, "and another gives way"
                assert made.sessions.count() == 4 and first.id in made.sessions._all


async def test_a_caller_whose_sessions_are_all_in_use_is_told_so() -> None:
    async with living(sessions=Sessions(per_caller=1)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.listens() as stream:
                await stream.started.wait()
                body, headers = legacy("initialize", {"protocolVersion": "2025-11-25"})
                refused = await made.pair.request(body=body, headers=headers)
                assert refused.status == 429 and "mcp-session-id" not in refused.headers
        await talk(made.pair)


@pytest.mark.requirement("era.without-session")
async def test_where_sessions_are_offered_a_request_may_still_do_without() -> None:
    async with living() as made:
        assert (await made.pair.legacy("tools/list")).status == 200
        assert (await made.pair.legacy("notifications/initialized")).status in (200, 202)


@pytest.mark.requirement("session.required")
async def test_where_they_are_required_a_request_without_one_is_refused() -> None:
    async with living() as made:
        endpoint: Any = made.house.mcp
        endpoint._sessions_required = True
        for body in (legacy("tools/list")[0], b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'):
            refused = await made.pair.request(body=body, headers=legacy("tools/list")[1])
            assert (refused.status, refused.json["error"]["code"]) == (400, -32600)
        assert (await made.pair.modern("tools/list")).status == 200
        assert (await (await talk(made.pair)).ask("tools/list")).status == 200


async def test_where_there_are_none_the_handshake_is_answered_without() -> None:
    pair = house(agent()).pair
    body, headers = legacy("initialize", {"protocolVersion": "2025-11-25"})
    answer = await pair.request(body=body, headers=headers)
    assert answer.status == 200 and "mcp-session-id" not in answer.headers
    assert answer.json["result"]["capabilities"]["tools"] == {}
    assert (await pair.legacy("tools/list", mcp_session_id="x")).status == 404


async def test_the_oldest_client_that_asks_for_something_unknown_gets_our_latest_handshake() -> None:
    async with living() as made:
        body, headers = legacy("initialize", {"protocolVersion": ""})
        answer = await made.pair.request(body=body, headers=headers)
        assert answer.json["result"]["protocolVersion"] == "2025-11-25"
        assert answer.headers["mcp-session-id"]
