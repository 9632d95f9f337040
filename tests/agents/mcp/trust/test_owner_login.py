"""The server's own login at an upstream: sealed, refreshed once however many want it, and over when it is over."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from server.agents.mcp.trust import login_rows
from server.agents.mcp.trust.login_rows import BadLogin, UpstreamLogin, handed_over, read_login
from server.agents.mcp.trust.owner_login import JUST_NOW, TOGETHER, OwnerLogin
from server.agents.mcp.trust.pin_rows import CHANGE
from server.agents.mcp.trust.upstream_registry import KnownUpstream, UpstreamRegistry
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError
from server.store.jobs import Change
from server.store.write_retry import WriteRetry
from tests.agents.mcp.trust.trust_fakes import (
    FILES,
    TOKEN_URL,
    UPSTREAM_URL,
    Away,
    FakeAuthorizationServer,
    House,
    open_house,
    tokens,
)
from tests.auth.identity_fakes import START

HOUR = 3_600_000


def login(**changes: Any) -> UpstreamLogin:
    fields: dict[str, Any] = {
        "resource": UPSTREAM_URL,
        "issuer": "https://login.example",
        "token_endpoint": TOKEN_URL,
        "client_id": "us",
        "access_token": Secret("access-1"),
        "refresh_token": Secret("refresh-1"),
        "scope": "files",
        "obtained_at": START,
        "expires_at": START + HOUR,
    }
    return UpstreamLogin(**{**fields, **changes})


def owner(house: House, desk: UpstreamRegistry, server: FakeAuthorizationServer) -> OwnerLogin:
    return OwnerLogin(
        FILES,
        house.store,
        desk.vault,
        server,
        owed=desk.owed,
        clock=house.clock,
        log=house.log,
    )


async def logged_in(
    house: House, server: FakeAuthorizationServer
) -> tuple[UpstreamRegistry, KnownUpstream, OwnerLogin]:
    desk, known = await house.desk()
    known.login = owner(house, desk, server)
    await desk.log_in(known, login(), by="local:7")
    return desk, known, known.login


async def test_calls_go_out_without_a_login_until_there_is_one_and_with_it_from_then_on() -> None:
    async with open_house() as house:
        desk, known = await house.desk()
        known.login = owner(house, desk, FakeAuthorizationServer(tokens("never")))
        assert await known.login.headers(None) == {}
        assert await known.login.refused(None, "Bearer") is False
        trouble = known.login.trouble()
        assert trouble is not None
        assert trouble.words == "wants a login: ostiary upstream login main/files"
        await desk.log_in(known, login(), by="local:7")
        assert await known.login.headers(None) == {"Authorization": "Bearer access-1"}
        assert known.login.trouble() is None
        assert await house.trail() == [("upstream.logged_in", "local:7", "main/files")]


async def test_a_login_goes_on_by_itself_while_nothing_can_be_written_and_its_newest_tokens_are_written_in_the_end() -> (
    None
):
    async with open_house() as house:
        server = FakeAuthorizationServer(
            *(tokens(f"access-{n}", refresh=f"refresh-{n}", lives=3600) for n in (2, 3, 4))
        )
        away = Away(house.store)
        desk, known = await house.desk()
        await desk.log_in(known, login(), by="local:7")
        owed = WriteRetry(away, house.log, "upstream.login_not_kept")  # type: ignore[arg-type]

        def begun() -> OwnerLogin:
            """In this process, or the next."""
            return OwnerLogin(
                FILES,
                away,  # type: ignore[arg-type]
                desk.vault,
                server,
                owed=owed,
                clock=house.clock,
                log=house.log,
            )

        ours = begun()
        away.refused = frozenset({"renew"})
        for number in (2, 3):
            house.clock.now += HOUR
            assert await ours.headers(None) == {"Authorization": f"Bearer access-{number}"}
        away.refused = frozenset()
        await owed.settle()
        assert await begun().headers(None) == {"Authorization": "Bearer access-3"}
        house.clock.now += HOUR
        assert await ours.headers(None) == {"Authorization": "Bearer access-4"}
        assert [form["refresh_token"] for form in server.forms] == ["refresh-1", "refresh-2", "refresh-3"]
        assert await begun().headers(None) == {"Authorization": "Bearer access-4"}


async def test_a_login_is_sealed_in_the_store_and_bound_to_its_upstream() -> None:
    async with open_house() as house:
        desk, _, _ = await logged_in(house, FakeAuthorizationServer(tokens("never")))
        row = await house.store.read(lambda db: db.fetch_one("SELECT * FROM upstream_tokens"))
        assert row is not None
        assert not [value for value in row.values() if "access-1" in str(value) or "refresh-1" in str(value)]
        assert desk.vault.open(FILES, "", row["sealed"]) == login()
        assert desk.vault.open(FILES, "usr_ann", row["sealed"]) is None


async def test_a_login_that_has_run_out_is_refreshed_once_for_all_who_wait_and_survives_a_restart() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("access-2", refresh="refresh-2", lives=3600))
        desk, _, credential = await logged_in(house, server)
        house.clock.now += HOUR
        server.gate = trio.Event()
        seen: list[Any] = []

        async def ask() -> None:
            seen.append(await credential.headers(None))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            server.gate.set()
        assert seen == [{"Authorization": "Bearer access-2"}] * 20
        assert server.forms == [
            {
                "grant_type": "refresh_token",
                "refresh_token": "refresh-1",
                "resource": UPSTREAM_URL,
                "client_id": "us",
            }
        ]
        later = owner(house, desk, server)
        assert await later.headers(None) == {"Authorization": "Bearer access-2"}
        house.clock.now += HOUR
        await later.headers(None)
        assert server.forms[-1]["refresh_token"] == "refresh-2"


async def test_a_refresh_goes_through_although_its_caller_left() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("access-2", refresh="refresh-2"))
        desk, _, credential = await logged_in(house, server)
        house.clock.now += HOUR
        server.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(credential.headers, None)
            await trio.testing.wait_all_tasks_blocked()
            assert not credential.idle
            nursery.cancel_scope.cancel()
            server.gate.set()
        assert credential.idle
        assert await owner(house, desk, server).headers(None) == {"Authorization": "Bearer access-2"}
        assert len(server.forms) == 1


async def test_a_token_that_is_refused_is_refreshed_once_and_then_somebody_has_to_log_in_again() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("access-2", refresh="refresh-2"))
        _, _, credential = await logged_in(house, server)
        assert await credential.refused(None, "Bearer") is True
        assert await credential.headers(None) == {"Authorization": "Bearer access-2"}
        assert (
            await credential.refused(None, "Bearer") is True
        )  # sent together with the one that was refreshed
        house.clock.now += TOGETHER - 1
        assert await credential.refused(None, "Bearer") is True
        for soon in (1, JUST_NOW - TOGETHER - 1):
            house.clock.now += soon
            assert await credential.refused(None, "Bearer") is False
        assert len(server.forms) == 1
        assert house.log.names.count("upstream.login_wanted") == 1
        trouble = credential.trouble()
        assert trouble is not None
        assert trouble.words.startswith("does not accept its login any more: ostiary upstream login")


async def test_a_token_that_is_refused_while_no_other_can_be_had_ends_no_login() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("access-2", refresh="refresh-2"))
        _, _, credential = await logged_in(house, server)
        server.down = True
        for _ in range(2):
            with pytest.raises(BackendError, match="right now"):
                await credential.refused(None, "Bearer")
        server.down = False
        assert await credential.refused(None, "Bearer") is True
        assert await credential.headers(None) == {"Authorization": "Bearer access-2"}


async def test_a_refresh_that_is_refused_for_good_ends_the_login_and_says_so_without_a_secret() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(
            {"error": "invalid_grant", "error_description": "refresh-1 is spent"}
        )
        desk, _, credential = await logged_in(house, server)
        house.clock.now += HOUR
        with pytest.raises(BackendError, match=r"our login .* has ended") as raised:
            await credential.headers(None)
        assert "login.example" not in str(raised.value)
        trouble = credential.trouble()
        assert trouble is not None
        assert trouble.words.startswith(
            "does not accept its login any more: login.example gave no token (invalid_grant): "
        )
        # That it has ended comes back as news; why it did is said until there is another.
        credential.changed()
        assert await credential.headers(None) == {}
        assert await credential.refused(None, "Bearer") is False
        assert credential.trouble() == trouble
        assert await owner(house, desk, server).current() is None
        assert (await house.trail())[-1] == (
            "upstream.logged_out",
            "settings",
            "main/files: its refresh was refused",
        )
        assert not [fields for _, fields in house.log.events if "refresh-1" in str(fields)]


async def test_an_authorization_server_that_is_down_ends_nothing() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("access-2", refresh="refresh-2"))
        _, _, credential = await logged_in(house, server)
        house.clock.now += HOUR
        server.down = True
        with pytest.raises(BackendError):
            await credential.headers(None)
        assert len(server.forms) == 2  # a lost answer is asked for once more
        trouble = credential.trouble()
        assert trouble is not None
        assert trouble.words.startswith(
            "could not refresh its login: login.example does not answer in time: "
        )
        server.down = False
        assert await credential.headers(None) == {"Authorization": "Bearer access-2"}
        assert credential.trouble() is None


@pytest.mark.parametrize("here", [True, False])
async def test_who_logs_in_anew_while_a_refresh_is_under_way_wins(here: bool) -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("access-2", refresh="refresh-2"))
        desk, known, credential = await logged_in(house, server)
        house.clock.now += HOUR
        server.gate = trio.Event()
        newer = login(access_token=Secret("other"), obtained_at=house.clock.now, expires_at=None)

        async def ask() -> None:
            with pytest.raises(BackendError):
                await credential.headers(None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            if here:
                await desk.log_in(known, newer, by="local:7")
            else:  # in another process, of which no word has come yet
                sealed = desk.vault.seal(FILES, "", newer)
                put = partial(login_rows.put, upstream=FILES, person="", by="local:7", now=START)
                await house.store.write(partial(put, sealed=sealed, login_id="ul_other"))
            server.gate.set()
        assert await credential.headers(None) == {"Authorization": "Bearer other"}


async def test_logging_out_ends_it_at_once() -> None:
    async with open_house() as house:
        desk, known, credential = await logged_in(house, FakeAuthorizationServer(tokens("never")))
        assert await credential.headers(None) == {"Authorization": "Bearer access-1"}
        assert await desk.log_out(known, by="local:7") is True
        assert await credential.headers(None) == {}
        assert await desk.log_out(known, by="local:7") is False


def test_a_login_is_handed_over_as_it_is_and_nothing_else_is_taken_for_one() -> None:
    for good in (login(), login(client_id="x" * 4_096)):
        assert read_login(handed_over(good)) == good
    for broken in (
        {},
        None,
        "x",
        {**handed_over(login()), "access_token": 3},
        {**handed_over(login()), "auth_method": "tls_client_auth"},
        {**handed_over(login()), "client_id": "x" * 4_097},
    ):
        with pytest.raises(BadLogin) as raised:
            read_login(broken)
        assert "access-1" not in str(raised.value)


def test_a_change_names_whose_login_at_which_upstream_it_is_where_it_is_a_persons() -> None:
    said = [(CHANGE, "main/files usr_ann"), (CHANGE, "main/files"), ("user", "main/files usr_ann")]
    assert [login_rows.whose(Change(seq=1, kind=kind, entity_id=of)) for kind, of in said] == [
        ("main/files", "usr_ann"),
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("age", "good", "refreshed"),
    [
        (4_999, True, 1),
        (5_000, False, 1),
        (59_999, False, 1),
        (60_000, True, 2),
        (-1, True, 2),  # the clock was set back: nothing can be told from it
    ],
)
async def test_a_refused_token_is_renewed_unless_it_was_just_now(
    age: int, good: bool, refreshed: int
) -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(
            *(tokens(f"access-{n}", refresh=f"refresh-{n}", lives=3600) for n in (2, 3))
        )
        _, _, credential = await logged_in(house, server)
        assert await credential.refused(None, "Bearer") is True
        house.clock.now += age
        assert await credential.refused(None, "Bearer") is good
        assert len(server.forms) == refreshed
        trouble = credential.trouble()
        assert ("does not accept its login" in ("" if trouble is None else trouble.words)) is not good


async def test_a_login_is_never_shown_at_another_place_that_bears_the_same_name() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("never"))
        desk, _, _ = await logged_in(house, server)
        same = desk.owner_login(FILES, "https://FILES.example/other/path")
        assert await same.headers(None) == {"Authorization": "Bearer access-1"}
        for url in (
            "https://elsewhere.example/mcp",
            "http://files.example/mcp",
            "https://files.example:8443/mcp",
        ):
            other = desk.owner_login(FILES, url)
            assert await other.headers(None) == {}
            assert await other.refused(None, "Bearer") is False


async def test_what_another_process_has_refreshed_is_not_refreshed_again() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("access-2", refresh="refresh-2", lives=3600))
        desk, _, one = await logged_in(house, server)
        other = owner(house, desk, server)
        assert await other.headers(None) == {"Authorization": "Bearer access-1"}
        house.clock.now += HOUR
        assert await one.headers(None) == await other.headers(None) == {"Authorization": "Bearer access-2"}
        assert len(server.forms) == 1


async def test_a_refusal_of_what_another_process_has_spent_meanwhile_ends_nothing() -> None:
    async with open_house() as house:
        late = FakeAuthorizationServer({"error": "invalid_grant", "error_description": "spent"})
        late.gate = trio.Event()
        desk, _, one = await logged_in(
            house, FakeAuthorizationServer(tokens("access-2", refresh="refresh-2", lives=3600))
        )
        other = owner(house, desk, late)
        house.clock.now += HOUR
        seen: list[Any] = []

        async def ask() -> None:
            seen.append(await other.headers(None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await one.headers(None)
            late.gate.set()
        assert seen == [{"Authorization": "Bearer access-2"}]
        assert other.trouble() is None
        assert await house.trail() == [("upstream.logged_in", "local:7", "main/files")]
