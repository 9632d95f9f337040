"""The recording at the top of the README: a server in one terminal, a login and a call in another, and in between the page on which a person
approves. Everything is typed into the real program and shown by it; how long a screen is seen is said here, so that the same program
gives the same film.

Names are those of nobody: vera at lab, port 8420, one code. What this machine is called, and where its folders are, must not be seen, and a
run in which it is ends with an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import confirm_page
from film import Film
from pane import Pane, Panes, Shown

ROOT = Path(__file__).resolve().parents[2]
AGENT = Path(__file__).with_name("restaurant.py")
COLUMNS, LINES = 80, 24
HOST, PORT, CODE = "lab", "8420", "WDJB-MJHT"
MAX_FILM = 150 * 1024

KEY_SECONDS = 0.055
GLANCE, READ, STUDY = 0.6, 2.2, 4.0

SERVER, CALLER = "a terminal: the server", "another terminal: somebody who wants in"
DESCRIPTION = (
    "A server is started with a Python file. Another terminal asks to be let in and shows a code; it is approved in a browser; then the "
    "terminal is logged in, lists the tools and calls one, which asks for a day."
)

USER_CODE = re.compile(r"[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}\b")
# What is behind `ostiary` in the recording: this program, on a machine that is called lab.
PROGRAM = f"""#!/bin/sh
exec env OSTIARY_PROGRAM=ostiary PYTHONPATH={ROOT} {sys.executable} -P -c 'import runpy, socket
socket.gethostname = lambda: "{HOST}"
runpy.run_module("server", run_name="__main__", alter_sys=True)' "$@"
"""


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(prog="scripts/record", description=__doc__)
    options.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    out: Path = options.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        film = record(Path(folder), out)
        check(film, folder)
    drawn = film.drawn()
    if len(drawn.encode()) > MAX_FILM:
        raise SystemExit(f"error: the film has {len(drawn.encode())} bytes, more than {MAX_FILM}")
    (out / "terminal.svg").write_text(drawn, "utf-8")
    for picture in sorted(out.iterdir()):
        print(f"{picture.name}: {picture.stat().st_size / 1024:.0f} KiB")
    return 0


def record(folder: Path, out: Path) -> Film:
    """The whole story. `folder` is the home of everybody in it."""
    port = free_port()
    programs, home, work = folder / "bin", folder / "vera", folder / "work"
    programs.mkdir()
    home.mkdir()
    work.mkdir()  # not the home, below which the server's data lies
    (programs / "ostiary").write_text(PROGRAM, "utf-8")
    (programs / "ostiary").chmod(0o755)
    shutil.copy(AGENT, work)
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "OSTIARY_PORT": str(port),  # shown as the usual one
    }

    def tidy(text: str) -> str:
        text = from_half_past_ten(text)
        text = re.sub(r"(?<=127\.0\.0\.1:)\d{1,4}", lambda found: PORT[: len(found[0])], text)
        text = re.sub(r"/claim/\S+", "/claim/…", USER_CODE.sub(CODE, text))
        return re.sub(r"\d+:\d\d left", "9:59 left", text)

    film = Film(columns=COLUMNS, lines=LINES, description=DESCRIPTION)
    panes = Panes(folder)
    try:
        server = panes.open("server", (COLUMNS, LINES), work, environment, tidy)
        caller = panes.open("caller", (COLUMNS, LINES), home, environment, tidy)
        with confirm_page.browser() as page:
            typed(film, SERVER, server, f"ostiary serve {AGENT.name}")
            server.await_words(r"try next[^$]*ostiary tools \S+$")
            film.show(SERVER, settled(server), STUDY)
            link = re.search(r"make it yours\s+(http://\S+)", server.raw())
            assert link
            confirm_page.claim(page, link[1])

            typed(film, CALLER, caller, f"ostiary login http://127.0.0.1:{port}/mcp")
            code = caller.await_words(USER_CODE.pattern)[0]
            address = caller.await_words(r"in a browser\s+(http://\S+)")[1]
            caller.await_words(r"waiting.* left")
            film.show(CALLER, settled(caller), STUDY)
            confirm_page.look(page, address, {code: CODE, f":{port}": f":{PORT}"}, out)
            confirm_page.approve(page)
            caller.await_words(r"logged in to")
            answered(film, caller, READ)

            typed(film, CALLER, caller, "ostiary tools")
            answered(film, caller, READ)
            typed(film, CALLER, caller, "ostiary call book guests=3")
            caller.await_words(r"Which day\?")
            film.show(CALLER, settled(caller), READ)
            typed(film, CALLER, caller, "2026-12-24")
            caller.await_words(r"send this")
            typed(film, CALLER, caller, "y")
            caller.await_words(r"3 guests on 24 December")
            answered(film, caller, STUDY)
            film.still = len(film.shots) - 1
            # What the one who runs the server has seen of it meanwhile.
            server.await_words(r"(✓|tool\.called).* book\b|tool=book")
            film.show(SERVER, settled(server), STUDY)
        server.interrupt()
        server.await_words(r"\$\s*\Z")
    finally:
        panes.close()
    return film


def typed(film: Film, title: str, pane: Pane, line: str) -> None:
    film.show(title, pane.screen(), GLANCE)
    for character in line:
        pane.press(character)
        film.show(title, pane.screen(), KEY_SECONDS)
    film.show(title, pane.screen(), GLANCE)
    pane.enter()


def answered(film: Film, pane: Pane, seconds: float) -> None:
    """Once the shell asks again."""
    pane.await_words(r"^\$\s*\Z")
    film.show(CALLER, settled(pane), seconds)


def settled(pane: Pane) -> Shown:
    """Looked at twice alike: a program may be at its next line."""
    screen = pane.screen()
    while (again := pane.screen()) != screen:
        screen = again
    return screen


def from_half_past_ten(text: str) -> str:
    """The times of the log, counted from the first of them: when this was recorded is of no interest."""
    clock = re.compile(r"(?<![\d:.])(\d\d):(\d\d):(\d\d)(?![\d:.])")
    seconds = [
        int(hour) * 3600 + int(minute) * 60 + int(second) for hour, minute, second in clock.findall(text)
    ]

    def moved(found: re.Match[str]) -> str:
        hour, minute, second = (int(each) for each in found.groups())
        passed = (hour * 3600 + minute * 60 + second - seconds[0]) % 86_400
        return f"10:{30 + passed // 60}:{passed % 60:02}"

    return clock.sub(moved, text)


def free_port() -> int:
    """One of four digits, like the one in whose place it is shown."""
    for port in range(8421, 9999):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SystemExit("error: no port between 8421 and 9998 is free")


def check(film: Film, folder: str) -> None:
    """Nothing of this machine is to be seen."""
    names = {socket.gethostname(), folder, str(ROOT), os.environ.get("USER", "")} - {"", "root"}
    for shot in film.shots:
        words = shot.screen.words()
        found = [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words)]
        if found or len(words.splitlines()) > LINES:
            raise SystemExit(f"error: this is not to be shown ({', '.join(found)}):\n{words}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
