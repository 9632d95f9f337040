"""One token request and what may come of it: the values that every grant type takes and gives."""

from __future__ import annotations

from typing import Final

import msgspec

from auth.audit import audit_trail
from auth.client_authentication.dpop_proofs import DpopProof
from auth.grants.identity_assertions import AssertedPerson, Unproven
from auth.grants.request_parameters import TokenForm
from auth.keys.refresh_token_keys import RefreshRing
from auth.values import sealed_rows
from auth.values.database import Db, from_row
from auth.values.identity_model import LIVE_USER_STATES, Client, Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy
from auth.values.requester import Requester

REFRESH_EPOCH = "refresh_epoch"
NO_EPOCH = "the store has no refresh epoch: setup has not run"


class GrantRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A token request, with everything that its job may look at besides the store."""

    form: TokenForm
    requester: Requester
    site: Site
    policy: Policy
    refresh_keys: RefreshRing
    seed: bytes
    now: Millis
    asserted: AssertedPerson | Unproven | None = None  # what the form's `assertion` is worth
    proof: DpopProof | None = None  # of the key that the tokens are for

    def __repr__(self) -> str:  # without the seed of what it may issue
        return f"GrantRequest(form={self.form!r}, requester={self.requester!r}, now={self.now!r})"

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


class TokenRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The no of a grant type: the code that the client is told, and the reason that the audit trail has."""

    error: str
    reason: str
    revoke: str | None = None  # a login that this request shows to be in two hands
    event: str = ""  # in the audit trail, where it is another than usual


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The user behind a login, as redemption and refresh read it afresh each time."""

    state: str
    scope: str
    expires_at: Millis | None = None

    def may(self, now: Millis) -> bool:
        """Return whether logins of this user live at all."""
        return self.state in LIVE_USER_STATES and (self.expires_at is None or now < self.expires_at)


# In the place of a user, of a login that was bought: it may no more than its row says, and that is no scope at all.
NOBODY: Final = Account(state="enabled", scope="")


def account(db: Db, user_id: str | None) -> Account | None:
    row = db.fetch_one("SELECT * FROM users WHERE id = ?", user_id)
    if row is None:
        return None
    return from_row(Account, sealed_rows.checked(db, sealed_rows.USERS, row))


def epoch(db: Db) -> str:
    """Return the refresh epoch. A restored store begins a new one, so that old chains end instead of forking."""
    row = db.fetch_one("SELECT value FROM meta WHERE key = ?", REFRESH_EPOCH)
    if row is None:
        raise LookupError(NO_EPOCH)
    return row["value"]


def record(
    db: Db,
    client: Client,
    exchange: GrantRequest,
    event: str,
    *,
    reason: str = "",
    refused: str = "",
    grant_id: str | None = None,
) -> None:
    """Write the audit row of a decision at the token endpoint."""
    audit_trail.record_client(
        db,
        exchange.now,
        event,
        client.id,
        exchange.requester,
        reason=reason,
        refused=refused,
        grant_id=grant_id,
    )
