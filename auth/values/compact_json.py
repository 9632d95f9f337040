"""JSON on its way out: compact, and the same bytes for the same value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

json_bytes: Final[Callable[[Mapping[str, Any]], bytes]] = msgspec.json.encode
