"""One thing that was looked at of a server, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from server.mcp.tool_names import MEND, refusal

# Of what is left out, how many are named, and how much is said of each.
LEFT_OUT: Final = 5
LEFT_OUT_CHARACTERS: Final = 300

State = Literal["ok", "failed", "skipped"]


class CheckStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a check-up. `detail` and `hint` may hold words of the server: they are cleaned where they are printed."""

    name: str
    state: State
    detail: str
    hint: str | None = None
    goes_on: bool = False  # failed, and yet there is somebody to ask further

    @classmethod
    def ok(cls, name: str, detail: str, hint: str | None = None) -> CheckStep:
        return cls(name=name, state="ok", detail=detail, hint=hint)

    @classmethod
    def failed(cls, name: str, detail: str, hint: str | None = None, *, goes_on: bool = False) -> CheckStep:
        return cls(name=name, state="failed", detail=detail, hint=hint, goes_on=goes_on)

    @classmethod
    def skipped(cls, name: str, detail: str, hint: str | None = None) -> CheckStep:
        return cls(name=name, state="skipped", detail=detail, hint=hint)


def names_step(refused: list[str]) -> CheckStep:
    """Return what there is to say of tools whose names hosts refuse."""
    return CheckStep(name="tool names", state="failed", detail=refusal(refused), hint=MEND)


def left_out_step(left_out: Sequence[str]) -> CheckStep:
    """Return the fault that some of what agents have is not offered."""
    more = f"; and {len(left_out) - LEFT_OUT} more" if len(left_out) > LEFT_OUT else ""
    named = "; ".join(each[:LEFT_OUT_CHARACTERS] for each in left_out[:LEFT_OUT])
    hint = 'ostiary upstream list shows them; tools = ["!NAME"] of the upstream says that one is not wanted'
    return CheckStep.failed("left out", f"not offered: {named}{more}", hint)
