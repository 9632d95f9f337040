"""One thing that was looked at of a server, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from server.mcp.tool_names import MEND, refusal

# Of what is left out, how many are named, and how much is said of each.
LEFT_OUT: Final = 5
LEFT_OUT_CHARACTERS: Final = 300
NAME_CHARACTERS: Final = 128

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


def old_names_step(told: Mapping[str, Any]) -> CheckStep:
    """Return the step about names by which tools may be called still, and which of them are."""
    if told["over"]:
        return CheckStep.ok(
            "old names", f"they counted until {told['until']}", "old_names can be taken out of the settings"
        )
    used: Mapping[str, Mapping[str, str]] = told["used"]
    if not used:
        return CheckStep.ok("old names", "none was called since the start")
    named = "; ".join(
        f"{old[:NAME_CHARACTERS]} is {each['now']}{_by(each['program'])}"
        for old, each in list(used.items())[:LEFT_OUT]
    )
    more = f"; and {len(used) - LEFT_OUT} more" if len(used) > LEFT_OUT else ""
    return CheckStep.ok(
        "old names",
        f"still called: {named}{more}",
        "programs that read the list of tools anew stop that by themselves",
    )


def _by(program: str) -> str:
    return f" (last by {program[:NAME_CHARACTERS]})" if program else ""


def left_out_step(left_out: Sequence[str]) -> CheckStep:
    """Return the fault that some of what agents have is not offered."""
    more = f"; and {len(left_out) - LEFT_OUT} more" if len(left_out) > LEFT_OUT else ""
    named = "; ".join(each[:LEFT_OUT_CHARACTERS] for each in left_out[:LEFT_OUT])
    hint = 'ostiary upstream list shows them; tools = ["!NAME"] of the upstream says that one is not wanted'
    return CheckStep.failed("left out", f"not offered: {named}{more}", hint)
