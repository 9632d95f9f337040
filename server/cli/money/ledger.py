"""`ostiary ledger`: the books. What moved, what is where, whether that is right; and what the owner gives back or away."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO, TypeVar

import click

from server.cli import local, terminal
from server.cli.manage import bookcheck, unserved_store
from server.cli.manage.audit import moment
from server.cli.money import unsettled
from server.lib.money.amounts import BadAmount, parse, shown
from server.lib.own_files import make_file

PAGE: Final = 1_000
LARGE: Final = 1_000 * 1_000_000  # a grant that is asked about: $1,000 in millionths
HEADINGS: Final = ("number", "when", "what", "amount", "from", "to", "note")
KINDS: Final = ("payment", "deposit", "charge", "grant", "voucher", "refund", "payout", "purchase")
FIELDS: Final = (
    "seq", "at", "time", "kind", "source", "target", "amount", "micros", "currency", "principal", "client_id",
    "grant_id", "server", "tool", "call_id", "charge_id", "payment_id", "price", "refers", "note", "mac",
    "transaction", "payer", "pay_to", "network", "asset",
)  # fmt: skip
# What a spreadsheet would take for a formula.
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class AmountType(click.ParamType[Any]):
    """`0.05` or `$0.05`, as whole millionths."""

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
    """Options that say whose movements, or of what."""
    for option in (
        click.option("--tool", metavar="NAME", help="of this tool of the server"),
        click.option("--server", metavar="NAME", help="of this server"),
        click.option("--account", metavar="ID", help="of an account, such as granted"),
        click.option("--wallet", metavar="WHO", help="of a person by name, or of user:ID, client:ID …"),
    ):
        command = option(command)
    return command


def of_when(command: Decorated) -> Decorated:
    for option in (
        click.option(
            "--kind", metavar="KIND", type=click.Choice(KINDS), help=f"only these: {terminal.either(KINDS)}"
        ),
        click.option("--until", metavar="WHEN", help="before then"),
        click.option("--since", metavar="WHEN", help="from then on: 2h, 7d, 2026-03-01"),
    ):
        command = option(command)
    return command


@click.group(help="Show, export and check the books; refund and grant.")
def command() -> None: ...


command.add_command(unsettled.unsettled)
command.add_command(unsettled.resolve)


@command.command("balance")
@of_what
@local.which_server
@terminal.json_option
def balance(
    wallet: str | None, account: str | None, server: str | None, tool: str | None, as_json: bool
) -> None:
    """Show a balance; without a name, of all together."""
    wanted = _wanted(wallet, account, server, tool)
    found = local.ask("ledger.balance", wanted)
    if as_json:
        terminal.out_json(found)
        return
    if not any(wanted.values()):
        _show_totals(found)
        return
    for each in (*found["wallets"], *found["accounts"]):
        held = f", of which {shown(each['held'], each['currency'])} is held" if each["held"] else ""
        terminal.out(f"{terminal.clean(each['account'])}  {shown(each['balance'], each['currency'])}{held}")


def _show_totals(found: Mapping[str, Any]) -> None:
    if not found["wallets"] and not found["accounts"]:
        terminal.say("nothing was booked yet")
    for name in ("wallets", "accounts"):
        for each in found[name]:
            count = each["count"]
            what = name if count != 1 else name.removesuffix("s")
            held = f", of which {shown(each['held'], each['currency'])} is held" if each["held"] else ""
            terminal.out(f"{count} {what}: {shown(each['balance'], each['currency'])}{held}")


@command.command("statement")
@of_what
@of_when
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="at most so many",
)
@local.which_server
@terminal.json_option
def statement(
    wallet: str | None,
    account: str | None,
    server: str | None,
    tool: str | None,
    since: str | None,
    until: str | None,
    kind: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show movements, newest first."""
    wanted = _wanted(wallet, account, server, tool, since, until, kind)
    rows: list[Mapping[str, Any]] = []
    for row in _rows(wanted, oldest_first=False, at_most=min(limit, PAGE)):
        rows.append(row)
        if len(rows) == limit:
            break
    if as_json:
        terminal.out_json([_told(row) for row in rows])
    elif not rows:
        terminal.say("no movement is like that")
    else:
        for line in terminal.table(HEADINGS, [_cells(row) for row in rows]):
            terminal.out(terminal.cut(line, terminal.width(sys.stdout)))


