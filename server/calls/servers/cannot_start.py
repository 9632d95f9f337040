"""Why a server cannot be started."""

from __future__ import annotations

from collections.abc import Sequence


class CannotStart(Exception):
    """Something on this machine prevents the start; the text says what, the hint what to do. Where the text only says how
    many things do, they are the details, one line each."""

    def __init__(
        self, problem: str, hint: str = "", details: Sequence[str] = (), *, lasting: bool = False
    ) -> None:
        super().__init__(problem)
        self.hint = hint
        self.details = tuple(details)
        self.lasting = lasting  # it will not go away by itself
