"""The order of a task: the call, whose it is, and its limits, as plain values that are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from auth.values.identity_model import Principal, PrincipalKind
from server.mcp.call_outlet import Outlet
from server.mcp.task_faces import Ending

_HOUR_MS: Final = 3_600_000


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """A `Principal` as it is kept."""

    kind: str
    subject: str
    client_id: str | None = None
    grant_id: str | None = None
    scopes: frozenset[str] = frozenset()
    tools: str = ""
    user: str | None = None
    person: str = ""
    program: str = ""
    known_as: tuple[str, ...] = ()

    @classmethod
    def of(cls, principal: Principal) -> Who:
        return cls(
            kind=principal.kind.value,
            subject=principal.subject,
            client_id=principal.client_id,
            grant_id=principal.grant_id,
            scopes=principal.scopes,
            tools=principal.tools,
            user=principal.user,
            person=principal.person,
            program=principal.program,
            known_as=principal.known_as,
        )

    def principal(self) -> Principal:
        return Principal(
            kind=PrincipalKind(self.kind),
            subject=self.subject,
            client_id=self.client_id,
            grant_id=self.grant_id,
            scopes=self.scopes,
            tools=self.tools,
            user=self.user,
            person=self.person,
            program=self.program,
            known_as=self.known_as,
        )


class TaskOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call, which is kept, sealed, until its end, so that it can be run again after a restart."""

    server: str
    tool: str
    arguments: Mapping[str, Any]
    principal: Who
    call_id: str
    can: frozenset[str] = frozenset()
    answers: Mapping[str, Mapping[str, Any]] = {}  # to questions that were asked before it became a task
    resumed: Any = None  # the last checkpoint
    # Of one that costs something: what it was paid with, as it came, and the charge that was begun with it.
    payment: Any = None
    idempotency_key: str | None = None
    charge: str | None = None
    address: str = ""
    traceparent: str | None = None  # where the request that ordered it was traced
    apart: str = ""  # `Request.apart` of it; empty in one that an older version kept
    handshake: bool = False  # `Request.handshake` of it


Perform: TypeAlias = Callable[[TaskOrder, Outlet], Awaitable[Ending]]
LetGo: TypeAlias = Callable[[TaskOrder], Awaitable[None]]


async def nothing_to_let_go(order: TaskOrder) -> None:
    """Do nothing, as nothing is begun for an order before it is performed."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a task at a server. `known`: the caller can be told from others, so it may list what it has."""

    caller: str
    server: str
    known: bool


def owner_of(principal: Principal, server: str) -> Owner:
    """Return the owner as the rows of tasks have it, which may never change for a caller."""
    if not principal.identified:
        # Wherever they call from: what they know of a task is its id, and nothing else makes it theirs.
        return Owner(caller="anonymous", server=server, known=False)
    return Owner(caller=principal.key(), server=server, known=True)


class TaskTerms(msgspec.Struct, frozen=True, kw_only=True):
    ttl_ms: int = 24 * _HOUR_MS  # from its making until it is forgotten, unless the caller asks for another
    max_ttl_ms: int = 30 * 24 * _HOUR_MS
    poll_ms: int = 1000  # how often a client should look
    per_owner: int = 100  # at work at once; callers without a login may have half of `overall` together
    overall: int = 10_000
    kept_per_owner: int = 1000  # with those that have ended and are not forgotten yet
    kept_overall: int = 100_000
    # Of one person's, with arguments and results, when another one is begun; those without a login are one.
    kept_bytes: int = 256 * 1024 * 1024
    # Whoever runs a task says so every few seconds; silent for longer than this, it is taken for dead.
    lease_ms: int = 20_000
    renew_seconds: float = 5.0


# What one task may keep. Larger, and it is no longer a matter of keeping what was said, but of storing files.
MAX_RESULT_BYTES: Final = 8 * 1024 * 1024
MAX_CHECKPOINT_BYTES: Final = 1024 * 1024
MAX_ANSWERS_BYTES: Final = 8 * 1024 * 1024  # in one go
MAX_QUESTIONS: Final = 200  # in its whole life
MAX_KEY: Final = 128  # characters
