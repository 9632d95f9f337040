"""How the facilitator misbehaves when it is told to, so that whoever is paid through it can be tested: as flags write it, and as JSON.

    fail            answers success:false, certainly: no coins moved          500              answers 500, nothing was done
    hang            never answers, nothing was done                           garbage          answers 200 with what is no JSON
    lost            settles, then cuts the connection without an answer       504-after-settle settles, then answers 504
    slow            does it, and answers after some seconds                   late             answers 504, and settles some seconds later
    pending         settles, and answers settlement_pending with the transaction: the same request again is told of its success

A number behind a colon is seconds (`slow:20`), a word is the reason that `fail` gives (`fail:insufficient_funds`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

OK: Final = "ok"
FAIL: Final = "fail"
HANG: Final = "hang"
LOST: Final = "lost"
SLOW: Final = "slow"
LATE: Final = "late"
PENDING: Final = "pending"
GARBAGE: Final = "garbage"
ERROR_500: Final = "500"
GATEWAY_504: Final = "504-after-settle"

# What is said where, and what may be: `late` and the like have no meaning where nothing moves.
MODES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "verify": (OK, FAIL, HANG, LOST, SLOW, ERROR_500, GARBAGE),
        "settle": (OK, FAIL, HANG, LOST, SLOW, LATE, ERROR_500, GATEWAY_504, GARBAGE, PENDING),
    }
)
USUAL_SECONDS: Final = 5.0
MOST_SECONDS: Final = 3600.0
MOST_TIMES: Final = 1_000_000
# One that means for certain that nothing was sent anywhere.
USUAL_REASON: Final = "insufficient_funds"

_SECONDS: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
_REASON: Final = re.compile(r"[a-z0-9_]{1,80}")


class BadSwitch(ValueError):
    """There is no such switch; says what there is."""


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    mode: str = OK
    seconds: float = 0.0
    reason: str = ""
    times: int | None = None  # None: until it is set anew

    @property
    def written(self) -> str:
        if self.mode in (SLOW, LATE):
            return f"{self.mode}:{self.seconds:g}"
        return f"{self.mode}:{self.reason}" if self.mode == FAIL else self.mode


def parse_switch(step: str, text: str, times: int | None = None) -> Switch:
    """Raises `BadSwitch`."""
    mode, colon, more = text.partition(":")
    if mode not in MODES[step]:
        raise BadSwitch(f"{step} is one of {', '.join(MODES[step])}")
    if times is not None and not 1 <= times <= MOST_TIMES:
        raise BadSwitch(f"times is a number from 1 to {MOST_TIMES}")
    if mode in (SLOW, LATE):
        if colon and (not _SECONDS.fullmatch(more) or float(more) > MOST_SECONDS):
            raise BadSwitch(f"{mode} takes seconds, like {mode}:20, up to {MOST_SECONDS:g}")
        return Switch(mode=mode, seconds=float(more) if colon else USUAL_SECONDS, times=times)
    if mode == FAIL:
        if colon and not _REASON.fullmatch(more):
            raise BadSwitch(f"fail takes a reason, like fail:{USUAL_REASON}")
        return Switch(mode=mode, reason=more if colon else USUAL_REASON, times=times)
    if colon:
        raise BadSwitch(f"{mode} takes nothing behind a colon")
    return Switch(mode=mode, times=times)


class Switches:
    """The ones that hold now."""

    def __init__(self, verify: Switch | None = None, settle: Switch | None = None) -> None:
        self._now = {"verify": verify or Switch(), "settle": settle or Switch()}

    def set(self, step: str, switch: Switch) -> None:
        self._now[step] = switch

    def take(self, step: str) -> Switch:
        """The one for the request that is here now; one of its times is over."""
        switch = self._now[step]
        if switch.times is not None:
            left = switch.times - 1
            self._now[step] = msgspec.structs.replace(switch, times=left) if left else Switch()
        return switch

    def as_json(self) -> dict[str, object]:
        return {
            step: {"mode": switch.written, **({} if switch.times is None else {"times": switch.times})}
            for step, switch in self._now.items()
        }
