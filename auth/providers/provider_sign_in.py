"""Signing in with somebody else's word: who may, what a provider must have said, and the jobs that keep it to one use.

Off unless configured, and open to nobody who is not named: each provider has a list of its subjects and the account here that
each one is. Talking to providers is in provider_requests.py, the pages in auth/pages/provider_sign_in_pages.py (OpenID Connect Core §3.1, RFC 9700).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, TypeGuard, cast

import msgspec

from auth.audit import audit_trail
from auth.jose import jws
from auth.jose.jws import BadJws
from auth.jose.public_keys import BadKeys, read_set, select
from auth.people import browser_sessions, user_accounts
from auth.people.user_accounts import Throttled, User
from auth.providers.browser_trips import LIFETIME, Trip, TripKind
from auth.throttling import attempt_limits
from auth.values import sealed_rows
from auth.values.database import Db
from auth.values.identity_model import Millis
from auth.values.requester import Requester, clean
from server.lib.secret import Secret

SUBJECT_CHARACTERS: Final = 255  # OpenID Connect Core §2
TOKEN_CHARACTERS: Final = 16 * 1_024
LEEWAY_SECONDS: Final = 60
# By these the key decides, never the token; `none` and everything made with a shared secret are not among them.
ALGORITHMS: Final = frozenset({"ES256", "RS256", "PS256", "EdDSA", "Ed25519"})

MUTABLE: Final = ("email:", "login:")  # how entries begin that are words for somebody and no subject


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[upstream]]`. `allow` maps what a provider says of somebody to a name here."""

    name: str
    kind: Literal["oidc", "github"]
    label: str
    issuer: str
    client_id: str
    secret: Secret | None
    allow: Mapping[str, str]
    assertions: bool = (
        False  # what it says of them to programs counts as well (auth/grants/identity_assertions.py)
    )

    @property
    def path(self) -> str:
        return f"/signin/with/{self.name}"

    @property
    def callback(self) -> str:
        return f"{self.path}/callback"


class ProviderPerson(msgspec.Struct, frozen=True, kw_only=True):
    """The person that a provider says it has before it. `also`: other words for the same person, which may pass to somebody else."""

    subject: str
    also: tuple[str, ...]
    shown: str


class ProviderNotBelieved(msgspec.Struct, frozen=True):
    """An answer of a provider that proves nothing. The reason is for the audit trail."""

    reason: str


# ---------------------------------------------------------------- a sign-in under way


class ProviderLogin(Trip, frozen=True, kw_only=True):
    """A sign-in under way, as we remember it, sealed in the store."""

    nonce: Secret
    landing: str

    def __repr__(self) -> str:
        return f"ProviderLogin(redirect_uri={self.redirect_uri!r})"


SIGN_INS: Final = TripKind(
    shape=ProviderLogin, table="upstream_logins", of=("provider",), purpose="upstream-logins"
)


def begin(
    db: Db, *, provider: str, state: str, cookie: str, sealed: str, who: Requester, now: Millis
) -> Throttled | None:
    """Remember a sign-in for this browser, counted like any other, as a job."""
    _, overall = user_accounts.buckets_of_network(who)
    until = attempt_limits.closed_until(db, ((overall, user_accounts.ALL_PER_NETWORK),), now)
    if until:
        return Throttled(until=until)
    attempt_limits.count(db, overall, now)
    SIGN_INS.begin(db, provider, state=state, cookie=cookie, sealed=sealed, now=now)
    return None


# ---------------------------------------------------------------- what a provider said


def key_id(token: str) -> str | ProviderNotBelieved:
    """Return the key that a token says it was signed with; empty where it does not say."""
    try:
        head, _, _ = jws.split(token, longest=TOKEN_CHARACTERS)
    except BadJws:
        return ProviderNotBelieved("the id token is no compact JWS")
    try:
        kid: object = jws.members(head).get("kid", "")
    except BadJws:
        kid = None
    return kid if isinstance(kid, str) else ProviderNotBelieved("the id token's header cannot be read")


