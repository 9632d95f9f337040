"""People besides the owner: inviting, ceilings and expiry, disabling, locking, removing, a new passphrase.

Each is a job, and known everywhere at its commit: the sign-in, the redemption of a code, a refresh, every call and every task
that runs read the account again. Nobody signs up by themselves. No job locks an account because of wrong passphrases: then a
stranger could lock anybody out; guesses are throttled instead (auth/throttling/attempt_limits.py). The links' pages are in auth/pages/invitation_pages.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from auth.audit import audit_trail
from auth.grants import login_records as grants
from auth.people import browser_sessions, one_time_links, user_accounts
from auth.people.user_accounts import LinkIsOver, NameTaken, User
from auth.values import scopes, sealed_rows
from auth.values.database import Db
from auth.values.entropy import Entropy
from auth.values.identity_model import Millis
from auth.values.requester import Requester
from auth.values.scopes import Vocabulary

TOOLS_CHARACTERS: Final = (
    1_000  # of a selection; `server/settings/tool_selection.py` says what one looks like
)
SHOWN: Final = 500  # of a list of people

Why = Literal["unknown", "last owner", "not now"]


def in_words(known: Vocabulary, scope: str) -> tuple[str, ...]:
    """Say a ceiling, or what was granted, for people: without what another of its scopes includes."""
    named = scopes.parse(scope)
    if scopes.EVERYTHING in named:
        return ("Everything this server offers",)
    return tuple(
        known.words(name)
        for name in named
        if not scopes.covers((other for other in named if other != name), name)
    )


class GuestUnchanged(msgspec.Struct, frozen=True):
    """The reason why nothing was changed. `state` is the account's, where there is one."""

    why: Why
    state: str = ""


class GuestTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The ceilings of an account. None in a change leaves one as it is; `expires_at` 0 takes the end away."""

    scope: str | None = None
    tools: str | None = None
    expires_at: Millis | None = None

    def check(self, known: Vocabulary, now: Millis) -> list[str]:
        """Say what is wrong with them, in words for the terminal."""
        problems: list[str] = []
        if self.scope is not None:
            named = scopes.parse(self.scope)
            strange = [scope for scope in named if scope not in known and scope != scopes.EVERYTHING]
            if strange:
                problems.append(_no_scope(strange[0], known))
            elif not named:
                problems.append(f"scope: some of {scopes.join(known.names)}, or * for all there is")
        if self.tools is not None and (
            len(self.tools) > TOOLS_CHARACTERS or not (self.tools == "" or self.tools.isprintable())
        ):
            problems.append(f"tools: one line of at most {TOOLS_CHARACTERS} characters")
        if self.expires_at is not None and self.expires_at != 0 and self.expires_at <= now:
            problems.append("the account would be over already")
        return problems


def _no_scope(word: str, known: Vocabulary) -> str:
    near = [name for name in known.names if word in name.split(":")] or get_close_matches(
        word, known.names, 1
    )
    meant = (
        f"; did you mean {near[0]}?"
        if near
        else f": some of {scopes.join(known.names)}, or * for all there is"
    )
    return f"scope: there is no “{word[:60]}”{meant}"


# ---------------------------------------------------------------- inviting


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    user: User
    link_expires_at: Millis
    kind: str = one_time_links.INVITE


def invite(
    db: Db,
    *,
    name: str,
    terms: GuestTerms,
    usual: str,
    token: str,
    lifetime: Millis,
    seed: bytes,
    by: str,
    now: Millis,
) -> Invitation | NameTaken:
    """Make an account that waits for its person, as a job, and the link to it. `name` has been through `user_accounts.fit_name`.

    Inviting somebody again who has not come yet changes the terms, and the newer link replaces the older.
    """
    user = user_accounts.named(db, name)
    if user is not None and user.state != "invited":
        _record(db, "user.invited", user.id, by, now, refused="the name is taken")
        return NameTaken(state=user.state)
    if user is None:
        user_id = Entropy(seed).identifier("usr")
        row = {
            "id": user_id,
            "name": name,
            "role": "user",
            "state": "invited",
            "passphrase_hash": None,
            "scope": scopes.join(scopes.parse(terms.scope or usual)),
            "tools": terms.tools or "",
            "expires_at": terms.expires_at or None,
            "invited_by": by,
            "created_at": now,
        }
        added = sealed_rows.insert(db, sealed_rows.USERS, row, conflict=" ON CONFLICT (name) DO NOTHING")
        if added != 1:  # another node was faster
            return NameTaken(state="invited")
    else:
        user_id = user.id
        _write(db, user_id, terms)
        db.changed("user", user_id)
    link = one_time_links.make(
        db, kind=one_time_links.INVITE, user_id=user_id, token=token, lifetime=lifetime, by=by, now=now
    )
    _record(db, "user.invited", user_id, by, now, note=name)
    return Invitation(user=_there(db, user_id), link_expires_at=link.expires_at)


def accept(
    db: Db, *, token: str, passphrase_hash: str | None, who: Requester, now: Millis
) -> User | LinkIsOver:
    """Use the invitation up, as a job; its account is the holder's from now on. Without a passphrase there is another way to
    sign in, which the caller stores in the same transaction."""
    link = one_time_links.use(db, kind=one_time_links.INVITE, token=token, now=now)
    user = None if link is None else user_accounts.find(db, link.user_id)
    values = {"passphrase_hash": passphrase_hash, "state": "enabled"}
    if (
        user is None
        or user.over(now)
        or not sealed_rows.update(db, sealed_rows.USERS, user.id, values, when={"state": "invited"})
    ):
        return link_is_over(db, kind=one_time_links.INVITE, who=who, now=now)
    db.changed("user", user.id)
    audit_trail.record(db, now, "user.joined", actor=f"user:{user.id}", who=who)
    return _there(db, user.id)


# ---------------------------------------------------------------- a new passphrase


def reset(db: Db, *, name: str, token: str, by: str, now: Millis) -> Invitation | GuestUnchanged:
    """Make a link, as a job, by which this person chooses a new passphrase, and which changes nothing until it is used; who has not
    come yet gets a new invitation instead."""
    user = user_accounts.named(db, name)
    if user is None:
        return GuestUnchanged("unknown")
    if user.state not in ("enabled", "invited") or user.over(now):
        _record(db, "user.reset", user.id, by, now, refused=user.state)
        return GuestUnchanged("not now", user.state)
    waits = user.state == "invited"
    kind, lifetime = (
        (one_time_links.INVITE, one_time_links.INVITED_FOR)
        if waits
        else (one_time_links.RESET, one_time_links.LIFETIME)
    )
    link = one_time_links.make(db, kind=kind, user_id=user.id, token=token, lifetime=lifetime, by=by, now=now)
    return Invitation(user=user, link_expires_at=link.expires_at, kind=kind)


def take_new_passphrase(
    db: Db, *, token: str, passphrase_hash: str, who: Requester, now: Millis
) -> User | LinkIsOver:
    """Use the link up, as a job, set the passphrase, sign every browser of this person out. Logins of programs go on."""
    link = one_time_links.use(db, kind=one_time_links.RESET, token=token, now=now)
    user = None if link is None else user_accounts.find(db, link.user_id)
    if user is None or not user.may(now):
        return link_is_over(db, kind=one_time_links.RESET, who=who, now=now)
    browser_sessions.end_all(db, user.id)
    sealed_rows.update(db, sealed_rows.USERS, user.id, {"passphrase_hash": passphrase_hash})
    db.changed("user", user.id)
    audit_trail.record(db, now, "user.passphrase_reset", actor=f"user:{user.id}", who=who)
    return _there(db, user.id)


def link_is_over(db: Db, *, kind: str, who: Requester, now: Millis) -> LinkIsOver:
    """Note, as a job or the end of one, that somebody sent the form of a link that does not work."""
    event = "user.joined" if kind == one_time_links.INVITE else "user.passphrase_reset"
    audit_trail.record(db, now, event, who=who, refused="the link is over")
    return LinkIsOver()


# ---------------------------------------------------------------- states


class _Switch(msgspec.Struct, frozen=True):
    event: str
    before: tuple[str, ...]
    after: str
    takes_away: bool  # so the last owner must stay, and a full disk be no reason


SWITCHES: Final[Mapping[str, _Switch]] = MappingProxyType(
    {
        #                  event            from                                    to          takes away
        "disable": _Switch("user.disabled", ("enabled",), "disabled", True),
        "enable":  _Switch("user.enabled",  ("disabled",), "enabled", False),
        "lock":    _Switch("user.locked",   ("enabled", "disabled"), "locked", True),
        "unlock":  _Switch("user.unlocked", ("locked",), "enabled", False),
    }
)  # fmt: skip


def switch(db: Db, verb: str, *, name: str, by: str, now: Millis) -> User | GuestUnchanged:
    """Switch the state, as a job. `disable` makes everything of somebody's pause, and `enable` go on. `lock` is for an account in wrong hands: all
    logins and keys are revoked, passphrase and passkeys forgotten; after `unlock` a reset link is the way in."""
    row, user = SWITCHES[verb], user_accounts.named(db, name)
    if user is None:
        return GuestUnchanged("unknown")
    if user.state not in row.before:
        _record(db, row.event, user.id, by, now, refused=user.state)
        return GuestUnchanged("not now", user.state)
    if row.takes_away and _last_owner(db, user):
        _record(db, row.event, user.id, by, now, refused="the last owner")
        return GuestUnchanged("last owner", user.state)
    if row.takes_away:
        db.takes_away()
    forgotten = {"passphrase_hash": None} if verb == "lock" else {}
    sealed_rows.update(db, sealed_rows.USERS, user.id, {"state": row.after, **forgotten})
    if verb == "lock":
        _shut_out(db, user, reason="account locked", by=by, now=now)
        db.execute("DELETE FROM passkeys WHERE user_id = ?", user.id)
        # Whoever held the account may have connected another's account to it.
        db.execute("DELETE FROM upstream_tokens WHERE user_id = ?", user.id)
    db.changed("user", user.id)
    _record(db, row.event, user.id, by, now, note=name)
    return _there(db, user.id)


def remove(db: Db, *, name: str, by: str, now: Millis) -> User | GuestUnchanged:
    """Revoke everything and forget the account, as a job. The rows of the audit trail stay; the name becomes free."""
    user = user_accounts.named(db, name)
    if user is None:
        return GuestUnchanged("unknown")
    if _last_owner(db, user):
        _record(db, "user.removed", user.id, by, now, refused="the last owner")
        return GuestUnchanged("last owner", user.state)
    db.takes_away()
    _shut_out(db, user, reason="account removed", by=by, now=now)
    db.execute("DELETE FROM one_time_links WHERE user_id = ?", user.id)
    db.execute("DELETE FROM users WHERE id = ?", user.id)
    db.changed("user", user.id)
    _record(db, "user.removed", user.id, by, now, note=name)
    return user


def change(db: Db, *, name: str, terms: GuestTerms, by: str, now: Millis) -> User | GuestUnchanged:
    """Change ceilings or the end, as a job. Running calls and tasks are bound by them at once."""
    user = user_accounts.named(db, name)
    if user is None:
        return GuestUnchanged("unknown")
    if user.state == "altered":
        return GuestUnchanged("not now", user.state)
    if terms.expires_at and _last_owner(db, user):
        _record(db, "user.changed", user.id, by, now, refused="the last owner")
        return GuestUnchanged("last owner", user.state)
    db.takes_away()  # most changes do
    changed = _write(db, user.id, terms)
    db.changed("user", user.id)
    _record(db, "user.changed", user.id, by, now, note=" ".join(changed))
    return _there(db, user.id)


def _write(db: Db, user_id: str, terms: GuestTerms) -> list[str]:
    """Write the terms, and return the names of what was changed."""
    columns: dict[str, object] = {}
    if terms.scope is not None:
        columns["scope"] = scopes.join(scopes.parse(terms.scope))
    if terms.tools is not None:
        columns["tools"] = terms.tools
    if terms.expires_at is not None:
        columns["expires_at"] = terms.expires_at or None
    if columns:
        sealed_rows.update(db, sealed_rows.USERS, user_id, columns)
    return list(columns)


def _shut_out(db: Db, user: User, *, reason: str, by: str, now: Millis) -> None:
    """End what lets somebody in without asking again: logins, keys, browsers, links that were not used, what was agreed to,
    and logins that were said yes to and are not redeemed yet."""
    db.takes_away()
    browser_sessions.end_all(db, user.id)
    db.execute("DELETE FROM one_time_links WHERE user_id = ? AND used_at IS NULL", user.id)
    db.execute("DELETE FROM consents WHERE user_id = ?", user.id)
    db.execute("DELETE FROM authorization_codes WHERE subject = ? AND state = 'live'", user.id)
    db.execute(
        f"UPDATE device_codes SET state = 'denied', {sealed_rows.WIPED} WHERE subject = ? AND state = 'approved'",
        user.id,
    )
    grants.revoke_of_person(db, user.id, reason=reason, by=by, now=now)
    # There are never more of them than a job may fetch (`api_keys.MAX_KEYS`).
    for key in db.fetch_all("SELECT id FROM api_keys WHERE user_id = ? AND revoked_at IS NULL", user.id):
        db.execute(f"UPDATE api_keys SET revoked_at = ?, {sealed_rows.WIPED} WHERE id = ?", now, key["id"])
        db.changed("api_key", key["id"])


def _last_owner(db: Db, user: User) -> bool:
    """Return whether nobody else would be left who may do everything."""
    if user.role != "owner":
        return False
    others = db.fetch_all(
        "SELECT * FROM users WHERE role = 'owner' AND id <> ? AND state IN ('enabled', 'unclaimed')"
        " AND expires_at IS NULL LIMIT ?",
        user.id,
        user_accounts.OWNERS,
    )
    return not any(sealed_rows.fits(db, sealed_rows.USERS, other) for other in others)


# ---------------------------------------------------------------- looking


class ListedPerson(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of people."""

    user: User
    logins: int  # that live
    link_expires_at: Millis | None  # of the newest link that would still work
    only_owner: bool  # who can be neither disabled, locked nor removed


