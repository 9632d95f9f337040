"""Checks of the books: the chain of movements unbroken, and every balance the sum of what moved. In pieces, each of them a read. Jobs.

A balance is compared with the movements up to the newest of the moment at which it was read. Movements never change, so they may be added
up piece by piece while others are booked, and nothing need be remembered between pieces but where one is."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from server.lib.money.amounts import shown
from server.payments.seller import wallets
from server.store.chains import Break
from server.store.jobs import Position, Row, StoreDb
from server.store.ledger_chain import LedgerChain

# As many as one piece tells of: who finds one has to look anyway.
MOST_FINDINGS: Final = 20

_SIDES: Final = (
    "SELECT side FROM (SELECT source AS side FROM movements WHERE seq > ? AND seq <= ?"
    " UNION SELECT target FROM movements WHERE seq > ? AND seq <= ?) AS sides"
    " WHERE NOT EXISTS (SELECT 1 FROM accounts WHERE id = side)"
    f" AND NOT (substr(side, 1, {len(wallets.ACCOUNT)}) = '{wallets.ACCOUNT}'"
    f" AND EXISTS (SELECT 1 FROM wallets WHERE id = substr(side, {len(wallets.ACCOUNT) + 1}))) LIMIT ?"
)
_CHANGES: Final = (
    "SELECT coalesce(sum(change), 0) AS change, count(*) AS count, max(seq) AS last FROM ("
    "SELECT seq, amount AS change FROM movements WHERE target = ? AND seq > ? AND seq <= ?"
    " UNION ALL SELECT seq, -amount FROM movements WHERE source = ? AND seq > ? AND seq <= ?"
    " ORDER BY seq LIMIT ?) AS changes"
)
_HELD: Final = (
    "SELECT wallet, sum(amount) AS held FROM charges WHERE owner IS NOT NULL AND state = 'running' AND how = 'balance'"
    " AND wallet >= ? AND wallet <= ? GROUP BY wallet"
)
_TOTALS: Final = (
    "SELECT currency, sum(balance) AS balance FROM (SELECT currency, balance FROM wallets"
    " UNION ALL SELECT currency, balance FROM accounts) AS everything GROUP BY currency HAVING sum(balance) <> 0 LIMIT ?"
)
_ORPHANS: Final = (
    "SELECT DISTINCT wallet FROM charges WHERE owner IS NOT NULL AND state = 'running' AND how = 'balance'"
    " AND NOT EXISTS (SELECT 1 FROM wallets WHERE wallets.id = charges.wallet) LIMIT ?"
)

Stage = Literal["chain", "wallets", "accounts", "totals"]


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """A balance that is being compared: what it was when the newest movement was `head`, and what was added up of it."""

    balance: int
    currency: str
    head: int
    after: int = 0
    total: int = 0


class BooksAt(msgspec.Struct, frozen=True, kw_only=True):
    """The place to which a check has come."""

    stage: Stage = "chain"
    chain: Position | None = None
    name: str = ""  # of the last wallet or account that is done; with `sum` of the one that is not
    sum: Sum | None = None


class BooksPiece(msgspec.Struct, frozen=True, kw_only=True):
    at: BooksAt | None  # where the next piece begins; None: that was all
    findings: tuple[str, ...]  # sentences
    head: Position | None = None  # with the last piece of the chain: where it ends
    broken: Break | None = None  # of the chain
    movements: int = 0  # that were found to be as they were written
    accounts: int = 0  # wallets among them, that were compared


def piece(db: StoreDb, chain: LedgerChain, at: BooksAt | None, *, at_most: int) -> BooksPiece:
    """Check the next piece; with None the first. Each looks at so many movements, or at so many balances."""
    at = at or BooksAt()
    if at.stage == "chain":
        return _walk(db, chain, at, at_most)
    if at.stage == "totals":
        return _totals(db)
    return _compare(db, at, at_most)


def _walk(db: StoreDb, chain: LedgerChain, at: BooksAt, at_most: int) -> BooksPiece:
    begin = at.chain or Position(seq=0, mac="")
    found = chain.walk(db, at.chain, at_most=at_most)
    end = found.at.seq
    missing = db.fetch_all(_SIDES, begin.seq, end, begin.seq, end, MOST_FINDINGS) if found.checked else []
    then = BooksAt(stage="wallets") if found.done else replace(at, chain=found.at)
    return BooksPiece(
        at=then,
        head=found.at if found.done and found.broken is None else None,
        broken=found.broken,
        findings=tuple(f"{row['side']} is not there, and there are movements of it" for row in missing),
        movements=found.checked,
    )


def _compare(db: StoreDb, at: BooksAt, at_most: int) -> BooksPiece:
    """Compare balances one after the other, until so many balances and movements were looked at."""
    of_wallets = at.stage == "wallets"
    findings: list[str] = []
    done, left, under_way = 0, at_most, at.sum
    if under_way is not None:
        under_way, left = _add_up(db, _account(at.name, of_wallets), under_way, left)
        if under_way.after < under_way.head:
            return _to_go_on(replace(at, sum=under_way), done, findings)
        findings += _differs(_account(at.name, of_wallets), under_way)
        done += 1
    table = "wallets" if of_wallets else "accounts"
    rows = db.fetch_all(f"SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT ?", at.name, at_most)
    held = _held(db, rows) if of_wallets and rows else {}
    head = newest(db)
    name = at.name
    for row in rows:
        if left <= 0 or len(findings) >= MOST_FINDINGS:
            return _to_go_on(BooksAt(stage=at.stage, name=name), done, findings)
        name, account = row["id"], _account(row["id"], of_wallets)
        if of_wallets and row["held"] != held.get(name, 0):
            kept, running = (shown(each, row["currency"]) for each in (row["held"], held.get(name, 0)))
            findings.append(f"{account} holds {kept}, and its running calls {running}")
        begun = Sum(balance=row["balance"], currency=row["currency"], head=head)
        summed, left = _add_up(db, account, begun, left - 1)
        if summed.after < head:
            return _to_go_on(BooksAt(stage=at.stage, name=name, sum=summed), done, findings)
        findings += _differs(account, summed)
        done += 1
    if len(rows) == at_most:
        return _to_go_on(BooksAt(stage=at.stage, name=name), done, findings)
    return _to_go_on(BooksAt(stage="accounts" if of_wallets else "totals"), done, findings)


def newest(db: StoreDb) -> int:
    """Return the number of the newest movement; 0: there is none."""
    row = db.fetch_one("SELECT max(seq) AS seq FROM movements")
    return 0 if row is None else row["seq"] or 0


def _add_up(db: StoreDb, account: str, so_far: Sum, at_most: int) -> tuple[Sum, int]:
    """Add up some more of its movements; `after` is the head when there are no more. Returned is also how many more the piece may look at."""
    bounds = (so_far.after, so_far.head)
    row = db.fetch_one(_CHANGES, account, *bounds, account, *bounds, max(at_most, 1))
    assert row is not None  # of a sum there is always one
    is_all = row["count"] < max(at_most, 1)
    after = so_far.head if is_all else row["last"]
    return replace(so_far, after=after, total=so_far.total + row["change"]), at_most - row["count"]


def _held(db: StoreDb, rows: list[Row]) -> dict[str, int]:
    """Return, by wallet, what calls that are under way have taken hold of."""
    found = db.fetch_all(_HELD, rows[0]["id"], rows[-1]["id"])
    return {row["wallet"]: row["held"] for row in found}


def _differs(account: str, summed: Sum) -> list[str]:
    if summed.total == summed.balance:
        return []
    said, is_so = shown(summed.balance, summed.currency), shown(summed.total, summed.currency)
    return [f"{account} says {said}, and its movements come to {is_so}"]


def _totals(db: StoreDb) -> BooksPiece:
    findings = [
        f"all balances together are {shown(row['balance'], row['currency'])}, not nothing"
        for row in db.fetch_all(_TOTALS, MOST_FINDINGS)
    ]
    findings += [
        f"{wallets.account_of(row['wallet'] or '')} is not there, and a running call holds some of it"
        for row in db.fetch_all(_ORPHANS, MOST_FINDINGS)
    ]
    return BooksPiece(at=None, findings=tuple(findings))


def _to_go_on(at: BooksAt, accounts: int, findings: list[str]) -> BooksPiece:
    return BooksPiece(at=at, findings=tuple(findings), accounts=accounts)


def _account(name: str, of_wallets: bool) -> str:
    return wallets.account_of(name) if of_wallets else name
