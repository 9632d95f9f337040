"""Logins at upstreams in the store: tokens and what it takes to refresh them, sealed, one row for whoever logged in there.

Jobs, and the sealing around them. A refresh replaces the row that it was made from and no other; whoever logs in anew wins against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from auth.audit import audit_trail
from auth.keys.sealed_secrets import open_struct, seal_struct
from auth.values.identity_model import Millis
from server.agents.mcp.trust.pin_rows import CHANGE, UpstreamKey
from server.lib.oauth_client.client_identity import METHODS
from server.lib.oauth_client.kept_login import OAuthLogin
from server.lib.secret import Secret, decode_secret
from server.store.jobs import Change, StoreDb
from server.store.task_leases import gone

SEAL_PURPOSE: Final = "upstream-tokens"
OURS: Final = ""  # whose login is the server's own, in the table
MAX_TEXT: Final = 4_096
_OF: Final = " "  # in no name of an upstream
_ITS: Final = "WHERE server = ? AND agent = ? AND person = ?"
_THESE: Final = f"{_ITS} AND login_id = ? AND version = ?"


class UpstreamLogin(OAuthLogin, frozen=True, kw_only=True):
    """A login at an upstream, as `ostiary upstream login` hands it over, and as it is kept."""


class KeptLogin(msgspec.Struct, frozen=True, kw_only=True):
    login: UpstreamLogin
    login_id: str
    version: int


class BadLogin(ValueError):
    """The error of something handed over that is no login."""


class LoginVault:
    """The sealing and opening of logins. `subkey` and `entropy` are lent."""

    def __init__(self, subkey: Callable[[str], bytes], entropy: Callable[[int], bytes]) -> None:
        self._subkey = subkey
        self._entropy = entropy

    def seal(self, upstream: UpstreamKey, person: str, login: UpstreamLogin) -> str:
        key, bound_to = self._subkey(SEAL_PURPOSE), _bound_to(upstream, person)
        return seal_struct(key, login, self._entropy, bound_to=bound_to)

    def open(self, upstream: UpstreamKey, person: str, sealed: str) -> UpstreamLogin | None:
        """Return the login; None if it was sealed with another key file, so that nobody can use it any more."""
        key, bound_to = self._subkey(SEAL_PURPOSE), _bound_to(upstream, person)
        return open_struct(key, sealed, UpstreamLogin, bound_to=bound_to)


def read_login(value: object) -> UpstreamLogin:
    """Read a login that the admin socket was given. Raise `BadLogin`, whose text holds none of it."""
    try:
        login = msgspec.convert(value, UpstreamLogin, dec_hook=decode_secret)
    except msgspec.ValidationError as error:
        raise BadLogin(str(error)) from None
    texts = (login.resource, login.issuer, login.token_endpoint, login.client_id, login.scope)
    if any(len(text) > MAX_TEXT for text in texts) or login.auth_method not in METHODS:
        raise BadLogin("it is no login of ours")
    return login


def handed_over(login: Any) -> dict[str, Any]:
    """Return the command line's `StoredLogin` as `read_login` takes it."""
    names = UpstreamLogin.__struct_fields__
    return {name: _plain(getattr(login, name)) for name in names}


class SealedLogin(NamedTuple):
    """A login as its row has it."""

    sealed: str
    login_id: str
    version: int


def fetch(db: StoreDb, upstream: UpstreamKey, person: str) -> SealedLogin | None:
    """Fetch a login, as a job."""
    row = db.fetch_one(
        f"SELECT sealed, login_id, version FROM upstream_tokens {_ITS}", *_key(upstream, person)
    )
    return None if row is None else SealedLogin(row["sealed"], row["login_id"], row["version"])