def verify_id_token(
    token: str, jwks: Sequence[object], provider: Provider, *, nonce: str, now: Millis
) -> ProviderPerson | ProviderNotBelieved:
    """Verify an id token (OpenID Connect Core §3.1.3.7) with entries of the provider's key set that it may be signed with."""
    kid = key_id(token)
    if isinstance(kid, ProviderNotBelieved):
        return kid
    try:
        said = jws.read(token, longest=TOKEN_CHARACTERS)
    except BadJws:
        return ProviderNotBelieved("the id token cannot be read")
    algorithm = said.header.get("alg")
    if algorithm not in ALGORITHMS or "crit" in said.header:
        return ProviderNotBelieved("the id token's algorithm is not accepted")
    if str(said.header.get("typ", "")).lower() not in ("", "jwt"):
        return ProviderNotBelieved("the id token is a token of another kind")
    try:
        keys = select(read_set({"keys": list(jwks)}), kid)
        signature = said.signature
    except (BadKeys, BadJws):
        return ProviderNotBelieved("no usable key of the provider's fits the id token")
    if not any(key.is_signed(said.signed, signature, algorithm) for key in keys):
        return ProviderNotBelieved("the id token's signature is not the provider's")
    return _judge(said.claims, provider, nonce, now)


def _judge(
    claims: Mapping[str, Any], provider: Provider, nonce: str, now: Millis
) -> ProviderPerson | ProviderNotBelieved:
    seconds = now // 1_000
    audience: object = claims.get("aud")
    named = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    if claims.get("iss") != provider.issuer:
        return ProviderNotBelieved("the id token is another issuer's")
    if provider.client_id not in named:
        return ProviderNotBelieved("the id token is meant for another program")
    if claims.get("azp", provider.client_id) != provider.client_id or (
        len(named) > 1 and "azp" not in claims
    ):
        return ProviderNotBelieved("the id token was given to another program")
    expires, issued, subject = claims.get("exp"), claims.get("iat"), claims.get("sub")
    if not _is_time(expires) or not _is_time(issued):
        return ProviderNotBelieved("the id token says no time")
    if seconds >= expires + LEEWAY_SECONDS:
        return ProviderNotBelieved("the id token has expired")
    if not seconds - LIFETIME // 1_000 - LEEWAY_SECONDS <= issued <= seconds + LEEWAY_SECONDS:
        return ProviderNotBelieved("the id token was not made now")
    said = claims.get("nonce")
    if not isinstance(said, str) or not hmac.compare_digest(said.encode(errors="replace"), nonce.encode()):
        return ProviderNotBelieved("the id token answers another request")
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_CHARACTERS:
        return ProviderNotBelieved("the id token names nobody")
    return person_of(subject, claims)


def person_of(subject: str, claims: Mapping[str, Any]) -> ProviderPerson:
    """Return whom verified claims are about, and under which other words they are known for certain."""
    email = claims.get("email")
    # Only the word `true`: some providers send the text "false".
    proven = isinstance(email, str) and claims.get("email_verified") is True
    return ProviderPerson(
        subject=subject,
        also=(f"email:{folded(email)}",) if proven and isinstance(email, str) else (),
        shown=f"{clean(email, 100)} ({clean(subject, 100)})"
        if isinstance(email, str)
        else clean(subject, 100),
    )


def folded(word: str) -> str:
    """Return an address or login in small letters, for they are the same in capitals.

    That is done in ASCII alone: folding other letters makes one of `straße` and `strasse`, who are two."""
    return word.lower() if word.isascii() else word


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**40


def github_person(user: Mapping[str, Any]) -> ProviderPerson | ProviderNotBelieved:
    """Read the answer of `GET /user`. The number stays with an account for good; a login can be given up and taken by somebody else."""
    number, login = user.get("id"), user.get("login")
    if not isinstance(number, int) or isinstance(number, bool) or number <= 0 or not isinstance(login, str):
        return ProviderNotBelieved("the provider named nobody")
    return ProviderPerson(
        subject=str(number), also=(f"login:{folded(login)}",), shown=f"{clean(login, 60)} ({number})"
    )


# ---------------------------------------------------------------- letting somebody in


