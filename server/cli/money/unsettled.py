"""The commands `ostiary ledger unsettled` and `resolve`: payments of which nobody knows what became, and what the owner has found out of one."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.manage import unserved_store
from server.lib.money.amounts import shown

# That two clocks differ is none of being set.
_CLOCKS_SECONDS: Final = 60

HEADINGS = ("payment", "state", "since", "amount", "payer", "tries", "next look", "ends in", "why")


def _show(found: Sequence[Mapping[str, Any]]) -> None:
    oldest_first = sorted(found, key=lambda each: each["created_at"])
    for line in terminal.table(HEADINGS, map(_cells, oldest_first)):
        terminal.out(terminal.cut(line, terminal.width(sys.stdout)))
    terminal.say_hint(
        "they are looked after by themselves; ostiary ledger resolve is for what an explorer shows"
    )


@click.command("unsettled")
@local.shows(_show, nothing="every payment has its outcome")
def unsettled() -> Any:
    """List payments that were sent to be settled, and have no outcome yet."""
    return unserved_store.ask_or_read("ledger.unsettled")


@click.command("resolve")
@click.argument("payment", metavar="PAYMENT")
@click.option("--settled", metavar="TRANSACTION", help="it was carried out, by this transaction")
@click.option("--refused", is_flag=True, help="it was not carried out, and cannot be any more")
@click.option("--yes", is_flag=True, help="do not ask")
@local.which_server
@terminal.json_option
def resolve(payment: str, settled: str | None, refused: bool, yes: bool, as_json: bool) -> None:
    """Say what became of a payment that stays unknown.

    Look it up first: an explorer of its network shows the payer's transfers. A settled one is booked, and its answer is given to whoever
    asks for it; of one that was refused nothing is taken. The audit trail says who said so.
    """
    if refused == (settled is not None):
        raise terminal.Misuse(
            "a payment was settled by a transaction, or refused", hint="--settled 0x… or --refused"
        )
    what = f"settled by {settled}" if settled is not None else "refused: nothing was taken"
    if not terminal.agreed(f"book {payment} as {what}?", yes=yes):
        return
    arguments = {"payment": payment, "settled": settled, "refused": refused}
    done = local.ask("ledger.resolve", arguments)
    if as_json:
        terminal.out_json(done)
        return
    terminal.out(
        f"{terminal.clean(done['id'])} is {done['state']}: {shown(done['amount'], done['currency'])}"
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = time.time() - row["created_at"] / 1000
    age = terminal.duration(seconds) if seconds > -_CLOCKS_SECONDS else "the clock was set back since"
    looked_at = "under way" if row["state"] == "settling" else local.left(row["next_try_at"])
    texts = (
        row["id"],
        row["state"],
        f"{spans.told(row['created_at'])} ({age})",
        shown(row["amount"], row["currency"]),
        row["payer"],
        str(row["tries"]),
        looked_at,
        local.left(row["ends_at"]) if row.get("ends_at") else "-",
        row["problem"] or "-",
    )
    return tuple(terminal.clean(text) for text in texts)
