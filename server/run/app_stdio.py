"""The whole program on standard input and output: for one client, which started it.

No port, no login: who may start the program may use it. What is the same without pipes is single_server.py's.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import trio

from auth.values.identity_model import Principal, PrincipalKind
from server.client.stdio_lines import reader, writer
from server.lib.log.logger import Logger
from server.run.single_server import MakeConversation, run_alone
from server.settings.resolved_settings import Resolved
from server.settings.setting_shapes import ServerConfig


class Pipes(NamedTuple):
    read: int
    write: int


def run_stdio(resolved: Resolved, log: Logger, *, server: ServerConfig) -> None:
    """Serve until the client closes its end, SIGTERM or Ctrl-C. Raises `CannotStart`, and `OSError` for a standard input or
    output that cannot be used."""
    pipes = take_pipes()

    async def talk(make: MakeConversation, stopping: trio.Event) -> None:
        await make("").run(reader(pipes.read), writer(pipes.write), stopping=stopping)

    principal = Principal(kind=PrincipalKind.LOCAL, subject=f"local:{os.getuid()}")
    run_alone(resolved, log, talk, server=server, principal=principal)


def take_pipes() -> Pipes:
    """Standard input and output for messages alone, until the process ends. Whoever prints from now on prints to stderr, and
    who reads finds nothing: an agent's stray output would be a broken message. Child processes inherit neither."""
    pipes = Pipes(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return pipes
