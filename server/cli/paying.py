"""`--pay`: what a command needs that may spend money. Loads what pays only when it was given."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING

import click

from server.cli import terminal
from server.cli.terminal import say

if TYPE_CHECKING:
    from server.cli.terminal import StatusLine
    from server.paying.payer import Payer

pay_option = click.option(
    "--pay", is_flag=True, help="pay what it costs, within what `ostiary wallet allow` says"
)


def make_payer(*, status: StatusLine | None = None) -> Payer:
    """The wallet of whoever sits here. With `status`, a person at this terminal is asked what the wallet does not pay by itself."""
    import secrets
    import time

    from server.cli.wallet import OPTIONS, wallet_file, wallet_key
    from server.paying.payer import Payer
    from server.paying.policy import BadPolicy, read_policy
    from server.paying.spending import SpendingFile

    file = wallet_file()
    settings = file.load()
    key = wallet_key(settings.key)
    try:
        policy = read_policy(
            per_call=settings.per_call,
            per_day=settings.per_day,
            networks=settings.networks,
            payees=settings.payees,
            confirm_above=settings.confirm_above,
            tokens=settings.tokens,
        )
    except BadPolicy as problem:
        raise terminal.CliError(
            f"the wallet does not say what may be spent: {OPTIONS[problem.key]} {problem}",
            hint="ostiary wallet allow --help",
        ) from None

    def tell(line: str) -> None:
        if status is not None:
            status.clear()
        say(terminal.clean(line))

    async def agree(words: str) -> bool:
        if status is not None:
            status.clear()
        return await _agree(words)

    return Payer(
        key,
        policy,
        SpendingFile(file.directory),
        now=time.time,
        random=secrets.token_bytes,
        change=_change,
        agree=agree if status is not None else None,
        tell=tell,
    )


@contextmanager
def said_why() -> Generator[None, None, None]:
    """What was not paid is told as every command tells it."""
    from server.paying.policy import CannotPay

    try:
        yield
    except CannotPay as error:
        raise terminal.CliError(str(error), hint=error.hint) from None


def _change(option: str, value: str) -> str:
    return f"ostiary wallet allow --{option} {quote(value.removeprefix('$'))}"


async def _agree(words: str) -> bool:
    from server.cli.asking import agreed

    say(f"this costs {terminal.clean(words)}")
    return await agreed("pay it? [yes/no] ", enter=None)
