"""The error response of OAuth as a value, and the HTTP status of each error code.

A job *returns* an expected refusal, so that its rows about it (an audit row, a longer interval) are committed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import msgspec

# RFC 6749 §5.2, RFC 8628 §3.5 (poll errors are 400), RFC 8707 §2, RFC 7009 §2.2.1, RFC 7591 §3.2.2. `temporarily_unavailable` is our 429.
STATUS: Final = MappingProxyType(
    {
        "invalid_request": 400,
        "invalid_client": 401,
        "invalid_grant": 400,
        "unauthorized_client": 400,
        "unsupported_grant_type": 400,
        "invalid_scope": 400,
        "invalid_target": 400,
        "access_denied": 400,
        "expired_token": 400,
        "authorization_pending": 400,
        "slow_down": 400,
        "unsupported_response_type": 400,
        "request_not_supported": 400,
        "invalid_redirect_uri": 400,
        "invalid_client_metadata": 400,
        "invalid_token": 401,
        "invalid_dpop_proof": 400,  # RFC 9449 §12.2
        "temporarily_unavailable": 429,
    }
)


class OAuthRefusal(msgspec.Struct, frozen=True, kw_only=True):
    error: str
    description: str
    retry_after_seconds: int | None = None

    @property
    def status(self) -> int:
        return STATUS[self.error]


def try_later(description: str, wait_ms: int) -> OAuthRefusal:
    """Refuse what may be asked again after this time."""
    seconds = max(1, -(-wait_ms // 1_000))
    return OAuthRefusal(error="temporarily_unavailable", description=description, retry_after_seconds=seconds)
