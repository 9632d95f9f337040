"""The command `ostiary connect URL`: a bridge for a program that speaks MCP over stdio. Stdout carries messages and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from server import __version__
from server.cli import terminal
from server.cli.terminal import say, say_hint
from server.cli.use import paying

if TYPE_CHECKING:
    from server.client.client_errors import ClientError
    from server.lib.oauth_client.device_authorization import DeviceCode


NAMELESS: Final = "nobody is logged in: what is sold here without a login is paid for by the wallet"


@click.command("connect")
@click.argument("url")
@click.option("--no-login", is_flag=True, help="never ask for a login; fail where one is needed")
@paying.pay_option
def command(url: str, no_login: bool, pay: bool) -> None:
    """Bridge a client that speaks MCP over stdio to the server at URL.

    \b
    {"mcpServers": {"door": {"command": "ostiary", "args": ["connect", "URL"]}}}

    Uses the login of `ostiary login URL`. Without one, it shows a code or a link on stderr, and the client's first
    request waits until somebody approved it.

    With --pay, calls that have a price are paid for by the wallet (ostiary wallet), as far as it may without asking you. Without a login,
    the client then sees what is sold to whoever pays, where the server sells like that.
    """
    import trio

    from server.cli.browser import would_be_seen
    from server.cli.use import target
    from server.client.access_token import Access
    from server.client.bridge import Bridge
    from server.client.carrier import Carrier
    from server.client.client_errors import LoginError
    from server.client.http_exchange import open_client
    from server.client.login_on_demand import Door
    from server.client.signing_in import Wish, sign_in
    from server.client.stdio_lines import reader, writer

    address = target.logged_in_address(url)
    file = target.token_file()
    screen = _BridgeScreen(address.url, local=address.loopback, opens=would_be_seen(os.environ, sys.platform))
    # Programs start it again and again, and may show nothing of what it says: each time another code would soon be too many.
    wish = Wish(name=f"ostiary {__version__} connect", keeps_code=True)

    payer = paying.make_payer() if pay else None

    def say_line(line: str) -> None:
        say(terminal.clean(terminal.as_started(line)))

    async def main(out: int) -> None:
        async with open_client() as client:

            async def log_in() -> None:
                before = await trio.to_thread.run_sync(file.get, address.url)
                try:
                    await sign_in(client, file, address.url, screen=screen, wish=wish)
                except Exception as error:
                    now_there = await trio.to_thread.run_sync(file.get, address.url)
                    if isinstance(error, LoginError) and now_there not in (None, before):
                        return  # another bridge waited with the same code, and was first
                    # The client's program may keep to itself what it is answered; this is where people look.
                    say(f"not logged in: {terminal.clean(str(error))}")
                    raise
                say(f"logged in to {address.url}")

            door = Door(Access(file, address.url, client=client), None if no_login else log_in)
            purse = nameless = None
            if payer is not None:
                from server.client.bridge_paying import Purse
                from server.client.seller_terms import NamelessEntry

                purse = Purse(payer, address.url, say_line)
                nameless = NamelessEntry(client, address.url, taken=lambda: say_line(NAMELESS))
            carrier = Carrier(client, address.url, door, nameless=nameless)
            bridge = Bridge(carrier, door, say=say_line, spelled=terminal.as_started, purse=purse)
            await bridge.run(reader(sys.stdin.fileno()), writer(out))

    if terminal.is_terminal(sys.stdin):
        say(f"a bridge to {address.url}: one JSON-RPC message a line, ctrl-d ends")
        say_hint("this is meant to be started by a program; `ostiary call` is for people")
    with _stdout_for_messages() as out:
        terminal.run_async(lambda: main(out))


class _BridgeScreen:
    """The view of a login as lines in a log: nothing is drawn over, and nothing is read, because stdin carries messages."""

    def __init__(self, url: str, *, local: bool, opens: bool) -> None:
        self._url = url
        self._local = local
        self._opens = opens

    @asynccontextmanager
    async def code(self, code: DeviceCode) -> AsyncGenerator[None, None]:
        from server.cli.use.login_screen import show
        from server.client.token_file import wall_clock

        say("the server wants a login before it answers")
        show(code, local=self._local, qr=None)
        self._say_wait((code.expires_at - wall_clock()) / 1000 + 1)
        yield

    @asynccontextmanager
    async def link(
        self, link: str, seconds: float, paste: Callable[[str], str]
    ) -> AsyncGenerator[None, None]:
        from server.cli.browser import open_browser
        from server.cli.use.login_screen import invitation

        say("the server wants a login before it answers")
        opened = self._opens and await open_browser(link)
        say(invitation(opened=opened))
        say(f"  {terminal.clean(link)}")
        self._say_wait(seconds)
        yield

    def trouble(self, error: ClientError) -> None:
        say(f"{terminal.clean(str(error))}, trying again")

    def _say_wait(self, seconds: float) -> None:
        say(f"waiting up to {terminal.duration(seconds)} for approval, and the first request with it")
        say_hint(
            f"many programs show this only in a log; first logging in is easier: ostiary login {quote(self._url)}"
        )


@contextmanager
def _stdout_for_messages() -> Generator[int, None, None]:
    """Keep stdout for MCP messages, and yield the descriptor to write them to.

    All else that is printed meanwhile, by any code, goes to stderr.
    """
    sys.stdout.flush()
    stdout = sys.stdout.fileno()
    messages = os.dup(stdout)
    os.dup2(sys.stderr.fileno(), stdout)
    try:
        yield messages
    finally:
        sys.stdout.flush()
        os.dup2(messages, stdout)
        os.close(messages)
