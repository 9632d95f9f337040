"""Vouchers (server/payments/seller/vouchers.py): hashed, counted once for each wallet, and over when they are over."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import trio

from server.payments.seller import vouchers
from server.payments.seller.vouchers import NewVoucher, NotRedeemed, Redeemed, VoucherOrder
from server.store.jobs import StoreDb
from tests.payments.seller.books_fakes import (
    ANN,
    BEN,
    BOOKS,
    NOW,
    AnyStore,
    balances,
    checked,
    do,
)

SEED = bytes(range(32))


async def made(store: AnyStore, *, seed: bytes = SEED, **changed: Any) -> NewVoucher:
    usual: dict[str, Any] = {
        "amount": 500, "currency": "USD", "plan": None, "uses": 1, "note": "", "expires_at": NOW + 10,
    }  # fmt: skip
    order = VoucherOrder(**usual | changed)
    return await store.write(partial(vouchers.make, order=order, seed=seed, by="local:0", now=NOW))


def redeem(db: StoreDb, typed: str, wallet: str = ANN, now: int = NOW) -> Redeemed | NotRedeemed:
    code_hash = vouchers.hash_of(typed)
    assert code_hash is not None
    return vouchers.redeem(db, BOOKS, code_hash, wallet, principal=f"{wallet}:", now=now)


async def test_a_code_is_worth_its_amount_once_however_it_is_typed(store: AnyStore) -> None:
    new = await made(store)
    code = new.code.reveal()
    assert re.fullmatch(r"([2-9A-HJKMNP-Z]{5}-){4}[2-9A-HJKMNP-Z]{5}", code)
    assert code not in repr(new)
    typed = f" {code.replace('-', ' ').lower()} "
    done = await store.write(partial(redeem, typed=typed))
    assert done == Redeemed(amount=500, currency="USD", plan=None, seq=1)
    assert await store.write(partial(redeem, typed=code)) == NotRedeemed("used_before")
    assert await store.write(partial(redeem, typed=code, wallet=BEN)) == NotRedeemed("used_up")
    assert await store.read(balances) == {ANN: 500, "granted": -500}
    row = await store.read(lambda db: db.fetch_one("SELECT kind, note, principal FROM movements"))
    assert row == {"kind": "voucher", "note": new.voucher.id, "principal": f"{ANN}:"}
    assert (await checked(store)).is_right


async def test_the_code_is_nowhere_in_the_database(store: AnyStore) -> None:
    code = (await made(store)).code.reveal()
    await store.write(partial(redeem, typed=code))
    bare = code.replace("-", "")
    for table in ("vouchers", "voucher_uses", "movements", "audit"):
        rows = await store.read(lambda db, table=table: db.fetch_all(f"SELECT * FROM {table}"))
        assert rows
        assert not [row for row in rows if bare in repr(row) or code in repr(row)]


async def test_of_many_who_redeem_at_once_as_many_win_as_were_meant(store: AnyStore) -> None:
    code = (await made(store, uses=3)).code.reveal()
    outcomes: list[Redeemed | NotRedeemed] = []

    async def one(number: int) -> None:
        outcomes.append(await store.write(partial(redeem, typed=code, wallet=f"user:u{number // 2}")))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    assert sum(isinstance(each, Redeemed) for each in outcomes) == 3
    given = await store.read(balances)
    assert given.pop("granted") == -1_500
    assert sorted(given.values()) == [500, 500, 500]
    (listed,) = await store.read(vouchers.listing)
    assert (listed.used, listed.uses_left) == (3, 0)


async def test_it_is_over_when_it_is_over_and_when_it_was_revoked(store: AnyStore) -> None:
    first, second = await made(store), await made(store, seed=bytes(32))
    assert await store.write(partial(redeem, typed=first.code.reveal(), now=NOW + 10)) == NotRedeemed(
        "expired"
    )
    revoke = partial(vouchers.revoke, by="local:0", now=NOW + 1)
    assert [await store.write(partial(revoke, voucher_id=second.voucher.id)) for _ in range(2)] == [
        True,
        False,
    ]
    assert await store.write(partial(redeem, typed=second.code.reveal())) == NotRedeemed("revoked")
    assert isinstance(await store.write(partial(redeem, typed=first.code.reveal(), now=NOW + 9)), Redeemed)


@pytest.mark.parametrize("voucher_id", ["", "a", "%", "g" * 16, "0" * 15, "0" * 17])
async def test_what_is_no_id_revokes_nothing(store: AnyStore, voucher_id: str) -> None:
    new = await made(store)
    assert not await store.write(partial(vouchers.revoke, voucher_id=voucher_id, by="local:0", now=NOW))
    assert isinstance(await store.write(partial(redeem, typed=new.code.reveal())), Redeemed)


async def test_a_code_that_nobody_made_is_unknown_and_what_is_none_has_no_hash(store: AnyStore) -> None:
    await made(store)
    assert await store.write(partial(redeem, typed=vouchers.draw(bytes(32)))) == NotRedeemed("unknown")
    for typed in ("", "hello", "O" * 25, "A" * 24, "A" * 26, "A" * 5_000, "ÄAAAA" * 5):
        assert vouchers.hash_of(typed) is None


async def test_a_plan_alone_moves_no_money_and_is_told_to_whoever_redeems(store: AnyStore) -> None:
    code = (await made(store, amount=0, plan="pro")).code.reveal()
    done = await store.write(partial(redeem, typed=code))
    assert done == Redeemed(amount=0, currency="USD", plan="pro", seq=None)
    assert await store.read(balances) == {}
    assert await store.write(partial(redeem, typed=code)) == NotRedeemed("used_before")
    with pytest.raises(ValueError, match="for something"):
        await made(store, amount=0, seed=bytes(32))


async def test_a_wallet_of_another_currency_gets_nothing_and_uses_nothing_up(store: AnyStore) -> None:
    await store.write(do("INSERT INTO wallets VALUES (?, 'EUR', 0, 0, 0, 0)", ANN))
    code = (await made(store)).code.reveal()
    assert await store.write(partial(redeem, typed=code)) == NotRedeemed("other_currency")
    assert isinstance(await store.write(partial(redeem, typed=code, wallet=BEN)), Redeemed)


async def test_they_are_listed_in_pages_and_the_trail_has_each_step(store: AnyStore) -> None:
    codes = [await made(store, seed=bytes([number] * 32)) for number in range(5)]
    await store.write(partial(redeem, typed=codes[0].code.reveal()))
    found: list[str] = []
    while page := await store.read(partial(vouchers.listing, after=found[-1] if found else "", at_most=2)):
        found += [each.id for each in page]
    assert found == sorted(each.voucher.id for each in codes)
    await store.write(partial(vouchers.revoke, voucher_id=found[0], by="local:0", now=NOW))
    sql = "SELECT event, actor FROM audit ORDER BY seq"
    said = [(row["event"], row["actor"]) for row in await store.read(lambda db: db.fetch_all(sql))]
    assert said == [("voucher.made", "local:0")] * 5 + [
        ("voucher.redeemed", ANN),
        ("voucher.revoked", "local:0"),
    ]
