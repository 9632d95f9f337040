"""What is not a POST of JSON, who may come in at all, and the headers that browsers and proxies read."""

from __future__ import annotations

import pytest
import trio

from auth.tokens.presented_credentials import Presentation
from server.transport.http.connection_refusals import RequestRefused
from tests.interaction.agents import USER, house
from tests.interaction.agents import Refused as Refused401
from tests.pair import MODERN, encode, legacy, modern

VERBS = ("GET", "HEAD", "DELETE", "PUT", "PATCH", "POST")


@pytest.mark.requirement("auth.every-request", era="modern")
@pytest.mark.requirement("auth.every-request", era="legacy")
@pytest.mark.requirement("auth.challenge", era="modern")
@pytest.mark.requirement("auth.challenge", era="legacy")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic dTpw"])
async def test_every_verb_is_challenged_before_anything_else_is_said(
    verb: str, authorization: str | None
) -> None:
    pair = house(tokens={"right": USER}).pair
    headers = {} if authorization is None else {"authorization": authorization}
    for body in (b"", b"{", encode([])):
        answer = await pair.request(verb, body=body, headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer resource_metadata=")
        assert answer.headers["mcp-protocol-version"] == MODERN


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_whoever_challenges_is_told_the_path_as_it_was_typed(path: str) -> None:
    made = house(tokens={"right": USER})
    typed: list[str | None] = []

    async def stern(shown: Presentation) -> object:
        typed.append(shown.path)
        return Refused401()

    made.mcp.threshold.doorkeeper.authenticate = stern  # type: ignore[attr-defined]
    async with made.pair.open("GET", path=path) as exchange:
        assert (await exchange.answer()).status == 401
    assert typed == [path]


@pytest.mark.requirement("legacy.no-idle-stream")
@pytest.mark.requirement("http.no-other-verbs")
@pytest.mark.parametrize("verb", ["GET", "HEAD", "DELETE", "PUT", "PATCH"])
async def test_a_verb_that_is_not_served_says_at_once_which_is(verb: str) -> None:
    for made, headers in ((house(), {}), (house(tokens={"right": USER}), {"authorization": "Bearer right"})):
        for more in (
            {},
            {"accept": "text/event-stream"},
            {"mcp-protocol-version": MODERN, "mcp-session-id": "x"},
        ):
            answer = await made.pair.request(verb, headers=headers | more)
            assert answer.status == 405
            assert answer.headers["allow"] == "POST, OPTIONS"


async def test_a_probe_gets_its_own_version_back() -> None:
    answer = await house().pair.request(
        "GET", headers={"mcp-protocol-version": "2024-11-05", "accept": "*/*"}
    )
    assert (answer.status, answer.headers["mcp-protocol-version"]) == (405, "2024-11-05")


@pytest.mark.requirement("session.gone")
@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_a_session_that_is_gone_is_not_found_by_any_verb(verb: str) -> None:
    answer = await house().pair.request(
        verb, headers={"mcp-session-id": "gone", "accept": "text/event-stream"}
    )
    assert answer.status == 404


@pytest.mark.requirement("http.origin", era="modern")
@pytest.mark.requirement("http.origin", era="legacy")
@pytest.mark.requirement("http.host", era="modern")
@pytest.mark.requirement("http.host", era="legacy")
@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}]
)
async def test_a_foreign_host_or_origin_is_refused_before_the_login_is_looked_at(
    headers: dict[str, str],
) -> None:
    pair = house(tokens={}).pair
    for verb in (*VERBS, "OPTIONS"):
        answer = await pair.request(verb, headers=headers)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
        assert "mcp-protocol-version" in answer.headers


@pytest.mark.requirement("auth.cors", era="modern")
@pytest.mark.requirement("auth.cors", era="legacy")
async def test_a_preflight_is_never_challenged_and_names_every_header() -> None:
    asked = "content-type, mcp-param-region, mcp-param-a b, x-other"
    answer = await house(tokens={}).pair.request(
        "OPTIONS",
        headers={"origin": "http://127.0.0.1:8420", "access-control-request-headers": asked},
    )
    assert (answer.status, answer.body) == (204, b"")
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "mcp-method", "mcp-name", "mcp-param-region", "x-payment"} <= set(allowed)
    assert not {"x-other", "mcp-param-a b"} & set(allowed)
    assert answer.headers["access-control-allow-origin"] == "http://127.0.0.1:8420"


async def test_options_without_an_origin_says_what_is_served() -> None:
    answer = await house(tokens={}).pair.request("OPTIONS")
    assert (answer.status, answer.headers["allow"]) == (204, "POST, OPTIONS")


