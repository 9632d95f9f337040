"""The emergency for stolen keys (`keys.replace_all` of server/admin/token_key_commands.py): from its commit on nothing of before is good for
anything, whatever is under way while it happens.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from auth.clients.client_registry import CLI_CLIENT_ID
from auth.grants import login_records as grants
from auth.identity import Identity
from auth.tokens.presented_credentials import present
from auth.values.database import Db
from auth.values.identity_model import DEVICE_CODE, REFRESH_TOKEN, Principal
from server.admin.token_key_commands import KeysAdmin
from tests.auth.identity_fakes import SITE, Clock, logged_in, open_identity, post
from tests.sealing import by_hand

BY = "local:7"


async def answered(identity: Identity, text: str) -> tuple[int, dict[str, Any]]:
    form = {"client_id": CLI_CLIENT_ID, "grant_type": REFRESH_TOKEN, "refresh_token": text}
    reply = await identity.handle(post("/token", **form))
    assert reply is not None
    return reply.status, json.loads(reply.body)


async def emergency(identity: Identity) -> dict[str, Any]:
    return await KeysAdmin(parts=identity.parts).commands()["keys.replace_all"]({}, BY)


async def lets_in(identity: Identity, access_token: str) -> bool:
    found = await identity.check(present(f"Bearer {access_token}", server="agent", origin=SITE.issuer))
    return isinstance(found, Principal)


async def reasons(identity: Identity, event: str) -> list[tuple[str, str]]:
    sql = "SELECT actor, reason FROM audit WHERE event = ? ORDER BY seq"
    rows = await identity.parts.store.read(lambda db: db.fetch_all(sql, event))
    return [(row["actor"], row["reason"]) for row in rows]


async def test_every_login_ends_and_new_ones_begin_as_always() -> None:
    async with open_identity() as identity:
        logins = [await logged_in(identity) for _ in range(3)]
        answer = await emergency(identity)
        assert (answer["refresh_key"], answer["logins_ended"]) == ("rt2", 3)
        assert len(answer["dropped"]) == 2
        for login in logins:
            assert (await answered(identity, login["refresh_token"]))[0] == 400
            assert not await lets_in(identity, login["access_token"])
        assert await reasons(identity, "grant.epoch") == [(BY, "every key was dropped")]
        assert await reasons(identity, "grant.revoked") == [(BY, "every key was dropped")] * 3
        fresh = await logged_in(identity)
        assert await lets_in(identity, fresh["access_token"])
        status, fresh = await answered(identity, fresh["refresh_token"])
        assert (status, fresh["refresh_token"][:4]) == (200, "rt2.")


@pytest.mark.parametrize("committed", [False, True], ids=["before the refresh commits", "after it committed"])
async def test_a_refresh_that_it_overtakes_comes_to_nothing(committed: bool) -> None:
    async with open_identity() as identity:
        login = await logged_in(identity)
        write = identity.parts.store.write

        async def overtaken(job: Any) -> Any:
            identity.parts.store.write = write  # type: ignore[method-assign]
            if committed:
                outcome = await write(job)
                await emergency(identity)
                return outcome
            await emergency(identity)
            return await write(job)

        identity.parts.store.write = overtaken  # type: ignore[method-assign]
        status, fresh = await answered(identity, login["refresh_token"])
        assert status == (200 if committed else 400)
        if committed:  # its answer was written with the new keys, and opens nothing all the same
            assert not await lets_in(identity, fresh["access_token"])
            assert (await answered(identity, fresh["refresh_token"]))[0] == 400


async def test_nothing_counts_even_if_the_server_ends_before_it_has_said_so_of_each_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_identity() as identity:
        login = await logged_in(identity)
        assert await lets_in(identity, login["access_token"]), "and is remembered as one that lives"
        write = identity.parts.store.write

        async def killed(*_: object) -> int:
            raise KeyboardInterrupt

        async def overtaken(job: Any) -> Any:
            identity.parts.store.write = write  # type: ignore[method-assign]
            outcome = await write(job)
            with pytest.raises(KeyboardInterrupt):
                await emergency(identity)
            return outcome

        monkeypatch.setattr(grants, "in_pieces", killed)
        identity.parts.store.write = overtaken  # type: ignore[method-assign]
        status, fresh = await answered(identity, login["refresh_token"])
        assert status == 200
        assert await reasons(identity, "grant.revoked") == []
        for tokens in (login, fresh):
            assert not await lets_in(identity, tokens["access_token"])
            assert (await answered(identity, tokens["refresh_token"]))[0] == 400


async def test_what_was_approved_and_not_yet_fetched_is_worth_nothing() -> None:
    async with open_identity(clock=Clock()) as identity:
        asked = await identity.handle(post("/device_authorization", client_id=CLI_CLIENT_ID))
        assert asked is not None
        code = json.loads(asked.body)["device_code"]
        await identity.parts.store.write(_approved_codes)
        await emergency(identity)
        reply = await identity.handle(
            post("/token", client_id=CLI_CLIENT_ID, grant_type=DEVICE_CODE, device_code=code)
        )
        assert reply is not None
        assert (reply.status, json.loads(reply.body)["error"]) == (400, "access_denied")
        codes = "SELECT id FROM authorization_codes"
        assert await identity.parts.store.read(lambda db: db.fetch_all(codes)) == []


def _approved_codes(db: Db) -> None:
    """One of each kind of login."""
    by_hand(
        "UPDATE device_codes SET state = 'approved', granted_scope = 'mcp', subject = (SELECT id FROM users)"
    )(db)
    by_hand(
        "INSERT INTO authorization_codes (id, code_hash, client_id, subject, server, origin, redirect_uri, challenge, scope, ip,"
        " user_agent, auth_time, state, created_at, expires_at)"
        " SELECT 'cod_1', 'h', ?, id, 'agent', '', '', '', 'mcp', '', '', 0, 'live', 0, 1 FROM users",
        CLI_CLIENT_ID,
    )(db)
