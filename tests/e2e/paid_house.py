"""A server of ours that sells, on the local chain: its tools, what was run, and what its books say, for the tests of payments."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_proxy import FaultProxy, fault_proxy
from local_chain import V1_NAME, LocalChain
from programs import SOURCE, Program, Server

from tests.free_ports import free_port

PRICE = 12_345  # in millionths of a dollar, which are the token's atomic units as well
PRICE_TEXT = "$0.012345"

# Each run is a line in a file, so that what was run is known whatever becomes of the server. A tool waits while there is a file `wait`.
AGENT = """
import pathlib, time
from ostiary import tool

HERE = pathlib.Path(__file__).parent

def run(what: str) -> int:
    with (HERE / "runs").open("a") as runs:
        runs.write(what + "\\n")
    while (HERE / "wait").exists():
        time.sleep(0.02)
    return (HERE / "runs").read_text().split("\\n").count(what)

@tool(annotations={"idempotentHint": True})
def sell(what: str) -> str:
    return f"{what}, run {run(what)}"

@tool
def keep(what: str) -> str:
    return f"{what}, run {run(what)}"

@tool
def break_(what: str) -> str:
    run(what)
    raise RuntimeError("it broke")

@tool
def give(what: str) -> str:
    return what
"""

SETTINGS = """
auth = "none"
host = "127.0.0.1"

[payments]
pay_to = {pay_to}
networks = [{network}]
{rpc}

[[payments.facilitator]]
url = {facilitator}
timeout_seconds = 20
settle_timeout_seconds = {settle_seconds}

[[server]]
name = "main"
price = {price}
anonymous_pay = true

[server.tools.give]
price = "free"

[server.tools.keep]
dedupe = "1m"

[[server.agent]]
kind = "python"
file = {agent}
python = {python}
"""


@dataclass(frozen=True, kw_only=True)
class PaidHouse:
    """The server can be ended and started again, as often as a test likes; the proxy in front of the facilitator stays."""

    program: Program
    folder: Path
    seller: str
    settling: FaultProxy  # between our server and the facilitator
    ports: tuple[int, int]  # of the server, and of the way to it: the same each time, as an address is
    gifts: list[int] = field(default_factory=list)  # what came to the seller for no call of ours

    @property
    def agents(self) -> Path:
        """A folder of the agent's own: beside the settings it may make no files."""
        return self.folder / "agent"

    @property
    def runs(self) -> list[str]:
        """What was run, each time that it was."""
        file = self.agents / "runs"
        return file.read_text("utf-8").splitlines() if file.exists() else []

    @contextmanager
    def serving(self) -> Generator[Server]:
        where = ("--port", str(self.ports[0]))
        with self.program.serving("--config", str(self.folder / "ostiary.toml"), *where) as server:
            yield server

    @contextmanager
    def tools_waiting(self) -> Generator[None]:
        """Tools begin, and do not end before the block does."""
        wait = self.agents / "wait"
        wait.touch()
        try:
            yield
        finally:
            wait.unlink()

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """What the server wrote down."""
        with closing(sqlite3.connect(f"file:{self.program.data_dir}/ostiary.db?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(query, values)]

    def revenue(self) -> int:
        """What the tools earned, as the books have it."""
        return self.rows(
            "SELECT coalesce(sum(balance), 0) AS earned FROM accounts WHERE id LIKE 'revenue:%'"
        )[0]["earned"]


@contextmanager
def paid_house(
    home: Path, chain: LocalChain, facilitator: str, *, settle_seconds: int = 30, asks_chain: bool = True
) -> Generator[PaidHouse]:
    """`asks_chain` False: its settings name no node, so that it knows of the chain what the facilitator says."""
    seller = chain.account().address
    (home / "agent").mkdir()
    (home / "agent" / "agent.py").write_text(AGENT, "utf-8")
    with fault_proxy(facilitator) as settling:
        written = {
            "pay_to": seller,
            "network": V1_NAME,
            "facilitator": settling.url,
            "price": PRICE_TEXT,
            "agent": str(home / "agent" / "agent.py"),
            "python": sys.executable,
            "settle_seconds": settle_seconds,
        }
        rpc = f"rpc = {{ {V1_NAME} = {json.dumps(chain.url)} }}" if asks_chain else ""
        settings = SETTINGS.format(rpc=rpc, **{name: json.dumps(value) for name, value in written.items()})
        (home / "ostiary.toml").write_text(settings, "utf-8")
        program = Program(command=SOURCE, home=home)
        yield PaidHouse(
            program=program, folder=home, seller=seller, settling=settling, ports=(free_port(), free_port())
        )
