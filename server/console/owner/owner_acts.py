"""An owner at work in a browser: who may see these pages, and a store for commands of the terminal that are given here.

The commands (server/admin) check and write down, so that it is the same in both places. A browser adds that
whoever sits there may have been signed out, have stopped being the owner, or have found the browser open: the store for an act looks,
in the very transaction that writes, whether the session is still an owner's and was proven lately, and whether what the page showed is
still so. Rows of the trail name the browser's address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn, TypeVar

from auth.audit import audit_trail
from auth.pages import navigation, reauthentication
from auth.pages.account.account_page import not_signed_in
from auth.pages.page_visit import PageVisit
from auth.people import browser_sessions
from auth.values.database import Db, JobStore
from auth.values.http_messages import WireReply

T = TypeVar("T")


class NoOwnerNow(Exception):
    """An error in a job, which is undone with it: the session ended, is no owner's, or was not proven lately."""


class OwnersStore:
    """The store of a signed-in owner. `still`, for writes: raises `CommandRefused` if the act is not what its page was about."""

    def __init__(
        self, store: JobStore, visit: PageVisit, *, still: Callable[[Db], None] | None = None
    ) -> None:
        self._store = store
        self._cookie = visit.cookie
        self._now = visit.now
        self._who = visit.who
        self._still = still

    async def write(self, job: Callable[[Db], T]) -> T:
        return await self._store.write(partial(self._checked, job=audit_trail.asked_from(job, self._who)))

    async def read(self, job: Callable[[Db], T]) -> T:
        return await self._store.read(job)

    def chain_audit(self, key: bytes) -> NoReturn:
        raise AssertionError("the trail was begun long before there was a page")

    def _checked(self, db: Db, *, job: Callable[[Db], T]) -> T:
        session = browser_sessions.find(db, self._cookie, self._now)
        if session is None or session.user.role != "owner" or not reauthentication.lately(session, self._now):
            raise NoOwnerNow
        if self._still is not None:
            self._still(db)
        return job(db)


def for_owner(
    path: str, make_page: Callable[..., Awaitable[WireReply]]
) -> Callable[..., Awaitable[WireReply]]:
    """Let a signed-in owner alone come to a page, which is made of the visit, the session, and what stands in the path. `path`: where
    signing in leads."""

    async def page(visit: PageVisit, **values: str) -> WireReply:
        session = await visit.session()
        if session is None:
            return await not_signed_in(visit, path)
        visit = visit.of(session)
        if session.user.role != "owner":
            return visit.error(
                403,
                "This page is the owner’s",
                "Only whoever owns this server sees it.",
                "Ask them, if something should change.",
                back=(navigation.ACCESS, "Access"),
            )
        try:
            return await make_page(visit, session, **values)
        except NoOwnerNow:
            return visit.stale_form()

    return page