class NotLetIn(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. `shown` is how the provider calls the person who came, for them to pass on."""

    why: Literal["not listed", "no account", "another person"]
    shown: str
    user_id: str | None = None  # whose account it is, if there is one


class ListedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The account that somebody is here, and the word by which the list names them."""

    user: User
    entry: str


def account_of(db: Db, person: ProviderPerson, provider: Provider, now: Millis) -> ListedAccount | NotLetIn:
    """Find who that is here, with an account that is open or waits for them: part of a job that only looks."""
    # A provider could call somebody `email:…`: that word of theirs is not the address that they verified.
    own = () if person.subject.startswith(MUTABLE) else (person.subject,)
    entry = next((word for word in (*own, *person.also) if word in provider.allow), None)
    if entry is None:
        return NotLetIn(why="not listed", shown=person.shown)
    user = user_accounts.named(db, provider.allow[entry])
    if user is None or user.over(now) or user.state not in ("enabled", "invited"):
        return NotLetIn(why="no account", shown=person.shown, user_id=None if user is None else user.id)
    # A word that can pass to somebody else counts for whoever used it first.
    first = db.fetch_one(
        "SELECT subject FROM user_identities WHERE provider = ? AND user_id = ? AND label = ?",
        provider.name,
        user.id,
        entry,
    )
    if entry != person.subject and first is not None and first["subject"] != person.subject:
        return NotLetIn(why="another person", shown=person.shown, user_id=user.id)
    return ListedAccount(user=user, entry=entry)


def remember(db: Db, person: ProviderPerson, provider: Provider, listed: ListedAccount, now: Millis) -> None:
    """Remember that this person was that account: part of a job."""
    db.execute(
        "INSERT INTO user_identities (provider, subject, user_id, label, created_at, last_used_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (provider, subject) DO UPDATE"
        " SET user_id = excluded.user_id, label = excluded.label, last_used_at = excluded.last_used_at",
        provider.name,
        person.subject,
        listed.user.id,
        listed.entry,
        now,
        now,
    )


def sign_in(
    db: Db,
    person: ProviderPerson,
    provider: Provider,
    *,
    state: str,
    cookie: str,
    replaces: str,
    who: Requester,
    now: Millis,
) -> User | NotLetIn:
    """Sign in the account that this person is here, as a job. An invited one is theirs from now on, because the list names them."""
    listed = account_of(db, person, provider, now)
    if isinstance(listed, NotLetIn):
        return _refuse(db, person, provider, who, now, listed)
    user = listed.user
    if user.state == "invited":
        sealed_rows.update(db, sealed_rows.USERS, user.id, {"state": "enabled"}, when={"state": "invited"})
        db.execute("DELETE FROM one_time_links WHERE user_id = ? AND used_at IS NULL", user.id)
        db.changed("user", user.id)
        _record(db, "user.joined", f"user:{user.id}", who, now, reason=f"{provider.name} {person.subject}")
    remember(db, person, provider, listed, now)
    browser_sessions.begin(db, cookie=cookie, replaces=replaces, user_id=user.id, who=who, now=now)
    _take_back(db, state, who)
    _record(db, "user.signed_in", f"user:{user.id}", who, now, reason=f"{provider.name} {person.subject}")
    return user


def _take_back(db: Db, state: str, who: Requester) -> None:
    """Take back what `begin` counted, where it was this network that began: nobody's good sign-in is to make room at another."""
    if (begun := SIGN_INS.row(db, state)) is not None:
        attempt_limits.take_back_one(db, user_accounts.buckets_of_network(who.without_page())[1], begun[1])


def _refuse(
    db: Db, person: ProviderPerson, provider: Provider, who: Requester, now: Millis, refused: NotLetIn
) -> NotLetIn:
    actor = "anonymous" if refused.user_id is None else f"user:{refused.user_id}"
    not_believed(db, provider, f"{refused.why}: {clean(person.subject, 100)}", who, now, actor=actor)
    return refused


def not_believed(
    db: Db, provider: Provider, reason: str, who: Requester, now: Millis, *, actor: str = "anonymous"
) -> None:
    """Record a sign-in that came to nothing, as a job."""
    _record(db, "user.signed_in", actor, who, now, reason=f"{provider.name}: {reason}", refused=True)


def _record(
    db: Db, event: str, actor: str, who: Requester, now: Millis, *, reason: str, refused: bool = False
) -> None:
    audit_trail.record(
        db,
        at=now,
        event=event,
        actor=actor,
        ip=who.ip,
        user_agent=who.user_agent,
        outcome="refused" if refused else "ok",
        reason=reason,
    )


NO_PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType({})
