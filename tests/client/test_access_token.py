from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from fake_server import FakeServer, Response, Seen, as_json

from server.client.access_token import Access
from server.client.client_errors import ClientError, NotLoggedIn, ServerBusy, TokenFileError, Unreachable
from server.client.http_exchange import open_client
from server.client.token_file import StoredLogin, TokenFile
from server.lib.http_client.http_client import HttpClient
from server.lib.secret import Secret

NOW = 10_000_000


def stored(fake: FakeServer, file: TokenFile, *, expired: bool = True) -> StoredLogin:
    """A login as `ostiary login` leaves it."""
    tokens = msgspec.json.decode(fake.issue().body)
    login = StoredLogin(
        url=fake.url,
        resource=fake.url,
        issuer=fake.origin,
        token_endpoint=f"{fake.origin}/token",
        revocation_endpoint=f"{fake.origin}/revoke",
        client_id="ostiary-cli",
        access_token=Secret(tokens["access_token"]),
        refresh_token=Secret(tokens["refresh_token"]),
        scope="mcp",
        obtained_at=NOW - 3_600_000 if expired else NOW,
        expires_at=NOW if expired else NOW + 3_600_000,
    )
    file.put(login)
    return login


@pytest.fixture
def access(fake: FakeServer, file: TokenFile, client: HttpClient) -> Access:
    async def no_wait(seconds: float) -> None:
        await trio.sleep(min(seconds, 0.02))

    return Access(file, fake.url, client=client, now=lambda: NOW, sleep=no_wait)


async def test_a_fresh_token_is_used_as_it_is(fake: FakeServer, file: TokenFile, access: Access) -> None:
    login = stored(fake, file, expired=False)
    assert await access.login() == login
    assert fake.seen == []


async def test_a_token_near_its_end_is_refreshed_and_the_new_pair_kept(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    old = stored(fake, file)
    new = await access.login()
    assert new.access_token != old.access_token
    assert new.expires_at == NOW + 3_600_000
    assert file.get(fake.url) == new
    (request,) = fake.requests("/token")
    assert request.form == {
        "grant_type": "refresh_token",
        "refresh_token": "rt-1",
        "client_id": "ostiary-cli",
        "resource": fake.url,
    }


async def test_many_tasks_that_need_a_token_at_once_make_one_refresh(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    stored(fake, file)
    found: list[StoredLogin] = []

    async def one() -> None:
        async with open_client() as client:
            found.append(await Access(file, fake.url, client=client, now=lambda: NOW).login())

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one)
    assert fake.count["refreshed"] == 1
    assert len({login.access_token for login in found}) == 1


async def test_a_refused_token_is_renewed_unless_somebody_did_so_already(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    old = stored(fake, file, expired=False)
    new = await access.renew(old.access_token)
    assert new != old.access_token
    assert await access.renew(old.access_token) == new
    assert fake.count["refreshed"] == 1


async def test_a_server_that_does_not_rotate_keeps_the_refresh_token_it_gave(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    async def unrotated(request: Seen) -> Response:
        return as_json({"access_token": "new", "token_type": "Bearer", "expires_in": 60})

    old = stored(fake, file)
    fake.overrides["/token"] = unrotated
    new = await access.login()
    assert new.access_token.reveal() == "new"
    assert new.refresh_token == old.refresh_token
    assert new.scope == old.scope


async def test_an_answer_lost_on_the_way_is_asked_for_again_with_the_same_token(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    stored(fake, file)
    lost = [True, True]

    async def lossy(request: Seen) -> Response:
        return Response(break_off=True) if lost and lost.pop() else await fake.usual(request)

    fake.overrides["/token"] = lossy
    await access.login()
    assert [request.form["refresh_token"] for request in fake.requests("/token")] == ["rt-1"] * 3


async def test_a_server_that_is_down_costs_no_login(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    login = stored(fake, file)
    file.put(msgspec.structs.replace(login, token_endpoint="http://127.0.0.1:1/token"))
    with pytest.raises(Unreachable, match="nothing answers"):
        await access.login()
    assert file.get(fake.url) is not None


@pytest.mark.parametrize(("status", "error"), [(503, ServerBusy), (500, ServerBusy), (418, ClientError)])
async def test_a_server_in_trouble_costs_no_login(
    fake: FakeServer, file: TokenFile, access: Access, status: int, error: type[ClientError]
) -> None:
    async def troubled(request: Seen) -> Response:
        return Response(status, b"oops")

    login = stored(fake, file)
    fake.overrides["/token"] = troubled
    with pytest.raises(error):
        await access.login()
    assert file.get(fake.url) == login
    assert len(fake.requests("/token")) == 1


async def test_a_refresh_token_that_is_refused_ends_the_login_and_says_how_to_get_another(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    stored(fake, file)
    fake.refresh_token = "another"
    with pytest.raises(NotLoggedIn, match="has ended") as refused:
        await access.login()
    assert refused.value.hint == f"ostiary login {fake.url}"
    assert file.get(fake.url) is None


async def test_without_a_login_the_hint_names_the_one_under_another_name_of_this_machine(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    stored(fake, file, expired=False)
    elsewhere = fake.url.replace("127.0.0.1", "localhost")
    access = Access(file, elsewhere, client=client, now=lambda: NOW)
    assert await access.token() is None
    with pytest.raises(NotLoggedIn) as refused:
        await access.login()
    assert refused.value.hint == f"ostiary login {elsewhere}, or use {fake.url}, where you are logged in"


async def test_cancelling_a_refresh_lets_it_finish_and_keeps_its_answer(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    stored(fake, file)
    cancel = trio.Event()

    async def slowly(request: Seen) -> Response:
        response = await fake.usual(request)
        cancel.set()
        await trio.sleep(0.05)
        return response

    fake.overrides["/token"] = slowly
    with trio.fail_after(60), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_cancel_when, cancel, scope))
            await access.login()
            await trio.sleep_forever()
    kept = file.get(fake.url)
    assert kept is not None
    assert kept.refresh_token == Secret(str(fake.refresh_token))


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def test_a_lock_that_is_never_let_go_is_told_not_waited_for(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    stored(fake, file)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with file.lock_of(fake.url).held(), pytest.raises(TokenFileError, match="another process"):
        await Access(file, fake.url, client=client, now=lambda: NOW, sleep=sleep).login()
    assert sum(waited) == pytest.approx(45)
    assert fake.seen == []


async def test_no_error_repeats_what_a_server_said_in_place_of_tokens(
    fake: FakeServer, file: TokenFile, access: Access
) -> None:
    async def leaking(request: Seen) -> Response:
        return as_json({"access_token": "bad token", "refresh_token": "rt-secret", "token_type": "Bearer"})

    stored(fake, file)
    fake.overrides["/token"] = leaking
    with pytest.raises(ClientError) as refused:
        await access.login()
    told: list[Any] = [str(refused.value), repr(refused.value), refused.value.hint]
    assert not any("rt-secret" in str(text) or "bad token" in str(text) for text in told)
