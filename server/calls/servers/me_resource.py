"""`ostiary://me`: what a caller with a login, a key or a token that was paid for is told of itself, on every server that asks for one;
and `ostiary://usage`: what it called there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from auth.tokens import caller_facts
from auth.tokens.caller_facts import CallerFacts
from auth.values.database import Db, JobStore
from auth.values.identity_model import Millis, Principal, PrincipalKind
from auth.values.scopes import Vocabulary
from server.mcp.call_failures import BackendError
from server.mcp.messages import Resource, ResourceContents
from server.mcp.terms import CallTerms
from server.store.call_records.call_rows import DAY, usage_of
from server.store.jobs import StoreUnavailable

ME: Final = "ostiary://me"
ABOUT_ME: Final = Resource(
    uri=ME,
    name="me",
    title="Who you are here",
    description="The login or key that this connection uses: whose it is, what it may do, and how long it lasts",
    mime_type="application/json",
)
USAGE: Final = "ostiary://usage"
ABOUT_USAGE: Final = Resource(
    uri=USAGE,
    name="usage",
    title="What you called here",
    description="How often this connection's login or key called which tool, by day, in the last 30 days",
    mime_type="application/json",
)
# Days that are told, today with them.
USAGE_DAYS: Final = 30
# What the caller has, as a job reads it: members to be told.
TellsMoney: TypeAlias = Callable[[Db, Principal], Mapping[str, Any]]
# No scope, and time for one look into the store.
MY_TERMS: Final = CallTerms(deadline_seconds=30)
_ASKED_WHO_THEY_ARE: Final = frozenset(
    {PrincipalKind.USER, PrincipalKind.CLIENT, PrincipalKind.API_KEY, PrincipalKind.PAYER}
)


def is_somebody(principal: Principal) -> bool:
    """Whether there is anything to tell: of whoever pays as they call, nothing is known."""
    return principal.kind in _ASKED_WHO_THEY_ARE and principal.identified


class Me:
    """What one server tells its callers of themselves."""

    def __init__(
        self,
        store: JobStore,
        vocabulary: Vocabulary,
        *,
        server: str,
        money: TellsMoney | None = None,
        clock: Callable[[], Millis] | None = None,
    ) -> None:
        """`money`: a job that reads what the caller has at this server; None where nothing costs anything. Without a clock nothing is
        told of what was called."""
        self._clock = clock
        self._store = store
        self._vocabulary = vocabulary
        self._server = server
        self._money = money

    @property
    def listed(self) -> tuple[Resource, ...]:
        return (ABOUT_ME,) if self._clock is None else (ABOUT_ME, ABOUT_USAGE)

    def has(self, uri: str) -> bool:
        return any(uri == resource.uri for resource in self.listed)

    async def read(self, uri: str, principal: Principal) -> ResourceContents:
        """One of those that are listed."""
        try:
            if uri == USAGE and self._clock is not None:
                return await self._usage(principal, self._clock())
            found, has = await self._store.read(partial(self._look, principal=principal))
        except StoreUnavailable as problem:
            raise BackendError(f"logins cannot be looked up right now: {problem}") from problem
        told = msgspec.json.encode({**described(principal, found, self._vocabulary, self._server), **has})
        return ResourceContents(uri=ME, mime_type="application/json", text=told.decode())

    async def _usage(self, principal: Principal, now: Millis) -> ResourceContents:
        since = now // DAY * DAY - (USAGE_DAYS - 1) * DAY
        look = partial(usage_of, server=self._server, caller=principal.key(), since=since)
        told = msgspec.json.encode({"server": self._server, "since": since, **await self._store.read(look)})
        return ResourceContents(uri=USAGE, mime_type="application/json", text=told.decode())

    def _look(self, db: Db, principal: Principal) -> tuple[CallerFacts, Mapping[str, Any]]:
        about = caller_facts.about(db, principal)
        return about, {} if self._money is None else self._money(db, principal)


def described(
    principal: Principal, about: CallerFacts, vocabulary: Vocabulary, server: str
) -> dict[str, Any]:
    """A promise to programs: fields are added, never taken away. Times are milliseconds since 1970."""
    is_client = bool(about.client_id)
    return {
        "subject": principal.subject,
        "kind": principal.kind.value,
        "credential": {
            "kind": _credential(principal),
            "how": about.how or None,
            "id": principal.grant_id,
            "name": about.key_name or _static_name(principal),
        },
        "user": {"name": about.user_name, "role": about.user_role} if about.user_role else None,
        "client": {"id": about.client_id, "name": about.client_name} if is_client else None,
        "server": server,
        "scopes": [{"name": name, "words": vocabulary.words(name)} for name in sorted(principal.scopes)],
        "tools": principal.tools,
        "expires_at": about.expires_at,
        "called_at": about.called_at,
        # Where something costs money, and more beside them (`server/run/account_money.py`).
        "plan": None,
        "quota": None,
        "may": None,
    }


def _credential(principal: Principal) -> str:
    if principal.kind is PrincipalKind.API_KEY:
        return "token" if principal.subject.startswith("token:") else "api-key"
    return "client" if principal.kind is PrincipalKind.CLIENT else "login"


def _static_name(principal: Principal) -> str | None:
    return principal.subject.rpartition(":")[2] if _credential(principal) == "token" else None
