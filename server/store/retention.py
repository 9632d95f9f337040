"""How long rows stay after their end, and how each table's are found that are over. Values; who deletes them is maintenance.py.

Nothing here decides anything: a row that has expired is refused long before it is swept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

# Rows per write: about a millisecond of the writer's time, so that a login never waits for the broom.
PIECE: Final = 200

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long rows stay after their end, in milliseconds. `docs/storage.md` tells the same numbers."""

    device_codes: int = HOUR  # a late poll is told "expired" or "used", not "unknown"
    attempts: int = 2 * HOUR  # the longest throttling window, and room for a clock set back
    browser_sessions: int = 0
    browser_sessions_unused: int = 12 * HOUR  # when a session that nobody uses ends
    one_time_links: int = DAY  # one that is tried again is told "used"
    authorization_codes: int = HOUR  # a replayed code still ends the login that it made
    pushed_requests: int = 0
    sign_ins: int = 0  # challenges of passkeys, and sign-ins under way at a provider
    client_assertions: int = 60_000  # a clock set back by less brings none back
    consents: int = 0
    clients_unused: int = 7 * DAY  # of those that registered themselves: never let in (RegistrationPolicy)
    clients_idle: int = 90 * DAY  # let in, and not used since
    client_documents: int = 7 * DAY
    # Without their secret part. Receipts that they signed are checked for as long as receipts are kept.
    signing_keys: int = 3_650 * DAY
    refresh_keys: int = 90 * DAY  # the same; `ostiary keys list` still shows them
    grants: int = 90 * DAY  # the owner still sees who was logged in; a late reuse is still recognised
    api_keys: int = 90 * DAY  # one that is still used is refused by its name
    ended_sessions: int = 0
    shared_sessions: int = 0
    letters: int = HOUR  # each node deletes its own; these are of nodes that are gone
    silent_nodes: int = DAY  # a node that died in the night is named in the morning
    tasks: int = 0  # how long is the task's own affair: its time to live
    charges: int = 0  # how long the same call leads to its charge is said by the charge, and by the payment how long it may be tried
    kept_calls: int = 0  # the same of those that cost nothing
    conversations: int = 0  # idle for longer than the agent's settings say
    payments: int = 0
    meters: int = 0
    vouchers: int = 90 * DAY  # the owner still sees who used them; one that is tried again is told "expired"
    calls: int = 30 * DAY  # `call_days`
    call_hours: int = 400 * DAY  # as long as the trail
    tool_uses: int = 400 * DAY  # the same
    changes: int = DAY  # a process that slept longer drops all it caches
    audit: int = 400 * DAY  # a year and a month: who was let in, and by whom, can still be looked up
    # Of nobody in particular: anybody on the network can cause as many as the limits allow.
    audit_refusals: int = 30 * DAY

    interval_seconds: float = 3600


_Kept = Callable[[Retention], int]


class SweptTable(msgspec.Struct, frozen=True):
    """One table: its key, and the times of which any one, long enough ago, ends a row."""

    table: str
    key: tuple[str, ...]
    ends: tuple[tuple[str, _Kept], ...]
    piece: int = PIECE  # rows per write
    unless: str = ""  # what keeps a row whatever its age
    # Of an end that has no index, because it is written too often: a time that is never later and has one; and what else that index says.
    by: Mapping[str, tuple[str, str]] = {}
    in_order: bool = False  # rows end in the order of their key: the first ones alone are looked at

    def deleted(self, count: int) -> str:
        """Those of so many keys that are over: of one, or of several where a key is one column."""
        if len(self.key) == 1:
            matches = f"{self.key[0]} IN ({', '.join('?' * count)})"
        else:
            matches = " AND ".join(f"{column} = ?" for column in self.key)
        # By the key, whatever an engine believes of how few rows are over: a time that is added to is in no index.
        over = " OR ".join(f"{column} + 0 <= ?" for column, _ in self.ends)
        unless = f" AND NOT ({self.unless})" if self.unless else ""
        return f"DELETE FROM {self.table} WHERE {matches} AND ({over}){unless}"

    def looked_for(self, end: int, *, further: bool) -> str:
        """By the index of this end, from its earliest row on; `further`: from a place in it."""
        column, _ = self.ends[end]
        by, also = self.by.get(column, (column, ""))
        tests = [f"{column} <= ?", *([f"{by} <= ?"] if by != column else []), *filter(None, (also,))]
        if self.unless:
            tests.append(f"NOT ({self.unless})")
        if further:
            tests.append(f"{by} >= ?")
        return (
            f"SELECT {', '.join(self.key)}, {by} AS place FROM {self.table} WHERE {' AND '.join(tests)}"
            f" ORDER BY {by} LIMIT ?"
        )

    def looked_for_first(self, *, further: bool) -> str:
        ((column, _),), (key,) = self.ends, self.key
        since = f" WHERE {key} >= ?" if further else ""
        return (
            f"SELECT {key}, {key} AS place, {column} AS ended FROM {self.table}{since} ORDER BY {key} LIMIT ?"
        )

    def limits(self, retention: Retention, now: int) -> tuple[int, ...]:
        return tuple(now - kept(retention) for _, kept in self.ends)


