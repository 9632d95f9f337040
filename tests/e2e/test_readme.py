"""The README's walk-through, followed to the letter: each marked block in a terminal of its own, as a newcomer types it, and
what is to be seen in a browser in a Chromium that only reaches the server as the README says, through the tunnel.

Only the port is another, because 8420 may be taken, and what the README shows must be what the terminal or the page shows.
No second machine and no SSH server is needed: what `ssh -L` would do, a few lines here do with the same words. Whoever reads it may have
set a PostgreSQL database before; nothing else is another then.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from programs import USER_CODE, WAIT_SECONDS, Program
from walk import FIRST_SECONDS, blocks, check_page, check_shown, terminal

from tests.e2e.chromium import CHROMIUM, FLAGS, PATIENCE_MS, picture
from tests.free_ports import free_port

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PORT = "8420"
TUNNEL = re.compile(r"ssh -N -L (?P<here>\d+):(?P<host>[\d.]+):(?P<there>\d+) \w+")
NAME, PASSPHRASE = "alice", "four calm herons wading"


@dataclass(kw_only=True)
class Tunnel:
    """What `ssh -L` does, but for the port on this side, which the server has already: Chromium is told of another."""

    address: str  # as it is typed on the other machine
    port: int
    connections: int = 0


@contextmanager
def tunnel(line: str) -> Generator[Tunnel]:
    words = TUNNEL.fullmatch(line)
    assert words, line
    target = (words["host"], int(words["there"]))
    carriers: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened = Tunnel(address=f"127.0.0.1:{words['here']}", port=listener.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):  # the listener was shut down
                while True:
                    near, _ = listener.accept()
                    opened.connections += 1
                    carriers.append(threading.Thread(target=_carry, args=(near, target)))
                    carriers[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield opened
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *carriers):
                thread.join(WAIT_SECONDS)


def _carry(near: socket.socket, target: tuple[str, int]) -> None:
    """One connection, until one of its sides closes it; the browser has gone before the tunnel does."""
    with near, socket.create_connection(target) as far:
        back = threading.Thread(target=_pass_on, args=(far, near))
        back.start()
        _pass_on(near, far)
        back.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def browser_elsewhere(through: Tunnel) -> Generator[Page]:
    """A browser that finds the server's address at the end of the tunnel, as one on another machine would."""
    rules = f"MAP {through.address} 127.0.0.1:{through.port}"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, f"--host-resolver-rules={rules}"]
        )
        context = chromium.new_context(java_script_enabled=False)
        context.set_default_timeout(PATIENCE_MS)
        try:
            yield context.new_page()
        finally:
            chromium.close()


def claim(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_label("Name").fill(NAME)
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_label("The same passphrase again").fill(PASSPHRASE)
    page.get_by_role("button", name="Claim this server").click()
    expect(page.get_by_role("heading", name=f"The server is yours, {NAME}")).to_be_visible()


@pytest.mark.parametrize("store", ["a file", "PostgreSQL"])
def test_the_walk_through_ends_with_a_login_approved_on_another_machine_and_a_tools_answer(
    home: Path, store: str, request: pytest.FixtureRequest
) -> None:
    port = free_port()
    steps = blocks("README.md", {PORT: port})
    assert list(steps) == ["server", "login", "approve", "call", "tools", "confirm", "tunnel"]
    program = Program(command=(), home=home)
    if store == "PostgreSQL":
        where = request.getfixturevalue("postgres_database")
        address = f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}"
        program.settings |= {"OSTIARY_STORE": "env:DATABASE", "DATABASE": address}
    (serve,), (ssh,), (login,), (approve,) = (
        steps[name].lines for name in ("server", "tunnel", "login", "approve")
    )
    with terminal(serve, program, port) as server:
        server.await_words(rf"call http://127\.0\.0\.1:{port}/mcp echo", FIRST_SECONDS)
        check_shown(steps["server"], server.seen())
        link = server.await_words(r"make it yours\s+(http://\S+)")[1]
        with terminal(login, program, port) as waiting:
            code = waiting.await_words(USER_CODE)[0]
            with terminal(approve.replace("CODE", code), program, port) as owner:
                owner.await_words(re.escape("let it in [y/N]:"))
                owner.type("y\n")
                owner.await_words("approved")
                assert owner.wait() == 0
            check_shown(steps["approve"], owner.seen())
            assert waiting.wait() == 0, waiting.seen()
        check_shown(steps["login"], waiting.seen())
        assert "logged in" in waiting.seen()
        for name in ("call", "tools"):
            (line,) = steps[name].lines
            with terminal(line, program, port) as caller:
                assert caller.wait() == 0, caller.seen()
            check_shown(steps[name], caller.seen())
        with tunnel(ssh) as through, browser_elsewhere(through) as page:
            claim(page, link)
            # What was let in before there was an owner is the owner's now.
            page.goto(f"http://127.0.0.1:{port}/account/access")
            expect(page.get_by_text(f"on {socket.gethostname()} as it claims")).to_be_visible()
            with terminal(login, program, port) as waiting:
                code = waiting.await_words(USER_CODE)[0]
                page.goto(waiting.await_words(r"in a browser\s+(http://\S+)")[1])
                # Whoever reads the page can say who is asking: which program and machine, from where, for whom, and what.
                check_page(steps["confirm"], page.locator("main").inner_text(), code)
                asking = " ".join(page.locator("main").inner_text().split())
                assert f"at 127.0.0.1:{port}, as {NAME}" in asking
                assert f"From {socket.gethostname()} 127.0.0.1" in asking
                picture(page, "readme-confirm", full_page=True)
                page.get_by_role("button", name="Approve").click()
                expect(page.get_by_role("heading", name="Approved")).to_be_visible()
                assert waiting.wait() == 0, waiting.seen()
            assert "logged in" in waiting.seen()
            assert through.connections
        server.type("\x03")
        assert server.wait() == 0, server.seen()
    assert (program.data_dir / "ostiary.db").exists() is (store == "a file")
