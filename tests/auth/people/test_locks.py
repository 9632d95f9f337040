"""Locking somebody out: what ends with it."""

from __future__ import annotations

from functools import partial

from auth.administration import guest_accounts as people
from auth.people import user_accounts
from tests.auth.browser_fakes import Browser, House
from tests.auth.people_fakes import let_in


def add_row(house: House, table: str, **values: object) -> None:
    must = house.store.db.database.required(table)
    row = {**must, **values}
    house.store.db.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *row.values()
    )


async def test_what_was_agreed_to_but_not_redeemed_does_not_outlive_a_lock() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    bob = Browser(house)
    await bob.sign_in("bob")
    await bob.look_at(house.ask())
    await bob.submit("/device/decide#approve")
    assert house.device_row()["state"] == "approved"
    login = let_in(house, "usr_bob")
    add_row(house, "consents", user_id="usr_bob", client_id="mcp-remote", expires_at=house.time * 2)
    add_row(house, "authorization_codes", subject="usr_bob", client_id="mcp-remote", state="live")
    for verb in ("lock", "unlock"):
        outcome = house.store.now(partial(people.switch, verb=verb, name="bob", by="local:0", now=house.time))
        assert isinstance(outcome, user_accounts.User)
    assert house.device_row()["state"] == "denied"
    assert not house.rows("consents")
    assert not house.rows("authorization_codes")
    (grant,) = (row for row in house.rows("grants") if row["id"] == login)
    assert grant["revoked_at"] is not None
