"""`ostiary ledger statement` on a terminal: what it shows of a movement. What it finds is tests/e2e's and tests/admin's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from server.cli import local, terminal
from server.cli.money import ledger

TRANSACTION = "0x" + "ab" * 32
CHAIN = "chain:eip155:84532:0x036cbd53842c5426634e7929541ec2318f3dcf7e"


def movement(seq: int, **more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "seq": seq, "at": 1_795_000_000_000, "kind": "payment", "source": CHAIN, "target": "revenue:main/echo",
        "amount": 20_000, "currency": "USD", "note": "", "refers": None, "transaction": None,
    }  # fmt: skip
    return usual | more


ROWS = (
    movement(4, transaction=TRANSACTION),
    movement(3, kind="purchase", source="cost:main/echo", target=CHAIN, note=TRANSACTION, transaction=TRANSACTION),
    movement(2, kind="refund", source="revenue:main/echo", target="wallet:user:ann", refers=1),
    movement(1, kind="grant", source="granted", target="wallet:user:ann"),
)  # fmt: skip


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Its lines, on a terminal of a hundred columns."""

    def ask(command: str, arguments: Mapping[str, Any], **where: Any) -> dict[str, Any]:
        assert command == "ledger.statement"
        return {"rows": ROWS, "go_on": None}

    monkeypatch.setattr(local, "ask", ask)
    monkeypatch.setattr(terminal, "width", lambda stream, **more: 100)
    done = CliRunner().invoke(ledger.command, ["statement"])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_whatever_was_paid_on_a_chain_names_its_transaction_whole_in_a_hundred_columns(
    shown: list[str],
) -> None:
    assert [line for line in shown if len(line) > 100] == []
    notes = [line.partition("note ")[2] for line in shown if "note " in line]
    assert notes == [TRANSACTION, TRANSACTION, "of 1"]
