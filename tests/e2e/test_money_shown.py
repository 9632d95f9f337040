"""What money looks like from outside the running program: at its start, in a call, in whoami, status and doctor, and as a receipt that is checked
with published keys, also after they were replaced; and what the owner resolves by hand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from programs import SOURCE, WAIT_SECONDS, Program, Server

pytestmark = pytest.mark.slow

SETTINGS = """
[payments]
pay_to = "0x52908400098527886E0F7030069857D2E4169EE7"
networks = ["base-sepolia"]
caps = { per_day = "$5" }

[[payments.facilitator]]
url = "http://127.0.0.1:9"

[[server]]
name = "main"

[server.tools.echo]
price = "$0.01"
trial = 1

[[server.agent]]
kind = "demo"
"""
PAYMENT = (
    "INSERT INTO payments (id, network, asset, payer, nonce, proof_hash, purpose, fingerprint, server, caller, wallet, atomic,"
    " amount, currency, pay_to, valid_before, state, requirements, tries, next_try_at, created_at, expires_at)"
    " VALUES (?, 'eip155:84532', '0xaa', '0xbb', ?, '', 'deposit', '', 'main', '', 'payer:eip155:84532:0xbb', '2000000', 2000000,"
    " 'USD', '0xcc', ?, 'unknown', '[]', 3, 99999999999999, 1795000000000, 99999999999999)"
)
FAR = 99_999_999_999


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    home: Path = tmp_path_factory.mktemp("money")
    (home / "ostiary.toml").write_text(SETTINGS, "utf-8")
    return Program(command=SOURCE, home=home)


@pytest.fixture(scope="module")
def server(program: Program) -> Generator[Server]:
    with program.serving("--config", "ostiary.toml", "--admin-port", "0") as running:
        program.log_in(running)
        yield running


def test_a_call_says_in_one_line_what_it_cost_and_whoami_and_status_what_is_left(
    program: Program, server: Server
) -> None:
    free = program.run("call", server.endpoint, "echo", "text=one")
    assert "it cost nothing" in free.stderr
    refused = program.run("call", server.endpoint, "echo", "text=two", code=1)
    assert "costs $0.01" in refused.stderr
    program.at_machine("ledger", "grant", "owner", "1")
    paid = program.run("call", server.endpoint, "echo", "text=two")
    assert (paid.stdout, paid.stderr.strip()) == ("two\n", "it cost $0.01, from your balance")
    me = program.run("whoami", server.endpoint).stdout
    assert "balance          $0.99" in me
    assert "up to $5.00 a day" in me
    assert "1 of 1" in me
    status = program.run("status", "--data-dir", str(program.data_dir)).stdout
    assert "$0.01 today, $0.01 this month (UTC)" in status
    admin = server.await_words(r'admin"?[:=] ?"?(http://127[0-9.:]+)')[1]
    counted = httpx2.get(f"{admin}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
    assert 'ostiary_charges_total{way="balance"} 1' in counted
    assert 'ostiary_charges_total{way="trial"} 1' in counted
    assert 'ostiary_payments_total{outcome="unknown"} 0' in counted
    assert "ostiary_payments_unsettled 0" in counted


def test_a_receipt_is_checked_without_its_server_also_when_its_key_was_replaced(
    program: Program, server: Server
) -> None:
    program.at_machine("ledger", "grant", "owner", "1")
    result = program.ask("call", server.endpoint, "echo", "text=three")
    (program.home / "result.json").write_text(json.dumps(result), "utf-8")
    fetched = httpx2.get(f"{server.url}/.well-known/receipt-keys.json", trust_env=False, timeout=WAIT_SECONDS)
    (program.home / "keys.json").write_bytes(fetched.content)
    for known in (
        ("--jwks", "keys.json"),
        ("--issuer", server.url),
        ("--jwks", "keys.json", "--issuer", server.url),
    ):
        told = program.run("verify-receipt", "result.json", *known)
        assert told.stdout.startswith(f"sound: a receipt of {server.url}\n")
        assert "$0.01 from the balance of user:" in told.stdout
    [facts] = program.ask("verify-receipt", "result.json", "--jwks", "keys.json")
    assert (facts["server"], facts["tool"], facts["micros"], facts["sound"]) == ("main", "echo", 10_000, True)
    unchecked = program.run("verify-receipt", "result.json", code=1)
    assert "no keys were given" in unchecked.stderr
    assert f"keys of {server.url}" in unchecked.stderr
    wrong = program.run(
        "verify-receipt", "result.json", "--jwks", "keys.json", "--issuer", "https://other.example", code=1
    )
    assert "not of https://other.example" in wrong.stderr
    head, claims, signature = result["_meta"]["io.ostiary/receipt"].split(".")
    (program.home / "forged").write_text(f"{head}.{claims[:-2]}AA.{signature}", "utf-8")
    assert program.run("verify-receipt", "forged", "--jwks", "keys.json", code=1).stdout == ""
    # Dropped because others may have it: from then on it proves nothing.
    program.at_machine("keys", "rotate", "--now", "--yes")
    dropped = program.run("verify-receipt", "result.json", "--issuer", server.url, code=1)
    assert "others may have it" in dropped.stderr
    listed = httpx2.get(f"{server.url}/.well-known/did.json", trust_env=False, timeout=WAIT_SECONDS).json()
    assert len(listed["verificationMethod"]) == 1


def test_doctor_says_who_takes_payments_and_what_a_buyer_would_see(program: Program, server: Server) -> None:
    told = program.run("doctor", "--config", "ostiary.toml", "--data-dir", str(program.data_dir), code=1)
    assert "1 tool costs something, and can be paid for" in told.stdout
    assert "http://127.0.0.1:9" in told.stdout  # where nobody answers
    assert "no facilitator" in told.stdout
    assert "10000 units of USDC on Base Sepolia" in told.stdout
    assert server.url in told.stdout


def test_what_is_sold_is_said_at_the_start_and_a_price_that_nobody_can_pay_is_warned_of(
    tmp_path: Path,
) -> None:
    program = Program(command=SOURCE, home=tmp_path)
    unpayable = SETTINGS.partition("[[payments.facilitator]]")[0] + SETTINGS[SETTINGS.index("[[server]]") :]
    (tmp_path / "ostiary.toml").write_text(unpayable, "utf-8")
    with program.serving("--config", "ostiary.toml") as running:
        running.await_words("no .*facilitator.* serves Base Sepolia.*price.unpayable")


def test_a_price_in_an_agents_file_that_nobody_can_pay_is_warned_of_by_serve_and_doctor(
    tmp_path: Path,
) -> None:
    program = Program(command=SOURCE, home=tmp_path)
    (tmp_path / "agent.py").write_text(
        'from ostiary import tool\n\n@tool(price="$0.01")\ndef look(word: str) -> str:\n    return word\n',
        "utf-8",
    )
    agent = '[[server]]\nname = "main"\n[[server.agent]]\nkind = "python"\nfile = "agent.py"\n'
    for payments, event, words in (
        (
            SETTINGS.partition("caps")[0],
            "no .*facilitator.* serves Base Sepolia.*price.unpayable",
            "serves Base Sepolia",
        ),
        ("", "pay_to.*networks.*facilitator.*price.unheard", "without [payments]: main/look costs nothing"),
    ):
        (tmp_path / "ostiary.toml").write_text(payments + agent, "utf-8")
        with program.serving("--config", "ostiary.toml") as running:
            running.await_words(event)
            told = program.run(
                "doctor", "--config", "ostiary.toml", "--data-dir", str(program.data_dir), code=1
            )
        (line,) = [line for line in told.stdout.splitlines() if line.startswith("✗ prices")]
        assert words in line


def test_a_payment_that_stays_unknown_is_resolved_by_hand_with_a_row_in_the_trail(
    program: Program, server: Server
) -> None:
    with closing(sqlite3.connect(program.data_dir / "ostiary.db", timeout=WAIT_SECONDS)) as database:
        database.execute(PAYMENT, ("pay_1", "1", FAR))
        database.execute(PAYMENT, ("pay_2", "2", FAR))
        database.execute(PAYMENT, ("pay_3", "3", 1_795_000_000))
        database.commit()
    where = ("--data-dir", str(program.data_dir))
    assert {each["id"] for each in program.at_machine("ledger", "unsettled")} == {"pay_1", "pay_2", "pay_3"}
    assert "ostiary ledger unsettled" in program.run("status", *where).stderr
    transaction = "0x" + "Ab" * 32
    done = program.at_machine("ledger", "resolve", "pay_1", "--settled", transaction, "--yes")
    assert (done["state"], done["transaction_hash"]) == ("settled", transaction.lower())
    again = program.run("ledger", "resolve", "pay_1", "--refused", "--yes", *where, code=1)
    assert "is settled already" in again.stderr
    good = program.run("ledger", "resolve", "pay_2", "--refused", "--yes", *where, code=1)
    assert "could still be carried out" in good.stderr
    assert program.at_machine("ledger", "resolve", "pay_3", "--refused", "--yes")["state"] == "refused"
    for wrong, words in (
        (("pay_9", "--refused"), "there is no payment"),
        (("pay_2", "--settled", "0x12"), "64 hexadecimal digits"),
    ):
        assert words in program.run("ledger", "resolve", *wrong, "--yes", *where, code=1).stderr
    assert "refused" in program.run("ledger", "resolve", "pay_2", "--yes", *where, code=2).stderr
    balance = program.at_machine("ledger", "balance", "--wallet", "payer:eip155:84532:0xbb")
    assert balance["wallets"][0]["balance"] == 2_000_000
    rows = program.at_machine("audit", "--event", "payment.resolved")
    assert [row["reason"] for row in rows] == ["pay_3 refused", f"pay_1 settled by {transaction.lower()}"]
    assert program.at_machine("ledger", "check")["sound"]
