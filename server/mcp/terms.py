"""The terms of a call to a tool, resource or prompt: required scopes, deadline, tier, repeated calls."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

Tier: TypeAlias = Literal["read", "write", "financial"]

# Where the author of a tool says what it costs, and where callers read it.
PRICE_META: Final = "io.ostiary/price"
# Where the signed receipt of a call stands in its result's `_meta`.
SIGNED_RECEIPT: Final = "io.ostiary/receipt"

# A call that takes longer is not answered interactively by any client we know.
DEADLINE_SECONDS: Final = 300.0


class CallTerms(msgspec.Struct, frozen=True, kw_only=True):
    scopes: frozenset[str] = frozenset()  # all of these
    deadline_seconds: float = DEADLINE_SECONDS
    # The call returns without ever waiting and emits no events. So there is nothing that a deadline could end, and nobody
    # has to watch whether its caller is still there: these cost more than such a call does. Only for code of our own.
    quick: bool = False
    tier: Tier = "write"  # of a tool: how much it can do
    # Of a tool that costs nothing: a call that was answered stands for the same call for so long.
    dedupe_seconds: int = 0
    idempotent: bool = False  # and making the same call twice comes to the same
    coerces: bool = False  # of a tool: an argument that says what is wanted as a text is taken for it
    unchecked: bool = (
        False  # of a tool: its agent checks the arguments itself, and nothing here depends on them
    )


DEFAULT_TERMS: Final = CallTerms()


class BadTerms(ValueError):
    """An error in the terms that an author gave for a tool; the message is the reason."""
