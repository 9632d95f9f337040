"""How an exchange with another server can fail. What its status and its body mean is for whoever asked."""

from __future__ import annotations


class FetchFailed(Exception):
    """The exchange failed. The text continues a sentence about the other side, and names neither address nor secret."""


class NotConnected(FetchFailed):
    """Not a byte of the request was sent."""


class TooManyConnections(NotConnected):
    """All connections that we allow ourselves are in use."""


class BadCertificate(NotConnected):
    """The other side could not prove who it is."""


class BrokenOff(FetchFailed):
    """The request may have been carried out, but its answer did not arrive in full."""

    def __init__(self) -> None:
        super().__init__("closed the connection before it had answered in full")


class NotHttp(FetchFailed):
    """What came is not an answer in HTTP/1.1, or one that could be read in two ways."""

    def __init__(self) -> None:
        super().__init__("did not answer in HTTP")


class TooLarge(FetchFailed):
    """The answer is longer than was asked for."""


class DeadlinePassed(Exception):
    """The whole exchange took longer than it may. What was asked for may have happened."""
