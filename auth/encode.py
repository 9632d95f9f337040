"""JSON on its way out: compact, and the same bytes for the same value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def json_bytes(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value)
