"""The configured servers with their agents running, and what a request is lent of them, on any wire.

Identity, pages and metrics, which only HTTP needs, are services.py's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Final

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from auth.model import Millis
from server.agents import Subkey
from server.backends.base import BackendError
from server.backends.catalog import CatalogError
from server.calls import Measure
from server.exchange import Lent
from server.library import Me
from server.mcp.cursors import Cursors
from server.mcp.rounds import Rounds
from server.offering import Offering, open_offering
from server.settings.shapes import ServerConfig
from server.store.jobs import Store
from server.store.keyfile import MasterKey
from server.tasks.desk import Tasking
from server.tasks.engine import Tasks
from server.tasks.logins import Allowed, everybody
from server.tasks.work import perform

# Subkeys carry an id, so that one purpose can be given a new key one day while the old one still reads.
SUBKEY_ID: Final = 1

# Agents that have one thing in common usually have many: the first few are enough to see what it is.
MOST_DETAILS: Final = 5
HINT: Final = "see [[server.agent]] in the settings"

_HOUR_MILLIS: Final = 3_600_000


class CannotStart(Exception):
    """Something on this machine prevents the start; the text says what, the hint what to do. Where the text only says how
    many things do, they are the details, one line each."""

    def __init__(self, problem: str, hint: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.hint = hint
        self.details = tuple(details)


def now_millis() -> Millis:
    return time.time_ns() // 1_000_000


def subkeys(key: MasterKey) -> Subkey:
    @cache
    def subkey(purpose: str) -> bytes:
        return key.subkey(f"{purpose}/{SUBKEY_ID}")

    return subkey


class Lender(msgspec.Struct, frozen=True, kw_only=True):
    offerings: Mapping[str, Offering]
    tasks: Tasks
    subkey: Subkey
    log: FilteringBoundLogger
    boot_id: str

    def lend(self, name: str, *, sessions: bool) -> Lent:
        """What requests of this server are lent. `sessions`: this wire keeps them."""
        offering = self.offerings[name]
        compat = offering.settings.compat
        return Lent(
            name=name,
            server=offering.server,
            calls=offering.calls,
            library=offering.library,
            subscriptions=offering.subscriptions,
            sessions=offering.sessions if sessions else None,
            tasking=Tasking(
                name=name,
                tasks=self.tasks,
                calls=offering.calls,
                wasmagent=compat.tasks == "wasmagent",
                sync_timeout_seconds=compat.sync_timeout_seconds,
                ttl_ms=int(offering.settings.task_hours * _HOUR_MILLIS),
            ),
            rounds=Rounds(self.subkey("rounds"), clock=now_millis, entropy=secrets.token_bytes),
            cursors=Cursors(self.subkey("cursors"), name),
            page_size=offering.settings.page_size,
            log=self.log,
        )


async def open_lender(
    servers: Iterable[ServerConfig],
    store: Store,
    subkey: Subkey,
    *,
    log: FilteringBoundLogger,
    measure: Callable[[str], Measure],
    background: trio.Nursery,
    allowed: Allowed = everybody,
    me: Callable[[ServerConfig], Me | None] = lambda _: None,
) -> Lender:
    """Agents with work of their own do it in `background`, for as long as the server runs. `tasks` is not run here.
    `measure` is for the server of that name; `allowed` says whose tasks may go on; `me` tells callers of themselves, at that
    server. Raises `CannotStart`."""
    offerings: dict[str, Offering] = {}
    try:
        for server in servers:
            offerings[server.name] = await open_offering(
                server,
                subkey,
                log=log,
                measure=measure(server.name),
                nursery=background,
                me=me(server),
            )
    except CatalogError as error:
        raise _cannot_offer(error.problems) from error
    except (ValueError, BackendError) as error:
        raise CannotStart(str(error), HINT) from error
    boot_id = secrets.token_hex(8)
    return Lender(
        offerings=offerings,
        tasks=Tasks(
            store,
            perform=partial(perform, offerings),
            clock=now_millis,
            entropy=secrets.token_bytes,
            key=subkey("tasks"),
            boot_id=boot_id,
            log=log,
            announce=partial(_announce, offerings),
            allowed=allowed,
        ),
        subkey=subkey,
        log=log,
        boot_id=boot_id,
    )


def _cannot_offer(problems: Sequence[str]) -> CannotStart:
    if len(problems) == 1:
        return CannotStart(problems[0], HINT)
    more = len(problems) - MOST_DETAILS
    details = [*problems[:MOST_DETAILS], *([f"and {more} more"] if more > 0 else [])]
    return CannotStart(f"{len(problems)} problems with what the agents offer", HINT, details)


def _announce(offerings: Mapping[str, Offering], server: str, task_id: str) -> None:
    offering = offerings.get(server)
    if offering is not None:  # a task may be older than the configuration
        offering.task_changed(task_id)
