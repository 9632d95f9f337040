"""`ostiary certificate`, and what `status` and `doctor` say of it: with a certificate from files, with none, and in every state that one from
an authority can be in. Against a real authority it is in tests/e2e/test_certificates_issued.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from server.cli import local, terminal
from server.cli.doctor import doctor_address
from server.cli.manage import certificate, status

NOW = 1_800_000_000
DAY = 86_400_000
SERVING = {
    "names": ["agent.example.org"],
    "issuer": "Fake Authority",
    "serial": "1f",
    "fingerprint": "ab" * 32,
    "not_before": NOW * 1000 - 30 * DAY,
    "not_after": NOW * 1000 + 60 * DAY,
}
ISSUED: dict[str, Any] = {
    "kind": "acme",
    "names": ["agent.example.org"],
    "authority": "https://ca.test/directory",
    "doing": "waiting",
    "attempts": 1,
    "renews_at": NOW * 1000 + 25 * DAY,
    "ahead_seconds": 0,
    "revoking": "",
    "serving": SERVING,
    "trouble": None,
}
TROUBLE: dict[str, Any] = {
    "kind": "connection",
    "words": "the certificate authority cannot reach agent.example.org on port 443",
    "hint": "look at the firewall",
    "since": NOW * 1000 - 3_600_000,
    "again_at": NOW * 1000 + 300_000,
    "attempts": 3,
}
FILES: dict[str, Any] = {"kind": "files", "serving": SERVING, "problem": ""}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What was asked of the server; what it answers is put in `answers`."""
    seen: list[tuple[str, Any]] = []

    def ask(name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Any:
        seen.append((name, dict(arguments or {})))
        found = ANSWERS[name]
        return (
            found.pop(0)
            if isinstance(found, list) and len(found) > 1
            else found[0]
            if isinstance(found, list)
            else found
        )

    monkeypatch.setattr(local, "ask", ask)
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    ANSWERS.clear()
    return seen


ANSWERS: dict[str, Any] = {}


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(certificate.command, list(arguments), standalone_mode=False)
    if isinstance(done.exception, terminal.CliError):
        assert code == terminal.EXIT_FAILED
        return f"{done.output}{done.exception}\n{done.exception.hint}"
    assert done.exception is None, done.exception
    assert (done.return_value or 0) == code
    return done.output


def test_one_that_is_well_is_shown_with_its_end_and_its_renewal(asked: list[Any]) -> None:
    ANSWERS["certificate"] = ISSUED
    said = run("status")
    assert "good for 60 days" in said
    assert "Fake Authority" in said and "by itself" in said
    ((name, pairs),) = [("certificate", status._certificate(ISSUED))]  # pyright: ignore[reportPrivateUsage]
    assert name == "certificate" and len(pairs) == 1
    step = doctor_address.served_certificate_step(ISSUED)
    assert step.state == "ok" and "renewed by itself in 25 days" in step.detail


def test_a_trouble_is_everywhere_with_what_to_do(asked: list[Any]) -> None:
    troubled = ISSUED | {"trouble": TROUBLE}
    ANSWERS["certificate"] = troubled
    said = run("status")
    assert TROUBLE["words"] in said and "for 1 hour" in said
    assert "look at the firewall" in said
    assert any(str(TROUBLE["words"]) in value for _, value in status._certificate(troubled))  # pyright: ignore[reportPrivateUsage]
    step = doctor_address.served_certificate_step(troubled)
    assert (step.state, step.hint) == ("failed", "look at the firewall")
    assert "good for 60 days" in step.detail


def test_where_there_is_none_yet_the_command_fails(asked: list[Any]) -> None:
    ANSWERS["certificate"] = ISSUED | {"serving": None, "renews_at": None, "doing": "getting"}
    assert "none yet for agent.example.org (being got now)" in run("status", code=1)
    assert doctor_address.served_certificate_step(ANSWERS["certificate"]).state == "skipped"


def test_a_server_without_tls_has_none_and_that_is_no_fault(asked: list[Any]) -> None:
    ANSWERS["certificate"] = None
    assert "does not end TLS itself" in run("status")
    assert status._certificate(None) == []  # pyright: ignore[reportPrivateUsage]


def test_files_that_are_not_taken_and_one_that_ends_are_faults(asked: list[Any]) -> None:
    bad = FILES | {"problem": "cert.pem and key.pem are not a certificate and its key"}
    ANSWERS["certificate"] = bad
    assert "served before still is" in run("status")
    assert doctor_address.served_certificate_step(bad).state == "failed"
    ending = FILES | {"serving": SERVING | {"not_after": NOW * 1000 + DAY}}
    step = doctor_address.served_certificate_step(ending)
    assert step.state == "failed" and "whatever wrote tls_certificate" in (step.hint or "")
    over = FILES | {"serving": SERVING | {"not_after": NOW * 1000 - DAY}}
    assert "over for" in doctor_address.served_certificate_step(over).detail


@pytest.mark.parametrize(("ahead", "word"), [(86_400, "behind"), (-86_400, "ahead of")])
def test_a_wrong_clock_is_a_fault(asked: list[Any], ahead: int, word: str) -> None:
    wrong = ISSUED | {"ahead_seconds": ahead}
    ANSWERS["certificate"] = wrong
    assert f"24 hours {word}" in run("status") or f"1 day {word}" in run("status")
    assert doctor_address.served_certificate_step(wrong).state == "failed"


def test_renew_waits_for_the_outcome_and_tells_of_it(asked: list[Any]) -> None:
    ANSWERS["certificate.renew"] = {"attempt": 2}
    ANSWERS["certificate"] = [ISSUED, ISSUED, ISSUED | {"attempts": 2}]
    assert "good for 60 days" in run("renew")
    assert [name for name, _ in asked] == ["certificate.renew", *["certificate"] * 3]
    ANSWERS["certificate"] = [ISSUED | {"attempts": 2, "trouble": TROUBLE}]
    said = run("renew", code=1)
    assert str(TROUBLE["words"]) in said and "look at the firewall" in said
    ANSWERS["certificate"] = [ISSUED]
    assert "begun" in run("renew", "--no-wait")


def test_revoke_says_what_it_does_and_asks_back(asked: list[Any]) -> None:
    ANSWERS["certificate.revoke"] = {"attempt": 2}
    ANSWERS["certificate"] = [ISSUED | {"attempts": 2}]
    run("revoke", "--reason", "key-compromise", "--at-once", "--yes")
    assert asked[0] == ("certificate.revoke", {"reason": "key-compromise", "at_once": True})
    ANSWERS["certificate"] = [ISSUED | {"attempts": 2, "revoking": "ab"}]
    assert "could not be revoked yet" in run("revoke", "--yes", code=1)
