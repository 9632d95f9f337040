"""How fast strangers can make the database grow: computed from the policy, and what docs/security.md says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from auth.authorization import authorization_request as authorize
from auth.clients import registration_request
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import DAY, MINUTE, REFUSALS_PER_MINUTE, Policy
from server.run import pinned_fetcher
from server.store import client_sweep
from server.store.retention import Retention
from tests.auth.identity_fakes import open_identity, post
from tests.auth.registration_fakes import SEEN, ask, sent

POLICY, KEPT = Policy(), Retention()
PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
FAR = "2001:db8:1111:2222:3333:4444:5555:6666"
DOCUMENT = Path(__file__).parent.parent.parent.parent / "docs" / "security.md"

# At most, with what the row's indexes take; the tests below make such rows.
AUDIT_ROW_BYTES = 1_024
SMALL_ROW_BYTES = 512  # of attempts: a bucket and a time
DEVICE_ROW_BYTES = 3 * 1_024


def audit_rows_a_day() -> int:
    """Refusals, and each thing that strangers may do that leaves a row though nobody let them in."""
    device, registration, limits = POLICY.device, POLICY.registration, POLICY.limits
    per_day = {
        "refused, and one a minute for all the others": (REFUSALS_PER_MINUTE + 1, MINUTE),
        "registered": (registration.everybody, registration.per_network_ms),
        "asked for a code": (device.live_codes, device.lifetime_ms),
        "pushed": (limits.pushed, POLICY.tokens.pushed_ms),
        "named a document": (registration.fetches, registration.fetches_per_network_ms),
    }
    return sum(number * DAY // window for number, window in per_day.values())


def bytes_at_rest() -> int:
    """Of rows that go again by themselves."""
    device, registration, limits = POLICY.device, POLICY.registration, POLICY.limits
    # A body is stored once, as columns and as what is echoed; what one has, the other has not.
    programs = registration.unused * 2 * registration_request.BYTES
    documents = client_sweep.KEPT * 4 * pinned_fetcher.DOCUMENT_BYTES
    pushed = limits.pushed * 2 * authorize.CHARACTERS
    lifetimes = 1 + -(-KEPT.device_codes // device.lifetime_ms)
    codes = device.live_codes * lifetimes * DEVICE_ROW_BYTES
    tries = (
        3 * limits.guesses_per_minute * KEPT.attempts // MINUTE
        + 3 * registration.everybody * KEPT.attempts // registration.per_network_ms
        + device.live_codes * KEPT.attempts // device.lifetime_ms
        + 2
        * limits.pushed
        * KEPT.attempts
        // POLICY.tokens.pushed_ms  # of an address, and of those around it
    )
    return programs + documents + pushed + codes + tries * SMALL_ROW_BYTES


def test_the_growth_that_strangers_can_cause_is_what_the_document_says() -> None:
    text = " ".join(DOCUMENT.read_text("utf-8").split())
    found = re.search(
        r"is ([0-9,]+) rows in the audit trail, or ([0-9.]+) GB; what else they leave at rest is at most ([0-9.]+) GB",
        text,
    )
    assert found is not None
    rows, gigabytes, rest = int(found[1].replace(",", "")), float(found[2]), float(found[3])
    assert rows == audit_rows_a_day()
    assert gigabytes - 0.1 < rows * AUDIT_ROW_BYTES / 1e9 <= gigabytes
    assert rest - 0.1 < bytes_at_rest() / 1e9 <= rest
    for number, what in (
        (POLICY.registration.unused, "programs that nobody ever let in"),
        (client_sweep.KEPT, "documents of programs"),
        (POLICY.limits.pushed, "pushed requests"),
    ):
        assert f"{number} {what}" in text


def size(row: dict[str, Any]) -> int:
    """As SQLite stores it, and each text a second time for an index that may hold it."""
    return sum(len(str(value).encode()) for value in row.values() if value is not None)


async def test_no_row_of_a_stranger_is_larger_than_was_reckoned_with() -> None:
    async with open_identity(site=PUBLIC) as identity:
        loud = {"user-agent": "\u00ff" * 5_000}

        async def talk(request: Any) -> Any:
            request.headers.update(loud)
            return await sent(identity, request)

        large = {
            **SEEN["Codex"],
            "client_name": "n" * 5_000,
            "redirect_uris": ["http://127.0.0.1/" + "r" * 1_000] * 9,
        }
        assert (await talk(ask("/register", large, ip=FAR))).status == 201
        await talk(post("/token", client_id="c" * 2_048, grant_type="x" * 2_000, ip=FAR))
        await talk(
            post(
                "/token",
                client_id="ostiary-cli",
                grant_type="refresh_token",
                refresh_token="r" * 2_000,
                ip=FAR,
            )
        )
        asked = post(
            "/device_authorization",
            client_id="ostiary-cli",
            client_name="\u00ff" * 100,
            hostname="\u00ff" * 100,
            ip=FAR,
        )
        assert (await talk(asked)).status == 200

        def rows(db: Any) -> dict[str, list[dict[str, Any]]]:
            tables = ("audit", "device_codes", "attempts", "clients")
            return {name: [dict(row) for row in db.fetch_all(f"SELECT * FROM {name}")] for name in tables}

        found = await identity.parts.store.read(rows)
        assert len(found["audit"]) >= 4
        assert max(map(size, found["audit"])) < AUDIT_ROW_BYTES
        assert max(map(size, found["device_codes"])) < DEVICE_ROW_BYTES
        assert max(map(size, found["attempts"])) < SMALL_ROW_BYTES // 2
        assert max(map(size, found["clients"])) < 2 * registration_request.BYTES
