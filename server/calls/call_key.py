"""The key that a caller has given a call, so that the same call is known again."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from server.calls.request import Request
from server.store.idempotency.call_keys import IDEMPOTENCY_HEADER


def key_of(request: Request) -> Any:
    """As it came, in the `_meta` of a request or in its headers; None for none."""
    meta, headers = request.route.params.meta, request.headers
    key: Any = request.idempotency_key if meta.idempotency_key is UNSET else meta.idempotency_key
    if key is None and headers is not None and IDEMPOTENCY_HEADER in headers:
        key = headers[IDEMPOTENCY_HEADER].decode("latin-1")
    return key