@command.command("accounts")
@local.which_server
@terminal.json_option
def accounts(as_json: bool) -> None:
    """List every wallet and account with its balance."""
    found = unserved_store.ask_or_read("ledger.accounts")
    if as_json:
        terminal.out_json(found)
        return
    if not found:
        terminal.say("nothing was booked yet")
        return
    rows = [
        (
            terminal.clean(
                _whose(
                    each.get("name", ""), f"wallet:{each['account']}" if each["wallet"] else each["account"]
                )
            ),
            shown(each["balance"], each["currency"]),
            shown(each["held"], each["currency"]) if each["held"] else "-",
        )
        for each in found
    ]
    for line in terminal.table(("account", "balance", "held"), rows):
        terminal.out(line)


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

    A charge goes back into the wallet, and a purchase that was none to the costs. What came from a chain (a payment, a deposit) is paid
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
def export(
    wallet: str | None,
    account: str | None,
    server: str | None,
    tool: str | None,
    since: str | None,
    until: str | None,
    kind: str | None,
    form: str,
    target: str,
) -> None:
    """Write every movement, oldest first."""
    wanted = _wanted(wallet, account, server, tool, since, until, kind)
    rows = _rows(wanted, oldest_first=True, at_most=PAGE)
    write = _write_csv if form == "csv" else _write_json
    if target == "-":
        write(rows, sys.stdout)
        return
    try:
        descriptor = make_file(target)
    except FileExistsError as error:
        raise terminal.CliError(f"{target} exists already", hint="name a new file") from error
    except OSError as error:
        raise terminal.CliError(f"cannot write {target}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
        count = write(rows, out)
    terminal.say(f"{count} movement{'' if count == 1 else 's'} written to {target}")


def _write_json(rows: Iterator[Mapping[str, Any]], out: TextIO) -> int:
    count = 0
    for row in rows:
        out.write(json.dumps(_told(row), ensure_ascii=True) + "\n")
        count += 1
    return count


def _write_csv(rows: Iterator[Mapping[str, Any]], out: TextIO) -> int:
    table = csv.writer(out, lineterminator="\n")
    table.writerow(FIELDS)
    count = 0
    for row in rows:
        table.writerow([_cell(value) for value in _told(row).values()])
        count += 1
    return count


def _cell(value: object) -> object:
    """Others chose some of these texts, and a spreadsheet would carry them out."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _wanted(
    wallet: str | None,
    account: str | None,
    server: str | None,
    tool: str | None,
    since: str | None = None,
    until: str | None = None,
    kind: str | None = None,
) -> dict[str, Any]:
    if wallet is not None and account is not None:
        raise terminal.Misuse("--wallet and --account are two accounts", hint="name one of them")
    if tool is not None and server is None:
        raise terminal.Misuse("--tool is of a server", hint="name it with --server")
    return {
        "wallet": wallet,
        "account": account,
        "server": server,
        "tool": tool,
        "since": None if since is None else moment(since),
        "until": None if until is None else moment(until),
        "kind": kind,
    }


def _rows(wanted: Mapping[str, Any], *, oldest_first: bool, at_most: int) -> Iterator[Mapping[str, Any]]:
    at: int | None = None
    while True:
        arguments = {**wanted, "oldest_first": oldest_first, "at": at, "at_most": at_most}
        page = local.ask("ledger.statement", arguments)
        yield from page["rows"]
        at = page["go_on"]
        if at is None:
            return


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """A movement whole: its amount as people write it, and in whole millionths."""
    whole, fraction = divmod(row["amount"], 1_000_000)
    time = datetime.fromtimestamp(row["at"] / 1000, UTC).isoformat(timespec="milliseconds")
    said = {**row, "time": time, "amount": f"{whole}.{fraction:06d}", "micros": row["amount"]}
    return {name: said[name] for name in FIELDS}


def _whose(name: str, account: str) -> str:
    return f"wallet of {name}" if name else account


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    when = datetime.fromtimestamp(row["at"] / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    note = row["note"] or ("" if row["refers"] is None else f"of {row['refers']}") or row["transaction"]
    source, target = (_whose(row.get(f"{end}_name", ""), row[end]) for end in ("source", "target"))
    texts = (row["kind"], shown(row["amount"], row["currency"]), source, target, note or "-")
    return (str(row["seq"]), when, *(terminal.clean(text) for text in texts))
