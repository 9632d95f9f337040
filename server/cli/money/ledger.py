"""The commands `ostiary ledger`: the books, whether they are right, and what the owner gives back or away."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from server.cli import local, spans, terminal
from server.cli.manage import bookcheck, row_pages, unserved_store
from server.cli.money import unsettled
from server.lib.counted import counted
from server.lib.money.amounts import BadAmount, parse, shown

LARGE: Final = 1_000 * 1_000_000  # a grant that is asked about: $1,000 in millionths
HEADINGS: Final = ("number", "when", "what", "amount", "from", "to", "note")
KINDS: Final = ("payment", "deposit", "charge", "grant", "voucher", "refund", "payout", "purchase")
FIELDS: Final = (
    "seq", "at", "time", "kind", "source", "target", "amount", "micros", "currency", "principal", "client_id",
    "grant_id", "server", "tool", "call_id", "charge_id", "payment_id", "price", "refers", "note", "mac",
    "transaction", "payer", "pay_to", "network", "asset",
)  # fmt: skip
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class AmountType(click.ParamType[Any]):
    """The type of an option like `0.05` or `$0.05`, as whole millionths."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            micros = parse(str(value))
        except BadAmount as error:
            self.fail(f"{value!r} {error}", param, ctx)
        if micros == 0:
            self.fail("nothing is no amount", param, ctx)
        return micros


def of_what(command: Decorated) -> Decorated:
    """Add options that say whose movements, or of what."""
    for option in (
        click.option("--tool", metavar="NAME", help="of this tool of the server"),
        click.option("--server", metavar="NAME", help="of this server"),
        click.option("--account", metavar="ID", help="of an account, such as granted"),
        click.option("--wallet", metavar="WHO", help="of a person by name, or of user:ID, client:ID …"),
    ):
        command = option(command)
    return command


def of_when(command: Decorated) -> Decorated:
    kind = click.option(
        "--kind", metavar="KIND", type=click.Choice(KINDS), help=f"only these: {terminal.either(KINDS)}"
    )
    return spans.of_when(kind(command))


@click.group(help="Show, export and check the books; refund and grant.")
def command() -> None: ...


command.add_command(unsettled.unsettled)
command.add_command(unsettled.resolve)


def _show_balances(found: Mapping[str, Any]) -> None:
    for name in ("wallets", "accounts"):
        for each in found[name]:
            held = f", of which {shown(each['held'], each['currency'])} is held" if each["held"] else ""
            which = (
                f"{counted(each['count'], name.removesuffix('s'))}:"  # of all together
                if "count" in each
                else f"{terminal.clean(each['account'])} "
            )
            terminal.out(f"{which} {shown(each['balance'], each['currency'])}{held}")
    if not found["wallets"] and not found["accounts"]:
        terminal.say("nothing was booked yet")


@command.command("balance")
@of_what
@local.shows(_show_balances)
def balance(**wanted: str | None) -> Any:
    """Show a balance; without a name, of all together."""
    return local.ask("ledger.balance", _checked(wanted))


@command.command("statement")
@of_what
@of_when
@row_pages.limit_option("at most so many")
@local.which_server
@terminal.json_option
def statement(limit: int, as_json: bool, **wanted: Any) -> None:
    """Show movements, newest first."""
    movements = row_pages.RowPages("ledger.statement", _checked(wanted))
    movements.show(limit, _show, _told, as_json=as_json, nothing="no movement is like that")


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    for line in terminal.table(HEADINGS, map(_cells, rows)):
        terminal.out(terminal.cut(line, terminal.width(sys.stdout)))


def _show_accounts(found: Sequence[Mapping[str, Any]]) -> None:
    terminal.show_table(("account", "balance", "held"), map(_account_cells, found))


def _account_cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    account = f"wallet:{each['account']}" if each["wallet"] else each["account"]
    return (
        terminal.clean(_whose(each.get("name", ""), account)),
        shown(each["balance"], each["currency"]),
        shown(each["held"], each["currency"]) if each["held"] else "-",
    )


@command.command("accounts")
@local.shows(_show_accounts, nothing="nothing was booked yet")
def accounts() -> Any:
    """List every wallet and account with its balance."""
    return unserved_store.ask_or_read("ledger.accounts")


@command.command("check")
@local.which_server
@terminal.json_option
def check(as_json: bool) -> int:
    """Check that no movement was altered, and that every balance is their sum."""
    result = bookcheck.of_server_or_file()
    if as_json:
        terminal.out_json(result)
    else:
        bookcheck.tell(result, terminal.out)
    return 0 if result["sound"] else terminal.EXIT_FAILED


