"""What each server takes as a credential, from its settings: kinds, and static tokens read from where they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from auth.tokens.accepted_credentials import AcceptedCredentials, static_principal
from auth.tokens.presented_credentials import digest_of
from auth.values import scopes
from auth.values.identity_model import Principal
from server.settings.policy_settings import LEAST_TOKEN
from server.settings.secret_reference import SecretUnreadable, read_secret
from server.settings.setting_shapes import ServerConfig


def access_of(servers: Sequence[ServerConfig]) -> Mapping[str, AcceptedCredentials]:
    """By the name of the server. Raises `SecretUnreadable`, which never says a token."""
    return MappingProxyType({server.name: _access(server) for server in servers})


def _access(server: ServerConfig) -> AcceptedCredentials:
    return AcceptedCredentials(
        login="login" in server.accepts,
        api_key="api-key" in server.accepts,
        basic="basic" in server.accepts,
        tokens=MappingProxyType(_tokens(server)),
    )


def _tokens(server: ServerConfig) -> dict[bytes, Principal]:
    found: dict[bytes, Principal] = {}
    for token in server.tokens:
        where = f"the token {token.name} of the server {server.name}"
        try:
            text = read_secret(token.token).reveal()
        except SecretUnreadable as error:
            raise SecretUnreadable(f"{where}: {error}") from error
        if len(text) < LEAST_TOKEN or not text.isascii() or any(each.isspace() for each in text):
            raise SecretUnreadable(
                f"{where} has at least {LEAST_TOKEN} letters, digits and signs of ASCII, without spaces:"
                " make one with `openssl rand -hex 32`"
            )
        digest = digest_of(text)
        if digest in found:
            raise SecretUnreadable(f"{where} is another one's too: each machine has a token of its own")
        named = frozenset(scopes.parse(token.scope))
        found[digest] = static_principal(server.name, token.name, scopes=named, tools=token.tools)
    return found
