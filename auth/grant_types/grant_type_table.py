"""The grant types that /token knows: one table. Each is a pure `decide` and the job that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from auth.grant_types.authorization_code_grant import redeem_code
from auth.grant_types.client_credentials_grant import grant
from auth.grant_types.device_code_grant import redeem
from auth.grant_types.jwt_bearer_grant import redeem_assertion
from auth.grant_types.refresh_token_grant import refresh
from auth.grants.token_request import GrantRequest, Issue
from auth.values.database import Db
from auth.values.identity_model import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    JWT_BEARER,
    REFRESH_TOKEN,
    Client,
)
from auth.values.limits_and_lifetimes import Policy
from auth.values.oauth_errors import OAuthRefusal

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
