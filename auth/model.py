"""The nouns of identity. Rows become these at the edge of a job; nothing here decides anything.

Times are whole milliseconds since 1970 (`Millis`): rows hold them so in every engine, and arithmetic on them is exact.
They become dates only on pages and in logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Millis: TypeAlias = int


class PrincipalKind(StrEnum):
    USER = "user"  # a person, through a grant
    CLIENT = "client"  # a machine with its own credentials
    API_KEY = "api_key"
    LOCAL = "local"  # somebody at the machine, over the admin socket or stdio
    ANONYMOUS = "anonymous"
    PAYER = "payer"  # known by what it paid


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """Who calls. `subject` is opaque and stable; `grant_id` names the login that can be revoked."""

    kind: PrincipalKind
    subject: str
    client_id: str | None = None
    grant_id: str | None = None
    scopes: frozenset[str] = frozenset()


ANONYMOUS = Principal(kind=PrincipalKind.ANONYMOUS, subject="anonymous")
