"""One token request and what may come of it: the values that every grant type takes and gives."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from auth import audit
from auth.db import Db
from auth.forms import TokenForm
from auth.keys.refresh import RefreshRing
from auth.model import LIVE_USER_STATES, Client, Millis
from auth.policy import Policy
from auth.requester import Requester
from auth.site import Site
from auth.tokens.dpop import Proof
from auth.upstream.assertion import Asserted, Unproven

REFRESH_EPOCH = "refresh_epoch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """Everything a grant's job may look at besides the store."""

    form: TokenForm
    requester: Requester
    site: Site
    policy: Policy
    refresh_keys: RefreshRing
    seed: bytes = field(repr=False)
    now: Millis
    asserted: Asserted | Unproven | None = None  # what the form's `assertion` is worth
    proof: Proof | None = None  # of the key that the tokens are for

    @property
    def jkt(self) -> str | None:
        return None if self.proof is None else self.proof.jkt


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that may be signed once the job that decided so is committed."""

    grant_id: str
    subject: str
    client_id: str
    server: str
    scope: str
    auth_time: Millis
    issued_at: Millis
    ends_at: Millis  # of the login; no access token outlives it
    counter: int | None  # n of the refresh token, or None where the client takes none
    jkt: str | None = None  # the thumbprint of the key that the access token is bound to


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What redemption and refresh must know of the user behind a login, read afresh each time."""

    state: str
    scope: str
    expires_at: Millis | None = None

    def may(self, now: Millis) -> bool:
        """Whether logins of this user live at all."""
        return self.state in LIVE_USER_STATES and (self.expires_at is None or now < self.expires_at)


def account(db: Db, user_id: str | None) -> Account | None:
    row = db.fetch_one("SELECT state, scope, expires_at FROM users WHERE id = ?", user_id)
    return (
        None if row is None else Account(state=row["state"], scope=row["scope"], expires_at=row["expires_at"])
    )


def epoch(db: Db) -> str:
    """The refresh epoch. A restored store begins a new one, so that old chains end instead of forking."""
    row = db.fetch_one("SELECT value FROM meta WHERE key = ?", REFRESH_EPOCH)
    if row is None:
        raise LookupError("the store has no refresh epoch: setup has not run")
    return row["value"]


def record(
    db: Db,
    client: Client,
    exchange: Exchange,
    event: str,
    *,
    reason: str = "",
    refused: str = "",
    grant_id: str | None = None,
) -> None:
    """The audit row of a decision at the token endpoint."""
    audit.record(
        db,
        at=exchange.now,
        event=event,
        actor=f"client:{client.id}",
        client_id=client.id,
        grant_id=grant_id,
        ip=exchange.requester.ip,
        user_agent=exchange.requester.user_agent,
        outcome="refused" if refused else "ok",
        reason=refused or reason,
    )
