"""A client in the official suite's scenarios: a person who uses our terminal, with a browser that is one GET.

The suite gives the address of its server, the scenario and what belongs to it (client_knock.py), and looks at what arrives.
The person logs in, calls a tool, and does what the terminal tells them to: no more, and not for ever. Nothing that the client
does is done here; `TOLD` is what a person would have been told beforehand.
"""

from __future__ import annotations

import re
import shlex
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests import forked
from tests.e2e.programs import SOURCE, Program

TOLD: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        # A document that somebody has put up is named like any client that was entered by hand.
        "auth/basic-cimd": ("--client-id", "https://conformance-test.local/client-metadata.json"),
        "auth/dpop": ("--dpop",),
        "auth/dpop-nonce": ("--dpop",),
    }
)
# The first, and another when the terminal says so. A person stops there.
MAX_LOGINS = 2
# A bound on a program that hangs; the suite has its own for all of this.
SECONDS = 60.0
LINK = re.compile(r"https?://\S+[?&]response_type=code\S*")
HINT = re.compile(r"\bostiary login (.+)$", re.MULTILINE)


class Ended(Exception):
    """A command of ours ended with a no. It has said why."""


def live(url: str, scenario: str, context: Mapping[str, str]) -> tuple[int, str]:
    """Return the exit code, and what the terminal said of what it refused."""
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        program = Program(command=SOURCE, home=Path(folder))
        said: list[str] = []
        options = [*TOLD.get(scenario, ()), *registered_by_hand(program, context)]
        try:
            log_in(program, said, url, *options)
            for _ in range(1, MAX_LOGINS):
                advice = use(program, said, url)
                if advice is None:
                    return 0, ""
                log_in(program, said, *advice, *options)
            return (0 if use(program, said, url) is None else 1), "".join(said)
        except Ended:
            return 1, "".join(said)


def registered_by_hand(program: Program, context: Mapping[str, str]) -> list[str]:
    if "client_secret" not in context:
        return []
    secret = program.home / "secret"
    secret.write_text(context["client_secret"], "utf-8")
    secret.chmod(0o600)
    return ["--client-id", context["client_id"], "--client-secret", f"file:{secret}"]


def log_in(program: Program, said: list[str], *arguments: str) -> None:
    with program.starting("login", *arguments, "--no-browser") as login:
        try:
            link = login.await_words(LINK)[0]
        except AssertionError:  # it ended before there was anything to open
            said.append(login.said())
            raise Ended from None
        # Begins faster than a whole client would, and there are many of these.
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(link, timeout=SECONDS).read()
        if login.process.wait(SECONDS) != 0:
            said.append(login.said())
            raise Ended


def use(program: Program, said: list[str], url: str) -> list[str] | None:
    """The tool that every scenario has. None, or how the terminal says to log in again."""
    code, _, told = forked.run(
        ("call", url, "test-tool"),
        environment=program.environment(),
        folder=program.home,
        seconds=SECONDS,
    )
    if code == 0:
        return None
    said.append(told.decode())
    advice = HINT.search(said[-1])
    if advice is None:
        raise Ended
    return shlex.split(advice[1])