def put(
    db: StoreDb, upstream: UpstreamKey, person: str, *, sealed: str, login_id: str, by: str, now: Millis
) -> None:
    """Put a new login in the place of the one before, as a job."""
    db.execute(
        "INSERT INTO upstream_tokens"
        " (server, agent, person, user_id, sealed, login_id, version, obtained_at, obtained_by)"
        " VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?) ON CONFLICT (server, agent, person) DO UPDATE"
        " SET sealed = excluded.sealed, login_id = excluded.login_id, version = 1, refresher = NULL, refreshing_until = 0,"
        " obtained_at = excluded.obtained_at, obtained_by = excluded.obtained_by",
        *(*_key(upstream, person), person or None, sealed, login_id, now, by),
    )
    _tell(db, upstream, person)
    audit_trail.record(db, at=now, event="upstream.logged_in", actor=by, reason=str(upstream))


def take_turn(
    db: StoreDb,
    upstream: UpstreamKey,
    person: str,
    *,
    login_id: str,
    version: int,
    node: str,
    now: Millis,
    millis: Millis,
) -> bool:
    """Tell whether `node` may refresh these tokens, as a job. Nobody else may for so long, unless that node is gone, or says that it is done."""
    taken = db.execute(
        f"UPDATE upstream_tokens SET refresher = ?, refreshing_until = ? {_THESE} AND (refresher IS NULL"
        f" OR refreshing_until <= ? OR {gone('upstream_tokens.refresher')})",
        *(node, now + millis, *_key(upstream, person), login_id, version, now),
    )
    return taken == 1


def leave_turn(
    db: StoreDb, upstream: UpstreamKey, person: str, *, login_id: str, version: int, node: str
) -> None:
    """Leave the turn, as a job: these tokens were not refreshed, and another node may try."""
    db.execute(
        f"UPDATE upstream_tokens SET refresher = NULL, refreshing_until = 0 {_THESE} AND refresher = ?",
        *(*_key(upstream, person), login_id, version, node),
    )


def renew(
    db: StoreDb, upstream: UpstreamKey, person: str, *, sealed: str, login_id: str, version: int
) -> bool:
    """Write the tokens after a refresh, as a job, unless somebody logged in anew, or out, meanwhile."""
    written = db.execute(
        f"UPDATE upstream_tokens SET sealed = ?, version = version + 1, refresher = NULL, refreshing_until = 0 {_THESE}",
        *(sealed, *_key(upstream, person), login_id, version),
    )
    return written == 1


def end(
    db: StoreDb,
    upstream: UpstreamKey,
    person: str,
    *,
    login_id: str | None = None,
    version: int | None = None,
    by: str,
    why: str,
    now: Millis,
) -> bool:
    """Forget a login, as a job; with `login_id` and `version`, these tokens of it and no newer ones."""
    db.takes_away()
    if login_id is None:
        gone = db.execute(f"DELETE FROM upstream_tokens {_ITS}", *_key(upstream, person))
    else:
        gone = db.execute(f"DELETE FROM upstream_tokens {_THESE}", *_key(upstream, person), login_id, version)
    if gone:
        _tell(db, upstream, person)
        audit_trail.record(db, at=now, event="upstream.logged_out", actor=by, reason=f"{upstream}: {why}")
    return gone == 1


def whose(change: Change) -> tuple[str, str] | None:
    """Return the upstream and the person of a change to an account at an upstream."""
    upstream, _, person = change.entity_id.partition(_OF)
    return (upstream, person) if change.kind == CHANGE and person else None


def _tell(db: StoreDb, upstream: UpstreamKey, person: str) -> None:
    """Tell other processes."""
    db.changed(CHANGE, str(upstream) if person == OURS else f"{upstream}{_OF}{person}")


def _key(upstream: UpstreamKey, person: str) -> tuple[str, str, str]:
    return upstream.server, upstream.agent, person


def _bound_to(upstream: UpstreamKey, person: str) -> str:
    return msgspec.json.encode([upstream.server, upstream.agent, person]).decode()


def _plain(value: object) -> object:
    return value.reveal() if isinstance(value, Secret) else value
