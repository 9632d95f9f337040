"""A login that was bought: whoever has paid into a wallet is given tokens for it, and is known by nothing but the address that paid.

No person stands behind it, so it has no scopes, and nobody could grant it any; what it may do is pay for what is sold. Its row names the
payment: whoever is given tokens for the same one again has the first ones no more.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from auth.audit import audit_trail
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientCredentials, ClientRegistration
from auth.context.identity_parts import Parts
from auth.grants.login_records import revoke
from auth.grants.new_grants import GrantTerms, begin
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import GrantRequest, Issue
from auth.tokens import access_tokens
from auth.values.database import Db
from auth.values.endpoint_paths import TOKEN
from auth.values.entropy import SEED_BYTES
from auth.values.identity_model import REFRESH_TOKEN, PrincipalKind
from auth.values.requester import Requester

HOW: Final = "payment"
# Whose tokens these are: disabling it ends them all.
CLIENT_ID: Final = "ostiary-payers"
CLIENT: Final = ClientRegistration(
    name="Callers who have paid", grant_types=(REFRESH_TOKEN,), redirect_uris=(), scope=""
)


class NotForSale(Exception):
    """The operator has disabled the client of those who pay."""


async def issue_tokens(
    parts: Parts, *, payer: str, server: str, payment_id: str, requester: Requester
) -> dict[str, Any]:
    """Return what the token endpoint would, and where to refresh it. Raise what the store raises, and `NotForSale`."""
    await parts.reload_keys()
    exchange = GrantRequest(
        form=TokenForm(grant_type=HOW, credentials=ClientCredentials(client_id=CLIENT_ID)),
        requester=requester,
        site=parts.site,
        policy=parts.policy,
        refresh_keys=parts.keys.refresh,
        seed=parts.entropy(SEED_BYTES),
        now=parts.clock(),
    )
    job = partial(sell, exchange=exchange, payer=payer, server=server, payment_id=payment_id)
    issue = await parts.store.write(job)
    if issue is None:
        raise NotForSale
    endpoint = parts.site.public(requester.origin) + TOKEN
    return {**access_tokens.answer(parts, issue), "client_id": CLIENT_ID, "token_endpoint": endpoint}


def sell(db: Db, *, exchange: GrantRequest, payer: str, server: str, payment_id: str) -> Issue | None:
    """Begin the login, as a job; None while its client is disabled. `payer` is the subject, which no user has, because it holds colons."""
    now, paid = exchange.now, f"payment:{payment_id}"
    clients.insert(db, CLIENT_ID, CLIENT, kind="builtin", hashed=None, now=now)
    client = clients.lookup(db, CLIENT_ID)
    if client is None or not client.enabled:
        return None
    for row in db.fetch_all(
        "SELECT id FROM grants WHERE subject = ? AND approved_by = ? AND revoked_at IS NULL", payer, paid
    ):
        revoke(db, row["id"], reason="its payment was shown again", by=paid, now=now)
    terms = GrantTerms(
        kind=PrincipalKind.PAYER,
        subject=payer,
        how=HOW,
        server=server,
        origin=exchange.requester.origin,
        scope="",
        approved_by=paid,
        auth_time=now,
        ends_at=now + exchange.policy.tokens.device_login_ms,
        refreshes=True,
    )
    issue = begin(db, client, exchange, terms)
    audit_trail.record(
        db,
        now,
        "token.bought",
        actor=payer,
        who=exchange.requester,
        reason=paid,
        client_id=CLIENT_ID,
        grant_id=issue.grant_id,
    )
    return issue
