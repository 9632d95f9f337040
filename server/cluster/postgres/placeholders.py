"""Statements as the jobs write them, as PostgreSQL has them: numbered parameters in the place of each `?`, and its own name for the one
function that it calls otherwise."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count
from typing import Final

# They are constants of the program.
_STATEMENTS_KNOWN: Final = 1024
# What may hold a question mark that is none of ours: texts, quoted names, comments. Then what is put in another way.
_PIECES: Final = re.compile(
    r"""('(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/) | \? | \binstr(?=\()""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=_STATEMENTS_KNOWN)
def numbered(sql: str) -> bytes:
    number = count(1)

    def spelled(match: re.Match[str]) -> str:
        if match[0] == "?":
            return f"${next(number)}"
        return match[1] or "strpos"

    return _PIECES.sub(spelled, sql).encode()
