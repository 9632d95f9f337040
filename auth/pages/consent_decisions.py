"""Jobs of the authorization endpoint: what is asked, whether a person has agreed to it before, and their yes or no.

Each looks everything up anew, so that nothing that changed under a page counts. Requests are read in auth/authorization/authorization_request.py; pages are
in authorization_endpoint.py and consent_page.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from auth.audit import audit_trail
from auth.authorization import authorization_codes
from auth.authorization import authorization_request as authorize
from auth.authorization.authorization_request import AuthorizationRequest, NoPlace, SendBack, WantedAccess
from auth.authorization.device_authorization import DeviceRequest
from auth.clients import client_registry as clients
from auth.clients import redirect_uris
from auth.endpoints import pushed_authorization
from auth.pages import reauthentication
from auth.people import browser_sessions
from auth.people.browser_sessions import SignedOutMeanwhile
from auth.people.user_accounts import User
from auth.values import scopes, sealed_rows
from auth.values.database import Db
from auth.values.entropy import Entropy
from auth.values.identity_model import Client, Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import MINUTE, TokenPolicy
from auth.values.requester import Requester
from auth.values.scopes import Vocabulary

# For an address that a person carries to another machine by hand. Without the verifier, which never left that machine, it is
# worth nothing to anybody else.
COPIED_MS: Final[Millis] = 5 * MINUTE

GONE: Final = "This request has expired, or was answered already."


@dataclass(frozen=True, kw_only=True)
class OpenedRequest:
    """A request that a person may be asked about, and who makes it."""

    asked: AuthorizationRequest  # as the browser brought it
    wanted: WantedAccess
    client: Client

    @property
    def pushed(self) -> bool:
        return pushed_authorization.is_pushed(self.asked)

    @cached_property
    def text(self) -> str:
        """The request as pages carry it along, and forms are bound to it."""
        if self.pushed:
            return authorize.write(
                AuthorizationRequest(
                    values={name: self.asked.values[name] for name in ("client_id", "request_uri")}
                )
            )
        return authorize.write(self.asked)

    @property
    def assured(self) -> bool:
        """The assurance that nobody but this client gets anything of a code: it proves who it is, or waits at a web address. Whatever runs
        on the person's machine can name a public client's id and take its port or its scheme (RFC 8252 §8.6)."""
        return not self.client.public or urlsplit(self.wanted.redirect_uri).scheme == "https"

    @property
    def redirect_host(self) -> str:
        return redirect_uris.host_of(self.wanted.redirect_uri)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentWithCode:
    """A code on its way: the address that the browser goes to."""

    location: str = field(repr=False)


class NotAgreed(msgspec.Struct, frozen=True):
    """A request of which somebody has to be asked, or has left nothing ticked."""


def opened(
    db: Db, *, asked: AuthorizationRequest, site: Site, origin: str, now: Millis
) -> OpenedRequest | NoPlace | SendBack:
    """Read the request with its client, as a job, a pushed one as it was pushed."""
    inner: AuthorizationRequest | None = asked
    if pushed_authorization.is_pushed(asked):
        inner = pushed_authorization.find(db, asked, now)
        if inner is None:
            return NoPlace(why=GONE)
    assert inner is not None
    client_id = inner.get("client_id")
    client = None if client_id is None else clients.lookup(db, client_id)
    wanted = authorize.check(inner, client, site, origin)
    if not isinstance(wanted, WantedAccess) or client is None:
        assert not isinstance(wanted, WantedAccess)
        return wanted
    return OpenedRequest(asked=asked, wanted=wanted, client=client)


def offered(wanted: WantedAccess | DeviceRequest, user: User) -> tuple[str, ...]:
    """Return the scopes of the request that this account may give at all."""
    return scopes.parse(scopes.narrow(wanted.scope, user.scope))


# ---------------------------------------------------------------- remembering


def remembered(db: Db, found: OpenedRequest, user: User, known: Vocabulary, now: Millis) -> bool:
    """Return whether this person said yes to all of this before, to what can only be the same program. A person is asked each time
    about what moves money, and about everything once a login of theirs by this client was ended, whoever ended it."""
    names = offered(found.wanted, user)
    if not found.assured or not names or any(known.financial(name) for name in names):
        return False
    row = db.fetch_one(
        "SELECT * FROM consents c WHERE user_id = ? AND client_id = ? AND redirect_host = ? AND server = ?"
        " AND expires_at > ? AND NOT EXISTS (SELECT 1 FROM grants g WHERE g.subject = c.user_id"
        " AND g.client_id = c.client_id AND g.revoked_at >= c.created_at)",
        user.id,
        found.client.id,
        found.redirect_host,
        found.wanted.server,
        now,
    )
    return (
        row is not None
        and sealed_rows.fits(db, sealed_rows.CONSENTS, row)
        and row["client_hash"] == _hash_of(found.client)
        and scopes.within(names, row["scope"])
    )


def _remember(
    db: Db,
    found: OpenedRequest,
    user: User,
    granted: tuple[str, ...],
    known: Vocabulary,
    now: Millis,
    lasts: Millis,
) -> None:
    row = {
        "user_id": user.id,
        "client_id": found.client.id,
        "redirect_host": found.redirect_host,
        "server": found.wanted.server,
        "scope": scopes.join(name for name in granted if not known.financial(name)),
        "client_hash": _hash_of(found.client),
        "created_at": now,
        "expires_at": now + lasts,
    }
    said = ", ".join(
        f"{name} = excluded.{name}" for name in ("scope", "client_hash", "created_at", "expires_at", "seal")
    )
    again = f" ON CONFLICT (user_id, client_id, redirect_host, server) DO UPDATE SET {said}"
    sealed_rows.insert(db, sealed_rows.CONSENTS, row, conflict=again)


def _hash_of(client: Client) -> str:
    return hashlib.sha256("\n".join(sorted(client.redirect_uris)).encode()).hexdigest()


# ---------------------------------------------------------------- yes and no


def agree(
    db: Db,
    *,
    cookie: str,
    asked: AuthorizationRequest,
    ticked: tuple[str, ...] | None,
    copied: bool = False,
    site: Site,
    policy: TokenPolicy,
    who: Requester,
    seed: bytes,
    now: Millis,
) -> SentWithCode | NotAgreed | SignedOutMeanwhile | NoPlace | SendBack:
    """Check everything once more, as a job, then issue the code. `ticked` None: nobody was asked, because they were asked before."""
    session = browser_sessions.find(db, cookie, now)
    if session is None:
        return SignedOutMeanwhile()
    found = opened(db, asked=asked, site=site, origin=who.origin, now=now)
    if not isinstance(found, OpenedRequest):
        return found
    user, names = session.user, offered(found.wanted, session.user)
    if ticked is None and not remembered(db, found, user, site.scopes, now):
        return NotAgreed()
    granted = names if ticked is None else tuple(name for name in names if name in ticked)
    if not granted:
        return NotAgreed()
    client_id = found.client.id
    record = partial(audit_trail.record, db, now, actor=f"user:{user.id}", who=who, client_id=client_id)
    if authorization_codes.too_many(db, user.id, now):
        record("code.issued", refused="too many codes")
        return found.wanted.refused("temporarily_unavailable", "too many logins were started in a minute")
    if any(site.scopes.financial(name) for name in granted) and not reauthentication.lately(session, now):
        return SignedOutMeanwhile()  # what moves money needs more than a browser that somebody left signed in
    if found.pushed and not pushed_authorization.use_up(db, asked, now):
        return NoPlace(why=GONE)
    code_id, code = authorization_codes.issue(
        db,
        found.wanted,
        subject=user.id,
        auth_time=session.auth_time,
        scope=scopes.join(granted),
        entropy=Entropy(seed),
        who=who,
        lives_ms=COPIED_MS if copied else policy.code_ms,
        now=now,
    )
    how = "as agreed before" if ticked is None else "to copy" if copied else ""
    if ticked is not None and found.assured:
        _remember(db, found, user, granted, site.scopes, now, policy.consent_ms)
    record("code.issued", reason=f"{code_id} {how}".rstrip())
    return SentWithCode(location=authorize.success(found.wanted, code, issuer=site.public(who.origin)))


def deny(
    db: Db, *, cookie: str, asked: AuthorizationRequest, site: Site, who: Requester, now: Millis
) -> SignedOutMeanwhile | NoPlace | SendBack:
    """Deny a request, as a job."""
    session = browser_sessions.find(db, cookie, now)
    if session is None:
        return SignedOutMeanwhile()
    found = opened(db, asked=asked, site=site, origin=who.origin, now=now)
    if not isinstance(found, OpenedRequest):
        return found
    if found.pushed and not pushed_authorization.use_up(db, asked, now):
        return NoPlace(why=GONE)
    actor, client_id = f"user:{session.user.id}", found.client.id
    audit_trail.record(db, now, "code.denied", actor=actor, who=who, client_id=client_id)
    return found.wanted.refused("access_denied", "the person at the browser said no")