def listing(
    db: Db, now: Millis, name: str | None = None, *, after: str = "", like: str = "", limit: int = SHOWN
) -> list[ListedPerson]:
    """List a page of people, as a job: those whose name comes after this one, the owner first; with a `name` only who has it.
    `like` is something that the names have in them."""
    rows = db.fetch_all(
        "SELECT u.*,"
        " (SELECT COUNT(*) FROM grants g WHERE g.subject = u.id AND g.principal_kind = 'user' AND g.revoked_at IS NULL"
        " AND g.expires_at > ? AND g.idle_until > ?) AS logins,"
        " (SELECT MAX(l.expires_at) FROM one_time_links l WHERE l.user_id = u.id AND l.used_at IS NULL"
        " AND l.expires_at > ?) AS link_expires_at"
        f" FROM users u WHERE {'u.name > ?' if name is None else 'u.name = ?'} AND instr(u.name, ?) > 0"
        " ORDER BY u.name LIMIT ?",
        now,
        now,
        now,
        after if name is None else name,
        like.casefold(),
        limit,
    )
    rows.sort(key=lambda row: (row["role"] != "owner", row["name"]))
    return [
        ListedPerson(
            user=(user := User.of(db, row)),
            logins=row["logins"],
            link_expires_at=row["link_expires_at"],
            only_owner=_last_owner(db, user),
        )
        for row in rows
    ]


def last_of(page: list[ListedPerson]) -> str | None:
    """Return after whom the next page of a list begins; None: this was the last."""
    return max(person.user.name for person in page) if len(page) == SHOWN else None


def _there(db: Db, user_id: str) -> User:
    user = user_accounts.find(db, user_id)
    if user is None:
        raise LookupError("an account vanished within its own transaction")
    return user


def _record(
    db: Db, event: str, user_id: str, by: str, now: Millis, *, note: str = "", refused: str = ""
) -> None:
    audit_trail.record(
        db,
        now,
        event,
        actor=audit_trail.actor(by),
        reason=f"{user_id} {note}".rstrip(),
        refused=f"{user_id} {refused}" if refused else "",
    )
