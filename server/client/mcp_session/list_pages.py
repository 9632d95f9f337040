"""The lists of an MCP server, page by page, as a stranger's: bounded, and without a cursor that comes twice.

Spec: server/utilities/pagination.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from server.client.mcp_session.session_messages import NoMcpServer

# More than any list has: a server that keeps turning pages is broken.
PAGES: Final = 200
CURSOR_CHARACTERS: Final = 16 * 1024
# Of one list, for whoever shows it to a person or looks something up in it.
ENTRIES: Final = 10_000
LIST_BYTES: Final = 64 * 1024 * 1024

_decode: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_entries: Final = msgspec.json.Decoder(list[Raw]).decode
_decode_cursor: Final = msgspec.json.Decoder(str | None).decode
_NO_ENTRIES: Final = Raw(b"[]")
_NO_CURSOR: Final = Raw(b"null")

# The params that name a page → the result.
AskPage: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Raw]]


class ListTooLong(NoMcpServer):
    """A list with more than the asker takes."""


async def list_pages(
    ask: AskPage, method: str, kind: str, *, entries: int = ENTRIES, size: int = LIST_BYTES
) -> AsyncGenerator[list[Raw]]:
    """Yield the entries of each page: `kind` is their key in the result, `entries` and `size` how many there may be in all, and in how many
    bytes. Raises what `ask` raises, `ListTooLong` behind those that are within the bounds, and `NoMcpServer` for what is no list, or none
    with an end."""
    count, weight = 0, 0
    seen: set[str] = set()
    params: Mapping[str, Any] = {}
    for _ in range(PAGES):
        raw = await ask(params)
        try:
            result = _decode(raw)
            page = _decode_entries(result.get(kind, _NO_ENTRIES))
            # An empty string is a cursor like any other.
            cursor = _decode_cursor(result.get("nextCursor", _NO_CURSOR))
        except (ValueError, RecursionError):
            raise NoMcpServer(f"answers {method} with something else") from None
        count, weight = count + len(page), weight + len(raw)
        if count > entries or weight > size:
            if weight <= size:
                yield page[: entries - count]
            raise ListTooLong(f"answers {method} with more than {entries} entries, or {size // 1024} KiB")
        yield page
        if cursor is None:
            return
        if cursor in seen or len(cursor) > CURSOR_CHARACTERS:
            break
        seen.add(cursor)
        params = {"cursor": cursor}
    raise NoMcpServer(f"never comes to the end of {method}")
