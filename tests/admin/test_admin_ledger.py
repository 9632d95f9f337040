"""Commands for the books and for vouchers (server/admin/ledger_commands.py, voucher_commands.py): whose wallet, pages, pieces, bad arguments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from auth.values.identity_model import Principal, PrincipalKind
from server.admin import ledger_commands as admin_ledger
from server.admin.control import CommandRefused, Handler, ListPage
from server.admin.ledger_commands import LedgerCommands
from server.admin.voucher_commands import VoucherAdmin
from server.payments.seller import statements, wallets
from server.payments.seller.ledger import (
    PAID_OUT,
    Books,
    Movement,
    MovementKind,
    chain_account,
    revenue_account,
)
from server.payments.seller.payment_rows import refused_each_time
from server.store import ledger_chain
from server.store.audit_head import HeadLost
from server.store.jobs import Position, StoreDb
from tests.auth.identity_fakes import START, open_identity, subkey
from tests.sealing import by_hand

LEDGER_KEY = subkey(ledger_chain.KEY_PURPOSE)


class Heads:
    """What was written down outside the database."""

    def __init__(self) -> None:
        self.known: tuple[Position, ...] = ()
        self.lost = False

    def __call__(self) -> tuple[Position, ...]:
        if self.lost:
            raise HeadLost("it is gone")
        return self.known


@asynccontextmanager
async def table(heads: Heads | None = None) -> AsyncGenerator[tuple[Any, Mapping[str, Handler]]]:
    async with open_identity() as identity:
        store: Any = identity.parts.store
        store.chain_ledger(LEDGER_KEY)
        await store.write(lambda db: db.begin_ledger())
        yield (
            store,
            {
                **LedgerCommands(
                    store=store,
                    clock=identity.parts.clock,
                    subkey=subkey,
                    committed_head=store.ledger_head,
                    written_heads=heads or Heads(),
                ).commands(),
                **VoucherAdmin(store=store, clock=identity.parts.clock, plans=lambda: ("pro",)).commands(),
            },
        )


async def ask(commands: Mapping[str, Handler], name: str, **arguments: Any) -> Any:
    answer = await commands[name](arguments, "local:7")
    return answer.rows if isinstance(answer, ListPage) else answer


async def whole(commands: Mapping[str, Handler], **arguments: Any) -> list[dict[str, Any]]:
    """The check's answers, to the last."""
    answers: list[dict[str, Any]] = []
    at: Any = None
    while True:
        answers.append(await ask(commands, "ledger.check", at=at, **arguments))
        at = answers[-1]["at"]
        if at is None:
            return answers


async def owner(store: Any) -> tuple[str, str]:
    row = await store.read(lambda db: db.fetch_one("SELECT id, name FROM users"))
    return row["id"], row["name"]


async def test_a_person_is_called_by_name_or_id_and_what_is_not_there_gets_nothing() -> None:
    async with table() as (store, commands):
        user_id, name = await owner(store)
        for called in filter(None, (name, user_id, f"user:{user_id}")):
            given = await ask(commands, "ledger.grant", wallet=called, amount=5)
            assert given["account"] == f"user:{user_id}"
        for called in (
            "nobody",
            "user:nobody",
            "client:nobody",
            "key:nobody",
            "bank:me",
            "user:",
            ":x",
            "token:\n",
        ):
            with pytest.raises(CommandRefused):
                await ask(commands, "ledger.grant", wallet=called, amount=5)
        payer = "payer:eip155:1:0x52908400098527886E0F7030069857D2E4169EE7"
        assert (await ask(commands, "ledger.grant", wallet=payer, amount=5))["balance"] == 5
        found = await ask(commands, "ledger.accounts")
        assert [row["account"] for row in found] == [payer.lower(), f"user:{user_id}"]
        assert [row["name"] for row in found] == ["", name], "as people know them"
        newest, before, *_ = (await ask(commands, "ledger.statement"))["rows"]
        assert (newest["target_name"], before["source_name"], before["target_name"]) == ("", "", name)