@pytest.mark.requirement("auth.cors", era="modern")
async def test_an_allowed_origin_may_read_answers_and_challenges() -> None:
    body, headers = modern("tools/list")
    headers["origin"] = "http://127.0.0.1:8420"
    for made, status in ((house(), 200), (house(tokens={}), 401)):
        answer = await made.pair.request(body=body, headers=headers)
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == "http://127.0.0.1:8420"
        assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"] == "origin"


@pytest.mark.requirement("http.content-type", era="legacy")
@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"]
)
async def test_a_body_that_does_not_call_itself_json_is_refused(content_type: str | None) -> None:
    body, headers = legacy("ping")
    del headers["content-type"]
    if content_type is not None:
        headers["content-type"] = content_type
    assert (await house().pair.request(body=body, headers=headers)).status == 415


async def test_the_content_type_may_have_parameters_and_capitals() -> None:
    body, headers = legacy("ping")
    headers["content-type"] = "Application/JSON; charset=utf-8"
    assert (await house().pair.request(body=body, headers=headers)).status == 200


@pytest.mark.requirement("http.accept", era="modern")
async def test_a_client_that_takes_neither_form_is_told_so() -> None:
    body, headers = legacy("ping")
    for accept in ("text/html", "application/json;q=0, text/event-stream;q=0.0"):
        assert (await house().pair.request(body=body, headers=headers | {"accept": accept})).status == 406


@pytest.mark.requirement("http.accept", era="modern")
@pytest.mark.parametrize(
    "accept", [None, "", "*/*", "application/*", "application/json", "text/html, */*;q=0.1"]
)
async def test_json_is_the_answer_wherever_the_client_takes_it(accept: str | None) -> None:
    body, headers = legacy("ping")
    del headers["accept"]
    if accept is not None:
        headers["accept"] = accept
    answer = await house().pair.request(body=body, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.requirement("http.accept", era="modern")
async def test_a_client_that_takes_only_event_streams_gets_its_answer_as_one_event() -> None:
    pair = house().pair
    for make in (modern, legacy):
        body, headers = make("tools/list")
        answer = await pair.request(body=body, headers=headers | {"accept": "text/event-stream"})
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert [event["id"] for event in answer.events] == [1]
    body, headers = modern("nonsense")
    refused = await pair.request(body=body, headers=headers | {"accept": "text/event-stream"})
    assert (refused.status, refused.json["error"]["code"]) == (404, -32601)


@pytest.mark.requirement("safety.body", era="legacy", transport="http")
async def test_a_body_over_the_cap_is_refused_however_it_comes() -> None:
    pair = house(max_body_bytes=1000).pair
    _, headers = legacy("ping")
    for body in (b" " * 1001, [b" " * 600, b" " * 600, b" " * 600]):
        assert (await pair.request(body=body, headers=headers)).status == 413
    small, _ = legacy("ping")
    pieces = [small[:10], small[10:], b" " * (1000 - len(small))]
    assert (await pair.request(body=pieces, headers=headers)).status == 200


async def test_a_client_that_leaves_before_its_body_is_complete_is_not_answered() -> None:
    pair = house().pair
    _, headers = legacy("ping")

    async with pair.open(body=[], headers=headers) as exchange:
        exchange.hang_up()
        await exchange.ended.wait()
        assert not exchange.started.is_set()


@pytest.mark.requirement("http.fault", era="modern")
async def test_a_fault_of_the_server_itself_is_500_with_the_requests_id() -> None:
    made = house()

    async def broken(shown: object) -> object:
        raise OSError("disk on fire")

    made.mcp.threshold.doorkeeper.authenticate = broken  # type: ignore[attr-defined]
    body, headers = modern("tools/list")
    answer = await made.pair.request(body=body, headers=headers)
    assert (answer.status, answer.json["error"]["code"]) == (500, -32603)
    assert "disk" not in answer.body.decode() and "request-1" in answer.body.decode()
    assert [line["request"] for line in made.lines if line["level"] == "error"] == ["request-1"]


async def test_a_connection_that_fails_under_the_answer_is_logged_and_not_written_to_again() -> None:
    made = house()
    body, headers = legacy("ping")
    written = 0

    async def receive() -> object:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: object) -> None:
        nonlocal written
        written += 1
        raise RuntimeError("a bug in the connection")

    scope = {
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {"request_id": "r", "draining": trio.Event()},
    }
    await made.pair.app(scope, receive, send)
    assert written == 1
    assert [line["event"] for line in made.lines] == ["mcp.crashed"]


async def test_what_the_connection_refuses_while_the_body_is_read_is_left_to_it() -> None:
    made = house()
    _, headers = legacy("ping")

    async def too_late() -> object:
        raise RequestRefused(408, "it took too long")

    async def send(message: object) -> None:
        raise AssertionError("the connection answers this itself")

    scope = {
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {"request_id": "r", "draining": trio.Event()},
    }
    with pytest.raises(RequestRefused):
        await made.pair.app(scope, too_late, send)
    assert made.lines == []
