"""`ostiary login URL`: a login by device code. The code, the ways to approve it and the wait are drawn on stderr."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import click

from server import __version__
from server.cli import terminal
from server.cli.terminal import StatusLine, json_option, paint, say

if TYPE_CHECKING:
    from server.client.login import DeviceCode
    from server.client.tokens import Login

# A name that the person approving will read; the server cuts it as well.
MAX_NAME = 80
# Smaller terminals would wrap the QR code into noise.
QR_MARGIN = 2


@click.command("login")
@click.argument("url")
@click.option("--scope", metavar="SCOPES", help="ask for these scopes only, separated by spaces")
@click.option("--client-id", metavar="ID", help="log in as a registered client")
@click.option("--qr/--no-qr", default=None, help="draw the address as a QR code, or never")
@json_option
def command(url: str, scope: str | None, client_id: str | None, qr: bool | None, as_json: bool) -> None:
    """Log in to the MCP server at URL.

    Shows a code; somebody approves it in any browser, on any device, or at the machine that runs the server.
    """
    import socket

    import trio

    from server.cli import target
    from server.client.access import wall_clock
    from server.client.discovery import discover
    from server.client.errors import ClientError
    from server.client.login import CLIENT_ID, ask_for_code, login_from, remember, wait_for_tokens
    from server.client.wire import open_client

    address = target.address_of(url)
    file = target.token_file()
    ours = client_id or CLIENT_ID
    status = StatusLine()

    def trouble(error: ClientError) -> None:
        status.clear()
        say(f"{error}, trying again")

    async def main() -> Login:
        await trio.to_thread.run_sync(file.get, address.url)  # an unusable token file is told before the wait
        async with open_client(address.url) as client:
            place = await discover(client, address.url)
            wanted = place.scope if scope is None else " ".join(scope.split())
            names = {
                "client_name": f"ostiary {__version__}"[:MAX_NAME],
                "hostname": socket.gethostname()[:MAX_NAME],
            }
            code = await ask_for_code(
                client, place, scope=wanted, names=names, now=wall_clock, client_id=ours
            )
            show(code, local=address.loopback, qr=qr)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_count_down, status, code)
                tokens = await wait_for_tokens(
                    client, place, code, now=wall_clock, trouble=trouble, client_id=ours
                )
                nursery.cancel_scope.cancel()
            login = login_from(place, tokens, asked_scope=wanted, now=wall_clock(), client_id=ours)
            await remember(client, file, login)
            return login

    try:
        login = terminal.run_async(main)
    finally:
        status.clear()
    if as_json:
        terminal.out_json({"url": login.url, "scope": login.scope, "expires_at": login.expires_at})
        return
    tick = "✓ " if terminal.can_draw(sys.stderr) else ""
    say(f"{paint(f'{tick}logged in', 'green', sys.stderr)} to {login.url}")
    terminal.say_hint(f"ostiary tools {login.url}")


def show(code: DeviceCode, *, local: bool, qr: bool | None) -> None:
    """The code, large, and how to approve it."""
    from server.client.address import is_loopback

    link, page = code.verification_uri_complete, f"{terminal.clean(code.verification_uri)} and type the code"
    # A phone cannot reach this machine by its own name for itself.
    reachable = not is_loopback(link or code.verification_uri)
    say()
    for line in _boxed(code.user_code):
        say(f"    {line}")
    say()
    ways = [("in a browser", page if link is None else terminal.clean(link))]
    if link is not None and reachable:
        ways.append(("or by hand", page))
    approve = terminal.as_started(f"ostiary approve {terminal.clean(code.user_code)}")
    # On the same machine the shell is the shortest way, so it comes first there.
    ways = [("in another terminal", approve), *ways] if local else [*ways, ("at the server", approve)]
    say("approve this code in one of these ways")
    rows = [(f"  {paint(name, 'dim', sys.stderr)}", paint(what, "bold", sys.stderr)) for name, what in ways]
    for line in terminal.columns(rows):
        say(line)
    say()
    if qr if qr is not None else reachable and terminal.is_terminal(sys.stderr):
        _draw_qr(link or code.verification_uri)


def _boxed(user_code: str) -> list[str]:
    spaced = f"   {terminal.clean(user_code)}   "
    if not terminal.can_draw(sys.stderr):
        return [f"code: {paint(spaced.strip(), 'bold', sys.stderr)}"]
    edge = "─" * terminal.cells(spaced)
    return [f"┌{edge}┐", f"│{paint(spaced, 'bold', sys.stderr)}│", f"└{edge}┘"]


def _draw_qr(link: str) -> None:
    import segno

    drawn = io.StringIO()
    segno.make_qr(link, error="l").terminal(out=drawn, border=QR_MARGIN, compact=True)
    lines = drawn.getvalue().splitlines()
    if not terminal.can_draw(sys.stderr) or terminal.cells(lines[0]) + 4 > terminal.width(sys.stderr):
        return
    for line in lines:
        say(f"    {terminal.on_black(line, sys.stderr)}")
    say()


async def _count_down(status: StatusLine, code: DeviceCode) -> None:
    import trio

    from server.client.access import wall_clock

    while status.live:
        left = max(0, code.expires_at - wall_clock()) // 1000
        status.show(f"waiting for approval, {left // 60}:{left % 60:02} left, ctrl-c stops")
        await trio.sleep(1)
