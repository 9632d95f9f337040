"""The rule for refreshing a login (server/lib/oauth_client/refreshing.py), with a keeper that remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec.structs import replace

from server.lib.oauth_client.kept_login import OAuthLogin
from server.lib.oauth_client.oauth_answers import OAuthFailure
from server.lib.oauth_client.refreshing import LoginKeeper
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens
from server.lib.secret import Secret

LOGIN = OAuthLogin(
    issuer="https://login.example",
    client_id="us",
    resource="https://files.example",
    token_endpoint="https://login.example/token",
    access_token=Secret("old"),
    refresh_token=Secret("once"),
    obtained_at=0,
)
NEW = Tokens(access_token=Secret("new"), refresh_token=Secret("next"))
LOST = OAuthFailure("does not answer in time")


class Keeper(LoginKeeper[OAuthLogin]):
    """A login in memory, and what is answered to each try in turn."""

    pauses = (0, 1)

    def __init__(self, *answers: Tokens | GrantRefusal | Exception, login: OAuthLogin = LOGIN) -> None:
        self.login: OAuthLogin | None = login
        self.answers = list(answers)
        self.told: list[object] = []
        self._now = lambda: 7
        self._lock = trio.Lock()

    @asynccontextmanager
    async def turn(self, useful: Callable[[OAuthLogin], bool]) -> AsyncGenerator[OAuthLogin]:
        async with self._lock:
            assert self.login is not None
            yield self.login

    async def request(self, login: OAuthLogin) -> Tokens | GrantRefusal:
        assert login.refresh_token == Secret("once")
        self.told.append("asked")
        await trio.lowlevel.checkpoint()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def lost(self, error: Exception) -> bool:
        return error is LOST

    async def keep(self, login: OAuthLogin) -> OAuthLogin:
        self.told.append("kept")
        self.login = login
        return login

    async def ended(self, login: OAuthLogin, refusal: GrantRefusal | None) -> OAuthLogin:
        self.told.append(("ended", None if refusal is None else refusal.error))
        self.login = None
        raise LookupError

    async def give_back(self) -> None:
        self.told.append("given back")

    async def wait(self, seconds: float) -> None:
        self.told.append(seconds)


def renewed(login: OAuthLogin) -> bool:
    return login.access_token != LOGIN.access_token


async def test_of_many_who_want_it_at_once_one_refreshes_and_the_others_read_again() -> None:
    keeper, found = Keeper(NEW), list[OAuthLogin]()

    async def want() -> None:
        found.append(await keeper.refresh(renewed))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(want)
    assert keeper.told == ["asked", "kept"]
    assert {login.access_token for login in found} == {Secret("new")}
    assert found[0].obtained_at == 7


async def test_a_lost_answer_is_asked_for_again_and_no_other_trouble_is() -> None:
    keeper = Keeper(LOST, LOST, NEW)
    await keeper.refresh(renewed)
    assert keeper.told == ["asked", 0, "asked", 1, "asked", "kept"]
    keeper = Keeper(LOST, LOST, LOST)
    with pytest.raises(OAuthFailure):
        await keeper.refresh(renewed)
    assert keeper.told[-2:] == ["asked", "given back"]
    keeper = Keeper(OAuthFailure("is busy", reason="busy"))
    with pytest.raises(OAuthFailure):
        await keeper.refresh(renewed)
    assert keeper.told == ["asked", "given back"]


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client"])
async def test_a_refusal_for_good_ends_the_login(error: str) -> None:
    keeper = Keeper(GrantRefusal(error=error))
    with pytest.raises(LookupError):
        await keeper.refresh(renewed)
    assert keeper.told[:2] == ["asked", ("ended", error)]


async def test_a_refusal_that_may_pass_ends_nothing() -> None:
    keeper = Keeper(GrantRefusal(error="temporarily_unavailable"))
    with pytest.raises(OAuthFailure) as refused:
        await keeper.refresh(renewed)
    assert (refused.value.error, refused.value.final) == ("temporarily_unavailable", False)
    assert keeper.told == ["asked", "given back"]
    assert keeper.login == LOGIN


async def test_a_login_without_a_refresh_token_ends_unasked() -> None:
    keeper = Keeper(login=replace(LOGIN, refresh_token=None))
    with pytest.raises(LookupError):
        await keeper.refresh(renewed)
    assert keeper.told[0] == ("ended", None)


async def test_whoever_stops_waiting_does_not_stop_what_has_begun() -> None:
    keeper = Keeper(NEW)
    with trio.CancelScope() as scope:

        async def leave(login: OAuthLogin) -> Tokens | GrantRefusal:
            scope.cancel()
            await trio.lowlevel.checkpoint()
            return NEW

        keeper.request = leave  # type: ignore[method-assign]
        await keeper.refresh(renewed)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert keeper.login is not None and keeper.login.refresh_token == Secret("next")
