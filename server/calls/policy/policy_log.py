"""Where what was decided is counted, said and written down, for all servers of the process.

Of every decision there is a log event and a count. A row in the audit trail there is of those that matter to somebody later: what was
refused, and what a person said when they were asked. Whoever calls again and again must not fill the trail, so each minute has room for
so many rows, and each caller for a part of them; one row says how many more there were.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, TypeAlias

from auth.audit import audit_trail
from auth.values.identity_model import Principal, PrincipalKind
from auth.values.limits_and_lifetimes import MINUTE
from server.calls.policy.budgets import CallBudgets
from server.lib.log.logger import Logger
from server.store.jobs import Store, StoreDb, StoreError

ROWS_A_MINUTE: Final = 120
ROWS_OF_A_CALLER: Final = 20

What: TypeAlias = Literal[
    "denied",
    "accepted",
    "declined",
    "not_asked",
    "over_budget",
    "would_deny",
    "would_ask",
    "would_exceed",
    "hook_denied",
    "hook_changed",
    "hook_substituted",
    "hook_failed",
    "unconfirmed",
    "confirmed",
    "redacted",
]
_WELL: Final = frozenset({"accepted", "hook_changed", "hook_substituted", "confirmed", "redacted"})


class PolicyLog:
    """`store` keeps budgets and what was confirmed; `audits`: it has a trail as well."""

    def __init__(
        self,
        store: Store,
        *,
        key: bytes,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        log: Logger,
        audits: bool,
    ) -> None:
        self.store: Final = store
        self.key: Final = key
        self.clock: Final = clock
        self.entropy: Final = entropy
        self.log: Final = log
        self.budgets: Final = CallBudgets(store, clock=clock)
        self.counts: Final[dict[str, int]] = {}  # by what it was
        self._audits = audits
        self._minute: int = 0
        self._rows = 0
        self._rows_of: dict[str, int] = {}
        self._passed_over = 0

    def say(
        self, what: What, principal: Principal, *, server: str, tool: str, call_id: str, **more: object
    ) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        say = self.log.warning if what == "hook_failed" else self.log.info
        say(
            f"policy.{what}",
            server=server,
            tool=tool,
            principal=principal.kind._value_,
            client=principal.client_id,
            grant=principal.grant_id,
            request=call_id,
            **more,
        )

    async def write_down(
        self, what: What, principal: Principal, *, server: str, tool: str, rule: str
    ) -> None:
        """A row in the trail, if there is room for it. That it cannot be written changes nothing of what was decided."""
        if not self._audits:
            return
        now = self.clock()
        more = self._turn_minute(now)
        caller = principal.key()
        if self._rows >= ROWS_A_MINUTE or self._rows_of.get(caller, 0) >= ROWS_OF_A_CALLER:
            self._passed_over += 1
            return
        self._rows += 1
        self._rows_of[caller] = self._rows_of.get(caller, 0) + 1
        job = partial(
            _write,
            at=now,
            event=f"policy.{what}",
            principal=principal,
            well=what in _WELL,
            reason=f"{server}: {tool}" + (f" ({rule})" if rule else ""),
            more=more,
        )
        try:
            await self.store.write(job)
        except StoreError as problem:
            self._passed_over += 1 + more
            self.log.warning("policy.not_written_down", tool=tool, reason=str(problem))

    def _turn_minute(self, now: int) -> int:
        """How many found no room in the minutes before, if this is another."""
        minute: int = now // MINUTE
        if minute == self._minute:
            return 0
        self._minute, self._rows = minute, 0
        self._rows_of.clear()
        more, self._passed_over = self._passed_over, 0
        return more


def _write(
    db: StoreDb, *, at: int, event: str, principal: Principal, well: bool, reason: str, more: int
) -> None:
    if more:
        said = f"and {more} more that found no room within their minute"
        audit_trail.record(db, at=at, event="policy.more", actor="anonymous", reason=said)
    audit_trail.record(
        db,
        at=at,
        event=event,
        actor=_actor(principal),
        outcome="ok" if well else "refused",
        reason=reason,
        client_id=principal.client_id,
        grant_id=principal.grant_id,
    )


def _actor(principal: Principal) -> str:
    if principal.kind is PrincipalKind.ANONYMOUS:
        return "anonymous"
    if principal.kind is PrincipalKind.USER:
        return audit_trail.actor(principal.subject)
    return f"{principal.kind.value}:{principal.subject.removeprefix(f'{principal.kind.value}:')}"
