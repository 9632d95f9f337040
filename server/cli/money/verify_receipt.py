"""`ostiary verify-receipt`: whether a receipt is as its server signed it, with the server's published keys: from a file, or fetched if asked."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import click

from server.cli import terminal
from server.cli.terminal import clean

if TYPE_CHECKING:
    from server.payments.seller.receipt_check import Receipt, ReceiptKey

# Where servers publish the keys of receipts; and those of tokens, for one that has no other.
PLACES: Final = ("/.well-known/receipt-keys.json", "/.well-known/jwks.json")
LONGEST: Final = 4 * 1024 * 1024
# how → what the call was paid with, where no money moved on a chain for it
COVERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "trial": "nothing: it was one of the first calls, which are free",
        "quota": "nothing: it was one of the month's free calls",
        "pass": "nothing: a plan covers it",
    }
)


@click.command("verify-receipt")
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option("--jwks", metavar="FILE", help="the server's keys, saved from /.well-known/receipt-keys.json")
@click.option("--issuer", metavar="URL", help="the server whose receipt it must be; asked for its keys")
@terminal.json_option
def command(file: str, jwks: str | None, issuer: str | None, as_json: bool) -> int:
    """Check what a server gave for a call that was charged: who paid what, for which call, and when.

    FILE holds a receipt, several of them, or the result of `ostiary call --json`. Nothing is asked over the network, unless --issuer is
    given without --jwks. Keys that were replaced since are published still; one that was dropped because others may have it proves nothing.
    """
    from server.payments.seller.receipt_check import BadReceipt, read_keys, read_receipt, receipts_in, verify

    try:
        written = receipts_in(_text(file))
    except BadReceipt as unreadable:
        raise terminal.CliError(f"{_named(file)}: {unreadable}") from None
    wanted = None if issuer is None else issuer.rstrip("/")
    keys: list[ReceiptKey] | None = None
    if jwks is not None or wanted is not None:
        try:
            keys = read_keys(_bytes(jwks) if jwks is not None else _fetched(cast("str", wanted)))
        except BadReceipt as unusable:
            raise terminal.CliError(str(unusable)) from None
    told: list[dict[str, Any]] = []
    for text in written:
        receipt: Receipt | None = None
        key: ReceiptKey | None = None
        problem: str | None = None
        try:
            receipt = read_receipt(text)
            if keys is None:
                problem = "it was not checked: no keys were given"
            else:
                key = verify(receipt, keys, issuer=wanted)
        except BadReceipt as bad:
            problem = str(bad)
        told.append(_told(receipt, key, problem))
    if as_json:
        terminal.out_json(told)
    else:
        _show(told)
        if keys is None and any(each["issuer"] for each in told):
            terminal.say_hint(_where(told))
    return 0 if all(each["sound"] for each in told) else terminal.EXIT_FAILED


def _where(told: Sequence[Mapping[str, Any]]) -> str:
    named = next(each["issuer"] for each in told if each["issuer"])
    return f"--jwks FILE with the keys of {clean(named)}, or --issuer URL to ask that server for them, if you trust it"


def _told(receipt: Receipt | None, key: ReceiptKey | None, problem: str | None) -> dict[str, Any]:
    said: dict[str, Any] = {"sound": key is not None, "problem": problem}
    if receipt is None:
        return {**said, "issuer": None}
    return {
        **said,
        "issuer": receipt.issuer,
        "at": receipt.at,
        "payer": receipt.payer,
        "caller": receipt.caller,
        "server": receipt.server,
        "tool": receipt.tool,
        "call": receipt.call,
        "charge": receipt.charge,
        "how": receipt.how,
        "micros": receipt.amount,
        "currency": receipt.currency,
        "price": receipt.price,
        "settlement": dict(receipt.settlement) or None,
        "key": receipt.kid,
        "replaced_at": None if key is None else key.ends,
    }


def _show(told: Sequence[Mapping[str, Any]]) -> None:
    for place, each in enumerate(told):
        if place:
            terminal.out()
        if each["issuer"] is None:
            terminal.error(clean(each["problem"]))
            continue
        if each["sound"]:
            terminal.out(f"sound: a receipt of {clean(each['issuer'])}")
            terminal.facts([(name, clean(value)) for name, value in _facts(each)])
            continue
        terminal.error(clean(each["problem"]))
        # What nobody vouches for is no result.
        terminal.say("what it says:")
        for name, value in _facts(each):
            terminal.say(f"  {name.ljust(8)}{clean(value)}")


def _facts(each: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = [
        ("paid", _paid(each)),
        ("for", f"{each['server']}/{each['tool']}" + (f", call {each['call']}" if each["call"] else "")),
        ("at", _moment(each["at"])),
        ("charge", each["charge"]),
    ]
    if each["replaced_at"] is not None:
        when = _moment(each["replaced_at"])
        pairs.append(("key", f"{each['key']}, published for tokens until {when}; replaced, not dropped"))
    return pairs


def _paid(each: Mapping[str, Any]) -> str:
    from server.lib.money.amounts import shown

    if each["how"] in COVERED:
        return f"{COVERED[each['how']]} ({each['caller']})"
    amount = shown(each["micros"], each["currency"])
    settled = each["settlement"]
    if not settled:
        return f"{amount} from the balance of {each['caller']}"
    from server.lib.evm.payment_networks import find_network

    network = find_network(settled.get("network", ""))
    on = network.title if network is not None else settled.get("network", "an unnamed network")
    transaction = settled.get("transaction")
    return f"{amount} by {each['payer']} on {on}" + (f", transaction {transaction}" if transaction else "")


def _moment(at: int) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{at} seconds after 1970"


def _named(file: str) -> str:
    return "stdin" if file == "-" else file


def _text(file: str) -> str:
    try:
        return _bytes(file).decode()
    except UnicodeDecodeError:
        raise terminal.CliError(f"{_named(file)} is no text") from None


def _bytes(file: str) -> bytes:
    try:
        if file == "-":
            if terminal.is_terminal(sys.stdin):
                terminal.say_hint("paste the receipt; ctrl-d ends")
            data = sys.stdin.buffer.read(LONGEST + 1)
        else:
            with Path(file).open("rb") as source:
                data = source.read(LONGEST + 1)
    except OSError as error:
        raise terminal.Misuse(f"cannot read {file}: {(error.strerror or 'unknown error').lower()}") from None
    if len(data) > LONGEST:
        raise terminal.CliError(f"{_named(file)} is larger than {LONGEST // 1024 // 1024} MiB")
    return data


def _fetched(issuer: str) -> bytes:
    from server.client.client_errors import BadAnswer
    from server.client.http_exchange import exchange, open_client
    from server.payments.seller.receipt_check import KEYS_BYTES

    if not issuer.startswith(("https://", "http://")):
        raise terminal.Misuse(f"{issuer} is no address", hint="--issuer https://agent.example.org")

    async def main() -> bytes:
        async with open_client() as client:
            status = 0
            for place in PLACES:
                answer = await exchange(client, "GET", f"{issuer}{place}", limit=KEYS_BYTES)
                if answer.status == 200:
                    return answer.body
                status = answer.status
            raise BadAnswer(f"{issuer} publishes no keys: it answers {status}")

    return terminal.run_async(main)
