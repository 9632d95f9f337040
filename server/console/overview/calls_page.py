"""One page of calls, as values: which are wanted, and the next ones that are like that. A page that finds few goes on looking for a while, one
stretch of rows after the other, and says where it stopped.

Rows are numbered through the whole server, so that two numbers would tell how many calls there were between them, of everybody. Where a page
stopped is for whoever reads it to bring back, and for this server alone to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from auth.context.identity_parts import Parts
from auth.keys import sealed_secrets
from auth.values.database import Db, JobStore, Row
from server.store.call_records import call_rows
from server.store.call_records.call_rows import CallFilter

ROWS: Final = 50
# So many stretches are looked at for one page.
STRETCHES: Final = 5
PLACE_PURPOSE: Final = "call-places"
TYPED: Final = 200  # characters of one field: nothing is called by a longer name
# What came of calls, as people choose it: the word in the records, and ours.
OUTCOMES: Final[Mapping[str, str]] = {
    "ok": "answered",
    "error": "the tool said that it failed",
    "failed": "the agent could not answer",
    "timeout": "took too long",
    "crashed": "an error of our own",
    "invalid": "wrong arguments",
    "refused": "not allowed",
    "cancelled": "given up by the caller",
    "asked": "asked something first",
    "replayed": "answered again",
    "unpaid": "not paid for",
    "denied": "a rule or somebody said no",
    "unconfirmed": "has to be confirmed first",
}


class FoundCalls(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[Row, ...]
    go_on: int | None


class WantedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """As they stand in the address of the page."""

    person: str = ""
    program: str = ""
    server: str = ""
    tool: str = ""
    outcome: str = ""  # one of `OUTCOMES`, or "failures" for all that are failures
    at: str = ""  # as `CallPlaces` writes it

    @classmethod
    def of(cls, query: Mapping[str, str]) -> WantedCalls:
        """What is not understood is not asked for."""

        def text(name: str) -> str:
            return query.get(name, "").strip()[:TYPED]

        outcome = text("outcome")
        return cls(
            person=text("person"),
            program=text("program"),
            server=text("server"),
            tool=text("tool"),
            outcome=outcome if outcome in OUTCOMES or outcome == "failures" else "",
            at=text("at"),
        )

    def filter(self, whose: str | None) -> CallFilter:
        return CallFilter(
            # Of one's own calls there is nobody else's to choose.
            person=None if whose is not None else self.person or None,
            program=self.program or None,
            server=self.server or None,
            tool=self.tool or None,
            outcome=self.outcome if self.outcome in OUTCOMES else None,
            failed=self.outcome == "failures",
            whose=whose,
        )


class CallPlaces:
    """Where one person's page stopped, sealed for them."""

    def __init__(self, parts: Parts, user_id: str) -> None:
        self._key = parts.subkey(PLACE_PURPOSE)
        self._entropy = parts.entropy
        self._user_id = user_id

    def write(self, at: int) -> str:
        nonce = self._entropy(sealed_secrets.NONCE_BYTES)
        return sealed_secrets.seal(self._key, at.to_bytes(8), nonce=nonce, bound_to=self._user_id)

    def read(self, written: str) -> int | None:
        """None, which is the beginning, for whatever is no place of theirs."""
        try:
            return int.from_bytes(
                sealed_secrets.unseal(self._key, written, bound_to=self._user_id, what="a place")
            )
        except (ValueError, sealed_secrets.CannotUnseal):
            return None


async def find(
    store: JobStore, wanted: CallFilter, *, at: int | None = None, at_most: int = ROWS
) -> FoundCalls:
    """The newest first. Raises what the store raises."""
    rows: list[Row] = []
    for _ in range(STRETCHES):
        page = await store.read(partial(_page, wanted=wanted, at=at, at_most=at_most - len(rows)))
        rows += page.rows
        at = page.go_on
        if at is None or len(rows) >= at_most:
            break
    return FoundCalls(rows=tuple(rows), go_on=at)


def _page(db: Db, *, wanted: CallFilter, at: int | None, at_most: int) -> call_rows.CallPage:
    return call_rows.page(db, wanted, oldest_first=False, at=at, at_most=at_most)
