"""How much of a stranger's document is read where nothing says beforehand how long it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from auth.clients.documents import CannotFetch
from server.outgoing.pinned import DOCUMENT_BYTES, make_fetch
from tests.stranger import HOST, a_stranger, says

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def reply(length: int) -> bytes:
    """In chunks, so that its end alone says how long it was."""
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (length, b"1" * length)


async def test_a_body_of_unknown_length_is_bounded_to_the_byte_as_well(tmp_path: Path) -> None:
    async with a_stranger(tmp_path, says(reply(DOCUMENT_BYTES))) as stranger:
        fetch = make_fetch(stranger.reach())
        assert len((await fetch(f"https://{HOST}/client.json")).body) == DOCUMENT_BYTES
        stranger.handler = says(reply(DOCUMENT_BYTES + 1))
        with pytest.raises(CannotFetch, match=f"more than {DOCUMENT_BYTES} bytes") as refused:
            await fetch(f"https://{HOST}/client.json")
        assert refused.value.definite
