"""Whose wallet is which, and holds (server/payments/seller/wallets.py)."""

from __future__ import annotations

from functools import partial

import pytest

from auth.tokens.accepted_credentials import static_principal
from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.payments.seller import wallets
from server.store.jobs import ConstraintFailed
from tests.payments.seller.books_fakes import ANN, NOW, AnyStore, deposit, do


@pytest.mark.parametrize(
    ("principal", "wallet"),
    [
        (Principal(kind=PrincipalKind.USER, subject="usr_1", client_id="cli"), "user:usr_1"),
        (Principal(kind=PrincipalKind.API_KEY, subject="key_1", user="usr_1"), "user:usr_1"),
        (Principal(kind=PrincipalKind.API_KEY, subject="key_1"), None),
        (Principal(kind=PrincipalKind.CLIENT, subject="client:robot", client_id="robot"), "client:robot"),
        (static_principal("shop", "ci", scopes=frozenset(), tools=""), "token:shop:ci"),
        (Principal(kind=PrincipalKind.PAYER, subject="eip155:8453:0xAB"), "payer:eip155:8453:0xab"),
        (Principal(kind=PrincipalKind.PAYER, subject="payer"), None),
        (Principal(kind=PrincipalKind.LOCAL, subject="local"), None),
        (ANONYMOUS, None),
    ],
)
def test_whoever_can_be_told_from_others_has_a_wallet(principal: Principal, wallet: str | None) -> None:
    assert wallets.wallet_of(principal) == wallet


async def test_a_wallet_is_opened_once_and_empty(store: AnyStore) -> None:
    assert await store.read(partial(wallets.find, wallet=ANN)) is None
    assert await store.write(partial(wallets.open_wallet, wallet=ANN, currency="USD", now=NOW))
    assert not await store.write(partial(wallets.open_wallet, wallet=ANN, currency="EUR", now=NOW + 1))
    found = await store.read(partial(wallets.find, wallet=ANN))
    assert found == wallets.Wallet(id=ANN, currency="USD", balance=0, held=0, created_at=NOW, updated_at=NOW)


async def test_no_more_is_held_than_is_there_and_no_more_released_than_is_held(store: AnyStore) -> None:
    await store.write(partial(deposit, wallet=ANN, amount=100, payment="pay_1"))
    hold, release = (partial(each, wallet=ANN, now=NOW) for each in (wallets.hold, wallets.release))
    held = [await store.write(partial(hold, amount=amount)) for amount in (60, 41, 40, 1)]
    assert held == [True, False, True, False]
    found = await store.read(partial(wallets.find, wallet=ANN))
    assert found is not None
    assert (found.balance, found.held, found.free) == (100, 100, 0)
    released = [await store.write(partial(release, amount=amount)) for amount in (101, 40, 60, 1)]
    assert released == [False, True, True, False]


async def test_nothing_is_held_of_a_wallet_that_is_not_there(store: AnyStore) -> None:
    assert not await store.write(partial(wallets.hold, wallet="user:nobody", amount=1, now=NOW))


@pytest.mark.parametrize("amount", [0, -1])
@pytest.mark.parametrize("what", [wallets.hold, wallets.release])
async def test_a_hold_is_of_more_than_nothing(store: AnyStore, what: object, amount: int) -> None:
    await store.write(partial(deposit, wallet=ANN, amount=100, payment="pay_1"))
    with pytest.raises(ValueError, match="more than nothing"):
        await store.write(partial(what, wallet=ANN, amount=amount, now=NOW))  # type: ignore[arg-type]


async def test_the_table_itself_keeps_more_from_being_held_than_there_is(store: AnyStore) -> None:
    await store.write(partial(deposit, wallet=ANN, amount=100, payment="pay_1"))
    for change in ("held = 101", "held = -1", "balance = -1"):
        with pytest.raises(ConstraintFailed):
            await store.write(do(f"UPDATE wallets SET {change}"))
