"""The walk of docs/paid.md, followed to the letter: from the demo to a tool that is paid for with test coins, and what the books say then.

Only the ports are others, because 8420 and 8402 may be taken. What the document shows is what the terminals show.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import ROOT, SOURCE, USER_CODE, Program, until
from walk import FIRST_SECONDS, Block, Terminal, blocks, check_shown, terminal

from tests.free_ports import free_port

pytestmark = pytest.mark.slow

DOCUMENT = "docs/paid.md"
SERVER, FACILITATOR = "8420", "8402"
SETTINGS = re.compile(r"<!-- walk-through: settings -->\n```toml\n(.*?)```", re.DOTALL)
# No line of a statement is cut there.
COLUMNS = 200
CLOCKED = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The document on one side, a home in which it is followed on the other."""

    steps: dict[str, Block]
    program: Program
    port: int

    @contextmanager
    def typed(self, *names: str, code: str = "CODE") -> Generator[Terminal]:
        """The blocks of these names, one behind the other in a terminal that was just opened."""
        lines = [line for name in ("folder", *names) for line in self.steps[name].lines]
        typed = "\n".join(lines).replace("CODE", code)
        with terminal(typed, self.program, self.port, COLUMNS) as opened:
            yield opened

    def done(self, *names: str, answers: Sequence[tuple[str, str]] = (), ends: int = 0) -> str:
        """What is seen until it has ended; at each question its answer is typed. It shows what the blocks say that it shows."""
        with self.typed(*names) as opened:
            for question, answer in answers:
                opened.await_words(re.escape(question))
                opened.type(f"{answer}\n")
            assert opened.wait() == ends, opened.seen()
        for name in names:
            check_shown(self.steps[name], opened.seen())
        return opened.seen()


@contextmanager
def walking(home: Path) -> Generator[Walk]:
    """Steps 1 to 4: the settings are written, facilitator and server run. Ctrl-C ends both."""
    port, facilitator = free_port(), free_port()
    ports = {SERVER: port, FACILITATOR: facilitator}
    program = Program(command=SOURCE, home=home)
    walk = Walk(steps=blocks(DOCUMENT, ports), program=program, port=port)
    settings = SETTINGS.search((ROOT / DOCUMENT).read_text("utf-8"))
    assert settings
    (home / "paid").mkdir()
    (home / "paid" / "ostiary.toml").write_text(settings[1].replace(FACILITATOR, str(facilitator)), "utf-8")
    with ExitStack() as open_terminals:
        running: list[tuple[str, Terminal]] = []
        for name, last_words in (("facilitator", r"curl \S+/test/ledger"), ("server", r"echo text=hello")):
            shown = open_terminals.enter_context(walk.typed(name))
            shown.await_words(last_words, FIRST_SECONDS)
            check_shown(walk.steps[name], shown.seen())
            running.append((name, shown))
        yield walk
        for name, shown in reversed(running):
            shown.type("\x03")
            assert shown.wait() == 0, f"{name} said:\n{shown.seen()}"


def log_in(walk: Walk) -> None:
    with walk.typed("login") as waiting:
        code = waiting.await_words(USER_CODE)[0]
        with walk.typed("approve", code=code) as deciding:
            deciding.await_words(re.escape("let it in [y/N]:"))
            deciding.type("y\n")
            assert deciding.wait() == 0, deciding.seen()
        check_shown(walk.steps["approve"], deciding.seen())
        assert waiting.wait() == 0, waiting.seen()
    check_shown(walk.steps["login"], waiting.seen())


def test_the_walk_leads_to_a_paid_call_its_receipt_and_books_that_agree(home: Path) -> None:
    with walking(home) as walk:
        assert list(walk.steps) == [
            *("folder", "settings", "facilitator", "server", "doctor", "login", "approve", "price"),
            *(
                "wallet",
                "pay",
                "quietly",
                "receipt",
                "statement",
                "lost",
                "found",
                "balance",
                "deposit",
                "asked",
                "plain",
            ),
        ]
        walk.done("doctor")
        log_in(walk)
        walk.done("price", ends=1)
        walk.done("wallet")
        walk.done("pay", answers=[("pay it? [yes/no]", "yes")])
        walk.done("quietly")
        walk.done("receipt")
        told = walk.done("statement")
        notes = re.findall(rf"^\d+ +{CLOCKED} +payment .* (\S+)$", told, re.MULTILINE)
        booked = walk.program.at_machine("ledger", "statement")
        assert notes == [each["transaction"] for each in booked] and len(set(notes)) == 2
        # The payment is settled and nobody here knows; then the server finds out, and the buyer pays once.
        walk.done("lost", ends=1)
        until(
            "the outcome of the lost payment",
            lambda: walk.program.at_machine("ledger", "unsettled") == [] or None,
        )
        walk.done("found")
        moved = walk.program.at_machine("ledger", "statement")
        assert [(each["kind"], each["micros"]) for each in moved] == [("payment", 20_000)] * 3
        walk.done("balance")
        walk.done("deposit", answers=[("pay it? [yes/no]", "yes")])
        walk.done("asked", "plain")
        accounts = walk.program.at_machine("ledger", "accounts")
        assert [each["balance"] for each in accounts if each["wallet"]] == [6_000_000 - 2 * 20_000]
        assert sum(each["balance"] for each in accounts) == 0
