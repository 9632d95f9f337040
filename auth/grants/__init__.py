"""The grant types that /token knows: one table. Each is a pure `decide` and the job that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from auth.db import Db
from auth.errors import Refusal
from auth.grants.client_credentials import grant
from auth.grants.code import redeem_code
from auth.grants.device import redeem
from auth.grants.exchange import Exchange, Issue
from auth.grants.refresh import refresh
from auth.model import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, DEVICE_CODE, REFRESH_TOKEN, Client

GrantJob: TypeAlias = Callable[[Db, Client, Exchange], Issue | Refusal]

GRANTS: Final[Mapping[str, GrantJob]] = MappingProxyType(
    {
        AUTHORIZATION_CODE: redeem_code,
        DEVICE_CODE: redeem,
        REFRESH_TOKEN: refresh,
        CLIENT_CREDENTIALS: grant,
    }
)
