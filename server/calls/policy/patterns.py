"""Regular expressions that are asked about texts of strangers: only those of which it is known beforehand how much work they can be.

Python's engine tries one way after the other, and no deadline can stop it. So a pattern is taken apart before it is taken: every repetition
has an upper bound, nothing refers back to what a group matched, and all the ways in which it can fail at one place of a text are together
no more than so many steps. A possessive repetition (`{1,64}+`) has one way, and is how an expression that is refused is usually mended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import msgspec

from server.lib.shortened import short_reason

MOST_STEPS: Final = 500  # at one place of a text
LONGEST: Final = 20_000  # of what one of them can match

_parser: Final[Any] = import_module("re._parser")
_words: Final[Any] = import_module("re._constants")


class BadPattern(ValueError):
    """An expression that is not taken; says why."""


class SafePattern(msgspec.Struct, frozen=True):
    """`reach`: how far from where a match begins it may look."""

    compiled: re.Pattern[str]
    reach: int


class _Work(msgspec.Struct, frozen=True):
    steps: int  # until all its ways have failed
    ways: int
    width: int


def read_pattern(text: str) -> SafePattern:
    """Raises `BadPattern`."""
    try:
        parsed = _parser.parse(text)
        compiled = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPattern(f"is no regular expression: {short_reason(error)}") from None
    work = _sequence(parsed)
    if parsed.getwidth()[0] == 0:
        raise BadPattern("also matches nothing at all")
    return SafePattern(compiled, work.width + 2)


def _sequence(parts: Any) -> _Work:
    steps, ways, width = 0, 1, 0
    for word, value in parts:
        work = _part(word, value)
        steps, ways, width = steps + ways * work.steps, ways * work.ways, width + work.width
        _check(steps, width)
    return _Work(steps, ways, width)


def _part(word: Any, value: Any) -> _Work:
    if word in (_words.LITERAL, _words.NOT_LITERAL, _words.ANY, _words.IN):
        return _Work(1, 1, 1)
    if word is _words.AT:
        return _Work(1, 1, 0)
    if word in (_words.MAX_REPEAT, _words.MIN_REPEAT):
        return _repeated(*value)
    if word is _words.POSSESSIVE_REPEAT:
        work = _repeated(*value)
        return _Work(work.steps, 1, work.width)
    if word is _words.SUBPATTERN:
        return _sequence(value[3])
    if word is _words.ATOMIC_GROUP:
        work = _sequence(value)
        return _Work(work.steps, 1, work.width)
    if word is _words.BRANCH:
        branches: Sequence[_Work] = [_sequence(branch) for branch in value[1]]
        return _Work(
            sum(each.steps for each in branches),
            sum(each.ways for each in branches),
            max(each.width for each in branches),
        )
    if word in (_words.ASSERT, _words.ASSERT_NOT):
        work = _sequence(value[1])
        return _Work(work.steps, 1, work.width)
    raise BadPattern("refers back to what a group has matched, and no bound can be told for that")


def _repeated(least: int, most: int, inner: Any) -> _Work:
    if most >= int(_words.MAXREPEAT):
        raise BadPattern("has a repetition without an upper bound: write {1,64} for +, and {0,64} for *")
    work = _sequence(inner)
    steps, ways, reached = 0, 0, 1  # `reached`: in how many ways so many repetitions are come to
    for count in range(most + 1):
        if count >= least:
            ways += reached
        if count < most:
            steps += reached * max(1, work.steps)
            reached *= work.ways
        _check(steps, 0)
    _check(steps, work.width * most)
    return _Work(steps, ways, work.width * most)


def _check(steps: int, width: int) -> None:
    if steps > MOST_STEPS:
        raise BadPattern(
            f"may take more than {MOST_STEPS} steps at one place of a text: make repetitions shorter, or possessive ({{1,64}}+)"
        )
    if width > LONGEST:
        raise BadPattern(f"may match more than {LONGEST} characters")