@command.command("refund")
@click.argument("movement", type=click.IntRange(1), metavar="NUMBER")
@click.option(
    "--amount", type=AmountType(), metavar="AMOUNT", help="a part of it; otherwise all that is left"
)
@click.option("--paid-out", is_flag=True, help="it is paid by hand outside of here, not back into the wallet")
@click.option("--reference", metavar="TEXT", help="of the transfer by hand, such as its hash")
@click.option("--yes", is_flag=True, help="do not ask")
@local.which_server
@terminal.json_option
def refund(
    movement: int, amount: int | None, paid_out: bool, reference: str | None, yes: bool, as_json: bool
) -> None:
    """Take back the movement of this number, wholly or in part.

    A charge goes back into the wallet, and a purchase that was none to the costs. A payment or deposit, which came from a chain, is paid
    back by hand: the books say that it was, and move nothing on the chain.
    """
    part = "all that is left of it" if amount is None else shown(amount)
    if not terminal.agreed(f"take back {part}, of movement {movement}?", yes=yes):
        return
    arguments = {
        "refers": movement,
        "amount": amount,
        "paid_out": True if paid_out else None,
        "reference": reference,
    }
    done = local.ask("ledger.refund", arguments)
    if as_json:
        terminal.out_json(done)
        return
    said = f"{shown(done['amount'], done['currency'])} from {done['source']} to {done['target']}"
    terminal.out(f"movement {done['seq']}: {terminal.clean(said)}")
    if done["kind"] == "payout":
        terminal.say("nothing was moved on a chain: that is done by hand")
    if done["left"]:
        terminal.say(f"of movement {movement} {shown(done['left'], done['currency'])} is left")


@command.command("grant")
@click.argument("wallet", metavar="WHO")
@click.argument("amount", type=AmountType(), metavar="AMOUNT")
@click.option("--note", metavar="TEXT", help="what it is for; it stands in the statement")
@click.option("--once", metavar="KEY", help="with the same KEY it is given once, however often this is run")
@click.option("--yes", is_flag=True, help="do not ask, however large it is")
@local.which_server
@terminal.json_option
def grant(wallet: str, amount: int, note: str | None, once: str | None, yes: bool, as_json: bool) -> None:
    """Give somebody AMOUNT for nothing.

    WHO is a person by name, or user:ID, client:ID, key:ID (its owner's wallet, which pays for it), token:SERVER:NAME,
    payer:NETWORK:ADDRESS.
    """
    if amount >= LARGE and not terminal.agreed(
        f"give {terminal.clean(wallet)} {shown(amount)} for nothing?", yes=yes
    ):
        return
    arguments = {"wallet": wallet, "amount": amount, "note": note, "once": once}
    done = local.ask("ledger.grant", arguments)
    if as_json:
        terminal.out_json(done)
        return
    has = shown(done["balance"], done["currency"])
    terminal.out(f"movement {done['seq']}: {terminal.clean(wallet)} has {has} now")
    if wallet.startswith("key:"):
        terminal.say(
            f"it is in {terminal.clean(done['account'])}, the owner's wallet, which pays for this key"
        )
    if done["given_before"]:
        terminal.say(f"it was given before, and not again: {terminal.clean(once or '')}")


@command.command("export")
@of_what
@of_when
@click.option("--csv", "form", flag_value="csv", help="as a table, for a spreadsheet")
@click.option(
    "--json",
    "form",
    flag_value="json",
    default="json",
    help="as JSON lines, which is how it comes unless told",
)
@click.option("--to", "target", metavar="FILE", default="-", help="into a new file; otherwise stdout")
@local.which_server
def export(form: str, target: str, **wanted: Any) -> None:
    """Write every movement, oldest first."""
    rows = map(_told, row_pages.RowPages("ledger.statement", _checked(wanted)).oldest_first())
    row_pages.export(
        target,
        lambda out: (
            row_pages.write_csv(FIELDS, rows, out) if form == "csv" else row_pages.write_json(rows, out)
        ),
        "movement",
    )


def _checked(wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    if wanted["wallet"] is not None and wanted["account"] is not None:
        raise terminal.Misuse("--wallet and --account are two accounts", hint="name one of them")
    if wanted["tool"] is not None and wanted["server"] is None:
        raise terminal.Misuse("--tool is of a server", hint="name it with --server")
    return wanted


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a movement whole: its amount as people write it, and in whole millionths."""
    whole, fraction = divmod(row["amount"], 1_000_000)
    said = {**row, "time": spans.iso(row["at"]), "amount": f"{whole}.{fraction:06d}", "micros": row["amount"]}
    return {name: said[name] for name in FIELDS}


def _whose(name: str, account: str) -> str:
    return f"wallet of {name}" if name else account


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    note = row["note"] or ("" if row["refers"] is None else f"of {row['refers']}") or row["transaction"]
    source, target = (_whose(row.get(f"{end}_name", ""), row[end]) for end in ("source", "target"))
    texts = (row["kind"], shown(row["amount"], row["currency"]), source, target, note or "-")
    return (str(row["seq"]), spans.told(row["at"]), *(terminal.clean(text) for text in texts))
