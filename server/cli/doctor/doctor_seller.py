"""The steps of `ostiary doctor URL` about somebody else's prices: what is sold, how an unpaid call is answered, and whether the wallet
here could pay.

Nothing is bought and no tool is run: the one request is a GET at the address where a tool is called, which calls nothing. The request
carries no login, so that no balance pays for it either.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote as quote_path

from server.cli.use.tools import PRICE, price_of
from server.client.client_errors import ClientError
from server.client.http_exchange import exchange
from server.client.seller_terms import Seller
from server.client.server_checkup import CheckStep
from server.lib.evm.evm_addresses import shortened
from server.lib.evm.payment_networks import evm_network, usual_asset
from server.lib.http_client.http_client import HttpAnswer, HttpClient
from server.lib.money.amounts import BadAmount, from_atomic, shown
from server.payments.x402.envelopes import UnreadableEnvelope
from server.payments.x402.payment_headers import PAYMENT_REQUIRED, read_challenge_header
from server.payments.x402.requirements import EXACT, BadRequirements, Requirements, read_requirements

# How many of the tools with a price are named, and how many of the offered ways to pay are read.
TOOLS: Final = 5
WAYS: Final = 10
UNPAID: Final = (401, 402)
# The statuses for a caller without a login, or for another method than POST, where the call itself cannot be paid.
WITHOUT_CHALLENGE: Final = (401, 405)


async def seller_steps(
    client: HttpClient, seller: Seller, tools: Sequence[Mapping[str, Any]] | None
) -> Sequence[CheckStep]:
    """Return the steps about what a server sells; none at all if it sells nothing."""
    priced = [tool for tool in tools or () if price_of(tool, whole=True)]
    if not priced and not seller.nameless and (tools is not None or seller.calls is None):
        return ()
    steps = [_sold(seller, tools, priced)]
    tool = next((each for each in priced if _is_fixed(each)), None)
    challenge: Mapping[str, Any] | None = None
    if tool is not None and seller.calls is not None:
        step, challenge = await _unpaid_call(client, seller.calls, str(tool["name"]))
        steps.append(step)
    if seller.deposits is not None:
        steps.append(CheckStep.ok("deposits", f"balances are filled at {seller.deposits}"))
    if challenge is not None and tool is not None:
        steps.append(_wallet(challenge, str(tool["name"])))
    return steps


def _sold(
    seller: Seller, tools: Sequence[Mapping[str, Any]] | None, priced: Sequence[Mapping[str, Any]]
) -> CheckStep:
    if tools is None:
        said = "tools may have a price; which, and what price, is shown to whoever is logged in"
        return CheckStep.skipped("prices", said)
    if not priced:
        return CheckStep.ok("prices", "no tool that is shown here costs anything")
    each = "; ".join(f"{tool['name']}: {price_of(tool, whole=True)}" for tool in priced[:TOOLS])
    more = f"; and {len(priced) - TOOLS} more" if len(priced) > TOOLS else ""
    count = f"{len(priced)} of {len(tools)}"
    to_all = ", also without a login" if seller.nameless else ""
    return CheckStep.ok("prices", f"{count} cost something{to_all}: {each}{more}")


def _is_fixed(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool costs the same, whatever it is asked for."""
    meta: Any = tool.get("_meta")
    tag = cast("Mapping[str, Any]", meta).get(PRICE) if isinstance(meta, dict) else None
    return isinstance(tag, dict) and "amount" in tag


async def _unpaid_call(
    client: HttpClient, calls: str, tool: str
) -> tuple[CheckStep, Mapping[str, Any] | None]:
    name, address = "unpaid call", calls + quote_path(tool, safe="")
    try:
        answer = await exchange(client, "GET", address, headers={"Accept": "application/json"})
    except ClientError as error:
        return CheckStep.failed(name, str(error), error.hint), None
    challenge = _challenge(answer)
    if answer.status in WITHOUT_CHALLENGE and challenge is None:
        said = f"{tool} is answered with status {answer.status}, and is not paid for by the call: from a balance alone"
        return CheckStep.skipped(name, said), None
    if answer.status not in UNPAID or challenge is None:
        said = f"{tool} is answered with status {answer.status}, and nothing says how it could be paid for"
        return CheckStep.failed(name, said, "this is the server's to put right"), None
    ways = [way for each in _accepts(challenge) if (way := _way(each))]
    first = "first to log in, then " if answer.status == 401 else ""
    offered = " or ".join(dict.fromkeys(ways)) or "in no way that is known here"
    said = f"{tool}, with nothing to pay it, is answered with {answer.status}: {first}to pay {offered}"
    return CheckStep(name=name, state="ok" if ways else "failed", detail=said), challenge


def _challenge(answer: HttpAnswer) -> Mapping[str, Any] | None:
    try:
        found = read_challenge_header(answer.head.value(PAYMENT_REQUIRED.lower().encode()))
    except UnreadableEnvelope:
        return None
    return found if isinstance(found.get("accepts"), list) else None


def _accepts(challenge: Mapping[str, Any]) -> Sequence[object]:
    return cast("list[object]", challenge["accepts"])[:WAYS]


def _way(offered: object) -> str:
    """Return an offered way to pay in words, or "" if it cannot be read or its scheme is not `exact`.

    An example: `$0.02 in USDC on Base Sepolia (a test network) to 0x5290…9EE7`.
    """
    try:
        found = read_requirements(offered)
    except BadRequirements:
        return ""
    return "" if found.scheme != EXACT else _in_words(found)


def _in_words(found: Requirements) -> str:
    network, usual = evm_network(found.network), usual_asset(found.network)
    where = found.network if network is None else network.title
    test = " (a test network)" if network is not None and network.testnet else ""
    token, amount = f"the token {found.asset}", f"{found.amount} units"
    if usual is not None and usual.address.lower() == found.asset.lower():
        token = usual.symbol
        with contextlib.suppress(BadAmount):
            amount = shown(from_atomic(int(found.amount), usual.decimals))
    return f"{amount} in {token} on {where}{test} to {shortened(found.pay_to)}"


def _wallet(challenge: Mapping[str, Any], tool: str) -> CheckStep:
    """Check whether the wallet on this machine would pay what a server asks for a tool, as far as its limits say."""
    from server.cli.terminal import CliError
    from server.cli.use.paying import change_of, policy_of, wallet_file, wallet_key
    from server.payments.buyer.choice import choose, in_words
    from server.payments.buyer.spending import SpendingFile, check_day
    from server.payments.buyer.spending_policy import CannotPay

    name = "wallet"
    file = wallet_file()
    try:
        settings = file.load()
        if not settings.key:
            return CheckStep.skipped(name, "there is none here", "ostiary wallet new")
        key, policy = wallet_key(settings.key), policy_of(settings)
        purchase = choose(challenge, policy, change_of)
        now = int(time.time())
        spent = SpendingFile(file.directory).spent(key.address, now)
        check_day(purchase.amount, spent, policy.per_day, change_of)
    except (CliError, ClientError, CannotPay) as error:
        return CheckStep.skipped(name, f"would not pay: {error}", error.hint)
    above = policy.confirm_above
    asks = (
        "asks you first, and pays" if above is not None and purchase.amount > above else "pays without asking"
    )
    said = f"{asks} {in_words(purchase, f'the tool `{tool}`')}, if {shortened(key.address)} has as much"
    return CheckStep.ok(name, said)
