"""Who takes part in the echo: our own ways of answering one, and the peers that can be had here."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import logins
from echo import Contender
from targets import (
    Cores,
    Running,
    Target,
    chat_upstream,
    mcp_upstream,
    ostiary,
    ostiary_chat,
    ostiary_gateway,
    ostiary_priced,
    ostiary_python_file,
    running,
)

from server.admin import control


def _token(server: Running, folder: Path) -> str:
    return logins.log_in(server, logins.ours(folder)).access_token


def _wallet(server: Running, folder: Path) -> str:
    """A login whose person has money here."""
    token = _token(server, folder)
    control.ask(folder / "data", "ledger.grant", {"wallet": "owner", "amount": 10**9})
    return token


def _priced(folder: Path, cores: Cores) -> AbstractContextManager[Running]:
    return running(ostiary_priced(folder), core=cores.server)


def _demo(folder: Path, cores: Cores, *, auth: str) -> AbstractContextManager[Running]:
    return running(ostiary(folder, auth=auth), core=cores.server)


def _python_file(folder: Path, cores: Cores) -> AbstractContextManager[Running]:
    return running(ostiary_python_file(folder), core=cores.server)


@contextmanager
def _chat(folder: Path, cores: Cores) -> Generator[Running]:
    with (
        running(chat_upstream(), core=cores.load) as upstream,
        running(ostiary_chat(folder, upstream), core=cores.server) as server,
    ):
        yield server


@contextmanager
def _gateway(folder: Path, cores: Cores) -> Generator[Running]:
    with (
        running(mcp_upstream(), core=cores.load) as upstream,
        running(ostiary_gateway(folder, upstream), core=cores.server) as server,
    ):
        yield server


def _peer(_: Path, cores: Cores, *, target: Target) -> AbstractContextManager[Running]:
    return running(target, core=cores.server)


def peer(name: str, label: str, target: Target) -> Contender:
    return Contender(name=name, label=label, serve=partial(_peer, target=target))


OURS = (
    Contender(name="anonymous", label="Ostiary, demo, anonymous", serve=partial(_demo, auth="none")),
    Contender(
        name="bearer", label="Ostiary, demo, Bearer token", serve=partial(_demo, auth="oauth"), login=_token
    ),
    Contender(name="python", label="Ostiary, tool of a Python file", serve=_python_file),
    Contender(name="chat", label="Ostiary, chat upstream", serve=_chat),
    Contender(name="gateway", label="Ostiary, MCP upstream", serve=_gateway),
    Contender(
        name="paid",
        label="Ostiary, demo, paid from a balance",
        serve=_priced,
        login=_wallet,
        varies=True,
    ),
)
