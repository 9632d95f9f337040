"""The books of a running program from a terminal: granted, refunded, redeemed, exported, tampered with, backed up and restored."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing

import pytest
from programs import House, Program

pytestmark = pytest.mark.slow


def tamper(program: Program, *statements: str) -> None:
    with closing(sqlite3.connect(program.data_dir / "ostiary.db", isolation_level=None)) as connection:
        for sql in statements:
            connection.execute(sql)


def test_a_grant_of_a_script_that_runs_twice_is_given_once(house: House) -> None:
    program = house.program
    where = ("--once", "order-7", "--data-dir", str(program.data_dir))
    once = ("ledger", "grant", "token:shop:once", "$5", *where)
    assert "token:shop:once has $5.00 now" in program.run(*once).stdout
    repeated = program.run(*once)
    assert "token:shop:once has $5.00 now" in repeated.stdout
    assert "given before, and not again: order-7" in repeated.stderr
    other = program.run("ledger", "grant", "token:shop:once", "$6", *where, code=1)
    assert "the key order-7 was given with another grant" in other.stderr


def test_what_the_owner_gives_is_booked_shown_exported_and_in_the_trail(program: Program) -> None:
    where = ("--data-dir", str(program.data_dir))
    with program.serving() as server:
        program.log_in(server)
        assert "nothing was booked" in program.run("ledger", "balance", *where).stderr
        assert "there is nobody" in program.run("ledger", "grant", "nobody", "$5", *where, code=1).stderr
        assert "no amount" in program.run("ledger", "grant", "token:shop:ci", "5,00", *where, code=2).stderr
        given = program.at_machine("ledger", "grant", "token:shop:ci", "$5", "--note", "=1+1")
        assert (given["seq"], given["balance"], given["account"]) == (1, 5_000_000, "token:shop:ci")
        back = program.at_machine("ledger", "refund", "1", "--amount", "0.5", "--yes")
        assert (back["kind"], back["amount"], back["left"]) == ("refund", 500_000, 4_500_000)
        more = program.run("ledger", "refund", "1", "--amount", "5", "--yes", *where, code=1)
        assert "of movement 1 $4.50 is left" in more.stderr
        assert (
            program.run("ledger", "balance", "--wallet", "token:shop:ci", *where).stdout
            == "token:shop:ci  $4.50\n"
        )
        assert program.run("ledger", "balance", "--account", "granted", *where).stdout == "granted  -$4.50\n"

        (voucher,) = program.at_machine("vouchers", "new", "--amount", "$2", "--note", "spring")
        (listed,) = program.at_machine("vouchers", "list")
        assert "code" not in listed
        assert (listed["id"], listed["state"], listed["uses_left"]) == (voucher["id"], "usable", 1)
        assert voucher["code"][-4:] in program.run("vouchers", "list", *where).stdout
        assert "there is no plan" in program.run("vouchers", "new", "--plan", "pro", *where, code=1).stderr
        program.run("vouchers", "revoke", voucher["id"], *where)
        assert "no such voucher" in program.run("vouchers", "revoke", voucher["id"], *where, code=1).stderr

        statement = program.at_machine("ledger", "statement", "--wallet", "token:shop:ci")
        assert [(row["seq"], row["kind"], row["amount"], row["refers"]) for row in statement] == [
            (2, "refund", "0.500000", 1),
            (1, "grant", "5.000000", None),
        ]
        lines = program.run("ledger", "export", *where).stdout.splitlines()
        assert [json.loads(line)["micros"] for line in lines] == [5_000_000, 500_000]
        program.run("ledger", "export", "--csv", "--to", "books.csv", *where)
        rows = list(csv.DictReader(io.StringIO((program.home / "books.csv").read_text("utf-8"))))
        assert [(row["seq"], row["source"], row["note"]) for row in rows] == [
            ("1", "granted", "'=1+1"),
            ("2", "wallet:token:shop:ci", ""),
        ]
        for row in rows:  # nothing of a chain
            assert [row[name] for name in ("transaction", "payer", "pay_to", "network", "asset")] == [""] * 5
        assert (program.home / "books.csv").stat().st_mode & 0o777 == 0o600
        assert "exists already" in program.run("ledger", "export", "--to", "books.csv", *where, code=1).stderr

        events = [row["event"] for row in program.at_machine("audit")][:4]
        assert events == ["voucher.revoked", "voucher.made", "ledger.refunded", "ledger.granted"]
        checked = program.at_machine("ledger", "check")
        assert (checked["sound"], checked["movements"], checked["accounts"]) == (True, 2, 2)
        assert voucher["code"] not in server.said()
    verified = program.run("verify", "--file", str(program.data_dir / "ostiary.db"), *where).stdout
    assert "ledger: sound, 2 movements, 2 balances" in verified
    head = next(line for line in verified.splitlines() if line.startswith("ledger head:")).split()[-1]
    with program.serving():
        assert "sound" in program.run("verify", "--expect-ledger", head, *where).stdout
        other = head[:-1] + ("0" if head[-1] != "0" else "1")
        told = program.run("verify", "--expect-ledger", other, *where, code=1)
        assert "the ledger: movement 2 is another than the one expected" in told.stderr
        assert "head_lost" not in program.run("audit", *where).stdout


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        ("UPDATE movements SET amount = 1 WHERE seq = 2", "movement 2 is not as it was written"),
        ("DELETE FROM movements WHERE seq = 1", "movement 1 is missing"),
        ("UPDATE wallets SET balance = balance + 1", "2 balances are not what the movements come to"),
    ],
)
def test_books_that_somebody_had_a_hand_in_are_told_apart_from_the_trail(
    program: Program, breaking: str, words: str
) -> None:
    where = ("--data-dir", str(program.data_dir))
    with program.serving():
        for amount in ("1", "2", "3"):
            program.run("ledger", "grant", "token:shop:ci", amount, *where)
        tamper(program, breaking)
        for command in ("verify", "ledger check"):
            told = program.run(*command.split(), *where, code=1)
            assert f"the ledger: {words}" in told.stderr
            assert told.stdout == ""
            assert "the audit trail:" not in told.stderr
        answer = json.loads(program.run("verify", "--json", *where, code=1).stdout)
        assert (answer["sound"], answer["problem"], answer["ledger"]["sound"]) == (False, None, False)


def test_a_large_grant_is_asked_about(house: House) -> None:
    program, where = house.program, ("--data-dir", str(house.program.data_dir))
    refused = program.run("ledger", "grant", "token:shop:large", "$1000", *where, code=2)
    assert "--yes" in refused.stderr
    assert program.run("ledger", "grant", "token:shop:large", "$999.99", *where).stdout
    given = program.run("ledger", "grant", "token:shop:large", "$1000", "--yes", *where)
    assert "has $1999.99 now" in given.stdout


def test_the_books_of_a_stopped_server_are_read_from_its_database(program: Program) -> None:
    where = ("--data-dir", str(program.data_dir))
    nothing = program.run("ledger", "check", *where, code=1)
    assert "there is no database" in nothing.stderr
    reading = [("ledger", *each) for each in (["check"], ["accounts"], ["unsettled"])]
    with program.serving() as server:
        for amount in ("1", "2"):
            program.run("ledger", "grant", "token:shop:ci", amount, *where)
        asked = [json.loads(program.run(*each, "--json", *where).stdout) for each in reading]
        server.process.kill()
        server.process.wait()
    assert [json.loads(program.run(*each, "--json", *where).stdout) for each in reading] == asked
    assert (asked[0]["movements"], [each["balance"] for each in asked[1]]) == (2, [3_000_000, -3_000_000])
    tamper(program, "UPDATE movements SET amount = 1 WHERE seq = 2")
    told = program.run("ledger", "check", *where, code=1)
    assert "movement 2 is not as it was written" in told.stderr


@pytest.mark.parametrize("stopped", [False, True])
def test_a_ledger_that_was_wiped_whole_is_found_out(program: Program, stopped: bool) -> None:
    where = ("--data-dir", str(program.data_dir))
    wipe = [
        f"DELETE FROM {table}"
        for table in ("movements", "wallets", "accounts", "meta WHERE key = 'ledger_chain'")
    ]
    with program.serving() as server:
        program.run("ledger", "grant", "token:shop:ci", "1", *where)
        if not stopped:
            tamper(program, *wipe)
            program.run("verify", *where, code=1)
            program.run("ledger", "grant", "token:shop:ci", "1", *where)
            server.await_words('"identity.ledger.altered"')
    if stopped:
        tamper(program, *wipe)
        (program.data_dir / "ledger.head").unlink()
    with program.serving() as server:
        assert stopped == ('"identity.ledger.altered"' in server.said())
        assert program.run("verify", *where, code=1).stdout == ""
        assert "ledger" in program.run("status", *where).stdout


def test_a_killed_server_and_a_restored_back_up_raise_no_alarm(program: Program) -> None:
    where = ("--data-dir", str(program.data_dir))
    with program.serving() as server:
        program.run("ledger", "grant", "token:shop:ci", "1", *where)
        program.run("backup", "copy.db", *where)
        program.run("ledger", "grant", "token:shop:ci", "1", *where)
        server.process.kill()
        server.process.wait()
    with program.serving() as server:
        assert program.at_machine("verify")["ledger"]["movements"] == 2
        assert "ledger.altered" not in server.said()
    program.run("restore", "copy.db", *where)
    with program.serving() as server:
        assert program.at_machine("verify")["ledger"]["movements"] == 1
        assert "ledger.altered" not in server.said()
        assert "head_lost" not in server.said()
    (program.data_dir / "ledger.head").unlink()
    with program.serving() as server:
        assert '"identity.ledger.head_lost"' in server.said()
        assert program.at_machine("verify")["sound"]
