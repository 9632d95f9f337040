"""`[server.agent.pay]`: an agent that asks to be paid over HTTP (402) is paid from a wallet, within limits; without it never.

What is paid and what is not is decided in server/payments/buyer, which is loaded only where this is written.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from server.lib.log.logger import Logger
from server.settings.secret_reference import SecretUnreadable

if TYPE_CHECKING:
    from server.payments.buyer.payer import Payer
    from server.payments.buyer.spending_policy import SpendPolicy

FOLDER: Final = (
    "paying"  # below the data directory, for all agents: a key has one day's limit, whoever spends it
)

# What the paying side calls a limit → the setting.
SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {"per-call": "per_call", "per-day": "per_day", "network": "networks", "payee": "payees"}
)

_Amount = Annotated[str, Meta(max_length=40, description='an amount like "$0.05"')]
_Names = Annotated[
    tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=100, description="a list")
]


class PayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: Annotated[str, Meta(max_length=4096, description="env:NAME or file:/path")] = ""
    per_call: _Amount = ""
    per_day: _Amount = ""
    networks: Annotated[_Names, Meta(description='a list of networks, e.g. ["base-sepolia"]')] = ()
    payees: Annotated[_Names, Meta(description='a list of addresses, or ["any"]')] = ()
    tokens: Annotated[_Names, Meta(description='a list like ["base-sepolia/0x…/6"]')] = ()

    @property
    def written(self) -> bool:
        return self != PayConfig()

    def __repr__(self) -> str:  # where the reference belongs, people write the key itself
        return f"PayConfig(networks={self.networks!r})"


def pay_problems(config: PayConfig) -> list[tuple[str, str]]:
    """(key, what is wrong and what to write). Loads what pays only where something is written."""
    if not config.written:
        return []
    from server.payments.buyer.spending_policy import BadPolicy

    if not config.key:
        return [("pay.key", "is missing; write env:NAME or file:/path")]
    if not config.key.startswith(("env:", "file:")):
        return [("pay.key", "must not be written here in clear; write env:NAME or file:/path")]
    try:
        _policy(config)
    except BadPolicy as problem:
        return [(f"pay.{problem.key}", str(problem))]
    return []


def open_wallet(config: PayConfig, data_dir: Path, *, agent: str, log: Logger) -> Payer | None:
    """Who pays for the agent; None: nobody. Raises `SecretUnreadable` for a key that cannot be had."""
    if not config.written:
        return None
    from server.payments.buyer.payer import Payer
    from server.payments.buyer.signing import paying_key
    from server.payments.buyer.spending import SpendingFile
    from server.payments.buyer.spending_policy import CannotPay

    try:
        key = paying_key(config.key)
    except CannotPay as error:
        raise SecretUnreadable(f"pay.key: {error}" + (f" ({error.hint})" if error.hint else "")) from None
    return Payer(
        key,
        _policy(config),
        SpendingFile(data_dir / FOLDER, elsewhere="set data_dir"),
        now=time.time,
        random=secrets.token_bytes,
        change=lambda option, value: f"allow {value} by {SETTINGS[option]} in [server.agent.pay]",
        tell=lambda line: log.info("agent.payment", agent=agent, said=line),
    )


def _policy(config: PayConfig) -> SpendPolicy:
    from server.payments.buyer.spending_policy import read_policy

    return read_policy(
        per_call=config.per_call,
        per_day=config.per_day,
        networks=config.networks,
        payees=config.payees,
        confirm_above=None,  # whoever wrote the limits has agreed to what keeps within them
        tokens=config.tokens,
    )
