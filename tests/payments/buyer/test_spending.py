"""What was signed is counted and kept in a file: across processes, and after a crash."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from purses import change

from server.payments.buyer.spending import MAX_UNANSWERED, SignedPayment, SpendingFile
from server.payments.buyer.spending_policy import CannotPay

NOW = 1_795_000_000
PAYER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"


def signed(number: int = 1, **changes: Any) -> SignedPayment:
    fields: dict[str, Any] = {
        "identifier": f"id-{number}",
        "purpose": f"purpose-{number}",
        "words": "$0.40 to somebody",
        "payer": PAYER,
        "amount": 400_000,
        "signed_at": NOW,
        "valid_before": NOW + 300,
        "payment": {"x402Version": 2, "payload": {"signature": "0x5ec2e7"}},
    }
    return SignedPayment(**{**fields, **changes})


@pytest.fixture
def file(tmp_path: Path) -> SpendingFile:
    return SpendingFile(tmp_path / "kept")


def add(file: SpendingFile, payment: SignedPayment, *, now: int = NOW) -> SignedPayment:
    return file.add(payment, 1_000_000, now, change)


def test_a_days_limit_is_kept_and_the_next_day_begins_anew(file: SpendingFile) -> None:
    add(file, signed(1))
    add(file, signed(2))
    with pytest.raises(CannotPay, match=r"\$0.40.*\$1.00 a day.*\$0.80") as caught:
        add(file, signed(3))
    assert caught.value.hint == "wait until tomorrow (UTC), or set per-day to $1.20"
    add(file, signed(4, amount=200_000))
    assert file.spent(PAYER.lower(), NOW) == 1_000_000
    add(file, signed(5), now=NOW + 86_400)
    assert file.spent(PAYER, NOW + 86_400) == 400_000
    assert file.spent(PAYER, NOW) == 1_000_000


def test_each_wallet_has_its_own_day(file: SpendingFile) -> None:
    add(file, signed(1, amount=900_000))
    add(file, signed(2, amount=900_000, payer="0x70997970C51812dc3A010C7d01b50e0d17dc79C8"))
    with pytest.raises(CannotPay):
        add(file, signed(3, payer=PAYER.lower()))


def test_what_was_signed_stays_counted_whatever_became_of_it(file: SpendingFile) -> None:
    add(file, signed(1))
    file.close("id-1")
    assert file.find("purpose-1") is None
    assert file.spent(PAYER, NOW) == 400_000


def test_a_second_signature_for_the_same_purpose_is_never_used(file: SpendingFile) -> None:
    first = add(file, signed(1))
    second = signed(1, identifier="id-2")
    assert add(file, second) == first
    assert file.spent(PAYER, NOW) == 400_000
    assert file.find("purpose-1") == first


def test_what_has_no_answer_is_there_after_a_restart_and_nobody_else_can_read_it(file: SpendingFile) -> None:
    payment = add(file, signed(1))
    file.refuse(payment)
    again = SpendingFile(file.path.parent).find("purpose-1")
    assert again == msgspec.structs.replace(payment, refused=True)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert "5ec2e7" not in repr(again)


def test_what_is_long_over_is_forgotten_and_no_more_than_a_bound_is_kept(file: SpendingFile) -> None:
    for number in range(MAX_UNANSWERED):
        file.add(signed(number, amount=1), 10**9, NOW, change)
    with pytest.raises(CannotPay, match="have no answer"):
        file.add(signed(9999, amount=1), 10**9, NOW, change)
    later = NOW + 8 * 86_400
    file.add(signed(9999, amount=1), 10**9, later, change)
    assert [each.identifier for each in file.unanswered()] == ["id-9999"]
    for day in range(60):
        file.add(signed(1, amount=1, valid_before=later), 10**9, later + day * 86_400, change)
        file.close("id-1")
    days = json.loads(file.path.read_bytes())["spent"][PAYER.lower()]
    assert len(days) <= 36


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1, "spent": 5}', b"\xff"])
def test_where_nobody_knows_what_was_spent_nothing_is(file: SpendingFile, damage: bytes) -> None:
    add(file, signed(1))
    file.path.write_bytes(damage)
    with pytest.raises(CannotPay, match="damaged"):
        add(file, signed(2))
    assert file.path.read_bytes() == damage
    file.path.write_bytes(b'{"version": 2}')
    with pytest.raises(CannotPay, match="newer"):
        add(file, signed(2))


def test_a_file_that_others_can_read_is_refused(file: SpendingFile) -> None:
    add(file, signed(1))
    file.path.chmod(0o644)
    with pytest.raises(CannotPay, match="read or changed by others"):
        add(file, signed(2))


CHILD = """
import sys
from pathlib import Path
from server.payments.buyer.spending_policy import CannotPay
from server.payments.buyer.spending import SignedPayment, SpendingFile
file, name = SpendingFile(Path(sys.argv[1])), sys.argv[2]
sys.stdin.readline()
paid = 0
for number in range(20):
    one = SignedPayment(
        identifier=f"{name}-{number}", purpose=f"{name}-{number}", words="", payer="0xab", amount=1000,
        signed_at=0, valid_before=2**40, payment={},
    )
    try:
        file.add(one, 25_000, 0, lambda key, value: "")
    except CannotPay:
        continue
    paid += 1
print(paid)
"""


def test_two_processes_cannot_both_spend_the_last_dollar(tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "kept"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "other")
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    paid = [int(child.communicate(timeout=60)[0]) for child in children]
    assert sum(paid) == 25
    assert SpendingFile(tmp_path / "kept").spent("0xAB", 0) == 25_000