async def test_what_is_given_to_a_key_is_in_the_wallet_that_pays_for_its_calls() -> None:
    async with table() as (store, commands):
        user_id, _ = await owner(store)

        def furnish(db: StoreDb) -> None:
            by_hand(
                "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
                " VALUES ('key_1', 'ci', ?, 'h', 'abcd', '', '', 0)",
                user_id,
            )(db)
            wallets.open_wallet(db, "key:key_1", "USD", START)  # of an earlier grant

        await store.write(furnish)
        caller = Principal(kind=PrincipalKind.API_KEY, subject="key_1", user=user_id)
        given = await ask(commands, "ledger.grant", wallet="key:key_1", amount=5)
        assert (given["account"], given["balance"]) == (wallets.wallet_of(caller), 5)
        (stranded,) = (await ask(commands, "ledger.balance", wallet="key:key_1"))["wallets"]
        assert (stranded["account"], stranded["balance"]) == ("key:key_1", 0), (
            "what is there can be looked at"
        )


@pytest.mark.parametrize(
    "wallet",
    [
        "payer:eip155:84532:0x12",
        "payer:eip155:84532:0x52908400098527886E0f7030069857D2E4169EE7",  # one letter's case is wrong
        "payer:eip155:84532",
        "payer:0x52908400098527886E0F7030069857D2E4169EE7",
        "payer:eip155:0:0x52908400098527886E0F7030069857D2E4169EE7",
        "payer:solana:1:0x52908400098527886E0F7030069857D2E4169EE7",
        "payer:eip155:84532:0x0000000000000000000000000000000000000000",
    ],
)
async def test_no_money_goes_to_what_is_no_address(wallet: str) -> None:
    async with table() as (store, commands):
        await store.write(lambda db: wallets.open_wallet(db, wallet, "USD", START))  # of an earlier grant
        with pytest.raises(CommandRefused):
            await ask(commands, "ledger.grant", wallet=wallet, amount=5)
        assert (await ask(commands, "ledger.statement"))["rows"] == []


async def test_a_grant_that_a_script_asks_for_twice_is_given_once() -> None:
    async with table() as (_, commands):
        first = await ask(commands, "ledger.grant", wallet="token:a:b", amount=5, once="order-7")
        again = await ask(commands, "ledger.grant", wallet="token:a:b", amount=5, once="order-7")
        assert again == {**first, "given_before": True}
        assert (first["given_before"], first["balance"]) == (False, 5)
        for other in ({"wallet": "token:a:c", "amount": 5}, {"wallet": "token:a:b", "amount": 6}):
            with pytest.raises(CommandRefused, match="the key order-7 was given with another grant"):
                await ask(commands, "ledger.grant", once="order-7", **other)
        (wallet,) = (await ask(commands, "ledger.balance", wallet="token:a:b"))["wallets"]
        assert wallet["balance"] == 5


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ledger.grant", {"wallet": "token:a:b", "amount": 0}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": -5}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 1.5}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": True}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 10**18}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 5, "note": "x" * 201}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 5, "note": "a\nb"}),
        ("ledger.grant", {"wallet": ["x"], "amount": 5}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 5, "once": ""}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 5, "once": "a b"}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 5, "once": "x" * 129}),
        ("ledger.grant", {"wallet": "token:a:b", "amount": 5, "once": 7}),
        ("ledger.refund", {}),
        ("ledger.refund", {"refers": 1}),
        ("ledger.refund", {"refers": 1, "paid_out": "yes"}),
        ("ledger.balance", {"wallet": "token:a:b"}),
        ("ledger.balance", {"account": "granted"}),
        ("ledger.balance", {"server": "shop", "tool": "x"}),
        ("ledger.check", {"at": {"stage": "lunch"}}),
        ("ledger.check", {"at": 7}),
        ("ledger.accounts", {"at": 7}),
        ("ledger.statement", {"at": -1}),
        ("vouchers.make", {"lasts_ms": 1_000}),
        ("vouchers.make", {"amount": 5}),
        ("vouchers.make", {"amount": 5, "lasts_ms": 10**15}),
        ("vouchers.make", {"amount": 5, "lasts_ms": 1_000, "count": 501}),
        ("vouchers.make", {"amount": 5, "lasts_ms": 1_000, "uses": 10**9}),
        ("vouchers.make", {"plan": "best", "lasts_ms": 1_000}),
        ("vouchers.revoke", {"id": ""}),
    ],
)
async def test_what_makes_no_sense_is_refused_and_books_nothing(name: str, arguments: dict[str, Any]) -> None:
    async with table() as (store, commands):
        with pytest.raises(CommandRefused):
            await ask(commands, name, **arguments)
        for what in ("movements", "vouchers"):
            assert await store.read(lambda db, what=what: db.fetch_all(f"SELECT * FROM {what}")) == []


