"""The settings of money as they are written: what a tool costs, plans, and who takes payments where.

Amounts are texts ("$0.01"), never numbers: a number of a settings file is a float already. Faults across them are looked for in
`money_faults.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

FREE: Final = "free"
# Only for callers whose plan, free calls or trial cover it: a call of it cannot be bought.
PLAN_ONLY: Final = "plan"

PriceText: TypeAlias = Annotated[str, Meta(max_length=40)]
# An authorization lives this long at most, and the tool and its settlement must fit in: the default of the reference packages.
TIMEOUT_SECONDS: Final = 300
# Words that are told to every model with every list of tools.
WORDS_CHARACTERS: Final = 200
AMOUNT: Final = 'an amount like "$0.01"'
PRICE: Final = '"$0.01", "free", "plan", or a table with asset and amount, with function, or with expression'
# What it takes before anybody can pay.
PAYMENTS: Final = (
    '[payments] with pay_to = "0x…" and networks = ["base"], and [[payments.facilitator]] with its url'
)
KINDS: Final = ("user", "client", "api_key", "payer")

_ADDRESS: Final = "^$|^0x[0-9a-fA-F]{40}$"
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600}


class PriceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A price that is no fixed amount of dollars: one of the three ways, and for the last two what it never exceeds."""

    asset: Annotated[
        str, Meta(max_length=60, description='the symbol or address of an accepted asset, e.g. "USDC"')
    ] = ""
    amount: Annotated[str, Meta(max_length=78, description='its atomic units, e.g. "10000"')] = ""
    function: Annotated[
        str, Meta(pattern=r"^$|^[A-Za-z_]\w{0,63}$", description="the name of a @price function of the agent")
    ] = ""
    expression: Annotated[
        str, Meta(max_length=500, description='e.g. "0.01 + 0.002 * len(text)", over the call\'s arguments')
    ] = ""
    most: Annotated[PriceText, Meta(description=AMOUNT)] = ""


PriceValue: TypeAlias = PriceText | PriceTable


class AssetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[payments.asset]]`: a token that is accepted. Without an address it is the usual one of its network."""

    network: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=60,
            description='a network, e.g. "base-sepolia" or "eip155:84532"',
        ),
    ]
    address: Annotated[str, Meta(pattern=_ADDRESS, description="the token's address, 0x and 40 digits")] = ""
    name: Annotated[str, Meta(max_length=100, description="its name in EIP-712, as name() says")] = ""
    version: Annotated[str, Meta(max_length=20, description="its version in EIP-712, as version() says")] = ""
    symbol: Annotated[
        str,
        Meta(pattern=r"^$|^[A-Za-z0-9.\-]{1,20}$", description='what people call it, e.g. "USDC"'),
    ] = ""
    decimals: Annotated[int, Meta(ge=0, le=36)] = 6
    pay_to: Annotated[str, Meta(pattern=_ADDRESS, description="an address, 0x and 40 digits")] = ""


class FacilitatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[payments.facilitator]]`: who verifies and settles. The first that serves a network is asked first."""

    url: Annotated[
        str,
        Meta(min_length=1, max_length=2048, description='its address, e.g. "https://x402.org/facilitator"'),
    ]
    networks: Annotated[
        tuple[str, ...], Meta(max_length=32, description="a list of networks; empty: all that are accepted")
    ] = ()
    headers: Annotated[
        Mapping[str, str],
        Meta(max_length=16, description='a table of headers, e.g. { authorization = "Bearer env:KEY" }'),
    ] = {}
    # Of one that wants a signed token with each request, as Coinbase's does: both by reference.
    key_id: Annotated[
        str, Meta(max_length=300, description='a reference to the id of a key, e.g. "env:CDP_API_KEY_ID"')
    ] = ""
    key_secret: Annotated[
        str, Meta(max_length=300, description='a reference to a private key, e.g. "env:CDP_API_KEY_SECRET"')
    ] = ""
    timeout_seconds: Annotated[float, Meta(ge=1, le=120, description="seconds from 1 to 120")] = 15.0
    settle_timeout_seconds: Annotated[float, Meta(ge=1, le=300, description="seconds from 1 to 300")] = 60.0

    def __repr__(self) -> str:  # headers may hold what should have been a reference
        return f"FacilitatorConfig(url={self.url!r}, headers={sorted(self.headers)!r})"


class CapsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[payments.caps]`: what nobody may spend more than, whatever they have. Days and months are UTC's. Empty: no bound."""

    per_call: Annotated[PriceText, Meta(description=AMOUNT)] = ""
    per_login: Annotated[PriceText, Meta(description=AMOUNT)] = ""  # one login or key, ever
    per_day: Annotated[PriceText, Meta(description=AMOUNT)] = ""  # one wallet
    per_month: Annotated[PriceText, Meta(description=AMOUNT)] = ""
    per_tool: Annotated[PriceText, Meta(description=AMOUNT)] = ""  # one wallet at one tool, a day


class PaymentsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[payments]`."""

    pay_to: Annotated[str, Meta(pattern=_ADDRESS, description="your address, 0x and 40 digits")] = ""
    networks: Annotated[
        tuple[str, ...], Meta(max_length=32, description='a list of networks, e.g. ["base-sepolia"]')
    ] = ()
    asset: Annotated[
        tuple[AssetConfig, ...], Meta(max_length=32, description="[[payments.asset]] tables, at most 32")
    ] = ()
    facilitator: Annotated[
        tuple[FacilitatorConfig, ...],
        Meta(max_length=16, description="[[payments.facilitator]] tables, at most 16"),
    ] = ()
    rpc: Annotated[
        Mapping[str, str],
        Meta(max_length=32, description='a table, e.g. { base-sepolia = "https://sepolia.base.org" }'),
    ] = {}
    caps: Annotated[CapsConfig, Meta(description='a table, e.g. { per_day = "$5" }, or nothing')] = (
        CapsConfig()
    )
    max_timeout_seconds: Annotated[int, Meta(ge=10, le=3600, description="seconds from 10 to 3600")] = (
        TIMEOUT_SECONDS
    )
    # x402's offer-and-receipt extension, in challenges: some 700 characters for each asset, which models read as well.
    signed_offers: bool = False
    wallets: bool = True
    # what one payment may put into a wallet
    deposit_least: Annotated[PriceText, Meta(description=AMOUNT)] = "$0.10"
    deposit_most: Annotated[PriceText, Meta(description=AMOUNT)] = "$1000"

    def __repr__(self) -> str:  # the address of a node often has its key in it
        return f"PaymentsConfig(networks={self.networks!r}, rpc={sorted(self.rpc)!r})"


class PlanConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[plan]]`: what whoever is on it need not pay, or pays less for."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
            description="lower-case letters, digits and dashes, at most 40",
        ),
    ]
    words: Annotated[str, Meta(max_length=WORDS_CHARACTERS, description="what it offers, for people")] = ""
    unlimited: bool = False
    calls: Annotated[int, Meta(ge=0, le=10**9, description="calls a month, of all tools together")] = 0
    tool_calls: Annotated[
        Mapping[str, Annotated[int, Meta(ge=0, le=10**9)]],
        Meta(max_length=1000, description="calls a month by tool, e.g. { search = 500 }"),
    ] = {}
    prices: Annotated[
        Mapping[str, PriceText],
        Meta(max_length=1000, description='prices by tool, e.g. { search = "$0.005", "*" = "free" }'),
    ] = {}
    days: Annotated[int, Meta(ge=0, le=3660, description="days; 0: until it is ended")] = 0
    price: Annotated[PriceText, Meta(description=AMOUNT)] = ""


Flow: TypeAlias = Literal["after", "upfront"]


class ToolMoney(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of money in `[server.tools.NAME]`; `policy_settings.py` has the others."""

    # None: as the server says
    price: Annotated[PriceValue | None, Meta(description=PRICE)] = None
    price_for: Annotated[
        dict[str, PriceValue],
        Meta(max_length=4, description='prices by kind of caller, e.g. { payer = "$0.02", user = "$0.01" }'),
    ] = {}
    flow: Annotated[Flow, Meta(description='"after" or "upfront"')] = "after"
    dedupe: Annotated[
        str, Meta(pattern="^$|^[1-9][0-9]{0,3}[smh]$", description='a time like "60s", "10m" or "24h"')
    ] = ""
    free_calls: Annotated[int, Meta(ge=0, le=10**9, description="calls a month that cost nothing")] = 0
    trial: Annotated[int, Meta(ge=0, le=10**6, description="successful calls that cost nothing")] = 0


def seconds_of(written: str) -> int:
    """Return the seconds of a text such as `10m`; 0 for nothing."""
    return int(written[:-1]) * _SECONDS[written[-1]] if written else 0
