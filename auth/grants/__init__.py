"""The grant types that /token knows: one table. Each is a pure `decide` and the job that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from auth.db import Db
from auth.errors import Refusal
from auth.grants.device import redeem
from auth.grants.exchange import Exchange, Issue
from auth.grants.refresh import refresh
from auth.model import DEVICE_CODE, REFRESH_TOKEN, Client

GrantJob: TypeAlias = Callable[[Db, Client, Exchange], Issue | Refusal]

GRANTS: Final[Mapping[str, GrantJob]] = MappingProxyType(
    {
        DEVICE_CODE: redeem,
        REFRESH_TOKEN: refresh,
    }
)