async def test_accounts_and_vouchers_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_ledger, "ACCOUNTS_AT_MOST", 2)
    async with table() as (_, commands):
        for number in range(5):
            await ask(commands, "ledger.grant", wallet=f"token:a:{number}", amount=5)
        found: list[str] = []
        arguments: dict[str, Any] = {}
        while True:
            page = await commands["ledger.accounts"](arguments, "local:7")
            assert len(page.rows) <= 2
            found += [row["account"] for row in page.rows]
            if page.go_on is None:
                break
            arguments = {"at": page.go_on}
        assert found == [*(f"token:a:{number}" for number in range(5)), "granted"]
        totals = await ask(commands, "ledger.balance")
        assert totals == {
            "wallets": [{"currency": "USD", "count": 5, "balance": 25, "held": 0}],
            "accounts": [{"currency": "USD", "count": 1, "balance": -25, "held": 0}],
        }
        made = await ask(commands, "vouchers.make", amount=5, plan="pro", count=3, lasts_ms=60_000)
        assert len({each["code"] for each in made}) == 3
        assert {each["expires_at"] for each in made} == {START + 60_000}
        listed = await ask(commands, "vouchers")
        assert sorted(each["id"] for each in listed) == sorted(each["id"] for each in made)
        assert all("code" not in each and each["plan"] == "pro" for each in listed)


async def test_the_check_is_asked_for_again_until_it_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_ledger, "PIECES", 1)
    async with table() as (_, commands):
        for number in range(3):
            await ask(commands, "ledger.grant", wallet=f"token:a:{number}", amount=5)
        answers = await whole(commands, expect=2)
        assert len(answers) == 4
        assert sum(each["movements"] for each in answers) == 3
        assert sum(each["accounts"] for each in answers) == 4
        assert not [each for each in answers if each["findings"] or each["broken"]]
        assert {len(each["expected"]) for each in answers} == {64}
        assert (await whole(commands, expect=9))[0]["expected"] is None


async def test_the_check_compares_the_end_with_what_was_written_down() -> None:
    heads = Heads()
    async with table(heads) as (store, commands):
        await ask(commands, "ledger.grant", wallet="token:a:b", amount=5)
        heads.known = (store.ledger_head(),)
        assert [each["broken"] for each in await whole(commands)] == [None]
        heads.known = (Position(seq=2, mac="0" * 64),)
        assert (await whole(commands))[0]["broken"] == {"seq": 2, "what": "cut off"}
        heads.lost = True
        assert (await whole(commands))[0]["head_lost"] == "it is gone"


async def test_a_statement_is_told_in_pages_by_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "STRETCH", 3)
    async with table() as (_, commands):
        for number in range(7):
            await ask(commands, "ledger.grant", wallet=f"token:a:{number % 2}", amount=number + 1)
        found: list[int] = []
        at: int | None = None
        while True:
            page = await ask(
                commands, "ledger.statement", wallet="token:a:1", oldest_first=True, at=at, at_most=2
            )
            found += [row["amount"] for row in page["rows"]]
            at = page["go_on"]
            if at is None:
                break
        assert found == [2, 4, 6]


