"""Witnesses (durability_clients.py) who buy from a balance, each call under a key of its own, and what their purchases must come to."""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from accounts import Rows, differ
from caller import Answer
from durability_clients import PAUSE_SECONDS, Book, Door, Login, Witness
from targets import Broken

KEY, SIGNED_RECEIPT = "x402/idempotency-key", "io.ostiary/receipt"
# Of a call that is under way elsewhere, and may be asked for again; and of one of which nobody knows how far it came.
IN_FLIGHT, INTERRUPTED = "in_flight", "interrupted"
LOOK_SECONDS = 0.05
CENT = 10_000  # micros: what `sold` costs


class Walker(Witness):
    """Calls what costs nothing: of a Python file, and of an upstream."""

    login: Login | None = None

    def turn(self) -> None:
        if self.login is None:
            self.login = self.log_in()
            return
        tool, arguments, text = self._dice.choice(
            (("again", {"text": self.name}, self.name), ("slow", {"seconds": 0.02}, "hello"))
        )
        answer, _ = self.surely(
            lambda: self._caller.call("tools/call", {"name": tool, "arguments": arguments}, token=self._token, name=tool),
            good=self.login.grant_id,
        )  # fmt: skip
        if answer.status == 401:
            self.login = None
        elif not failed(answer) and text not in str(result_of(answer).get("content")):
            raise Broken(f"{tool} answered {answer.body[:300]!r}")
        time.sleep(PAUSE_SECONDS)

    def settle(self) -> None:
        if self.login is not None and not self.echoed(self.login.access_token, good=self.login.grant_id):
            self.books["logins"].missing.append(f"{self.login.grant_id} is not let in")

    @property
    def _token(self) -> str:
        assert self.login is not None
        return self.login.access_token


class Payer(Walker):
    """Calls what is paid for, from a balance, each under a key of its own: until it is served, or told that nobody knows."""

    tool, noun = "sold", "paid calls"

    def __init__(self, server: Door, dice: Random, over: Event, name: str) -> None:
        super().__init__(server, dice, over, name)
        self.books[self.noun] = Book()
        self.served: list[str] = []
        self.charges: list[str] = []  # that their receipts name
        self.unknown: list[str] = []
        self.failed: list[str] = []
        self._number = 0

    def turn(self) -> None:
        if self.login is None:
            self.login = self.log_in()
            return
        self._number += 1
        name, book = f"{self.name}-{self._number}", self.books[self.noun]
        result, doubt = self._bought(name)
        book.in_doubt += doubt
        if result is None:
            self.unknown.extend([name] * bool(doubt))
            return
        said = str(result.get("content"))
        if not result.get("isError"):
            if f"{name} is {self.tool}" not in said:
                raise Broken(f"{name} was answered {said[:300]}")
            book.acknowledged += 1
            self.served.append(name)
            if (receipt := result["_meta"].get(SIGNED_RECEIPT)) is not None:
                self.charges.append(charge_of(receipt))
        elif reason_of(result) == INTERRUPTED:
            self.unknown.append(name)
        else:
            self.failed.append(f"{name}: {said[:200]}")
        time.sleep(PAUSE_SECONDS)

    def _bought(self, name: str) -> tuple[dict[str, Any] | None, int]:
        """Its answer, and how many were lost; None if the login was not let in."""
        call = {"name": self.tool, "arguments": {"name": name}, "_meta": {KEY: f"key-{name}"}}
        doubts = 0
        while True:
            answer, doubt = self.surely(
                lambda: self._caller.call("tools/call", call, token=self._token, name=self.tool),
                good="" if self.login is None else self.login.grant_id,
            )
            doubts += doubt
            if answer.status == 401:  # it was not made, and is made again by another login
                self.login = None
                return None, doubts
            result = result_of(answer)
            if not (result.get("isError") and reason_of(result) == IN_FLIGHT):
                return result, doubts
            time.sleep(LOOK_SECONDS)


class Poster(Payer):
    """The same with what costs nothing."""

    tool, noun = "posted", "keyed calls"


def charge_of(receipt: str) -> str:
    """What a signed receipt is about."""
    said = receipt.split(".")[1]
    return json.loads(urlsafe_b64decode(said + "=" * (-len(said) % 4)))["jti"]


def result_of(answer: Answer) -> dict[str, Any]:
    try:
        return answer.json.get("result", {"isError": True, "content": answer.body.decode(errors="replace")})
    except ValueError:
        raise Broken(f"answered {answer.status}: {answer.body[:300]!r}") from None


def failed(answer: Answer) -> bool:
    return bool(result_of(answer).get("isError"))


def reason_of(result: Mapping[str, Any]) -> str:
    meta: Mapping[str, Any] = result.get("_meta", {})
    facts: Mapping[str, Any] = meta.get("io.ostiary/payment") or meta.get("io.ostiary/repeat") or {}
    return str(facts.get("reason", ""))


def compare_balances(rows: Rows, witnesses: Sequence[Witness], granted: int, book: Book) -> None:
    """Each call that was served is charged once, as its receipt says, and nothing else is. `granted`: in dollars, all that there was."""
    charges = rows.counted(
        "SELECT charge_id, COUNT(*) FROM movements WHERE kind = 'charge' GROUP BY charge_id"
    )
    charged = sum(charges.values())
    payers = [each for each in witnesses if type(each) is Payer]
    receipts = Counter(charge for payer in payers for charge in payer.charges)
    differ(sum(len(payer.served) for payer in payers), receipts.total(), book, "calls with a receipt")
    for charge in receipts.keys() | charges.keys():
        differ(charges.get(charge, 0), receipts[charge], book, f"charges {charge}, beside its receipts,")
    balance = rows.one("SELECT SUM(balance) FROM wallets")
    differ(granted * 1_000_000 - charged * CENT, int(balance), book, "what was granted and not charged")
    total = int(balance) + int(rows.one("SELECT SUM(balance) FROM accounts"))
    if total:
        book.doubled.append(f"the ledger comes to {total}, not to nothing")


def read_journal(journal: Path) -> Counter[str]:
    """How often each call was run, as its tool has written."""
    text = journal.read_text("utf-8") if journal.exists() else ""
    return Counter(re.findall(r"(?m)^(\S+) (?:sold|posted)$", text))


def compare_runs(done: Counter[str], witnesses: Sequence[Witness], books: Mapping[str, Book]) -> None:
    """Each call that was served was run once; one of which nobody knows how far it came, once at the most."""
    for witness in witnesses:
        if isinstance(witness, Payer):
            book = books[witness.noun]
            book.missing += [f"{name} was served, and not run" for name in witness.served if not done[name]]
            for name in (*witness.served, *witness.unknown):
                if done[name] > 1:
                    book.doubled.append(f"{name} was run {done[name]} times")
            book.missing += witness.failed
