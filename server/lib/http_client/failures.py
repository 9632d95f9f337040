"""Failures of an exchange with another server. The meaning of a status and a body is the caller's to decide."""

from __future__ import annotations


class FetchFailed(Exception):
    """A failed exchange. The text continues a sentence about the other side, and names neither address nor secret."""


class NotConnected(FetchFailed):
    """An exchange that failed before a byte of the request was sent."""


class UnknownName(NotConnected):
    """A name that leads to no address, or that is not valid."""


class NobodyAnswers(NotConnected):
    """An address at which nothing listens, or to which no way leads."""


class ConnectTimeout(NotConnected):
    """A connection, or its TLS handshake, that took too long."""


class TlsFailed(NotConnected):
    """A TLS handshake that failed."""


class NotTls(TlsFailed):
    """A TLS handshake with something that does not speak TLS."""


class BadCertificate(TlsFailed):
    """A certificate that does not prove who the other side is."""


class NoTrust(NotConnected):
    """A lack of authorities by which a certificate could be judged. The text names the file."""


class ProxyFailed(NotConnected):
    """A proxy that cannot be reached, refuses, or wants a login. The text names its host."""


class TooManyConnections(NotConnected):
    """A call too many: all connections that we allow ourselves are in use."""


class UnusableAddress(FetchFailed):
    """An address that cannot be asked."""

    def __init__(self) -> None:
        super().__init__("has an address that cannot be used")


class UnusableHeader(FetchFailed):
    """A header that cannot be sent as one line."""

    def __init__(self) -> None:
        super().__init__("cannot be sent one of the headers")


class Silent(FetchFailed):
    """An answer that did not come, or did not go on, in the time that it may be silent."""

    def __init__(self) -> None:
        super().__init__("did not answer in time")


class CompressedUnasked(FetchFailed):
    """An answer that is compressed, and could unfold into more than was counted."""

    def __init__(self) -> None:
        super().__init__("sent a compressed answer that was not asked for")


class BrokenOff(FetchFailed):
    """An answer that did not arrive in full. The request may have been carried out."""

    def __init__(self) -> None:
        super().__init__("closed the connection before it had answered in full")


class NotHttp(FetchFailed):
    """An answer that is not HTTP/1.1, or that could be read in two ways."""

    def __init__(self) -> None:
        super().__init__("did not answer in HTTP")


class TooLarge(FetchFailed):
    """An answer that is longer than was asked for."""


class DeadlinePassed(Exception):
    """An exchange that took longer than it may. The other side may have done what it was asked for."""
