"""The interface through which pages connect people's accounts at upstreams, so that tools act with those accounts.

The server implements it. Pages check who may see or disconnect an account; how tokens are obtained is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from auth.values.database import Db
from auth.values.identity_model import Millis

PREFIX: Final = "/connect/"
_PAGE: Final = re.compile(r"/connect/[a-z0-9-]{1,40}/[a-z0-9_-]{1,32}")


def is_page(path: str) -> bool:
    """Return whether a path has the form of a page for connecting an account."""
    return _PAGE.fullmatch(path) is not None


class AccountPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream at which each person has an account of their own."""

    server: str
    agent: str
    label: str  # the host where the account is
    by_key: bool = False  # it is a key that the person pastes

    @property
    def path(self) -> str:
        return f"{PREFIX}{self.server}/{self.agent}"

    @property
    def callback(self) -> str:
        return f"{self.path}/callback"


class ConnectedAccount(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    agent: str
    label: str
    since: Millis
    by_key: bool = False
    used: Millis | None = None  # when a key was last sent there, if this process knows


class CannotConnect(Exception):
    """A failure to connect an account. The message continues a sentence about the upstream, without secrets and addresses."""


class Connections(Protocol):
    def place(self, server: str, agent: str) -> AccountPlace | None: ...

    async def leave(self, place: AccountPlace, *, user_id: str, cookie: str, origin: str) -> str:
        """Begin to connect an account, and return the URL for the browser. Raise `CannotConnect`, and errors of the store."""
        ...

    async def come_back(
        self, place: AccountPlace, *, state: str, code: str, iss: str, user_id: str, cookie: str
    ) -> bool:
        """Finish connecting an account, once, for the person and browser that began; return False if nothing was begun.

        An empty `code` only ends what was begun. Raise `CannotConnect`, and errors of the store.
        """
        ...

    async def keep_key(self, place: AccountPlace, key: str, *, user_id: str) -> bool:
        """Keep a person's key, in the place of the one before; return False for what cannot be one. Raise what the store raises."""
        ...

    def listing(self, db: Db, user_id: str) -> Sequence[ConnectedAccount]:
        """Return the connected accounts of a person. Runs as a read job of the store."""
        ...

    async def end(self, server: str, agent: str, *, user_id: str) -> bool: ...
