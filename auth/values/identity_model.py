"""The nouns of identity. Rows become these at the edge of a job; nothing here decides anything.

Times are whole milliseconds since 1970 (`Millis`): rows hold them so in every engine, and arithmetic on them is exact.
They become dates only on pages and in logs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from auth.values.database import Row, from_row

Millis: TypeAlias = int

AUTHORIZATION_CODE = "authorization_code"
CLIENT_CREDENTIALS = "client_credentials"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
REFRESH_TOKEN = "refresh_token"


class PrincipalKind(StrEnum):
    USER = "user"  # a person, through a grant
    CLIENT = "client"  # a machine with its own credentials
    API_KEY = "api_key"
    LOCAL = "local"  # somebody at the machine, over the admin socket or stdio
    ANONYMOUS = "anonymous"
    PAYER = "payer"  # known by what it paid


# What the subject of somebody begins with who is known by what they paid; behind it, the network and the address.
PAYER: Final = "payer:"
# Kinds of login behind which no person stands, so that nobody's account bounds them.
OF_NOBODY: Final = frozenset({PrincipalKind.CLIENT, PrincipalKind.PAYER})
# Unless they have a token.
UNIDENTIFIED: Final = frozenset({PrincipalKind.ANONYMOUS, PrincipalKind.PAYER})


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a caller. `subject` is opaque and stable; `grant_id` names the login, or the key, that can be revoked.

    `tools` selects the tools that the caller may know of; if it is empty, the server's own selection applies
    (`server/settings/tool_selection.py`).
    """

    kind: PrincipalKind
    subject: str
    client_id: str | None = None
    grant_id: str | None = None
    scopes: frozenset[str] = frozenset()
    tools: str = ""
    # Of a person's login: what they could grant it besides. Nobody who asks a machine for more finds somebody there.
    reach: frozenset[str] = frozenset({"*"})
    # Whose state and ceiling bound it, where that is not the subject (an API key's user).
    user: str | None = None
    # What the owner knows them by, for records and the log: nothing is decided by them. Empty where there is no such name.
    person: str = ""
    program: str = ""  # or the key
    # Its names that are more than a claim (`client_registry.believed_names`): rules and hooks may decide by these.
    known_as: tuple[str, ...] = ()

    @property
    def identified(self) -> bool:
        """Return whether the caller can be told from all others. Callers without a login are all one subject."""
        return self.kind not in UNIDENTIFIED or self.grant_id is not None

    def key(self, address: str = "") -> str:
        """Return the key of the caller, which stays the same after a restart.

        Callers that are not identified are told apart by `address`, from which they call.
        """
        if self.kind in UNIDENTIFIED:
            if (
                self.grant_id is not None
            ):  # a payer with a token: whoever has the key that paid for it, by whichever token
                return f"x402:{self.subject.removeprefix(PAYER)}"
            return f"{self.kind.value}:{address}"
        return f"{self.kind.value}:{self.subject}:{self.client_id or ''}"


ANONYMOUS = Principal(kind=PrincipalKind.ANONYMOUS, subject="anonymous")
# Somebody who brings a payment in place of a credential, before it is known whose it is.
STRANGER = Principal(kind=PrincipalKind.PAYER, subject="payer", reach=frozenset())


class Client(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str  # builtin | registered (by the operator) | dynamic (by itself) | document (its id is the address of its metadata)
    name: str
    auth_method: str
    grant_types: tuple[str, ...]
    redirect_uris: tuple[str, ...]
    scope: str
    state: str
    created_at: Millis
    last_used_at: Millis | None
    secret_hash: str | None
    authorized_at: Millis | None = None  # when somebody first let it in
    client_uri: str = ""
    jwks: str | None = None
    jwks_uri: str | None = None
    introspects: bool = False  # may ask what a token is worth
    server: str | None = None  # the one that it is for
    network: str | None = None  # from where it registered itself

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name != "secret_hash")
        return f"Client({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def enabled(self) -> bool:
        return self.state == "enabled"

    @property
    def public(self) -> bool:
        """Return whether this is a public client (RFC 6749 §2.1): it does not authenticate, so anybody can use its id."""
        return self.auth_method == "none"

    @classmethod
    def of(cls, row: Row) -> Client:
        return from_row(
            cls,
            row,
            grant_types=tuple(row["grant_types"].split()),
            redirect_uris=tuple(row["redirect_uris"].split()),
            introspects=bool(row["introspects"]),
        )


# An owner who has not claimed the account yet has no way to sign in to a browser, but is the subject of logins that are
# approved at the machine. Everything that asks "may this user's login live?" therefore asks for membership here.
LIVE_USER_STATES = frozenset({"enabled", "unclaimed"})


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One login: what was agreed, and where its refresh chain stands."""

    id: str
    principal_kind: PrincipalKind
    subject: str  # a user's id; of a machine with credentials of its own, its client id
    client_id: str
    client_name: str
    hostname: str
    server: str
    origin: str
    scope: str
    ip: str
    user_agent: str
    approved_by: str
    auth_time: Millis
    created_at: Millis
    counter: int
    epoch: str
    rotated_at: Millis
    last_used_at: Millis
    idle_until: Millis
    expires_at: Millis
    revoked_at: Millis | None
    revoked_reason: str | None
    how: str = "device"  # device | code | client_credentials | assertion | payment
    redirect_host: str = ""  # where its browser was sent back to, if it was
    last_ip: str = ""  # of the last refresh
    jkt: str | None = None  # the thumbprint of the key without which it cannot be refreshed (RFC 9449)
    called_at: Millis | None = None  # to the minute; `last_used_at` is when it was given tokens

    @classmethod
    def of(cls, row: Row) -> Grant:
        return msgspec.convert(row, cls)
