"""Tasks outlive the request that was let in, so whoever made one may be shut out while it runs.

Here: which work is to be looked at again, once the store says that something about a login, user or client has changed. Who
may go on is auth/tokens/access_token_verifier.py's to say; stopping the work is task_engine.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import trio

from auth.values.identity_model import Principal
from server.calls.tasks.task_order import Who

T = TypeVar("T")

# The principal as it may act now; None: it may not any more. Raises what the store raises.
Allowed: TypeAlias = Callable[[Principal], Awaitable[Principal | None]]

REVOKED: Final = "the login that it was made with was ended"


class LoginChange(Protocol):
    """What the store reports after a commit."""

    @property
    def kind(self) -> str: ...

    @property
    def entity_id(self) -> str: ...


async def everybody(principal: Principal) -> Principal | None:
    """Where there are no logins, nobody's is ended."""
    return principal


def touches(changes: Iterable[LoginChange]) -> Callable[[Who], bool]:
    """Whether somebody's rights may hang on these."""
    changed = {(change.kind, change.entity_id) for change in changes}

    def touched(who: Who) -> bool:
        return not changed.isdisjoint(
            (
                ("grant", who.grant_id),
                ("api_key", who.grant_id),
                ("user", who.user or who.subject),
                ("client", who.client_id),
            )
        )

    return touched


class Doubts(Generic[T]):
    """What is to be looked at again, each once. Its length is bounded by what there is to doubt."""

    def __init__(self) -> None:
        self._waiting: dict[T, None] = {}
        self._came = trio.Event()

    def add(self, doubted: T) -> None:
        self._waiting[doubted] = None
        self._came.set()

    async def next(self) -> T:
        """For one reader."""
        while not self._waiting:
            self._came = trio.Event()
            await self._came.wait()
        doubted = next(iter(self._waiting))
        del self._waiting[doubted]
        return doubted
