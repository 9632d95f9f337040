"""What pages need of accounts that people have elsewhere and connect here, so that tools are used with them: lent by the server.

Who may see or end what is the pages' to check; where accounts are, and how one comes to their tokens, is not known here.
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
    """Whether it can be where somebody connects an account."""
    return _PAGE.fullmatch(path) is not None


class AccountPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream at which each person has an account of their own."""

    server: str
    agent: str
    label: str  # the host where the account is

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


class CannotConnect(Exception):
    """The text continues a sentence about whoever has the account; no secret, no address."""


class Connections(Protocol):
    def place(self, server: str, agent: str) -> AccountPlace | None: ...

    async def leave(self, place: AccountPlace, *, user_id: str, cookie: str, origin: str) -> str:
        """Where the browser goes. Raises `CannotConnect`, and what the store raises."""
        ...

    async def come_back(
        self, place: AccountPlace, *, state: str, code: str, iss: str, user_id: str, cookie: str
    ) -> bool:
        """Once, for the person and the browser that left; False: nothing of the kind is under way. An empty code only uses it up.
        Raises `CannotConnect`, and what the store raises."""
        ...

    def listing(self, db: Db, user_id: str) -> Sequence[ConnectedAccount]:
        """A job that reads."""
        ...

    async def end(self, server: str, agent: str, *, user_id: str) -> bool: ...
