"""What a file settles for all its tools."""

from __future__ import annotations


class Defaults:
    def __init__(self) -> None:
        self.structured = False
        self.coerce = False
        self.show_errors = False

    def settle(self, *, structured: bool | None, coerce: bool | None, show_errors: bool | None) -> None:
        if structured is not None:
            self.structured = structured
        if coerce is not None:
            self.coerce = coerce
        if show_errors is not None:
            self.show_errors = show_errors
