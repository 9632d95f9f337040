"""The choice among the ways to pay that a server offers: the first that is understood and allowed. And its words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from server.lib.evm.evm_addresses import ZERO, BadChainAddress, parse_address, shortened
from server.lib.evm.payment_networks import Asset, Network, find_network
from server.lib.money.amounts import BadAmount, Micros, from_atomic, shown
from server.payments.buyer.spending_policy import LONGEST_SECONDS, CannotPay, Changing, SpendPolicy
from server.payments.x402.requirements import EXACT, V1, V2, BadRequirements, Requirements, read_requirements

# More ways to pay than anybody offers; the rest is not looked at.
MAX_ACCEPTS: Final = 50
# A signature for less time could not be settled: facilitators want some seconds to be left.
SHORTEST_SECONDS: Final = 10
_FLOWS: Final = (None, "authorization", "upfront")
_WHAT_CHARACTERS: Final = 100


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """One way to pay, understood and allowed."""

    version: int
    requirements: Requirements
    offered: Mapping[str, Any]  # the same, as the server wrote it
    network: Network
    token: Asset
    payee: str  # with its checksum
    amount: Micros
    seconds: int  # for how long what is signed is good


class _Unfit(CannotPay):
    """A way to pay that is not taken."""


def choose(
    challenge: Mapping[str, Any], policy: SpendPolicy, change: Changing, *, deposit: Micros | None = None
) -> Purchase:
    """Choose a way to pay. `deposit`: what is to be put on a balance, to the unit. None: it is a call. Raises `CannotPay` with what is in
    the way of each."""
    version = challenge.get("x402Version")
    accepts: object = challenge.get("accepts")
    if type(version) is not int or version not in (V1, V2) or not isinstance(accepts, list) or not accepts:
        raise CannotPay("this has a price that cannot be read here")
    unfit: dict[str, str | None] = {}
    for offered in cast("list[object]", accepts)[:MAX_ACCEPTS]:
        try:
            return _purchase(version, offered, policy, change, deposit)
        except _Unfit as problem:
            unfit.setdefault(str(problem), problem.hint)
        except BadRequirements as problem:
            unfit.setdefault(f"its requirements {problem}", None)
    hint = next((hint for hint in unfit.values() if hint), None)
    what = "this has a price, and is not paid" if deposit is None else "nothing is deposited"
    raise CannotPay(f"{what}: {'; '.join(list(unfit)[:3])}", hint=hint)


def in_words(purchase: Purchase, what: str) -> str:
    """Return `$0.02 to 0x1234…abcd on Base Sepolia (a test network) for the tool …`."""
    network = purchase.network
    where = f"{network.title} (a test network)" if network.testnet else network.title
    return f"{shown(purchase.amount)} to {shortened(purchase.payee)} on {where} for {what[:_WHAT_CHARACTERS]}"


def _purchase(
    version: int, offered: object, policy: SpendPolicy, change: Changing, deposit: Micros | None
) -> Purchase:
    found = read_requirements(offered)
    if found.scheme != EXACT:
        raise _Unfit(f"the scheme “{found.scheme[:40]}” is not known here")
    if found.extra.get("assetTransferMethod") not in (None, "eip3009"):
        raise _Unfit("it is to be paid by a contract, and only signed transfers are made here")
    if found.extra.get("paymentFlow") not in _FLOWS:
        raise _Unfit("it is to be paid in several steps, which are not known here")
    network = find_network(found.network)
    if network is None:
        raise _Unfit(f"the network “{found.network[:40]}” is not known here")
    if network.caip2 not in policy.networks:
        hint = change("network", network.v1_name or network.caip2)
        raise _Unfit(f"on {network.title} nothing may be paid", hint=hint)
    token = policy.token(network.caip2, found.asset)
    if token is None:
        raise _Unfit(f"the worth of the token {found.asset[:42]} on {network.title} is not known here")
    payee = _payee(found.pay_to)
    if policy.payees is not None and payee.lower() not in policy.payees:
        raise _Unfit(f"{payee} is not among those who may be paid", hint=change("payee", payee))
    amount = _amount(found, token)
    _check_amount(amount, policy, change, deposit)
    if found.max_timeout_seconds < SHORTEST_SECONDS:
        raise _Unfit("a payment would have to be carried out too soon")
    return Purchase(
        version=version,
        requirements=found,
        offered=cast("Mapping[str, Any]", offered),
        network=network,
        token=_named(token, found),
        payee=payee,
        amount=amount,
        seconds=min(found.max_timeout_seconds, LONGEST_SECONDS),
    )


def _check_amount(amount: Micros, policy: SpendPolicy, change: Changing, deposit: Micros | None) -> None:
    if deposit is None:
        if amount > policy.per_call:
            raise _Unfit(
                f"it costs {shown(amount)}, and a call may cost {shown(policy.per_call)}",
                hint=change("per-call", shown(amount)),
            )
        return
    if amount != deposit:
        raise _Unfit(f"{shown(amount)} is asked for, and {shown(deposit)} is to be deposited")
    most = policy.per_call if policy.per_deposit is None else policy.per_deposit
    if amount > most:
        raise _Unfit(
            f"{shown(amount)} is to be deposited, and a deposit may be {shown(most)}",
            hint=change("per-deposit", shown(amount)),
        )


def _payee(text: str) -> str:
    try:
        payee = parse_address(text)
    except BadChainAddress:
        raise _Unfit(f"“{text[:60]}” is no address that can be paid") from None
    if payee == ZERO:
        raise _Unfit("it is to be paid to nobody")
    return payee


def _amount(found: Requirements, token: Asset) -> Micros:
    try:
        amount = from_atomic(int(found.amount), token.decimals)
    except BadAmount:
        raise _Unfit("its price is finer than a millionth of a dollar") from None
    if not amount:
        raise _Unfit("it asks to be paid nothing")
    return amount


def _named(token: Asset, found: Requirements) -> Asset:
    """Return the token as its signatures name it. That of a usual one is known; a server that says otherwise could not cash them."""
    name, version = found.extra.get("name"), found.extra.get("version")
    if token.name:
        if (name, version) not in ((None, None), (token.name, token.version)):
            raise _Unfit(f"the server takes {token.symbol} on {found.network} for another token")
        return token
    if not isinstance(name, str) or not isinstance(version, str):
        raise _Unfit(f"the server does not say how the token {found.asset[:42]} names itself")
    return msgspec.structs.replace(token, name=name, version=version)
