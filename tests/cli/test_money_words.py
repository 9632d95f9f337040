"""Words in which commands tell of money: the books and whether they are right, payments without an end, and receipts; in tests/snapshots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio
from made_up import NOW, MadeUpMachine

from auth.jose.base64url import pack
from auth.keys.signing_keys import receipt_keys
from server.cli.manage.bookcheck import TROUBLE
from tests.cli.test_ledger_statement import ROWS, movement
from tests.payments.seller.books_fakes import Checked, checked, do, open_books
from tests.payments.seller.test_ledger_check import TAMPERED, furnish
from tests.payments.seller.test_receipts import DAY, SETTLED, a_key, altered, published, receipt, row
from tests.payments.seller.test_receipts import NOW as SIGNED
from tests.snapshots import Snapshot

SOUND: Mapping[str, Any] = {
    "at": None, "movements": 8, "accounts": 6, "findings": [], "broken": None, "head": {"seq": 8, "mac": "ab" * 32}, "head_lost": "",
    "expected": None,
}  # fmt: skip


def test_what_is_said_of_money(made_up: MadeUpMachine, snapshot: Snapshot) -> None:
    _statements(made_up)
    _unsettled(made_up)
    _check(made_up)
    _receipts(made_up)
    snapshot("money", made_up.told.text)


def _statements(made_up: MadeUpMachine) -> None:
    def note(what: str, words: str, answer: object) -> None:
        made_up.note(what, f"ledger {words}", **{f"ledger.{words.split()[0]}": answer})

    note("no movements", "statement", {"rows": [], "go_on": None})
    named = movement(5, kind="deposit", target="wallet:user:ann", target_name="ann", note="thanks")
    note("movements", "statement", {"rows": [named, *ROWS], "go_on": None})
    note("no accounts", "accounts", [])
    some = {"balance": 1_500_000, "held": 0, "currency": "USD"}
    accounts = [
        {**some, "account": "user:ann", "wallet": True, "name": "ann", "held": 20_000},
        {**some, "account": "granted", "wallet": False},
    ]
    note("accounts", "accounts", accounts)
    note("nothing booked", "balance", {"wallets": [], "accounts": []})
    totals = {"wallets": [{**some, "count": 2, "held": 20_000}], "accounts": [{**some, "count": 1}]}
    note("all balances", "balance", totals)
    note(
        "one balance",
        "balance --wallet ann",
        {"wallets": [{**some, "account": "wallet:user:ann", "held": 20_000}], "accounts": []},
    )
    done = {
        "seq": 9,
        "amount": 20_000,
        "currency": "USD",
        "source": "revenue:main/echo",
        "target": "wallet:user:ann",
        "kind": "refund",
        "left": 0,
    }
    note("a refund", "refund 4 --yes", done)
    note(
        "a refund of a part, by hand",
        "refund 4 --yes",
        {**done, "kind": "payout", "target": "paid-out", "left": 5_000},
    )
    given = {
        "seq": 9,
        "balance": 1_500_000,
        "currency": "USD",
        "account": "wallet:user:ann",
        "given_before": False,
    }
    note("a grant", "grant ann $1", given)
    note("a grant to a key, a second time", "grant key:1 $1 --once x", {**given, "given_before": True})
    made_up.note("two accounts", "ledger balance --wallet ann --account granted", **SOUND)
    made_up.note("a tool of no server", "ledger balance --tool echo", **SOUND)


def _unsettled(made_up: MadeUpMachine) -> None:
    made_up.note("none is unsettled", "ledger unsettled", **{"ledger.unsettled": []})
    payment = {
        "id": "pay_1", "state": "unknown", "created_at": NOW - 3_600_000, "amount": 20_000, "currency": "USD", "payer": "0xab", "tries": 2,
        "next_try_at": NOW + 600_000, "ends_at": None, "problem": "",
    }  # fmt: skip
    later = {**payment, "id": "pay_2", "ends_at": NOW + 3_600_000, "problem": "did not answer"}
    sent = {**payment, "id": "pay_3", "state": "settling", "created_at": NOW + 3_600_000}
    made_up.note("some are", "ledger unsettled", **{"ledger.unsettled": [payment, later, sent]})
    resolved = {"id": "pay_1", "state": "settled", "amount": 20_000, "currency": "USD"}
    made_up.note("resolved", "ledger resolve pay_1 --settled 0xab --yes", **{"ledger.resolve": resolved})
    made_up.note("resolved both ways", "ledger resolve pay_1 --settled 0xab --refused", **SOUND)


def _check(made_up: MadeUpMachine) -> None:
    def note(what: str, **found: Any) -> None:
        made_up.note(what, "ledger check", **{"ledger.check": {**SOUND, **found}})

    note("books that are right")
    note("books of one movement", movements=1, accounts=1, head=None)
    note("no head elsewhere", head_lost="the file is damaged")
    for tampering, *_ in TAMPERED:
        found = trio.run(_tampered, made_up.home, tampering)
        note(tampering, findings=list(found.findings))
    note("very many findings", findings=[f"account {number} says $1.00" for number in range(12)])
    for what in TROUBLE:
        note(what, broken={"seq": 3, "what": what})
    made_up.note("without a server", "ledger check")


async def _tampered(home: Path, tampering: str) -> Checked:
    async with open_books("inline-memory", home) as store:
        await store.write(furnish)
        await store.write(do(tampering))
        return await checked(store)


def _receipts(made_up: MadeUpMachine) -> None:
    key, other = a_key(SIGNED - DAY), a_key(SIGNED)
    made_up.told.hidden |= {key.kid: "KEY", other.kid: "OTHER"}

    def note(what: str, text: str, known: bytes = b"", more: str = "") -> None:
        (made_up.home / "receipt").write_text(text)
        if known:
            (made_up.home / "keys").write_bytes(known)
        made_up.note(what, f"verify-receipt receipt{' --jwks keys' if known else ''}{more}")

    mine, written = published(key), receipt(key)
    note("from a balance", written, mine)
    note("paid on a chain", receipt(key, SETTLED, how="payment"), mine)
    note(
        "on a network that nobody knows",
        receipt(key, {**SETTLED, "network": "eip155:5"}, how="payment", call_id=""),
        mine,
    )
    for how in ("trial", "quota", "pass"):
        note(f"by {how}", receipt(key, how=how), mine)
    note("by a key that was replaced", written, receipt_keys([row(key, retires_at=SIGNED + DAY), row(other)]))
    note(
        "by a key that was dropped",
        receipt(key, at=SIGNED - 1),
        receipt_keys([row(key, retires_at=SIGNED, sealed_private=""), row(other)]),
    )
    note("by a key at another time", receipt(key, at=SIGNED - 2 * DAY), mine)
    note("of another issuer", written, mine, " --issuer https://other.example")
    note("of another server", written, published(other))
    note("altered", altered(written, amount="1"), mine)
    note("unchecked", written)
    note("of no amount", altered(written, amount="-1"), mine)
    head = pack(json.dumps({"alg": "ES256", "kid": key.kid, "typ": "at+jwt"}).encode())
    for text in ("", "x", "{", "{}", "a.b.c"):
        note(f"no receipt: {text}", text, mine)
    note("a token", f"{head}.{pack(b'{}')}.AAAA", mine)
    for document in (b"x", b"[]", b'{"keys": [1]}', json.dumps({"keys": [{}] * 1_001}).encode()):
        note(f"no keys: {document[:20]!r}", written, document)
    note("an address that is none", written, more=" --issuer agent.example")
