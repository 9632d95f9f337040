"""The redemption of a code, once, for one login: what authorization codes and device codes have in common.

Redeeming is one conditional UPDATE, so that of several requests at one moment one wins. Whether a code may be redeemed is decided by its
grant type (auth/grant_types).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from auth.grants.login_records import revoke
from auth.grants.new_grants import GrantTerms, begin
from auth.grants.token_request import GrantRequest, Issue, TokenRefusal, record
from auth.values import sealed_rows
from auth.values.database import Db, Row
from auth.values.entropy import Entropy
from auth.values.identity_model import Client
from auth.values.issuer_and_resources import ForeignResource
from auth.values.oauth_errors import OAuthRefusal
from auth.values.sealed_rows import SealedTable


class CodeKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of code. `redeemable` is the state in which it can be redeemed, `texts` the words for each error code."""

    table: SealedTable
    hash_column: str
    redeemable: str
    name: str
    event: str
    texts: Mapping[str, str]


class Redemption(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to begin a login."""

    scope: str


def find(db: Db, kind: CodeKind, hashed: str) -> Row | None:
    """Return the row of a code, if it is as it was sealed."""
    row = db.fetch_one(f"SELECT * FROM {kind.table.name} WHERE {kind.hash_column} = ?", hashed)
    return row if row is not None and sealed_rows.fits(db, kind.table, row) else None


def asked_server(row: Row | None, exchange: GrantRequest) -> str | ForeignResource | None:
    """Return the server that the request's `resource` names; None if it names none."""
    here = exchange.requester.origin
    # A login may go on under another loopback name than it began.
    return exchange.site.choose(exchange.form.resources, (here,) if row is None else (here, row["origin"]))


def is_served(row: Row | None, exchange: GrantRequest) -> bool:
    """Return whether the server of the code is still configured."""
    return row is not None and exchange.site.audience(row["server"]) is not None


def issue(
    db: Db, kind: CodeKind, client: Client, exchange: GrantRequest, row: Row, terms: GrantTerms
) -> Issue | OAuthRefusal:
    """Use the code up, and begin its login."""
    grant_id = Entropy(exchange.seed).identifier("grt")
    won = db.execute(
        f"UPDATE {kind.table.name} SET state = 'used', grant_id = ?, {sealed_rows.WIPED}"
        " WHERE id = ? AND state = ? AND expires_at > ?",
        grant_id,
        row["id"],
        kind.redeemable,
        exchange.now,
    )
    if won != 1:  # somebody else was faster, and holds the login
        late = TokenRefusal(error="invalid_grant", reason="code used at the same moment")
        return refuse(db, kind, client, exchange, row, late)
    issued = begin(db, client, exchange, terms, grant_id)
    record(db, client, exchange, kind.event, reason=row["id"], grant_id=grant_id)
    return issued


def refuse(
    db: Db, kind: CodeKind, client: Client, exchange: GrantRequest, row: Row | None, why: TokenRefusal
) -> OAuthRefusal:
    """Record a refusal, and end the login that is in two hands."""
    known = "" if row is None else row["id"]
    refused = f"{known} {why.reason}".lstrip()
    record(db, client, exchange, kind.event, refused=refused, grant_id=why.revoke)
    if why.revoke is not None:
        reason = f"{kind.name} used again"
        revoke(db, why.revoke, reason=reason, by=f"client:{client.id}", now=exchange.now)
    return OAuthRefusal(error=why.error, description=kind.texts[why.error])
