"""What the connection layer itself refuses, before or instead of the application. What an application answers is not here."""

from __future__ import annotations

import http
from types import MappingProxyType
from typing import Final


class RequestRefused(Exception):
    """A request that is answered here, with `status` and a fixed sentence (never an echo of what was sent), then closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class Disconnected(OSError):
    """The peer is gone, or has stopped reading: there is nobody left to answer."""


PHRASES: Final = MappingProxyType({status.value: status.phrase.encode() for status in http.HTTPStatus})
