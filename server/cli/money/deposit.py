"""The command `ostiary wallet deposit URL AMOUNT`: one larger payment in advance, so that later calls need no transaction on a chain."""

from __future__ import annotations

import sys
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

import click

from server.cli import terminal
from server.cli.terminal import StatusLine, clean, json_option, out, say, say_hint
from server.cli.use import paying

if TYPE_CHECKING:
    from server.client.wallet_deposit import DepositMade
    from server.lib.money.amounts import Micros
    from server.payments.buyer.spending_policy import SpendPolicy


@click.command("deposit")
@click.argument("url")
@click.argument("amount")
@click.option("--yes", "-y", is_flag=True, help="do not ask, up to what --confirm-above of the wallet says")
@json_option
def deposit(url: str, amount: str, yes: bool, as_json: bool) -> None:
    """Put AMOUNT (dollars) on your balance at the server at URL, by one payment of the wallet.

    \b
    ostiary wallet deposit URL 5

    Calls are then paid for from the balance, without --pay. You are shown what is to be paid, to whom and where, and asked. A
    deposit whose answer was lost is made again with the same payment: it counts once.

    Where nobody is logged in, and the server takes payments without a login, the balance is that of the wallet's address, and the
    token that opens it is kept here as a login is.
    """
    from server.cli.use import target
    from server.client.access_token import Access
    from server.client.discovery import discover
    from server.client.http_exchange import open_client
    from server.client.seller_terms import PAYERS, find_seller
    from server.client.wallet_deposit import keep_bought_token, make_deposit
    from server.lib.money.amounts import BadAmount, parse, shown
    from server.lib.oauth_client.addresses import host_of

    try:
        micros = parse(amount)
    except BadAmount as problem:
        raise terminal.Misuse(f"“{clean(amount)[:40]}” {problem}") from None
    if not micros:
        raise terminal.Misuse("that is nothing to be deposited", hint="in dollars, like 5 or 0.50")
    by_hand = not as_json and terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)
    if not by_hand and not yes:
        raise terminal.Misuse(
            "nobody is here to be asked",
            hint="--yes deposits up to what `ostiary wallet allow --confirm-above` says",
        )
    address = target.logged_in_address(url)
    payer = paying.make_payer(status=StatusLine() if by_hand else None)
    _check_limits(micros, payer.policy)
    file = target.token_file()

    async def main() -> DepositMade:
        async with open_client() as client:
            access = Access(file, address.url, client=client)
            login = await access.stored()
            seller = await find_seller(client, address.url)
            if seller.deposits is None:
                raise terminal.CliError(f"{host_of(address.url)} takes no deposits")
            if login is None and not seller.nameless:
                raise await access.not_logged_in()
            place = None
            if login is None:
                place = await discover(client, address.url)
                say(f"nobody is logged in at {address.url}: this goes on the balance of {payer.address}")

            nameless = login is None or login.client_id == PAYERS
            return await make_deposit(
                client,
                seller.deposits,
                shown(micros),
                paid=payer.deposit(address.url, micros, asks=not yes, nameless=nameless),
                access=access,
                keep=None if place is None else partial(keep_bought_token, client, file, place),
            )

    lock = file.lock_of(address.url, "deposit")
    if not lock.acquire_nowait():  # each would end the token that the other was given
        raise terminal.CliError(
            f"another deposit at {address.url} is being made at this moment", hint="wait until it has ended"
        )
    try:
        with paying.said_why():
            made = terminal.run_async(main)
    finally:
        lock.release()
    _tell(made, address.url, as_json=as_json)


def _check_limits(amount: Micros, policy: SpendPolicy) -> None:
    """Check a deposit against all limits of the wallet at once, before anybody is asked. Raise `CliError` if it is above one.

    This is for a good message; the limits are enforced when the payment is signed.
    """
    from server.lib.money.amounts import shown

    least = {"per-deposit": policy.per_deposit or policy.per_call, "per-day": policy.per_day}
    raised = [
        f"--{name} {quote(shown(amount).removeprefix('$'))}"
        for name, limit in least.items()
        if amount > limit
    ]
    if raised:
        raise terminal.CliError(
            f"{shown(amount)} is more than the wallet may deposit, which is {shown(min(least.values()))}",
            hint=" ".join(("ostiary wallet allow", *raised)),
        )


def _tell(made: DepositMade, url: str, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        terminal.out_json({"url": url, **msgspec.to_builtins(made)})
        return
    if made.replayed:
        say(f"{clean(made.deposited)} was deposited by this payment before, and not again")
    out(f"{clean(made.balance)} is on the balance now")
    if made.message:
        say(clean(made.message))
    if made.brought_token:
        say("the token that opens it is kept here, as a login is")
        say_hint(f"ostiary tools {quote(url)}")