SWEPT: Final = (
    SweptTable("device_codes", ("id",), (("expires_at", lambda keep: keep.device_codes),)),
    SweptTable("attempts", ("bucket", "at", "sequence"), (("at", lambda keep: keep.attempts),)),
    SweptTable(
        "browser_sessions",
        ("id_hash",),
        (
            ("expires_at", lambda keep: keep.browser_sessions),
            ("last_used_at", lambda keep: keep.browser_sessions_unused),
        ),
        by={"last_used_at": ("created_at", "")},
    ),
    SweptTable("one_time_links", ("token_hash",), (("expires_at", lambda keep: keep.one_time_links),)),
    SweptTable("authorization_codes", ("id",), (("expires_at", lambda keep: keep.authorization_codes),)),
    SweptTable("pushed_requests", ("uri_hash",), (("expires_at", lambda keep: keep.pushed_requests),)),
    SweptTable("passkey_challenges", ("challenge_hash",), (("expires_at", lambda keep: keep.sign_ins),)),
    SweptTable("upstream_logins", ("state_hash",), (("expires_at", lambda keep: keep.sign_ins),)),
    SweptTable("upstream_trips", ("state_hash",), (("expires_at", lambda keep: keep.sign_ins),)),
    SweptTable(
        "client_assertions", ("client_id", "jti_hash"), (("expires_at", lambda keep: keep.client_assertions),)
    ),
    SweptTable(
        "consents",
        ("user_id", "client_id", "redirect_host", "server"),
        (("expires_at", lambda keep: keep.consents),),
    ),
    SweptTable("client_documents", ("url",), (("stale_until", lambda keep: keep.client_documents),)),
    SweptTable("signing_keys", ("kid",), (("retires_at", lambda keep: keep.signing_keys),)),
    SweptTable("refresh_keys", ("version",), (("accepted_until", lambda keep: keep.refresh_keys),)),
    SweptTable(
        "grants",
        ("id",),
        (
            ("expires_at", lambda keep: keep.grants),
            ("idle_until", lambda keep: keep.grants),
            ("revoked_at", lambda keep: keep.grants),
        ),
        by={"idle_until": ("created_at", "revoked_at IS NULL")},
    ),
    SweptTable(
        "api_keys",
        ("id",),
        (("expires_at", lambda keep: keep.api_keys), ("revoked_at", lambda keep: keep.api_keys)),
    ),
    SweptTable("ended_sessions", ("id_hash",), (("expires_at", lambda keep: keep.ended_sessions),)),
    SweptTable("shared_sessions", ("id_hash",), (("expires_at", lambda keep: keep.shared_sessions),)),
    SweptTable("letters", ("seq",), (("at", lambda keep: keep.letters),)),
    SweptTable("silent_nodes", ("boot_id",), (("heard_at", lambda keep: keep.silent_nodes),)),
    # With its parts, a task may be megabytes.
    SweptTable("tasks", ("id_hash",), (("expires_at", lambda keep: keep.tasks),), piece=10),
    # What they were paid for stays in the ledger. An answer that is kept may be large.
    SweptTable(
        "charges",
        ("id",),
        (("expires_at", lambda keep: keep.charges),),
        piece=20,
        unless="owner IS NOT NULL OR state IN ('running', 'settling')",
    ),
    SweptTable("kept_calls", ("id",), (("expires_at", lambda keep: keep.kept_calls),), piece=20),
    SweptTable("conversations", ("id_hash",), (("expires_at", lambda keep: keep.conversations),), piece=20),
    # Of one whose end is not known the money may have moved, and of a settled one it has: that stays with its movement.
    SweptTable(
        "payments",
        ("id",),
        (("expires_at", lambda keep: keep.payments),),
        unless="owner IS NOT NULL OR state IN ('settling', 'unknown', 'settled')",
    ),
    SweptTable("meters", ("subject", "period"), (("expires_at", lambda keep: keep.meters),)),
    # Found by their age, and the newest stays, so that no number is given twice.
    SweptTable(
        "calls",
        ("seq",),
        (("at", lambda keep: keep.calls),),
        piece=1_000,
        unless="seq = (SELECT max(seq) FROM calls)",
    ),
    SweptTable(
        "call_hours",
        ("hour", "server", "tool", "caller", "outcome"),
        (("hour", lambda keep: keep.call_hours),),
    ),
    SweptTable("tool_uses", ("server", "tool"), (("called_at", lambda keep: keep.tool_uses),)),
    SweptTable("vouchers", ("code_hash",), (("expires_at", lambda keep: keep.vouchers),)),
    SweptTable("changes", ("seq",), (("at", lambda keep: keep.changes),), in_order=True),
)
