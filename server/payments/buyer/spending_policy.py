"""What a wallet may spend, and on whom. Nothing is allowed that is not written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from server.lib.evm.evm_addresses import BadChainAddress, parse_address
from server.lib.evm.payment_networks import Asset, find_network, usual_asset
from server.lib.money.amounts import BadAmount, Micros, parse

# For how long a signature may be good at most. A server may ask for longer, but whoever has it can cash it until then.
LONGEST_SECONDS: Final = 900
ANYBODY: Final = "any"

# How a setting is changed, in the words of whoever reads its hint: from its name and a value that would help.
Changing: TypeAlias = Callable[[str, str], str]


class CannotPay(Exception):
    """Nothing was signed, or what was signed was not taken: one sentence in lower case, and perhaps what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Dearer(CannotPay):
    """It costs more than the other side had said before."""


class SpendPolicy(msgspec.Struct, frozen=True, kw_only=True):
    per_call: Micros
    per_day: Micros  # of UTC
    networks: frozenset[str]  # CAIP-2
    payees: frozenset[str] | None  # in small letters; None: whoever asks
    # Beyond this a person has to agree, and where there is none it is not paid. None: up to `per_call` nobody is asked.
    confirm_above: Micros | None
    tokens: tuple[Asset, ...] = ()  # beyond the usual one of each network; one of them is a dollar, too
    per_deposit: Micros | None = None  # None: as a call

    def token(self, network: str, address: str) -> Asset | None:
        """The token that a price is asked in, if it is one whose worth is known."""
        usual = usual_asset(network)
        known = (*self.tokens, *(() if usual is None else (usual,)))
        wanted = address.lower()
        return next(
            (each for each in known if each.network == network and each.address.lower() == wanted), None
        )


class BadPolicy(ValueError):
    """A limit that is missing or none: `key` says which, the text what is wrong with it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def read_policy(
    *,
    per_call: str,
    per_day: str,
    networks: Iterable[str],
    payees: Iterable[str],
    confirm_above: str | None,
    tokens: Iterable[str] = (),
    per_deposit: str = "",
) -> SpendPolicy:
    """From what people write. Raises `BadPolicy`: without limits, networks and payees there is no policy."""
    call, day = _limit("per_call", per_call), _limit("per_day", per_day)
    chains = frozenset(map(_network, networks))
    if not chains:
        raise BadPolicy("networks", "names no network that may be paid on, e.g. base-sepolia")
    paid = frozenset(each if each == ANYBODY else _payee(each) for each in payees)
    if not paid:
        raise BadPolicy("payees", f"names no address that may be paid, nor “{ANYBODY}”")
    return SpendPolicy(
        per_call=call,
        per_day=day,
        networks=chains,
        payees=paid - {ANYBODY} or None,  # an address beside `any` was meant to narrow it
        confirm_above=None if confirm_above is None else _amount("confirm_above", confirm_above),
        tokens=tuple(map(_token, tokens)),
        per_deposit=_limit("per_deposit", per_deposit) if per_deposit else None,
    )


def _amount(key: str, text: str) -> Micros:
    try:
        return parse(text)
    except BadAmount as problem:
        raise BadPolicy(key, str(problem)) from None


def _limit(key: str, text: str) -> Micros:
    if not text:
        raise BadPolicy(key, 'is not set, and without it nothing is paid; write it like "$0.05"')
    found = _amount(key, text)
    if not found:
        raise BadPolicy(key, "is nothing, so nothing can be paid")
    return found


def _network(text: str) -> str:
    known = find_network(text)
    if known is None:
        raise BadPolicy("networks", f"“{text[:60]}” is no network that is known here")
    return known.caip2


def _payee(text: str) -> str:
    try:
        return parse_address(text).lower()
    except BadChainAddress as problem:
        raise BadPolicy("payees", f"“{text[:60]}” {problem}") from None


def _token(text: str) -> Asset:
    """`base-sepolia/0x…/6`: whose name and version in signatures are then those that the server names."""
    network, _, rest = text.partition("/")
    address, _, decimals = rest.partition("/")
    if not (decimals.isascii() and decimals.isdigit() and int(decimals) <= 36):
        raise BadPolicy("tokens", f"“{text[:80]}” is not written like base-sepolia/0x…/6 (its decimals)")
    try:
        checked = parse_address(address)
    except BadChainAddress as problem:
        raise BadPolicy("tokens", f"“{address[:60]}” {problem}") from None
    return Asset(
        network=_network(network), address=checked, symbol="", decimals=int(decimals), name="", version=""
    )
