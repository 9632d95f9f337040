"""The grant types that /token knows: one table. Each is a pure `decide` and the job that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from auth.grants.assertion import redeem_assertion
from auth.grants.client_credentials import grant
from auth.grants.code import redeem_code
from auth.grants.device import redeem
from auth.grants.exchange import GrantRequest, Issue
from auth.grants.refresh import refresh
from auth.values.db import Db
from auth.values.errors import OAuthRefusal
from auth.values.model import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    JWT_BEARER,
    REFRESH_TOKEN,
    Client,
)
from auth.values.policy import Policy

GrantJob: TypeAlias = Callable[[Db, Client, GrantRequest], Issue | OAuthRefusal]

GRANTS: Final[Mapping[str, GrantJob]] = MappingProxyType(
    {
        AUTHORIZATION_CODE: redeem_code,
        DEVICE_CODE: redeem,
        REFRESH_TOKEN: refresh,
        CLIENT_CREDENTIALS: grant,
        JWT_BEARER: redeem_assertion,
    }
)


def offered(policy: Policy) -> tuple[str, ...]:
    """Those that this server's settings leave in force, in the table's order: what is published, and what /token knows."""
    return tuple(name for name in GRANTS if name != JWT_BEARER or policy.assertions)
