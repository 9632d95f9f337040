"""The client that we are to an authorization server: an id, perhaps with a secret, and how that is shown (RFC 6749 §2.3)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from server.lib.secret import Secret

# The client that every ostiary knows from its first start.
BUILT_IN: Final = "ostiary-cli"
NONE: Final = "none"
POST: Final = "client_secret_post"
BASIC: Final = "client_secret_basic"
# What we can do, the simplest first. `private_key_jwt` and its like need a key that nobody gave us.
METHODS: Final = (NONE, POST, BASIC)


class ClientIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A client id, and the way in which it is shown."""

    client_id: str = BUILT_IN
    secret: Secret | None = None
    method: str = NONE

    def signed(self, form: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return `form` as this client sends it, and the headers that go with it."""
        headers = {"Accept": "application/json"}
        if self.secret is None or self.method == NONE:
            return {**form, "client_id": self.client_id}, headers
        if self.method == BASIC:
            # RFC 6749 §2.3.1 and appendix B: both halves are form-encoded first, because either may hold a colon;
            # a blank is %20, which those read too who do not read forms.
            pair = f"{quote(self.client_id, safe='')}:{quote(self.secret.reveal(), safe='')}"
            encoded = base64.b64encode(pair.encode()).decode()
            return dict(form), {**headers, "Authorization": f"Basic {encoded}"}
        return {**form, "client_id": self.client_id, "client_secret": self.secret.reveal()}, headers


class KnownClient(msgspec.Struct, frozen=True, kw_only=True):
    """The client that we are at one issuer, as it is kept."""

    issuer: str
    client_id: str
    client_secret: Secret | None = None
    auth_method: str = NONE

    @property
    def identity(self) -> ClientIdentity:
        return ClientIdentity(client_id=self.client_id, secret=self.client_secret, method=self.auth_method)


def method_for(offered: tuple[str, ...], *, secret: bool) -> str:
    """Choose how a client with or without a secret shows itself to a server that offers these ways."""
    if not secret:
        return NONE
    # A server that lists none is to be taken to want Basic (RFC 8414 §2).
    return POST if POST in offered and BASIC not in offered else BASIC
