"""The first thing that a TLS client says, read before anything is answered: which name it wants, and which protocols it speaks.

Only as much as is needed to tell a certificate authority that looks at a name (RFC 8737) from everybody else: nothing is judged
here but the form. TLS itself is OpenSSL's, which is given the same bytes afterwards. RFC 8446 §4.1.2, RFC 6066 §3, RFC 7301 §3.1.
"""

from __future__ import annotations

from typing import Final

import msgspec

# What a browser says first is below 2 KiB, and one that offers several new key shares below 8.
HELLO_BYTES: Final = 64 * 1024

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ALPN: Final = 16


class NotAHello(Exception):
    """What came is not the beginning of TLS. OpenSSL has words for that."""


class TlsHello(msgspec.Struct, frozen=True, kw_only=True):
    server_name: str = ""  # in small letters; empty where none was named
    protocols: tuple[bytes, ...] = ()


def read_hello(data: bytes) -> TlsHello | None:
    """None: there is more to come. Raises `NotAHello`."""
    message = bytearray()
    at = 0
    while True:
        if len(data) - at < 5:
            return _unfinished(data)
        if data[at] != _HANDSHAKE or data[at + 1] != 3:
            raise NotAHello
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if not size:
            raise NotAHello
        message += data[at + 5 : at + 5 + size]
        at += 5 + size
        if message and message[0] != _CLIENT_HELLO:
            raise NotAHello
        if len(message) >= 4:
            length = int.from_bytes(message[1:4], "big")
            if len(message) >= 4 + length:
                return _read(_Reader(bytes(message[4 : 4 + length])))
            if length > HELLO_BYTES:
                raise NotAHello
        if at > len(data):
            return _unfinished(data)


def _unfinished(data: bytes) -> None:
    if len(data) > HELLO_BYTES:
        raise NotAHello


def _read(hello: _Reader) -> TlsHello:
    hello.take(2 + 32)  # version, random
    hello.block(1)  # session id
    hello.block(2)  # ciphers
    hello.block(1)  # compression
    if not hello.left:
        return TlsHello()
    extensions = _Reader(hello.block(2))
    name, protocols = "", list[bytes]()
    while extensions.left:
        kind, content = extensions.number(2), _Reader(extensions.block(2))
        if kind == _SERVER_NAME and content.left:
            names = _Reader(content.block(2))
            if names.number(1) == 0:
                name = names.block(2).decode("latin-1").lower()
        elif kind == _ALPN:
            listed = _Reader(content.block(2))
            while listed.left:
                protocols.append(listed.block(1))
    return TlsHello(server_name=name, protocols=tuple(protocols))


class _Reader:
    """Lengths are the peer's word: whatever goes beyond what is there is no hello."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise NotAHello
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> bytes:
        return self.take(self.number(size))
