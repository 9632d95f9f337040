"""Money: a hundred thousand balances, each with a deposit and a charge in the books."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from house import House, Tables
from msgspec.structs import replace
from pair import Ground, Served, compare_starts, fill, served
from people import Entrance

from server.store import ledger_chain, meta_rows
from server.store.chains import Record
from server.store.ledger_chain import LedgerChain

MANY: Final = 100_000
FEW: Final = 100
DAY: Final = 24 * 3_600_000
CURRENCY: Final = "USD"
REVENUE: Final = "revenue:bench/echo"
SETTINGS: Final = (
    '[[server]]\nname = "bench"\n[[server.agent]]\nkind = "demo"\n[server.tools.echo]\nprice = "$0.000001"\n'
)
ALL: Final = 10**9


class Balances:
    def __init__(self, count: int) -> None:
        self._count = count

    def fill(self, house: House, tables: Tables) -> None:
        chain = LedgerChain(house.subkey(tables)(ledger_chain.KEY_PURPOSE))
        record = chain.record(tables) or Record()  # pyright: ignore[reportArgumentType]
        head, now = (record.head, record.head_mac), time.time_ns() // 1_000_000
        names = [f"user:usr_{number}" for number in range(self._count)]

        def rows() -> Iterator[tuple[Any, ...]]:
            nonlocal head
            for values in self._movements(names, now):
                seq = head[0] + 1
                mac = chain.mac(head[1], seq, values)
                head = (seq, mac)
                yield (seq, *values, mac)

        tables.fill(
            "wallets",
            ("id", "currency", "balance", "held", "created_at", "updated_at"),
            ((name, CURRENCY, 4_000_000, 0, now, now) for name in names),
        )
        for account, balance in (("granted", -5_000_000), (REVENUE, 1_000_000)):
            tables.execute(
                "INSERT INTO accounts (id, currency, balance) VALUES (?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + excluded.balance",
                account, CURRENCY, balance * self._count,
            )  # fmt: skip
        tables.fill("movements", ("seq", *chain.table.columns, "mac"), rows())
        longer = replace(record, head=head[0], head_mac=head[1])
        tables.execute(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            meta_rows.LEDGER_CHAIN, chain.sealed(longer),
        )  # fmt: skip

    def _movements(self, names: list[str], now: int) -> Iterator[tuple[object, ...]]:
        for number, name in enumerate(names):
            at = now - 20 * DAY + number
            rest = (None,) * 9
            yield (at, "grant", "granted", f"wallet:{name}", 5_000_000, CURRENCY, "local:0", *rest, "")
            charge = (None, None, "bench", "echo", f"call_{number}", f"chg_{number:024}", None, "1", None)
            yield (at, "charge", f"wallet:{name}", REVENUE, 1_000_000, CURRENCY, f"{name}:", *charge, "")


def measure(ground: Ground) -> None:
    sheet, few_count, many_count = ground.sheet, FEW, ground.many(MANY)
    sheet.begin(f"balances: {few_count:,} → {many_count:,}")
    few, many = (ground.house(name, SETTINGS) for name in ("money_few", "money_many"))
    entrances = {house.folder.name: Entrance() for house in (few, many)}
    for house, count in ((few, few_count), (many, many_count)):
        with house.serving(core=ground.cores.server) as server:
            opened(house, server)
        fill(house, Balances(count).fill)
        fill(house, entrances[house.folder.name].open)
    compare_starts(ground, few, many)
    with served(ground, few, many) as (little, much):
        compare = partial(sheet.compare, times=ground.times(31))
        of_few, of_many = (Spender(each) for each in (little, much))
        compare("paid call", of_few.call, of_many.call)
        for what, command, arguments in (
            ("ostiary ledger balance USER", "ledger.balance", {"wallet": "owner"}),
            ("ostiary ledger balance", "ledger.balance", {}),
            ("ostiary ledger statement", "ledger.statement", {"at_most": 50}),
            ("ostiary ledger grant", "ledger.grant", {"wallet": "owner", "amount": 1_000}),
        ):
            compare(
                what,
                partial(little.guest.ask, command, **arguments),
                partial(much.guest.ask, command, **arguments),
            )
        for what, path, whose in (
            ("page You of somebody with a balance", "/account/you", "somebody"),
            ("Overview of the owner", "/account", "owner"),
            ("page of one person", "/account/people/usr_7", "owner"),
        ):
            pages = (
                partial(entrances[each.house.folder.name].page, each, path, whose=whose)
                for each in (little, much)
            )
            compare(what, *pages)
        compare("ostiary status", partial(little.guest.ask, "status"), partial(much.guest.ask, "status"))
        begun, checked = time.perf_counter(), check(much)
        sheet.add(
            "ostiary ledger check", None, checked / (time.perf_counter() - begun), "movements and balances/s"
        )
        sheet.add("resident", little.resident_mib(), much.resident_mib(), "MiB")


def opened(house: House, server: Any) -> None:
    """So that the books are begun."""
    from guest import Guest

    guest = Guest(server, house.home.path)
    guest.ask("ledger.grant", wallet="owner", amount=ALL)
    guest.close()


class Spender:
    def __init__(self, served: Served) -> None:
        self._guest, self._token, self._number = served.guest, served.guest.log_in()["access_token"], 0

    def call(self) -> None:
        self._number += 1
        self._guest.call(self._token, text=f"hello {self._number}")


def check(served: Served) -> int:
    checked, at = 0, None
    while True:
        piece = served.guest.ask("ledger.check", at=at)
        if piece["broken"] is not None or piece["findings"]:
            raise AssertionError(f"the books that were filled in are not right: {piece}")
        checked, at = checked + piece["movements"] + piece["accounts"], piece["at"]
        if at is None:
            return checked
