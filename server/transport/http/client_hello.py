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


class HelloListener:
    """One client, while it says it. However small the pieces are in which it comes, each byte is looked at once."""

    def __init__(self) -> None:
        self.heard: Final = bytearray()
        self._read_to = 0  # of that, whole records
        self._message = bytearray()  # what was in them

    def take(self, data: bytes | bytearray) -> TlsHello | None:
        """None: there is more to come. Raises `NotAHello`."""
        heard, message = self.heard, self._message
        heard += data
        while len(heard) - self._read_to >= 5:
            at = self._read_to
            size = int.from_bytes(heard[at + 3 : at + 5], "big")
            if heard[at] != _HANDSHAKE or heard[at + 1] != 3 or not size:
                raise NotAHello
            begins = (message[:4] + heard[at + 5 : at + 5 + min(size, 4)])[:4]
            if begins and begins[0] != _CLIENT_HELLO:
                raise NotAHello
            length = int.from_bytes(begins[1:4], "big") if len(begins) == 4 else 0
            if length > HELLO_BYTES:
                raise NotAHello
            if len(heard) - at - 5 < size:
                break
            message += heard[at + 5 : at + 5 + size]
            self._read_to = at + 5 + size
            if len(message) >= 4 + length and len(begins) == 4:
                return _read(_Reader(bytes(message[4 : 4 + length])))
        if len(heard) > HELLO_BYTES:
            raise NotAHello
        return None


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
