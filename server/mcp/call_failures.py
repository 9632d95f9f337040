"""Failures of a call. A `BackendError` is one that a person should read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class BackendError(Exception):
    """A call that could not be carried out; `str(error)` is written for the caller and holds no secret."""


class Unanswered(BackendError):
    """An exchange over a network in which no answer came, or not the whole of one. Another try may get one."""


class CannotAsk(BackendError):
    """A caller whose client cannot be asked; `required` is what it would have to declare (`ClientCapabilities`)."""

    def __init__(self, text: str, required: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(text)
        self.required = required


class NotAnswered(BackendError):
    """A refusal of the caller's client that was asked, or an answer that cannot be used. The tool may go on without."""


class Busy(BackendError):
    """A call whose turn it was not: the agent has as many as it may have at once. `why` in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the agent is busy: {why}")
        self.why = why


class Paused(Exception):
    """A signal of `Outlet.ask` that the answers come with a later request, which runs the call again. Clean up, and let it
    pass: no error is meant."""
