"""`ostiary wallet`: a key to pay with, and what may be spent of it. The key itself is never shown."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from server.cli import terminal
from server.cli.money.deposit import deposit
from server.cli.terminal import json_option, out, say, say_hint
from server.cli.use.paying import OPTIONS, usable, wallet_file, wallet_key

if TYPE_CHECKING:
    from server.client.client_wallet import WalletSettings

# Without these things are paid all the same.
OPTIONAL: Final = frozenset({"tokens", "per_deposit"})


@click.group("wallet")
def command() -> None:
    """Keep a key to pay with, and say what may be spent of it.

    \b
    ostiary wallet new
    ostiary wallet allow --per-call 0.05 --per-day 1
    ostiary wallet allow --network base-sepolia --payee any
    ostiary call --pay URL TOOL key=value
    ostiary wallet deposit URL AMOUNT
    """


@command.command("new")
@click.option(
    "--out", "path", type=click.Path(dir_okay=False), help="where to put the key; there must be no file yet"
)
@json_option
def new(path: str | None, as_json: bool) -> None:
    """Make a new key, in a file that only you can read, and print its address.

    Whoever has the file has the money: keep a copy of it where nobody else looks. Without a wallet so far, it becomes yours.
    """
    from msgspec.structs import replace

    from server.lib.evm.key_files import make_key_file

    file = wallet_file()
    file.make_directory()
    target = file.usual_key_file if path is None else Path(path).expanduser().absolute()
    key = usable(lambda: make_key_file(target))
    reference = f"file:{target}"
    kept = file.change(lambda before: replace(before, key=before.key or reference))
    if as_json:
        terminal.out_json({"address": key.address, "file": str(target), "used": kept.key == reference})
        return
    out(key.address)
    say(f"its key is in {target}: whoever has this file has the money")
    if kept.key != reference:
        say(f"the wallet is still the one of {kept.key}")
        say_hint(f"ostiary wallet allow --key {quote(reference)}")
    elif not kept.per_call:
        say_hint(
            "ostiary wallet allow --per-call 0.05 --per-day 1 --network base-sepolia --payee any"
            " says what may be spent of it"
        )


@command.command("address")
@click.option("--key", "reference", metavar="REFERENCE", help="of another key: env:NAME or file:/path")
@json_option
def address(reference: str | None, as_json: bool) -> None:
    """Print the address of the wallet: where to send money that it is to spend."""
    key = wallet_key(reference or wallet_file().load().key)
    if as_json:
        terminal.out_json({"address": key.address})
        return
    out(key.address)


@command.command("allow")
@click.option("--per-call", metavar="AMOUNT", help="what one call may cost, like 0.05 (dollars)")
@click.option("--per-day", metavar="AMOUNT", help="what may be spent on a day (UTC)")
@click.option(
    "--per-deposit",
    metavar="AMOUNT",
    help="what one deposit may be (ostiary wallet deposit); unless told, as a call",
)
@click.option(
    "--confirm-above", metavar="AMOUNT", help="beyond this you are asked first; 0 unless told: always"
)
@click.option(
    "--network", "networks", multiple=True, metavar="NAME", help="where may be paid, like base; repeatable"
)
@click.option(
    "--payee",
    "payees",
    multiple=True,
    metavar="ADDRESS",
    help="who may be paid, or any; an address takes the place of any; repeatable",
)
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="TOKEN",
    help="a further token that is worth a dollar: NETWORK/ADDRESS/DECIMALS",
)
@click.option("--key", metavar="REFERENCE", help="which key pays: env:NAME or file:/path")
@json_option
def allow(
    per_call: str | None,
    per_day: str | None,
    per_deposit: str | None,
    confirm_above: str | None,
    networks: tuple[str, ...],
    payees: tuple[str, ...],
    tokens: tuple[str, ...],
    key: str | None,
    as_json: bool,
) -> None:
    """Say what may be spent. What is not named stays as it is; without limits, networks and payees nothing is paid."""
    if key is not None:
        wallet_key(key)  # one that cannot be read is not kept
    from msgspec.structs import replace

    wanted = {
        "per_call": per_call,
        "per_day": per_day,
        "per_deposit": per_deposit,
        "confirm_above": confirm_above,
        "key": key,
    }
    named = {name: value for name, value in wanted.items() if value is not None}

    def change(before: WalletSettings) -> WalletSettings:
        return _checked(
            replace(
                before,
                **named,
                networks=_joined("networks", before.networks, networks),
                payees=_joined("payees", before.payees, payees),
                tokens=_joined("tokens", before.tokens, tokens),
            )
        )

    _told(wallet_file().change(change), as_json)


@command.command("forbid")
@click.option("--network", "networks", multiple=True, metavar="NAME", help="a network to pay on no more")
@click.option("--payee", "payees", multiple=True, metavar="ADDRESS", help="an address to pay no more, or any")
@click.option("--token", "tokens", multiple=True, metavar="TOKEN", help="a token to pay with no more")
@click.option("--everything", is_flag=True, help="all of it: nothing is paid until you allow it again")
@json_option
def forbid(
    networks: tuple[str, ...],
    payees: tuple[str, ...],
    tokens: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> None:
    """Take back what was allowed."""
    from msgspec.structs import replace

    from server.client.client_wallet import WalletSettings

    def change(before: WalletSettings) -> WalletSettings:
        if everything:
            return WalletSettings(key=before.key)
        return replace(
            before,
            networks=_left("networks", before.networks, networks),
            payees=_left("payees", before.payees, payees),
            tokens=_left("tokens", before.tokens, tokens),
        )

    _told(wallet_file().change(change), as_json)


@command.command("show")
@json_option
def show(as_json: bool) -> None:
    """Show the wallet, its limits, what was spent today, and payments that have no answer yet."""
    from server.lib.money.amounts import shown
    from server.payments.buyer.spending import SpendingFile

    file = wallet_file()
    settings = file.load()
    key = wallet_key(settings.key)
    now = int(time.time())
    spending = SpendingFile(file.directory)
    spent, unanswered = usable(lambda: (spending.spent(key.address, now), spending.unanswered()))
    if as_json:
        waiting = [
            {
                "what": each.words,
                "amount": shown(each.amount),
                "signed_at": each.signed_at,
                "valid_before": each.valid_before,
            }
            for each in unanswered
        ]
        terminal.out_json(
            {"address": key.address, **_fields(settings), "spent_today": shown(spent), "unanswered": waiting}
        )
        return
    terminal.facts([("address", key.address), *_facts(settings), ("spent today", f"{shown(spent)} (UTC)")])
    for each in unanswered:
        state = (
            "can no longer be cashed"
            if each.valid_before <= now
            else f"good for {terminal.duration(each.valid_before - now)}"
        )
        say(f"without an answer: {terminal.clean(each.words)}; {state}")


command.add_command(deposit)


# ---- the settings ----------------------------------------------------------------------------------------------------


def _checked(settings: WalletSettings) -> WalletSettings:
    """`settings`, with what is there found good; what is not there yet is for another time."""
    from server.payments.buyer.spending_policy import ANYBODY, BadPolicy, read_policy

    try:
        read_policy(
            per_call=settings.per_call or "1",
            per_day=settings.per_day or "1",
            networks=settings.networks or ("base",),
            payees=settings.payees or (ANYBODY,),
            confirm_above=settings.confirm_above,
            tokens=settings.tokens,
            per_deposit=settings.per_deposit,
        )
    except BadPolicy as problem:
        raise terminal.Misuse(f"{OPTIONS[problem.key]} {problem}") from None
    return settings


def _spelled(name: str, value: str) -> str:
    """Each network and address in one way, so that it is there once."""
    from server.lib.evm.evm_addresses import BadChainAddress, parse_address
    from server.lib.evm.payment_networks import find_network

    if name == "networks":
        known = find_network(value)
        return known.v1_name or known.caip2 if known else value
    try:
        return parse_address(value) if name == "payees" else value
    except BadChainAddress:
        return value


def _joined(name: str, before: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    from server.payments.buyer.spending_policy import ANYBODY

    if name == "payees" and more:  # somebody and anybody cannot both be meant
        named = [each for each in more if each != ANYBODY]
        before, more = ([each for each in before if each != ANYBODY], named) if named else ([], [ANYBODY])
    return tuple(dict.fromkeys([*before, *(_spelled(name, each) for each in more)]))


def _left(name: str, before: Sequence[str], less: Sequence[str]) -> tuple[str, ...]:
    gone = {_spelled(name, each) for each in less}
    if unknown := sorted(gone.difference(before)):
        raise terminal.CliError(f"{unknown[0]} was not allowed", hint="ostiary wallet show")
    return tuple(each for each in before if each not in gone)


def _facts(settings: WalletSettings) -> list[tuple[str, str]]:
    nothing = "nothing yet"
    return [
        ("key", settings.key or "none"),
        ("per call", settings.per_call or nothing),
        ("per day", settings.per_day or nothing),
        *([("per deposit", settings.per_deposit)] if settings.per_deposit else []),
        ("asks above", settings.confirm_above),
        ("networks", ", ".join(settings.networks) or "none yet"),
        ("payees", ", ".join(settings.payees) or "none yet"),
        *([("tokens", ", ".join(settings.tokens))] if settings.tokens else []),
    ]


def _told(settings: WalletSettings, as_json: bool) -> None:
    if as_json:
        terminal.out_json(_fields(settings))
        return
    terminal.facts(_facts(settings))
    missing = [
        option for name, option in OPTIONS.items() if name not in OPTIONAL and not getattr(settings, name)
    ]
    if missing:
        say(f"nothing is paid until there is something for {', '.join(missing)}")


def _fields(settings: WalletSettings) -> dict[str, Any]:
    import msgspec

    return {name: value for name, value in msgspec.to_builtins(settings).items() if name != "version"}
