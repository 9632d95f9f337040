"""`ostiary vouchers`: codes that put money into a wallet, or its owner on a plan."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.money.ledger import AmountType
from server.lib.money.amounts import shown

LONGEST_DAYS: Final = 3_650


@click.group(help="Make, list and revoke vouchers.")
def command() -> None: ...


@command.command("new")
@click.option("--amount", type=AmountType(), metavar="AMOUNT", help="what it is worth, such as $5")
@click.option("--plan", metavar="NAME", help="the plan that it puts somebody on")
@click.option(
    "--count", metavar="N", type=click.IntRange(1, 500), default=1, help="so many codes (1 unless told)"
)
@click.option(
    "--uses",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=1,
    help="for so many, each once (1 unless told)",
)
@click.option(
    "--expires",
    "lasts",
    metavar="TIME",
    default="90d",
    show_default=True,
    type=spans.TimeSpan(days=LONGEST_DAYS, never=False),
    help="when it ends: after 30d or 12h, or on 2027-01-31",
)
@click.option("--note", metavar="TEXT", help="for yourself")
@local.which_server
@terminal.json_option
def new(
    amount: int | None, plan: str | None, count: int, uses: int, lasts: int, note: str | None, as_json: bool
) -> None:
    """Make vouchers. Their codes are shown once."""
    if amount is None and plan is None:
        raise terminal.Misuse("a voucher is worth something", hint="--amount '$5', or --plan NAME, or both")
    arguments: dict[str, Any] = {
        "amount": amount,
        "plan": plan,
        "count": count,
        "uses": uses,
        "lasts_ms": lasts,
        "note": note,
    }
    made = local.ask("vouchers.make", arguments)
    if as_json:
        terminal.out_json(made)
        return
    for each in made:
        terminal.out(each["code"])
    terminal.say(f"worth {_worth(made[0])} each, {_end(made[0])}")
    terminal.say("the codes are not shown again" if len(made) > 1 else "the code is not shown again")


@command.command("list")
@local.which_server
@terminal.json_option
def list_vouchers(as_json: bool) -> None:
    """List the vouchers, newest first."""
    found = local.ask("vouchers")
    found = local.in_order(found, lambda each: (-each["created_at"], each["id"]))
    if as_json:
        terminal.out_json(found)
        return
    if not found:
        terminal.say("there are no vouchers")
        terminal.say_hint("ostiary vouchers new --amount '$5'")
        return
    for each in found:
        name = terminal.paint(each["id"], "bold", sys.stdout)
        note = f", {terminal.clean(each['note'])}" if each["note"] else ""
        terminal.out(f"{name}  {_worth(each)}, ends with …{each['hint']}{note}")
        state = _end(each) if each["state"] == "usable" else each["state"]
        terminal.out(f"    used {each['used']}, left {each['uses_left']}; {state}")


@command.command("revoke")
@click.argument("voucher_id", metavar="ID")
@local.which_server
@terminal.json_option
def revoke(voucher_id: str, as_json: bool) -> None:
    """End a voucher. Money and plans that it gave stay."""
    answer = local.ask("vouchers.revoke", {"id": voucher_id})
    if as_json:
        terminal.out_json(answer)
    else:
        terminal.out(f"revoked: {answer['id']}")


def _worth(voucher: dict[str, Any]) -> str:
    amount = shown(voucher["amount"], voucher["currency"]) if voucher["amount"] else ""
    return " and ".join(filter(None, (amount, terminal.clean(voucher["plan"] or ""))))


def _end(voucher: dict[str, Any]) -> str:
    return f"ends in {local.left(voucher['expires_at'])}"
