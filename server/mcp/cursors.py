"""Pages of a list, and the opaque cursors between them. Spec: server/utilities/pagination.

A cursor says where the page before it ended: at which item, and how many were shown until there. It is signed, so that only one that was
given out for this very list is taken, and holds a digest of the item's key, never the key. A page costs as much as it shows, however
long the list is: nothing before it is looked at again.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from server.mcp.errors import BadCursor

T = TypeVar("T")

_PLACE_BYTES: Final = 4
_KEY_BYTES: Final = 12
_MAC_BYTES: Final = 16
_CURSOR_CHARS: Final = -(-(_PLACE_BYTES + _KEY_BYTES + _MAC_BYTES) * 4 // 3)
_REFUSED: Final = "invalid cursor"


class Cursors:
    """`server` names the server, should two share a key."""

    def __init__(self, key: bytes, server: str = "") -> None:
        self._key = key
        self._server = server.encode()
        # By the kind of list: where which item was in it, by the digest of its key. Made when somebody goes on for the first time.
        self._known: dict[str, tuple[Sequence[Any], dict[bytes, int]]] = {}

    def cut(
        self,
        kind: str,
        items: Sequence[T],
        key_of: Callable[[T], str],
        cursor: str | None,
        size: int,
        shown: Callable[[T], bool] | None = None,
    ) -> tuple[Sequence[T], str | None]:
        """The page after the cursor, of at most `size` items, and the cursor of the next; None at the end. `kind` names the
        list; `shown` leaves out what this caller may not see. Raises `BadCursor`; the empty text is a cursor like any other, and none
        of ours."""
        if size < 1:
            raise ValueError("a page holds at least one item")
        place, start = (0, 0) if cursor is None else self._start(kind, items, key_of, cursor, shown)
        page: list[T] = []
        for index in range(start, len(items)):
            item = items[index]
            if shown is not None and not shown(item):
                continue
            if len(page) == size:
                return tuple(page), self._cursor(kind, place + size - 1, _digest(key_of(page[-1])))
            page.append(item)
        return tuple(page), None

    def _start(
        self,
        kind: str,
        items: Sequence[T],
        key_of: Callable[[T], str],
        cursor: str,
        shown: Callable[[T], bool] | None,
    ) -> tuple[int, int]:
        """How many were shown before the page, and where in the list it begins."""
        place, key = self._read(kind, cursor)
        # Where it was, as long as the list has not changed; else wherever it is now.
        if place < len(items) and _digest(key_of(items[place])) == key:
            return place + 1, place + 1
        known, places = self._known.get(kind, ((), {}))
        if known is not items:
            places = {_digest(key_of(item)): index for index, item in enumerate(items)}
            if isinstance(items, tuple):  # which stays as it is
                self._known[kind] = items, places
        if (found := places.get(key)) is not None:
            return place + 1, found + 1
        # It is gone: what followed it has moved up to its place.
        if shown is None:
            return place, place
        left = place
        for index, item in enumerate(items):
            if shown(item):
                if not left:
                    return place, index
                left -= 1
        return place, len(items)

    def _cursor(self, kind: str, place: int, key: bytes) -> str:
        body = place.to_bytes(_PLACE_BYTES) + key
        return urlsafe_b64encode(body + self._mac(kind, body)).rstrip(b"=").decode()

    def _read(self, kind: str, cursor: str) -> tuple[int, bytes]:
        if len(cursor) != _CURSOR_CHARS or not cursor.isascii():
            raise BadCursor(_REFUSED)
        try:
            raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except ValueError:
            raise BadCursor(_REFUSED) from None
        body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        # The last character has bits to spare, and the decoder skips what it does not know: one text per cursor.
        canonical = urlsafe_b64encode(raw).rstrip(b"=").decode() == cursor
        if not canonical or not hmac.compare_digest(self._mac(kind, body), mac):
            raise BadCursor(_REFUSED)
        return int.from_bytes(body[:_PLACE_BYTES]), body[_PLACE_BYTES:]

    def _mac(self, kind: str, body: bytes) -> bytes:
        # Each name with its length before it, so that no two of them run together into the same text.
        names = b"".join(len(name).to_bytes(4) + name for name in (self._server, kind.encode()))
        return hmac.digest(self._key, names + body, "sha256")[:_MAC_BYTES]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES]
