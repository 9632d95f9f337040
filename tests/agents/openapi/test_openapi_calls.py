"""Calls over a real connection: what an API is sent, and what a caller gets of its answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import trio
from api_pair import against, api, ask_for, document, opened, text
from msgspec import UNSET

from server.agents.base.backend import Trouble, Watched
from server.mcp.call_failures import BackendError
from server.mcp.messages import EmbeddedResource, ImageContent
from tests.agents.python.fake_agent import Exchange, Silent, says, sends
from tests.free_ports import free_port

BOOK = {"id": "7", "title": "The Trial", "returned": None, "sequel": {"id": "8", "title": "x"}}


async def test_arguments_become_the_parts_of_a_request_and_json_is_structured() -> None:
    async with against(document("library"), says(json.dumps([BOOK]).encode())) as (agent, under_test):
        result = await ask_for(
            under_test, "findBooks", title="a b&c=d/é", genre=["crime", "poetry"], limit=3.0
        )
        (seen,) = agent.requests
        assert (seen.method, seen.target) == (
            "GET",
            "/api/books?title=a%20b%26c%3Dd%2F%C3%A9&genre=crime,poetry&limit=3",
        )
        assert seen.headers["host"] == f"localhost:{agent.port}"
        assert seen.headers["x-request-id"] == "call-7"
        assert (result.is_error, result.structured) == (False, [BOOK])
        assert json.loads(text(result)) == [BOOK]


@pytest.mark.parametrize(
    ("tool", "arguments", "method", "target", "body", "media_type"),
    [
        ("addBook", {"body": {"title": "T"}}, "POST", "/api/books", b'{"title":"T"}', "application/json"),
        ("replaceBook", {"bookId": "a/b", "body": {"title": "T"}}, "PUT", "/api/books/a%2Fb", b'{"title":"T"}', "application/json"),
        ("removeBook", {"bookId": "7", "If-Match": '"v1"'}, "DELETE", "/api/books/7", b"", None),
        ("post_loans", {"body": {"book": "a b", "reader": "ü&", "days": 2}}, "POST", "/api/loans", b"book=a%20b&reader=%C3%BC%26&days=2", "application/x-www-form-urlencoded"),
    ],
)  # fmt: skip
async def test_every_method_and_kind_of_body_is_sent_as_the_document_says(
    tool: str, arguments: dict[str, Any], method: str, target: str, body: bytes, media_type: str | None
) -> None:
    async with against(document("library"), says(b"", status=204)) as (agent, under_test):
        result = await ask_for(under_test, tool, **arguments)
        (seen,) = agent.requests
        assert (seen.method, seen.target, seen.body) == (method, target, body)
        assert seen.headers.get("content-type") == media_type
        assert seen.headers.get("if-match") == arguments.get("If-Match")
        assert text(result) == "Done (204); there is nothing more to say."


async def test_every_style_of_parameter_is_written_as_the_document_says() -> None:
    async with against(document("harbour"), says({"data": []})) as (agent, under_test):
        await ask_for(
            under_test,
            "list-berths",
            filter={"free": True, "length": {"min": 12.5}},
            sort=["pier", "length"],
            shape={"a": [1]},
        )
        await ask_for(
            under_test, "ships.at", pier="A", number=4, ids_path=[1, 2], ids_query=[3, 4], session="s 1"
        )
        await ask_for(under_test, "write.log", body="all ü well\n")
        first, second, third = agent.requests
        assert first.target == (
            "/api/berths?filter%5Bfree%5D=true&filter%5Blength%5D%5Bmin%5D=12.5"
            "&sort=pier%7Clength&shape=%7B%22a%22%3A%5B1%5D%7D"
        )
        assert second.target == "/api/berths/.A;number=4/ships/1,2?ids=3&ids=4"
        assert second.headers["cookie"] == "session=s%201"
        assert (third.headers["content-type"], third.body) == ("text/plain", "all ü well\n".encode())


async def test_a_body_of_another_json_type_is_sent_as_that() -> None:
    async with against(document("harbour"), says({"berth": "A4"})) as (agent, under_test):
        result = await ask_for(under_test, "announce", body={"convoy": [{"name": "Ada"}]})
        assert agent.requests[0].headers["content-type"] == "application/vnd.harbour+json"
        assert result.structured == {"berth": "A4"}


@pytest.mark.parametrize("value", ["", ".", "..", "../x", "a/../../b", "x\\..\\y"])
async def test_no_argument_leads_to_another_path(value: str) -> None:
    async with against(document("library"), says({})) as (agent, under_test):
        result = await ask_for(under_test, "getBook", bookId=value)
        assert result.is_error
        assert text(result).startswith("Invalid arguments.\nbookId: ")
        assert agent.requests == []


async def test_no_argument_makes_another_header_or_another_address() -> None:
    async with against(document("library"), says({})) as (agent, under_test):
        result = await ask_for(under_test, "removeBook", bookId="7", **{"If-Match": "a\r\nX-Evil: 1"})
        assert text(result) == "Invalid arguments.\nIf-Match: must be printable ASCII text on one line"
        await ask_for(under_test, "getBook", bookId="7?x=1#y@evil.example\r\n")
        assert [seen.target for seen in agent.requests] == ["/api/books/7%3Fx%3D1%23y%40evil.example%0D%0A"]
        long = await ask_for(under_test, "findBooks", title="x" * 20_000)
        assert "address that is too long" in text(long)


async def test_a_redirect_is_not_followed() -> None:
    elsewhere = says(b"", status=302, headers=[("Location", "http://localhost:1/secret")])
    async with against(document("library"), elsewhere) as (agent, under_test):
        result = await ask_for(under_test, "getBook", bookId="7")
        assert (result.is_error, text(result)) == (
            True,
            "The API answered 302 and sends callers elsewhere, which is not followed.",
        )
        assert len(agent.requests) == 1


async def test_a_failure_is_told_with_the_beginning_of_its_body_and_when_to_try_again() -> None:
    body = b'{"reason": "too many \x1b[31m"}' + b"x" * 10_000
    async with against(document("library"), says(body, status=429, headers=[("Retry-After", "30")])) as (
        _,
        under_test,
    ):
        result = await ask_for(under_test, "getBook", bookId="7")
        assert result.is_error
        assert text(result).startswith(
            'The API answered 429; try again in 30 seconds: {"reason": "too many  [31m"}'
        )
        assert len(text(result)) < 2_200
        assert result.structured is UNSET


async def test_what_is_not_json_is_text_a_picture_or_a_resource() -> None:
    async def by_path(exchange: Exchange) -> None:
        kind = {"/api/books/1/cover": "image/png", "/api/books/2/cover": "application/pdf"}.get(
            exchange.request.target, "text/csv"
        )
        await exchange.reply(
            b"\xff\x00" if "cover" in exchange.request.target else b"a,b", headers=[("Content-Type", kind)]
        )

    async with against(document("library"), by_path) as (_, under_test):
        (picture,) = (await ask_for(under_test, "getCover", bookId="1")).content
        assert picture == ImageContent(data="/wA=", mime_type="image/png")
        (file,) = (await ask_for(under_test, "getCover", bookId="2")).content
        assert isinstance(file, EmbeddedResource)
        assert (file.resource.mime_type, file.resource.blob) == ("application/pdf", "/wA=")
        assert text(await ask_for(under_test, "getBook", bookId="7")) == "a,b"


async def test_json_that_the_document_does_not_describe_and_broken_json_are_text() -> None:
    async with against(document("library"), says({"mo": "9-17"})) as (_, under_test):
        hours = await ask_for(under_test, "opening_hours")
        assert (hours.structured, text(hours)) == (UNSET, '{"mo":"9-17"}')
    async with against(document("library"), says(b'{"mo": ')) as (_, under_test):
        broken = await ask_for(under_test, "getBook", bookId="7")
        assert (broken.is_error, broken.structured, text(broken)) == (False, UNSET, '{"mo": ')


@pytest.mark.parametrize("body", [b"[" * 900 + b"]" * 900, b"[" * 100_000, b"9" * 5_000, b"1e400", b'{"id": 123456789012345678901234567890}'])  # fmt: skip
@pytest.mark.parametrize("settings", [{}, {"fields": {"getBook": ["id.x"]}}, {"answers": "promised"}])
async def test_json_that_nobody_expects_does_no_harm(body: bytes, settings: dict[str, Any]) -> None:
    async with against(document("library"), says(body), **settings) as (_, under_test):
        result = await ask_for(under_test, "getBook", bookId="7")
        json.dumps(msgspec.to_builtins(result.content))
        assert len(text(result)) <= len(body) + 100


async def test_only_the_fields_that_are_wanted_are_kept() -> None:
    fields = {"findBooks": ["title", "sequel.id", "missing"], "list-berths": ["data.pier"]}
    async with against(document("library"), says(json.dumps([BOOK]).encode()), fields={"findBooks": fields["findBooks"]}) as (_, under_test):  # fmt: skip
        result = await ask_for(under_test, "findBooks")
        assert result.structured == [{"title": "The Trial", "sequel": {"id": "8"}}]
    berths = {"data": [{"pier": "A", "ship": None}, {"pier": "B"}], "next": "x"}
    async with against(document("harbour"), says(berths), fields={"list-berths": ["data.pier"]}) as (
        _,
        under_test,
    ):
        assert (await ask_for(under_test, "list-berths")).structured == {
            "data": [{"pier": "A"}, {"pier": "B"}]
        }


async def test_an_answer_that_is_too_large_says_so_and_how_to_ask_for_less() -> None:
    large = json.dumps([{"id": str(n), "title": "t"} for n in range(100)]).encode()
    async with against(document("library"), says(large), answer_kib=1) as (_, under_test):
        result = await ask_for(under_test, "findBooks")
        assert (result.is_error, result.structured) == (True, UNSET)
        assert text(result).startswith(
            "The call was made, and its answer has 3 KiB: more than 1 are not passed on."
        )
    async with against(document("library"), says(large), answer_kib=1, fields={"findBooks": ["x"]}) as (
        _,
        under_test,
    ):
        assert not (await ask_for(under_test, "findBooks")).is_error
    endless = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
    async with against(document("library"), sends(endless)) as (_, under_test):
        assert "answered with more than 4096 KiB" in text(await ask_for(under_test, "findBooks"))


async def test_what_is_promised_is_checked() -> None:
    async with against(document("weather"), says({"latitude": "north"}), answers="promised") as (
        _,
        under_test,
    ):
        (tool,) = under_test.tools()
        assert tool.output_schema is not UNSET
        result = await ask_for(under_test, "get_forecast", latitude=1, longitude=2)
        assert (result.is_error, result.structured) == (True, UNSET)
        assert "call was made" in text(result) and "promises" in text(result)
    good = {"latitude": 1.5, "hourly": {"rain": [None, 1]}}
    async with against(document("weather"), says(good), answers="promised") as (agent, under_test):
        result = await ask_for(
            under_test, "get_forecast", latitude=52.52, longitude=-1, hourly=["rain", "temperature"]
        )
        assert result.structured == good
        assert agent.requests[0].target == "/api/forecast?latitude=52.52&longitude=-1&hourly=rain,temperature"
    async with against(document("weather"), says(good), answers="text") as (_, under_test):
        assert (await ask_for(under_test, "get_forecast", latitude=1, longitude=2)).structured is UNSET


async def test_an_api_that_does_not_answer_is_given_up() -> None:
    silent = Silent()
    async with against(document("library"), silent, deadline_seconds=1) as (_, under_test):
        result = await ask_for(under_test, "getBook", bookId="7")
        assert text(result) == "The API did not answer within 1 s. It may have done what was asked."
        await silent.gone.wait()


async def test_an_api_that_is_not_there_or_hangs_up_is_told_without_its_address() -> None:
    async with opened(document("library"), f"http://localhost:{free_port()}/api") as under_test:
        with pytest.raises(BackendError, match=r"^the API ") as caught:
            await ask_for(under_test, "getBook", bookId="7")
        assert "localhost" not in str(caught.value)
    async with against(document("library"), sends(b"")) as (_, under_test):
        result = await ask_for(under_test, "getBook", bookId="7")
        assert "closed the connection" in text(result)
        assert "It may have done" in text(result)


async def test_a_call_that_is_cancelled_hangs_up() -> None:
    silent = Silent()
    async with against(document("library"), silent) as (_, under_test):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask_for(under_test, "getBook", bookId="7"))
            await silent.came.wait()
            nursery.cancel_scope.cancel()
        await silent.gone.wait()


async def test_the_path_of_the_address_stays_in_front() -> None:
    paths = {"/a": {"get": {"responses": {}}}}
    async with against(api(paths), says({})) as (agent, under_test):
        await ask_for(under_test, "get_a")
        with pytest.raises(BackendError, match="no tool"):
            await ask_for(under_test, "other")
        assert agent.requests[0].target == "/api/a"


async def test_an_api_that_is_out_of_order_is_named_since_when_until_it_answers_again() -> None:
    statuses = [503, 500, 404]

    async def answers(exchange: Exchange) -> None:
        await exchange.reply({}, status=statuses.pop(0))

    async with against(document("library"), answers) as (_, under_test):
        assert isinstance(under_test, Watched)
        assert under_test.trouble() is None
        await ask_for(under_test, "getBook", bookId="7")
        first = under_test.trouble()
        assert first is not None
        assert first.words == "it answers 503"
        await ask_for(under_test, "getBook", bookId="7")
        assert under_test.trouble() == Trouble("it answers 500", first.since)
        await ask_for(under_test, "getBook", bookId="7")
        assert under_test.trouble() is None
    async with opened(document("library"), f"http://localhost:{free_port()}/api") as under_test:
        with pytest.raises(BackendError):
            await ask_for(under_test, "getBook", bookId="7")
        found = under_test.trouble()
        assert found is not None
        assert found.words.startswith("it ")
        # Whether it is there is found out without a request.
        await under_test.reach()
        assert under_test.trouble() == found
