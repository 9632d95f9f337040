"""The head of an answer: bytes in, a `ResponseHead` out, or `NotHttp`. Pure; bodies are in client_connection.py.

The grammar is RFC 9112 §4 and §5 with what §2.2 and §5.2 let a client forgive: lines that end without CR, and folded ones.
Where a message ends is decided here alone (§6.3). An answer that two readers could take for two different ones is refused, with one
exception that the RFC makes too: a Content-Length beside a Transfer-Encoding is passed over (programs that hand on somebody
else's headers send both). A server that needs to be forgiven is not trusted with a second request on the same connection.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from server.lib.http_client.failures import NotHttp

# Everything that may come before a body, interim answers included. Common servers send 1 to 2 KiB, and none 64.
HEAD_BYTES: Final = 100 * 1024
CHUNKED: Final = -1
UNTIL_CLOSE: Final = -2
LENGTH_DIGITS: Final = 20

HEAD_END: Final = re.compile(rb"\n\r?\n")
# Possessive throughout: one pass, whatever is sent.
_GRAMMAR: Final = re.compile(
    rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: [\t -~\x80-\xff]*+)?\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[^\x00\r\n]*+\r\n)*+)\r\n"
)
_FIELDS: Final = re.compile(rb"([^:\r\n]++):([^\r\n]*+)\r\n")
_FOLD: Final = re.compile(rb"\n[\t ]++")
_START: Final = b"HTTP/1."


class ResponseHead(msgspec.Struct, frozen=True):
    """The status and the fields of an answer, and how long its body is."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]  # names in small letters
    length: int  # of the body in bytes, or CHUNKED, or UNTIL_CLOSE
    keep_alive: bool
    encoded: bool  # the body is compressed, or otherwise not as it was meant
    media_type: str = ""  # of the body, in small letters, without its parameters

    def value(self, name: bytes) -> str:
        """Return the value, several joined by commas, or an empty text. `name` is in small letters."""
        return b", ".join([value for known, value in self.fields if known == name]).decode("latin-1")

    def values(self, name: bytes) -> list[str]:
        """Return the value of each such line, where a comma may be part of one. `name` is in small letters."""
        return [value.decode("latin-1") for known, value in self.fields if known == name]


def read_response_head(raw: bytes) -> ResponseHead:
    """Read `raw`, from the status line to the empty line, both included. The request was not a HEAD or a CONNECT."""
    strict = _GRAMMAR.fullmatch(raw)
    found = strict or _GRAMMAR.fullmatch(_mended(raw))
    if found is None:
        raise NotHttp
    minor, digits, lines = found.groups()
    keep_alive = strict is not None and minor != b"0"
    length: int | None = None
    chunked = encoded = False
    media_type = b""
    fields: list[tuple[bytes, bytes]] = []
    for name, value in _FIELDS.findall(lines):
        name = name.lower()
        value = value.strip(b" \t")
        fields.append((name, value))
        if name == b"content-length":
            if length is None and value.isdigit() and len(value) <= LENGTH_DIGITS:
                length = int(value)
            else:
                length = _length(value, length)
        elif name == b"transfer-encoding":
            if chunked or value.lower() != b"chunked":
                raise NotHttp
            chunked = True
        elif name == b"connection":
            if b"close" in [option.strip() for option in value.lower().split(b",")]:
                keep_alive = False
        elif name == b"content-type":
            # One that is said twice is none that anybody knows.
            media_type = media_type + b"," + value if media_type else value
        elif name == b"content-encoding" and value.lower() not in (b"", b"identity"):
            encoded = True
    status = int(digits)
    if status < 200 or status == 204 or status == 304:
        extent = 0
    elif chunked:
        extent = CHUNKED
        keep_alive = keep_alive and length is None
    elif length is not None:
        extent = length
    else:
        extent, keep_alive = UNTIL_CLOSE, False
    media_type = media_type.partition(b";")[0].strip().lower()
    return ResponseHead(status, tuple(fields), extent, keep_alive, encoded, media_type.decode("latin-1"))


def refuse_unfinished_head(raw: bytes) -> None:
    """Look at a head that has no end yet. Raises `NotHttp` for what no further byte could mend."""
    if len(raw) > HEAD_BYTES or not raw.startswith(_START[: len(raw)]):
        raise NotHttp


def _length(value: bytes, before: int | None) -> int:
    """Return the length; the same number twice is that number, two different ones are none (§6.3)."""
    for text in value.split(b","):
        digits = text.strip(b" \t")
        if not digits.isdigit() or len(digits) > LENGTH_DIGITS or before not in (None, int(digits)):
            raise NotHttp
        before = int(digits)
    assert before is not None
    return before


def _mended(raw: bytes) -> bytes:
    """End each line with CRLF, and unfold folded ones (§2.2, §5.2); the status line is never continued."""
    lines = raw.replace(b"\r\n", b"\n")
    status_line, _, rest = lines.partition(b"\n")
    if rest.startswith((b" ", b"\t")):
        return raw
    return (status_line + b"\n" + _FOLD.sub(b" ", rest)).replace(b"\n", b"\r\n")
