"""A log event per decision (server/run/logged_decisions.py): at which level, and with what."""

from __future__ import annotations

import io
import json

import pytest

from auth.values.database import AuditEntry
from server.lib.log.structured_log import make_logger
from server.run.logged_decisions import level_of, log_decisions


def entry(event: str, *, outcome: str = "ok", actor: str = "user:u") -> AuditEntry:
    return AuditEntry(7, event, actor, "cli", None, "203.0.113.7", "", outcome, "why")


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (entry("device.approved"), "info"),
        (entry("client.refused", outcome="refused"), "info"),
        (entry("refresh.rotated"), "debug"),
        (entry("refresh.rotated", outcome="refused"), "info"),
        (entry("refresh.reuse", outcome="refused"), "warning"),
        (entry("user.locked"), "warning"),
        (entry("key.dropped"), "warning"),
        (entry("store.restored"), "warning"),
        (entry("key.added", actor="local:setup"), "debug"),
        (entry("audit.head_lost", actor="local:start"), "warning"),
        (entry("audit.altered", actor="local:store", outcome="refused"), "error"),
        (entry("ledger.head_lost", actor="local:start"), "warning"),
        (entry("ledger.altered", actor="local:store", outcome="refused"), "error"),
    ],
)
def test_what_should_wake_somebody_is_a_warning_and_routine_is_not_shown(
    event: AuditEntry, level: str
) -> None:
    assert level_of(event) == level


def test_an_event_says_who_from_where_and_why_and_leaves_out_what_is_empty() -> None:
    out = io.StringIO()
    listen = log_decisions(make_logger(level="info", style="json", stream=out))
    listen([entry("device.denied", outcome="refused"), entry("refresh.rotated")])
    (line,) = out.getvalue().splitlines()
    said = json.loads(line)
    assert said.pop("at")
    assert said == {
        "event": "identity.device.denied",
        "level": "info",
        "outcome": "refused",
        "actor": "user:u",
        "client": "cli",
        "ip": "203.0.113.7",
        "reason": "why",
    }
