"""Statements with a `?` for each parameter, as the jobs write them, with the numbered parameters of PostgreSQL."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count
from typing import Final

# What may hold a question mark that is none of ours: texts, quoted names, comments.
_PIECES: Final = re.compile(
    r"""('(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/) | \?""", re.VERBOSE | re.DOTALL
)


@lru_cache(maxsize=1024)  # statements are constants of the program
def numbered(sql: str) -> bytes:
    number = count(1)
    return _PIECES.sub(lambda match: match[1] or f"${next(number)}", sql).encode()
