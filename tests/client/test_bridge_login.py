"""Getting in over the bridge: the stored login, refreshes, and a device login while requests wait."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest
import trio
from bridge_pair import Host, bridged
from fake_server import FakeServer, Response, Seen, as_json
from screens import Screen
from test_access_token import stored

from server.client.client_errors import ClientError, LoginDenied, LoginError, LoginExpired
from server.client.signing_in import Wish, sign_in
from server.client.token_file import TokenFile
from server.lib.http_client.http_client import HttpClient


def logged_in(fake: FakeServer, file: TokenFile, *, expired: bool = False) -> None:
    now = time.time_ns() // 1_000_000
    obtained = now - 3_600_000 if expired else now
    login = stored(fake, file)
    file.put(msgspec.structs.replace(login, obtained_at=obtained, expires_at=obtained + 3_600_000))


def echo(host: Host, request_id: int) -> None:
    host.modern(request_id, "tools/call", {"name": "echo", "arguments": {"text": "hello"}})


async def heard(host: Host, count: int) -> set[int]:
    answers = [await host.hear() for _ in range(count)]
    assert all(answer["result"]["content"][0]["text"] == "hello" for answer in answers)
    return {answer["id"] for answer in answers}


async def test_a_stored_login_is_used_and_refreshed_before_its_end(fake: FakeServer, file: TokenFile) -> None:
    logged_in(fake, file, expired=True)
    async with bridged(fake.url, file) as host:
        for number in range(5):
            echo(host, number)
        assert await heard(host, 5) == set(range(5))
    assert fake.count["refreshed"] == 1
    sent = {request.headers["authorization"] for request in fake.requests("/mcp")}
    assert sent == {f"Bearer {next(iter(fake.valid))}"}


async def test_a_token_that_is_refused_is_refreshed_once_for_all(fake: FakeServer, file: TokenFile) -> None:
    logged_in(fake, file)
    fake.valid.clear()
    async with bridged(fake.url, file) as host:
        for number in range(5):
            echo(host, number)
        assert await heard(host, 5) == set(range(5))
    assert fake.count["refreshed"] == 1


async def test_a_server_that_refuses_every_token_is_not_asked_for_ever(
    fake: FakeServer, file: TokenFile
) -> None:
    logged_in(fake, file)

    async def refuse(request: Seen) -> Response:
        return as_json({}, 401)

    fake.overrides["/mcp"] = refuse
    async with bridged(fake.url, file) as host:
        echo(host, 1)
        assert "does not accept this login; run ostiary login" in (await host.error())[2]
    assert len(fake.requests("/mcp")) == 2


async def test_an_open_server_needs_no_login(fake: FakeServer, file: TokenFile) -> None:
    fake.login_needed = False
    async with bridged(fake.url, file) as host:
        echo(host, 1)
        assert await heard(host, 1) == {1}
    assert all("authorization" not in request.headers for request in fake.seen)


async def test_without_a_login_and_nobody_to_ask_requests_fail_at_once(
    fake: FakeServer, file: TokenFile
) -> None:
    async with bridged(fake.url, file) as host:
        for number in range(2):
            echo(host, number)
            request_id, code, text = await host.error()
            assert (request_id, code) == (number, -32603)
            assert text == f"not logged in at {fake.url}; run ostiary login {fake.url}"
        assert host.said == [f"not logged in at {fake.url}; run ostiary login {fake.url}"]
        logged_in(fake, file)  # in a terminal, meanwhile
        echo(host, 3)
        assert await heard(host, 1) == {3}


def by_code(
    fake: FakeServer,
    file: TokenFile,
    client: HttpClient,
    screen: Screen,
    *,
    keeps_code: bool = False,
) -> Callable[[], Awaitable[None]]:
    async def log_in() -> None:
        wish = Wish(name="ostiary connect", keeps_code=keeps_code)
        await sign_in(client, file, fake.url, screen=screen, wish=wish)

    return log_in


async def test_the_first_request_waits_for_a_login_and_all_wait_for_the_same(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    screen = Screen()
    async with bridged(fake.url, file, log_in=by_code(fake, file, client, screen)) as host:
        for number in range(5):
            echo(host, number)
        assert await heard(host, 5) == set(range(5))
    assert [code.user_code for code in screen.codes] == ["WDJB-MJHT"]
    (asked,) = fake.requests("/device_authorization")
    assert asked.form["client_name"].endswith(" connect")
    assert file.get(fake.url) is not None


async def given_up(log_in: Callable[[], Awaitable[None]], screen: Screen) -> None:
    """A program that ends its bridge as soon as that has shown its code."""
    screen.shown = trio.Event()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_in)
            await screen.shown.wait()
            nursery.cancel_scope.cancel()


async def test_a_code_that_nobody_saw_is_used_again(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    screen = Screen()
    log_in = by_code(fake, file, client, screen, keeps_code=True)
    fake.pending, fake.interval = 1_000_000, 1
    for _ in range(5):
        await given_up(log_in, screen)
    assert len(fake.requests("/device_authorization")) == 1
    assert len({code.device_code.reveal() for code in screen.codes}) == 1 and len(screen.codes) == 5
    fake.pending = 0  # somebody approves it
    async with bridged(fake.url, file, log_in=log_in) as host:
        echo(host, 1)
        assert await heard(host, 1) == {1}
    assert file.code(fake.url) is None
    assert len(fake.requests("/device_authorization")) == 1


@pytest.mark.parametrize("decision", ["access_denied", "expired_token", "invalid_grant"])
async def test_a_code_that_is_over_is_not_used_again(
    fake: FakeServer, file: TokenFile, client: HttpClient, decision: str
) -> None:
    fake.decision = decision
    for _ in range(2):
        with pytest.raises(LoginError):
            await by_code(fake, file, client, Screen(), keeps_code=True)()
        assert file.code(fake.url) is None
    assert len(fake.requests("/device_authorization")) == 2


async def test_a_code_with_little_time_left_is_not_shown_again(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    fake.code_lifetime, fake.pending = 30, 1_000_000
    screen = Screen()
    for _ in range(2):
        await given_up(by_code(fake, file, client, screen, keeps_code=True), screen)
    assert len(fake.requests("/device_authorization")) == 2


async def test_a_person_who_logs_in_gets_a_code_of_their_own(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    fake.pending = 1_000_000
    screen = Screen()
    await given_up(by_code(fake, file, client, screen, keeps_code=True), screen)
    kept, fake.pending = file.code(fake.url), 0
    await by_code(fake, file, client, screen)()
    assert len(fake.requests("/device_authorization")) == 2
    assert file.code(fake.url) == kept


async def test_a_login_that_ended_is_replaced_by_a_new_one(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    logged_in(fake, file, expired=True)
    fake.refresh_token = "another"
    screen = Screen()
    async with bridged(fake.url, file, log_in=by_code(fake, file, client, screen)) as host:
        echo(host, 1)
        assert await heard(host, 1) == {1}
    assert len(screen.codes) == 1


async def test_a_login_goes_on_when_the_request_that_began_it_is_cancelled(
    fake: FakeServer, file: TokenFile
) -> None:
    asked, approved = trio.Event(), trio.Event()
    begun = 0

    async def log_in() -> None:
        nonlocal begun
        begun += 1
        asked.set()
        await approved.wait()
        logged_in(fake, file)

    async with bridged(fake.url, file, log_in=log_in) as host:
        echo(host, 1)
        with trio.fail_after(60):
            await asked.wait()
        host.cancel(1)
        echo(host, 2)
        approved.set()
        assert await heard(host, 1) == {2}
        assert host.nothing_more()
    assert begun == 1


@pytest.mark.parametrize(("error", "logins"), [(LoginDenied("no"), 1), (LoginExpired("too late"), 2)])
async def test_a_denied_login_is_not_asked_for_again_and_one_that_ran_out_is(
    fake: FakeServer, file: TokenFile, error: ClientError, logins: int
) -> None:
    begun = 0

    async def log_in() -> None:
        nonlocal begun
        begun += 1
        raise error

    async with bridged(fake.url, file, log_in=log_in) as host:
        for number in range(2):
            echo(host, number)
            assert (await host.error())[:2] == (number, -32603)
        logged_in(fake, file)
        echo(host, 3)
        assert await heard(host, 1) == {3}
    assert begun == logins
