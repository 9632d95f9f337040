"""The settings that say how much is too much: `[limits]` for the process, `[server.limits]` for one server. Limits of a
tool are with its other settings (policy_settings.py), and counting is in server/store/limits.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from server.lib.rates.rates import QUOTA, QUOTA_WORDS, RATE, RATE_WORDS

AT_ONCE_WORDS: Final = "a number from 0 (as many as there are) to 100000"

_AT_ONCE: Final = Meta(ge=0, le=100_000, description=AT_ONCE_WORDS)
_RATE: Final = Meta(pattern=RATE, description=RATE_WORDS)
_QUOTA: Final = Meta(pattern=QUOTA, description=QUOTA_WORDS)


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`. The defaults are met by no program that a person sits at."""

    address: Annotated[str, _RATE] = "600/min"
    caller: Annotated[str, _RATE] = "1200/min"
    calls_at_once: Annotated[int, _AT_ONCE] = 256
    quota: Annotated[str, _QUOTA] = ""
    loopback: bool = False


class ServerLimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.limits]`. None: as `[limits]` has it."""

    address: Annotated[Annotated[str, Meta(pattern=RATE)] | None, Meta(description=RATE_WORDS)] = None
    caller: Annotated[Annotated[str, Meta(pattern=RATE)] | None, Meta(description=RATE_WORDS)] = None
    calls_at_once: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None, Meta(description=AT_ONCE_WORDS)
    ] = None
    quota: Annotated[Annotated[str, Meta(pattern=QUOTA)] | None, Meta(description=QUOTA_WORDS)] = None
