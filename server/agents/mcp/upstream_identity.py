"""`identity` and `oauth` of an agent with `kind = "mcp"`: as whom its upstream is called. Settings and their rules; how tokens are come
by is server/agents/mcp/trust's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from server.settings.header_settings import secret_address_problem

IdentityKind = Literal["login", "token", "client-credentials", "exchange", "id-jag", "person", "person-key"]

# What each cannot do without, and what else it uses.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "login": (),
        "token": (),
        "client-credentials": ("token_url", "client_id", "client_secret"),
        "exchange": ("token_url", "client_id"),
        "id-jag": ("token_url", "authorization_server", "client_id", "client_secret"),
        "person": ("authorization_server",),
        "person-key": (),
    }
)
_USED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "login": (),
        "token": ("audience", "scope", "seconds"),
        "client-credentials": ("audience", "scope", "client_auth"),
        "exchange": ("audience", "scope", "client_secret", "client_auth"),
        "id-jag": ("audience", "scope", "client_auth"),
        "person": ("audience", "scope", "client_id", "client_secret", "client_auth"),
        "person-key": (),
    }
)


class UpstreamOAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that the ways to a token need."""

    audience: Annotated[
        str, Meta(max_length=2048, description="whom the token is for, where that is not the url")
    ] = ""
    scope: Annotated[
        str, Meta(max_length=1024, pattern=r"^[!-~ ]*$", description="scopes with spaces between them")
    ] = ""
    seconds: Annotated[int, Meta(ge=60, le=300, description="seconds from 60 to 300")] = 120
    token_url: Annotated[
        str, Meta(max_length=2048, description="the address of its authorization server's token endpoint")
    ] = ""
    authorization_server: Annotated[
        str, Meta(max_length=2048, description="the issuer, as its authorization server calls itself")
    ] = ""
    client_id: Annotated[
        str,
        Meta(max_length=1024, pattern=r"^[ -~]*$", description="the id of a client that is registered there"),
    ] = ""
    client_secret: Annotated[
        str, Meta(max_length=4096, description='a reference, "env:NAME" or "file:/path"')
    ] = ""
    client_auth: Annotated[
        Literal["basic", "post"], Meta(description='"basic" or "post": how the secret is shown')
    ] = "basic"

    def __repr__(self) -> str:  # the secret's place may hold the secret itself
        return f"{type(self).__name__}(client_id={self.client_id!r})"


NO_OAUTH: Final = UpstreamOAuth()


def identity_problems(
    identity: IdentityKind, oauth: UpstreamOAuth, *, url: str, named: bool, sends_authorization: bool
) -> list[tuple[str, str]]:
    """Return what is wrong, as (key, what it is and what to write). `named`: the server has an id."""
    if identity != "login" and not url:
        return [("identity", "is for a server at a url: nothing else is sent credentials; leave it out")]
    found: list[tuple[str, str]] = []
    # With keys of people, the settings' own is for what this server asks in its own name.
    if identity not in ("login", "person-key") and sends_authorization:
        found.append(("identity", "contradicts token and the header authorization; write one of the two"))
    if identity in ("person", "person-key") and not named:
        found.append(
            ("id", f'is missing; identity = "{identity}" needs one, for the address where people connect')
        )
    needed = _NEEDED[identity]
    found += [
        (f"oauth.{name}", f'is missing; identity = "{identity}" needs it')
        for name in needed
        if not getattr(oauth, name)
    ]
    found += [
        (f"oauth.{name}", f'is not used by identity = "{identity}"; leave it out')
        for name in UpstreamOAuth.__struct_fields__
        if name not in (*needed, *_USED[identity]) and getattr(oauth, name) != getattr(NO_OAUTH, name)
    ]
    if oauth.client_secret and not oauth.client_secret.startswith(("env:", "file:")):
        found.append(("oauth.client_secret", "is not a reference; write env:NAME or file:/path"))
    for name in ("token_url", "authorization_server"):
        value: str = getattr(oauth, name)
        if value and (problem := secret_address_problem(value)):
            found.append((f"oauth.{name}", problem))
    return found
