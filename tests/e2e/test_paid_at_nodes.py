"""Three servers on one database, and the same payment or the same paid call at all of them at once: run once, settled once, in the books once."""

from __future__ import annotations

import itertools
import re
import secrets
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2
import psycopg
import pytest
from nodes import Nodes, ServedNode
from paid_shop import CENT, Customer, answer_of, new_key, reason_of
from programs import SOURCE, WAIT_SECONDS, Program, until
from psycopg.conninfo import make_conninfo
from task_clients import Heard, Wire
from test_two_nodes import logged_in

from tests.free_ports import free_port
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

TIMES = 20
AGENT = Path(__file__).with_name("paid_agent.py").read_text("utf-8")
SETTINGS = """
[payments]
pay_to = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
networks = ["base-sepolia"]
[[payments.facilitator]]
url = "{facilitator}"

[[server]]
name = "main"
[[server.agent]]
kind = "python"
file = "agent.py"
calls_at_once = 200

[[server]]
name = "street"
auth = "none"
anonymous_pay = true
[[server.agent]]
kind = "python"
file = "agent.py"
calls_at_once = 200
"""


@dataclass
class Chain:
    """Three shops of one owner, and what they are paid through."""

    nodes: list[ServedNode]
    facilitator: str
    database: dict[str, str]

    @contextmanager
    def customers(self, kind: str) -> Generator[list[Customer]]:
        """The same one, at each shop in turn."""
        member = kind == "a member"
        token, path = (logged_in(self.nodes[0])["access_token"], "/mcp") if member else (None, "/street/mcp")
        payer = new_key()
        shop: Any = None
        found = [
            Customer(wire=Wire(url=f"{node.url}{path}", token=token), shop=shop, payer=payer)
            for node in itertools.islice(itertools.cycle(self.nodes), TIMES)
        ]
        yield found
        for each in found:
            each.wire.close()

    def runs(self, name: str) -> int:
        said = [self._notes(node) / "said" for node in self.nodes]
        return sum(each.read_text("utf-8").count(f"{name} runs") for each in said if each.exists())

    def let_go(self, name: str) -> None:
        for node in self.nodes:
            (self._notes(node) / f"{name}.go").touch()

    def of_facilitator(self, customer: Customer) -> list[dict[str, Any]]:
        said = httpx2.get(f"{self.facilitator}/test/ledger", trust_env=False, timeout=WAIT_SECONDS).json()
        return [
            row for row in said["authorizations"] if row["from"].lower() == customer.payer.address.lower()
        ]

    def one(self, sql: str, *values: object) -> Any:
        with psycopg.connect(make_conninfo("", **self.database)) as connection:
            (found,) = cast("Any", connection.execute(sql.encode(), values).fetchone())
            return found

    def _notes(self, node: ServedNode) -> Path:
        return node.program.home / "notes"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Chain]:
    home, port = tmp_path_factory.mktemp("n"), free_port()
    facilitator = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        database = dict(stack.enter_context(postgres_server.database()))
        (home / "f").mkdir()
        started = Program(command=SOURCE, home=home / "f").starting(
            "facilitator", "--test", "--port", str(port), command=SOURCE
        )
        stack.enter_context(started).await_words(re.compile(r"Listening on http://"))
        settings = SETTINGS.format(facilitator=facilitator)
        nodes = Nodes(home=home, database=database, settings=settings, files={"agent.py": AGENT})
        for name in "abc":
            (home / name / "notes").mkdir(parents=True)
        served = [stack.enter_context(nodes.serving(name)) for name in "abc"]
        yield Chain(nodes=served, facilitator=facilitator, database=database)


@pytest.fixture
def name() -> str:
    return f"call-{secrets.token_hex(4)}"


def at_once(chain: Chain, customers: list[Customer], name: str, **how: Any) -> list[Heard]:
    """All of them while the first one's tool runs, or waits to."""
    with ThreadPoolExecutor(TIMES) as hands:
        calls = [hands.submit(each.call, "held", name, **how) for each in customers]
        until("one of them to run", lambda: chain.runs(name) or None)
        chain.let_go(name)
        return [call.result() for call in calls]


@pytest.mark.parametrize("kind", ["a stranger", "a member"])
def test_one_payment_twenty_times_at_three_nodes_runs_once_and_settles_once(
    chain: Chain, kind: str, name: str
) -> None:
    told = Counter[str]()
    with chain.customers(kind) as customers:
        payment = customers[0].sign("held", name)
        for heard in at_once(chain, customers, name, payment=payment):
            told[reason_of(heard) if heard.result.get("isError") else answer_of(heard)] += 1
    assert told[f"{name} was run 1"] >= 1
    assert set(told) <= {f"{name} was run 1", "in_flight", "payment_used"}
    assert chain.runs(name) == 1
    (seen,) = chain.of_facilitator(customers[0])
    assert (seen["verify_calls"], seen["settle_calls"], seen["settled"]) == (1, 1, 1)
    booked = "SELECT COUNT(*) || ' for ' || SUM(m.amount) FROM movements m JOIN payments p ON p.id = m.payment_id WHERE p.payer = %s"
    assert chain.one(booked, customers[0].payer.address.lower()) == f"1 for {CENT}"
    assert chain.one("SELECT COUNT(*) FROM charges WHERE state <> 'done'") == 0
    assert chain.nodes[1].program.at_machine("ledger", "check")["sound"]


def test_one_paid_call_twenty_times_at_three_nodes_runs_once_and_is_charged_once(
    chain: Chain, name: str
) -> None:
    chain.nodes[2].program.at_machine("ledger", "grant", "owner", "$1")
    before = chain.one("SELECT SUM(balance) FROM wallets")
    with chain.customers("a member") as customers:
        answers = at_once(chain, customers, name, key=f"key-{name}")
    assert {answer_of(heard) for heard in answers} == {f"{name} was run 1"}
    assert chain.runs(name) == 1
    assert before - chain.one("SELECT SUM(balance) FROM wallets") == CENT
    assert chain.one("SELECT SUM(held) FROM wallets") == 0
    assert chain.nodes[0].program.at_machine("ledger", "check")["sound"]
