"""The commands `ostiary vouchers`: codes that put money into a wallet, or its owner on a plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.money.ledger import AmountType
from server.lib.money.amounts import shown

LONGEST_DAYS: Final = 3_650


@click.group(help="Make, list and revoke vouchers.")
def command() -> None: ...


def _show_new(made: Sequence[Mapping[str, Any]]) -> None:
    for each in made:
        terminal.out(each["code"])
    terminal.say(f"worth {_worth(made[0])} each, {_end(made[0])}")
    terminal.say("the codes are not shown again" if len(made) > 1 else "the code is not shown again")


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
@local.shows(_show_new)
def new(amount: int | None, plan: str | None, lasts: int, **wanted: Any) -> Any:
    """Make vouchers. Their codes are shown once."""
    if amount is None and plan is None:
        raise terminal.Misuse("a voucher is worth something", hint="--amount '$5', or --plan NAME, or both")
    return local.ask("vouchers.make", {"amount": amount, "plan": plan, "lasts_ms": lasts, **wanted})


def _show(found: Sequence[Mapping[str, Any]]) -> None:
    for each in found:
        name = terminal.paint(each["id"], "bold", sys.stdout)
        note = f", {terminal.clean(each['note'])}" if each["note"] else ""
        terminal.out(f"{name}  {_worth(each)}, ends with …{each['hint']}{note}")
        state = _end(each) if each["state"] == "usable" else each["state"]
        terminal.out(f"    used {each['used']}, left {each['uses_left']}; {state}")


@command.command("list")
@local.shows(_show, nothing="there are no vouchers", hint="ostiary vouchers new --amount '$5'")
def list_vouchers() -> Any:
    """List the vouchers, newest first."""
    return sorted(local.ask("vouchers"), key=lambda each: (-each["created_at"], each["id"]))


local.add_act(
    command,
    "revoke",
    "End a voucher. Money and plans that it gave stay.",
    act="vouchers.revoke",
    done="revoked",
    argument="id",
)


def _worth(voucher: Mapping[str, Any]) -> str:
    amount = shown(voucher["amount"], voucher["currency"]) if voucher["amount"] else ""
    return " and ".join(filter(None, (amount, terminal.clean(voucher["plan"] or ""))))


def _end(voucher: Mapping[str, Any]) -> str:
    return f"ends in {local.left(voucher['expires_at'])}"
