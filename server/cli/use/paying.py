"""`--pay`: what a command needs that may spend money. Loads what pays only when it was given."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

import click

from server.cli import terminal
from server.cli.terminal import say

if TYPE_CHECKING:
    from server.cli.terminal import StatusLine
    from server.client.client_wallet import WalletFile, WalletSettings
    from server.lib.evm.secp256k1 import PrivateKey
    from server.payments.buyer.payer import Payer
    from server.payments.buyer.spending_policy import SpendPolicy

T = TypeVar("T")

# A setting → the option that sets it.
OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "per_call": "--per-call",
        "per_day": "--per-day",
        "per_deposit": "--per-deposit",
        "confirm_above": "--confirm-above",
        "networks": "--network",
        "payees": "--payee",
        "tokens": "--token",
    }
)
# What must be there before anything is paid.
EXAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {"per_call": "0.05", "per_day": "1", "networks": "base-sepolia", "payees": "any"}
)

pay_option = click.option(
    "--pay", is_flag=True, help="pay what it costs, within what `ostiary wallet allow` says"
)


def make_payer(*, status: StatusLine | None = None) -> Payer:
    """The wallet of whoever sits here. With `status`, a person at this terminal is asked what the wallet does not pay by itself."""
    import secrets
    import time

    from server.payments.buyer.payer import Payer
    from server.payments.buyer.spending import SpendingFile

    file = wallet_file()
    settings = file.load()
    key, policy = wallet_key(settings.key), policy_of(settings)

    def tell(line: str) -> None:
        if status is not None:
            status.clear()
        say(terminal.clean(line))

    async def agree(words: str) -> bool:
        with status.held() if status is not None else nullcontext():
            return await _agree(words)

    return Payer(
        key,
        policy,
        SpendingFile(file.directory),
        now=time.time,
        random=secrets.token_bytes,
        change=change_of,
        agree=agree if status is not None else None,
        tell=tell,
    )


@contextmanager
def said_why() -> Generator[None, None, None]:
    """What was not paid is told as every command tells it."""
    from server.payments.buyer.spending_policy import CannotPay

    try:
        yield
    except CannotPay as error:
        raise terminal.CliError(str(error), hint=error.hint) from None


def policy_of(settings: WalletSettings) -> SpendPolicy:
    """What the wallet may spend. Raises `CliError` where it does not say so."""
    from server.payments.buyer.spending_policy import BadPolicy, read_policy

    try:
        return read_policy(
            per_call=settings.per_call,
            per_day=settings.per_day,
            per_deposit=settings.per_deposit,
            networks=settings.networks,
            payees=settings.payees,
            confirm_above=settings.confirm_above,
            tokens=settings.tokens,
        )
    except BadPolicy as problem:
        raise terminal.CliError(
            f"the wallet does not say what may be spent: {OPTIONS[problem.key]} {problem}",
            hint=_allowing(settings),
        ) from None


def _allowing(settings: WalletSettings) -> str:
    """The command that says what is missing, with values to be changed."""
    missing = [f"{OPTIONS[name]} {value}" for name, value in EXAMPLES.items() if not getattr(settings, name)]
    return " ".join(("ostiary wallet allow", *missing)) if missing else "ostiary wallet show"


def wallet_file() -> WalletFile:
    from server.client.client_wallet import WalletFile
    from server.client.token_file import token_directory

    return WalletFile(token_directory(os.environ))


def wallet_key(reference: str) -> PrivateKey:
    from server.lib.evm.key_files import load_key

    if not reference:
        raise terminal.CliError("there is no wallet here", hint="ostiary wallet new")
    return usable(lambda: load_key(reference))


def usable(work: Callable[[], T]) -> T:
    """What `work` returns; what keeps a key or a payment from being used is said as every command says it."""
    from server.lib.evm.key_files import KeyUnusable
    from server.payments.buyer.spending_policy import CannotPay

    try:
        return work()
    except (KeyUnusable, CannotPay) as error:
        raise terminal.CliError(str(error), hint=error.hint) from None


def change_of(option: str, value: str) -> str:
    """The command that would allow it."""
    return f"ostiary wallet allow --{option} {quote(value.removeprefix('$'))}"


async def _agree(words: str) -> bool:
    from server.cli.use.asking import agreed

    say(f"this costs {terminal.clean(words)}")
    return await agreed("pay it? [yes/no] ", enter=None)
