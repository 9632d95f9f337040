"""Calls to write down."""

from __future__ import annotations

from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.store.call_records.call_record import CallRecord

NOW = 1_800_000_000_000 // 3_600_000 * 3_600_000  # on the hour
HOUR = 3_600_000
ADA = Principal(
    kind=PrincipalKind.USER,
    subject="user-1",
    client_id="client-1",
    grant_id="grant-1",
    person="Ada",
    program="Editor",
)
KEY = Principal(
    kind=PrincipalKind.API_KEY,
    subject="key-1",
    grant_id="key-1",
    user="user-1",
    person="Ada",
    program="nightly",
)


def call(
    *,
    at: int = NOW,
    server: str = "main",
    tool: str = "echo",
    outcome: str = "ok",
    reason: str = "",
    seconds: float = 0.004,
    who: Principal = ANONYMOUS,
    answered: int = 20,
) -> CallRecord:
    return CallRecord(
        at, server, tool, outcome, reason, seconds, who, "request-1", "2026-07-28", False, None, 10, answered
    )
