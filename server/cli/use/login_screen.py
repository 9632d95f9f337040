"""What a person sees of a login, on stderr: the code and the ways to approve it, or the link for the browser; and the wait."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from shlex import quote
from typing import TYPE_CHECKING, Final

from server.cli import terminal
from server.cli.terminal import StatusLine, paint, say

if TYPE_CHECKING:
    from server.client.client_errors import ClientError
    from server.lib.oauth_client.device_authorization import DeviceCode

# Smaller terminals would wrap the QR code into noise.
QR_MARGIN: Final = 2
# A terminal hands over a line of at most this many bytes.
MAX_LINE: Final = 4096


class LoginScreen:
    """`local`: the server is on this machine. `opens`: a browser may be opened here, and would be seen."""

    def __init__(self, *, local: bool, qr: bool | None = None, opens: bool = False) -> None:
        self._local = local
        self._qr = qr
        self._opens = opens
        self._status = StatusLine()

    def clear(self) -> None:
        self._status.clear()

    def trouble(self, error: ClientError) -> None:
        self._status.clear()
        say(f"{terminal.clean(str(error))}, trying again")

    @asynccontextmanager
    async def code(self, code: DeviceCode) -> AsyncGenerator[None, None]:
        from server.client.background_task import beside
        from server.client.token_file import wall_clock

        show(code, local=self._local, qr=self._qr)
        left = (code.expires_at - wall_clock()) / 1000
        async with beside(self._count_down("waiting for approval", left)):
            yield
        self._status.clear()

    @asynccontextmanager
    async def link(
        self, link: str, seconds: float, paste: Callable[[str], str]
    ) -> AsyncGenerator[None, None]:
        from server.cli.browser import open_browser
        from server.client.background_task import beside

        opened = self._opens and await open_browser(link)
        pastes = not opened and terminal.is_terminal(sys.stdin)
        say()
        say(invitation(opened=opened))
        say()
        # Never cut and never broken by us: it is there to be copied.
        say(f"  {paint(terminal.clean(link), 'bold', sys.stderr)}")
        say()
        if pastes:
            say("if the browser is on another machine, paste here the address at which it ends")
            # No line that is drawn anew each second: it would be drawn over what is typed.
            say(f"waiting {terminal.duration(seconds)} for the browser, ctrl-c stops")
        elif not self._status.live:
            where = "" if opened else ", which has to be on this machine"
            say(f"waiting {terminal.duration(seconds)} for the browser{where}")
        async with beside(
            (lambda: _read_pasted(paste)) if pastes else self._count_down("waiting for the browser", seconds)
        ):
            yield
        self._status.clear()

    def _count_down(self, what: str, seconds: float) -> Callable[[], Awaitable[None]]:
        async def draw() -> None:
            import trio

            end = trio.current_time() + seconds
            while self._status.live:
                left = int(max(0, end - trio.current_time()))
                self._status.show(f"{what}, {left // 60}:{left % 60:02} left, ctrl-c stops")
                await trio.sleep(1)

        return draw


def invitation(*, opened: bool) -> str:
    """To the link that follows."""
    if opened:
        return "log in in the browser that just opened, or open this link"
    return "no browser was opened here, so open this link"


def show(code: DeviceCode, *, local: bool, qr: bool | None) -> None:
    """The code, large, and how to approve it."""
    from server.cli.use.which_server import of_server_at
    from server.lib.oauth_client.addresses import is_loopback

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
    approve = f"approve {quote(code.user_code)}"
    whose = of_server_at(code.verification_uri) if local else None
    # On the same machine the shell is the shortest way, so it comes first there.
    if whose is not None:
        ways.insert(0, ("in another terminal", f"{terminal.program_anywhere()} {approve}{whose}"))
    else:
        ways.append(("at the server", f"ostiary {approve}"))
    say("approve this code in one of these ways")
    rows = [(f"  {paint(name, 'dim', sys.stderr)}", paint(what, "bold", sys.stderr)) for name, what in ways]
    for line in terminal.columns(rows):
        say(line)
    say()
    if qr if qr is not None else reachable and terminal.is_terminal(sys.stderr):
        draw_qr(link or code.verification_uri)


def _boxed(user_code: str) -> list[str]:
    spaced = f"   {terminal.clean(user_code)}   "
    if not terminal.can_draw(sys.stderr):
        return [f"code: {paint(spaced.strip(), 'bold', sys.stderr)}"]
    edge = "─" * terminal.cells(spaced)
    return [f"┌{edge}┐", f"│{paint(spaced, 'bold', sys.stderr)}│", f"└{edge}┘"]


def draw_qr(link: str) -> None:
    """The link for a phone's camera, where the terminal is wide enough for it."""
    import segno

    drawn = io.StringIO()
    segno.make_qr(link, error="l").terminal(out=drawn, border=QR_MARGIN, compact=True)
    lines = drawn.getvalue().splitlines()
    if not terminal.can_draw(sys.stderr) or terminal.cells(lines[0]) + 4 > terminal.width(sys.stderr):
        return
    for line in lines:
        say(f"    {terminal.on_black(line, sys.stderr)}")
    say()


async def _read_pasted(paste: Callable[[str], str]) -> None:
    """Lines from the terminal, each tried as an answer, for as long as this may run."""
    import trio

    descriptor = sys.stdin.fileno()
    typed: bytes = b""
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        piece = os.read(descriptor, MAX_LINE)
        if not piece:
            return
        typed += piece
        while b"\n" in typed:
            end = typed.index(b"\n")
            text, typed = typed[:end].decode("utf-8", "replace").strip(), typed[end + 1 :]
            if text:
                said = paste(text)
                say(said[:1].lower() + said[1:])
