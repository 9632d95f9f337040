"""What the official suite's client scenarios start: a person who uses our terminal, with a browser that is one GET.

The suite gives the address of its server as the last argument, the scenario in the environment, and looks at what arrives.
The person logs in, calls a tool, and does what the terminal tells them to: no more, and not for ever. Nothing that the client
does is done here; `TOLD` is what a person would have been told beforehand.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

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


def main(url: str) -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        program = Program(command=SOURCE, home=Path(folder))
        options = [*TOLD.get(scenario, ()), *registered_by_hand(program, context)]
        try:
            log_in(program, url, *options)
            for _ in range(1, MAX_LOGINS):
                advice = use(program, url)
                if advice is None:
                    return 0
                log_in(program, *advice, *options)
            return 0 if use(program, url) is None else 1
        except Ended:
            return 1


def registered_by_hand(program: Program, context: Mapping[str, str]) -> list[str]:
    if "client_secret" not in context:
        return []
    secret = program.home / "secret"
    secret.write_text(context["client_secret"], "utf-8")
    secret.chmod(0o600)
    return ["--client-id", context["client_id"], "--client-secret", f"file:{secret}"]


def log_in(program: Program, *arguments: str) -> None:
    with program.starting("login", *arguments, "--no-browser") as login:
        try:
            link = login.await_words(LINK)[0]
        except AssertionError:  # it ended before there was anything to open
            say(login.said())
            raise Ended from None
        # Begins faster than a whole client would, and there are many of these.
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(link, timeout=SECONDS).read()
        if login.process.wait(SECONDS) != 0:
            say(login.said())
            raise Ended


def use(program: Program, url: str) -> list[str] | None:
    """The tool that every scenario has. None, or how the terminal says to log in again."""
    done = subprocess.run(
        (*program.command, "call", url, "test-tool"),
        cwd=program.home,
        env=program.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode == 0:
        return None
    say(done.stderr)
    advice = HINT.search(done.stderr)
    if advice is None:
        raise Ended
    return shlex.split(advice[1])


def say(text: str) -> None:
    """The suite keeps it beside its results."""
    sys.stderr.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
