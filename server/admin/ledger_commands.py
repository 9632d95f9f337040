"""Commands behind the admin socket for the books: `ostiary ledger`. Reading, a piece of the check, and what the owner gives.

Long lists and the check are asked for piece by piece, so that neither needs memory, nor one long answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec.structs import asdict

from auth.audit import audit_names, audit_trail
from auth.values.identity_model import Millis, Principal, PrincipalKind
from server.admin import acknowledge_breaks
from server.admin.audit_commands import compared
from server.admin.bounded_arguments import line, number, text
from server.admin.control import CommandRefused, Handler, ListPage
from server.lib.evm.evm_addresses import ZERO, BadChainAddress, parse_address
from server.lib.money.amounts import MOST, shown
from server.payments.seller import claims, payment_rows, refunds, statements, wallets
from server.payments.seller.book_checks import BooksAt, BooksPiece
from server.payments.seller.ledger import Books, BooksError, OtherMovement, revenue_account
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.refunds import NotRefunded, RefundOrder
from server.payments.seller.statements import Balance, StatementFilter
from server.store import acknowledged_breaks, ledger_chain
from server.store.jobs import Position, Store, StoreDb
from server.store.ledger_chain import LedgerChain

CURRENCY: Final = "USD"
# What the trail says when a break was acknowledged.
ACKNOWLEDGED: Final = "ledger.acknowledged"
# An answer is a megabyte at most, and a piece of the check takes some hundredths of a second.
ROWS_AT_MOST: Final = 2_000
ACCOUNTS_AT_MOST: Final = 1_000
PIECES: Final = 20
# A piece of balances counts as so many: each of its thousand is a question of its own, which a database elsewhere takes a second for.
OF_BALANCES: Final = 5
KINDS: Final = ("user", "client", "token", "key", "payer")
NOTE: Final = 200
KEY: Final = 128
_KEY: Final = re.compile(rf"[!-~]{{1,{KEY}}}")

TRANSACTION: Final = 80
# By how much the clock of a chain may be behind.
CLOCKS_SECONDS: Final = 120
# What the row of a payment says that the owner has found to be refused.
BY_HAND: Final = "The owner of the server found that it was not carried out."
_TRANSACTION: Final = re.compile(r"0x[0-9a-fA-F]{64}")

# Characters of the id of a wallet.
WALLET: Final = 310
_CHAIN: Final = re.compile(r"eip155:[1-9][0-9]{0,14}")


class LedgerCommands(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    clock: Callable[[], Millis]
    subkey: Callable[[str], bytes]
    committed_head: Callable[[], Position | None]  # of this process
    written_heads: Callable[[], Sequence[Position]]  # of the file outside the database; raises `HeadLost`

    def commands(self) -> dict[str, Handler]:
        return {
            "ledger.balance": self.balance,
            "ledger.statement": self.statement,
            "ledger.accounts": self.accounts,
            "ledger.check": self.check,
            "ledger.acknowledge": self.acknowledge,
            "ledger.refund": self.refund,
            "ledger.grant": self.grant,
            "ledger.unsettled": self.unsettled,
            "ledger.resolve": self.resolve,
        }

    async def balance(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Of a `wallet`, an `account`, a `server` or one of its tools; of everything together, if none is named."""
        wallet, account = text(arguments, "wallet"), text(arguments, "account")
        server, tool = text(arguments, "server"), text(arguments, "tool")

        def job(db: StoreDb) -> dict[str, Any]:
            if wallet is not None:
                found = wallets.find(db, wallet_to_read(db, wallet))
                if found is None:
                    raise CommandRefused(
                        f"there is no wallet of {wallet}", "ostiary ledger accounts lists them"
                    )
                return {"wallets": [_told(wallets_balance(found))], "accounts": []}
            if account is None and server is None:
                return {
                    name: statements.totals(db, of_wallets=name == "wallets")
                    for name in ("wallets", "accounts")
                }
            whole = (
                account
                if account is not None
                else None
                if tool is None
                else revenue_account(server or "", tool)
            )
            prefix = whole if whole is not None else revenue_account(server or "", "")
            rows = statements.accounts(
                db, of_wallets=False, prefix=prefix, after="", at_most=ACCOUNTS_AT_MOST
            )
            rows = [row for row in rows if whole is None or row.account == whole]
            if not rows:
                raise CommandRefused(
                    f"nothing was booked of {whole or server}", "ostiary ledger accounts lists them"
                )
            return {"wallets": [], "accounts": [_told(row) for row in rows]}

        return await self.store.read(job)

    async def statement(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`at` is the `go_on` of the page before."""
        wallet = text(arguments, "wallet")

        def job(db: StoreDb) -> statements.StatementPage:
            account = text(arguments, "account")
            if wallet is not None:
                account = wallets.account_of(wallet_to_read(db, wallet))
            wanted = StatementFilter(
                account=account,
                server=text(arguments, "server"),
                tool=text(arguments, "tool"),
                kind=text(arguments, "kind"),
                since=number(arguments, "since"),
                until=number(arguments, "until"),
            )
            at_most = min(number(arguments, "at_most") or ROWS_AT_MOST, ROWS_AT_MOST)
            oldest_first = arguments.get("oldest_first") is True
            return statements.page(
                db, wanted, oldest_first=oldest_first, at=number(arguments, "at"), at_most=at_most
            )

        found = await self.store.read(job)
        facts = await self.store.read(partial(statements.chain_facts, rows=found.rows))
        rows: list[dict[str, Any]] = [{**row, **more} for row, more in zip(found.rows, facts, strict=True)]
        for end in ("source", "target"):
            names = await self.store.read(partial(_names, accounts=[row[end] for row in rows]))
            rows = [{**row, f"{end}_name": name} for row, name in zip(rows, names, strict=True)]
        return {"rows": rows, "go_on": found.go_on}

    async def accounts(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Wallets first, then the others."""
        at: object = arguments.get("at")
        if not isinstance(at, dict | None):
            raise CommandRefused("at is where the answer before ended")
        here = cast("dict[str, Any]", at or {})
        of_wallets, after = here.get("of_wallets") is not False, text(here, "after") or ""
        job = partial(statements.accounts, of_wallets=of_wallets, after=after, at_most=ACCOUNTS_AT_MOST)
        found = await self.store.read(job)
        names = await self.store.read(partial(_names, accounts=[each.account for each in found]))
        go_on: dict[str, Any] | None = None
        if len(found) == ACCOUNTS_AT_MOST:
            go_on = {"of_wallets": of_wallets, "after": found[-1].account}
        elif of_wallets:
            go_on = {"of_wallets": False, "after": ""}
        rows = [
            {**_told(each), "wallet": of_wallets, "name": name}
            for each, name in zip(found, names, strict=True)
        ]
        return ListPage(rows=rows, go_on=go_on)

    async def check(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`at` is that of the answer before. With `expect`, the MAC that the movement of this number has comes along."""
        books = Books(self.subkey(ledger_chain.KEY_PURPOSE))
        at, expect = where(arguments.get("at")), number(arguments, "expect")
        answer: dict[str, Any] = {
            "movements": 0, "accounts": 0, "findings": [], "broken": None, "head": None, "head_lost": "",
        }  # fmt: skip
        left = PIECES
        while left > 0:
            piece: BooksPiece = await self.store.read(partial(books.check, at=at))
            add(answer, piece)
            if piece.head is not None:
                chain = LedgerChain(self.subkey(ledger_chain.KEY_PURPOSE))
                broken, lost = await compared(self.store, chain, self.committed_head, self.written_heads)
                answer |= {"broken": None if broken is None else asdict(broken), "head_lost": lost}
            at = piece.at
            if at is None:
                break
            left -= 1 if at.stage == "chain" else OF_BALANCES
        expected = None if expect is None else await self.store.read(partial(mac_of, seq=expect))
        noted = acknowledged_breaks.told(
            await self.store.read(LedgerChain(self.subkey(ledger_chain.KEY_PURPOSE)).acknowledged)
        )
        return {
            **answer,
            "at": None if at is None else msgspec.to_builtins(at),
            "expected": expected,
            "acknowledged": noted,
        }

    async def acknowledge(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """What the ledger is told to have wrong is no alarm from here on; see `acknowledge_breaks.acknowledge`."""
        chain = LedgerChain(self.subkey(ledger_chain.KEY_PURPOSE))
        return await acknowledge_breaks.acknowledge(
            self.store,
            chain,
            arguments,
            event=ACKNOWLEDGED,
            examine=lambda db: db.begin_ledger(),
            actor=actor,
            now=self.clock(),
        )

    async def refund(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`refers` is the movement; `amount` is less than all that is left of it, `paid_out` says that it is paid by hand."""
        refers, paid_out = number(arguments, "refers"), arguments.get("paid_out")
        if refers is None or not (paid_out is None or isinstance(paid_out, bool)):
            raise CommandRefused("refers is the number of a movement", "ostiary ledger statement shows them")
        order = RefundOrder(
            refers=refers,
            amount=number(arguments, "amount"),
            paid_out=paid_out,
            reference=line(arguments, "reference", NOTE),
        )
        job = partial(refunds.refund, books=self._books(), order=order, by=actor, now=self.clock())
        try:
            done = await self.store.write(job)
        except BooksError as error:
            raise CommandRefused(str(error)) from error
        if isinstance(done, NotRefunded):
            raise _not_refunded(done, order)
        return asdict(done)

    async def grant(self, arguments: Mapping[str, Any], actor: str) -> Any:
        wallet, amount, now = text(arguments, "wallet"), number(arguments, "amount"), self.clock()
        if not wallet or not amount or amount > MOST:
            raise CommandRefused("a grant has a wallet, and an amount")
        note, once, books = line(arguments, "note", NOTE), text(arguments, "once"), self._books()
        # An empty one is that of a script whose variable is not set.
        if once is not None and _KEY.fullmatch(once) is None:
            raise CommandRefused(
                f"a key has 1 to {KEY} visible characters, and no blanks", "--once order-1204"
            )

        def job(db: StoreDb) -> dict[str, Any]:
            called = wallet_called(db, wallet)
            found = wallets.find(db, called)
            currency = CURRENCY if found is None else found.currency
            done = refunds.grant(
                db, books, called, amount, currency=currency, note=note, by=actor, now=now, once=once or ""
            )
            then = wallets.find(db, called)
            assert then is not None  # it has just been given something
            return {**asdict(done), "amount": amount, **_told(wallets_balance(then))}

        try:
            return await self.store.write(job)
        except OtherMovement as error:
            raise CommandRefused(
                f"the key {once} was given with another grant", "a new grant takes a key of its own"
            ) from error
        except BooksError as error:
            raise CommandRefused(str(error)) from error

    async def unsettled(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Payments that were sent and have no outcome yet, by their ids. `at` is the id with which the page before ended."""
        after = text(arguments, "at") or ""
        found = await self.store.read(partial(payment_rows.unsettled, after=after, at_most=ROWS_AT_MOST))
        go_on = found[-1].id if len(found) == ROWS_AT_MOST else None
        return ListPage(rows=[_payment(each) for each in found], go_on=go_on)

    async def resolve(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`payment` stays unknown, and the owner has found out: `settled` is its transaction; or it was `refused`."""
        payment_id, transaction = text(arguments, "payment"), text(arguments, "settled", TRANSACTION)
        refused = arguments.get("refused") is True
        if payment_id is None or refused == (transaction is not None):
            raise CommandRefused("a payment was settled by a transaction, or refused")
        if transaction is not None and _TRANSACTION.fullmatch(transaction) is None:
            raise CommandRefused(
                "a transaction is 0x and 64 hexadecimal digits", "an explorer of its network shows it"
            )
        now, books = self.clock(), self._books()

        def job(db: StoreDb) -> PaymentRow | None:
            row = payment_rows.find(db, payment_id)
            if row is None or row.state != "unknown":
                return row
            if transaction is not None:
                claims.book_settled(
                    db, payment_id=payment_id, transaction=transaction.lower(), books=books, now=now
                )
            elif now // 1000 <= row.valid_before + CLOCKS_SECONDS:
                raise CommandRefused(
                    f"{payment_id} could still be carried out: it is good until {_time(row.valid_before)}",
                    "wait until then, and look again",
                )
            else:
                claims.book_refused(db, payment_id=payment_id, problem=BY_HAND, now=now)
            said = f"{payment_id} {f'settled by {transaction.lower()}' if transaction is not None else 'refused'}"
            audit_trail.record(db, at=now, event="payment.resolved", actor=actor, reason=said)
            return None

        try:
            left = await self.store.write(job)
        except BooksError as error:
            raise CommandRefused(str(error)) from error
        if left is not None:
            raise _not_unknown(left)
        row = await self.store.read(partial(payment_rows.find, payment_id=payment_id))
        if row is None:
            raise CommandRefused(f"there is no payment {payment_id}", "ostiary ledger unsettled lists them")
        return _payment(row)

    def _books(self) -> Books:
        return Books(self.subkey(ledger_chain.KEY_PURPOSE))


def wallet_called(db: StoreDb, called: str) -> str:
    """A job: find the wallet that pays for a person by name, or for a caller by kind and id. Raises `CommandRefused`."""
    kind, colon, subject = called.partition(":")
    if not colon:
        row = db.fetch_one("SELECT id FROM users WHERE name = ? OR id = ?", called, called)
        if row is None:
            raise _nobody(called)
        caller = Principal(kind=PrincipalKind.USER, subject=row["id"])
    elif kind not in KINDS or not subject or not called.isprintable() or len(called) > WALLET:
        raise CommandRefused(
            f"{called} is no wallet", f"it begins with {', '.join(f'{each}:' for each in KINDS)}"
        )
    else:
        caller = _caller(db, called, kind, subject)
    wallet = wallets.wallet_of(caller)
    assert wallet is not None  # anonymous callers are none of these
    return wallet


def wallet_to_read(db: StoreDb, called: str) -> str:
    """A job: find the wallet that has exactly this id, also one that pays for nobody any more; else as `wallet_called`."""
    return called if wallets.find(db, called) is not None else wallet_called(db, called)


def _caller(db: StoreDb, called: str, kind: str, subject: str) -> Principal:
    match kind:
        case "user" if db.fetch_one("SELECT id FROM users WHERE id = ?", subject) is not None:
            return Principal(kind=PrincipalKind.USER, subject=subject)
        case "client" if db.fetch_one("SELECT id FROM clients WHERE id = ? OR id = ?", subject, called):
            return Principal(kind=PrincipalKind.CLIENT, subject=called)
        case "key" if (row := db.fetch_one("SELECT user_id FROM api_keys WHERE id = ?", subject)) is not None:
            return Principal(kind=PrincipalKind.API_KEY, subject=subject, user=row["user_id"])
        case "token":
            return Principal(kind=PrincipalKind.API_KEY, subject=called)
        case "payer":
            return Principal(kind=PrincipalKind.PAYER, subject=_payer(called, subject))
        case _:
            raise _nobody(called)


def _payer(called: str, subject: str) -> str:
    network, _, address = subject.rpartition(":")
    hint = "payer:NETWORK:ADDRESS, such as payer:eip155:8453:0x… with 40 hex digits"
    if _CHAIN.fullmatch(network) is None:
        raise CommandRefused(f"{called} names no network", hint)
    try:
        checked = parse_address(address)
    except BadChainAddress as error:
        raise CommandRefused(f"{address} {error}", hint) from error
    if checked == ZERO:
        raise CommandRefused(f"nobody pays from {address}", hint)
    return f"{network}:{checked}"


def _nobody(called: str) -> CommandRefused:
    return CommandRefused(
        f"there is nobody called {called}", "ostiary users, ostiary clients and ostiary api-keys list them"
    )


def wallets_balance(wallet: wallets.Wallet) -> Balance:
    return Balance(account=wallet.id, currency=wallet.currency, balance=wallet.balance, held=wallet.held)


def where(value: object) -> BooksAt | None:
    """Raises `CommandRefused`."""
    try:
        return None if value is None else msgspec.convert(value, BooksAt)
    except msgspec.ValidationError as error:
        raise CommandRefused("at is where the answer before ended") from error


def add(answer: dict[str, Any], piece: BooksPiece) -> None:
    """What a piece found, to what those before it did."""
    answer["movements"] += piece.movements
    answer["accounts"] += piece.accounts
    answer["findings"] += piece.findings
    if piece.broken is not None:
        answer["broken"] = asdict(piece.broken)
    if piece.head is not None:
        answer["head"] = asdict(piece.head)


def mac_of(db: StoreDb, seq: int) -> str | None:
    row = db.fetch_one("SELECT mac FROM movements WHERE seq = ?", seq)
    return None if row is None else row["mac"]


def _payment(row: PaymentRow) -> dict[str, Any]:
    """Without what could be cashed. `ends_at`: when it ends by itself, with no node of its network asked."""
    names = (
        "id", "state", "network", "asset", "payer", "pay_to", "nonce", "amount", "currency", "atomic", "server",
        "caller", "purpose", "charge_id", "facilitator", "tries", "next_try_at", "problem", "transaction_hash",
        "created_at", "valid_before",
    )  # fmt: skip
    ends = row.state in ("settling", "unknown") and row.refused_each_time(row.tries)
    return {**{name: getattr(row, name) for name in names}, "ends_at": row.over_at if ends else None}


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _not_unknown(row: PaymentRow) -> CommandRefused:
    match row.state:
        case "settling":
            return CommandRefused(
                f"{row.id} is being settled just now", "wait until that has failed: ostiary ledger unsettled"
            )
        case "settled" | "refused":
            return CommandRefused(f"{row.id} is {row.state} already")
        case _:
            return CommandRefused(f"{row.id} was never sent to be settled")


def _names(db: StoreDb, *, accounts: Sequence[str]) -> list[str]:
    """Whose wallets they are, as people know them; empty for what is nobody's. A job that reads."""
    found: dict[str, str] = {}
    for account in accounts:
        if account not in found:
            whose = account.removeprefix(wallets.account_of(""))
            found[account] = audit_names.named(db, re.sub("^key:", "api_key:", whose))
    return [found[account] for account in accounts]


def _told(balance: Balance) -> dict[str, Any]:
    return asdict(balance)


def _not_refunded(done: NotRefunded, order: RefundOrder) -> CommandRefused:
    left = shown(done.left, done.currency) if done.currency else ""
    match done.reason:
        case "unknown":
            return CommandRefused(
                f"there is no movement {order.refers}", "ostiary ledger statement shows them"
            )
        case "not_taken_back":
            return CommandRefused(f"movement {order.refers} takes something back itself")
        case "no_such_way":
            way = "can only be paid out by hand" if not order.paid_out else "goes back to where it came from"
            return CommandRefused(f"movement {order.refers} {way}")
        case "too_much":
            return CommandRefused(f"of movement {order.refers} {left} is left")
        case "spent":
            return CommandRefused(
                "there is not so much left in the wallet: it was spent, or is held for a call"
            )