async def test_a_statement_names_the_transaction_of_what_was_paid_on_a_chain() -> None:
    paid = {"payer": "0xaa", "pay_to": "0xbb", "network": "eip155:8453", "asset": "0xcc"}
    chain, call = chain_account(paid["network"], paid["asset"]), revenue_account("shop", "sell")
    books, back = Books(LEDGER_KEY), "0x" + "aB" * 32

    def furnish(db: StoreDb) -> None:
        db.execute(
            "INSERT INTO payments (id, network, asset, payer, nonce, proof_hash, purpose, fingerprint, server, caller, atomic,"
            " amount, currency, pay_to, valid_before, state, requirements, tries, transaction_hash, created_at, expires_at)"
            " VALUES ('pay_1', ?, ?, ?, '', '', 'call', '', 'shop', '', '1', 1, 'USD', ?, 0, 'settled', '[]', 1, '0xdd', 0, 0)",
            paid["network"], paid["asset"], paid["payer"], paid["pay_to"],
        )  # fmt: skip
        moved: list[tuple[MovementKind, str, str, dict[str, Any]]] = [
            ("payment", chain, call, {"payment_id": "pay_1"}),
            ("payment", chain, call, {"payment_id": "pay_0"}),  # swept by an earlier version
            ("purchase", "cost:shop/sell", chain, {"charge_id": "once:1", "note": "0xee"}),
            # Sent back in transactions of their own.
            ("payout", call, PAID_OUT, {"refers": 1, "payment_id": "pay_1", "note": back}),
            ("payout", call, PAID_OUT, {"refers": 1, "payment_id": "pay_1", "note": "by cheque 0xff"}),
        ]
        for kind, source, target, more in moved:
            movement = Movement(
                kind=kind, source=source, target=target, amount=5, currency="USD", principal="api_key:k", **more
            )  # fmt: skip
            books.post(db, movement, START)

    async with table() as (store, commands):
        await store.write(furnish)
        rows = (await ask(commands, "ledger.statement", oldest_first=True))["rows"]
    where = {"network": paid["network"], "asset": paid["asset"]}
    nothing = dict.fromkeys(statements.CHAIN_FACTS)
    assert [{name: row[name] for name in statements.CHAIN_FACTS} for row in rows] == [
        {**paid, "transaction": "0xdd"},
        {**nothing, **where},
        {**nothing, **where, "transaction": "0xee"},
        {**nothing, "transaction": back},
        nothing,
    ]


@pytest.mark.parametrize(
    ("problem", "tries", "ends"),
    [
        (refused_each_time(2) + "odd", 2, True),
        ("nobody there", 0, True),
        (refused_each_time(2) + "odd", 3, False),
        ("cut off", 2, False),
    ],
)
async def test_an_unsettled_payment_is_told_with_its_end_where_it_ends_by_itself(
    problem: str, tries: int, ends: bool
) -> None:
    def furnish(db: StoreDb) -> None:
        db.execute(
            "INSERT INTO payments (id, network, asset, payer, nonce, proof_hash, purpose, fingerprint, server, caller, atomic,"
            " amount, currency, pay_to, valid_before, state, requirements, tries, problem, created_at, expires_at)"
            " VALUES ('pay_1', '', '', '', '', '', 'call', '', 'shop', '', '1', 1, 'USD', '', 1000, 'unknown', '[]', ?, ?, 0, 0)",
            tries, problem,
        )  # fmt: skip

    async with table() as (store, commands):
        await store.write(furnish)
        (row,) = await ask(commands, "ledger.unsettled")
    assert (row["ends_at"] is not None) == ends
    assert row["ends_at"] is None or row["ends_at"] > 1_000_000
