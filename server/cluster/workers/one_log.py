"""The one log of a parent, with all that its workers write: whole lines, as they come.

A worker never waits for whoever reads the log: here its pipe is always read, and what nobody takes is dropped and counted (log_lines.py).
"""

from __future__ import annotations

import codecs
from typing import Final

import trio

from server.lib.log.log_lines import Lines

_PIECE_BYTES: Final = 65_536
# A line that goes on beyond this is written in several.
LINE_CHARACTERS: Final = 65_536


async def pass_on(pipe: trio.abc.ReceiveStream, lines: Lines, *, encoding: str = "utf-8") -> None:
    """Pass on what comes through a pipe until all who write into it have closed it; then what is left, with an end of line of ours."""
    decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")
    left = ""
    try:
        while piece := await pipe.receive_some(_PIECE_BYTES):
            *whole, left = (left + decoder.decode(piece)).split("\n")
            while len(left) > LINE_CHARACTERS:
                whole.append(left[:LINE_CHARACTERS])
                left = left[LINE_CHARACTERS:]
            _write(whole, lines)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        if left := left + decoder.decode(b"", final=True):
            _write([left], lines)


def _write(whole: list[str], lines: Lines) -> None:
    """Write lines at once: whoever wrote them waited already for others to go with them."""
    *first, last = whole or [None]
    for line in first:
        lines.info(f"{line}\n")
    if last is not None:
        lines.warning(f"{last}\n")
