"""What large requests weigh, all that are under way together: one budget of a process, and a share of it for each caller.

A `Load` goes with a request from where its body is read to whatever holds its arguments last: the call, work that outlives its
connection, a task. A small request has none, and costs nothing here. Nobody waits: what has no room is refused, and comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from server.mcp.errors import TooHeavy, TooMuchAtOnce, TooMuchOverall

# Nearly every call is smaller: so many of these as there can be at once come to little.
SMALL_BYTES: Final = 4 * 1024
# Of the largest bodies, as plain text. A caller has half of it, so that there is room for another; those who are not told apart
# have three quarters together, so that there is room for those who are.
BODIES: Final = 32
BODIES_OF_CALLER: Final = BODIES // 2
BODIES_OF_STRANGERS: Final = BODIES // 4 * 3

# What begins a list or an object, or follows a name or a value. With each goes one value at most, which takes as much memory
# as so much text.
_MARKS: Final = b"[{:,"
_MARK_WEIGHT: Final = 16


def weight_of(body: bytes) -> int:
    """In bytes of plain text that would take as much memory: many small values take more than they have bytes, and one letter
    beyond ASCII makes all of a text wide."""
    wide = not body.isascii() or b"\\u" in body
    marks = len(body) - len(body.translate(None, _MARKS))
    return len(body) * (1 + wide) + _MARK_WEIGHT * marks


class Loads:
    """All loads of a process."""

    def __init__(self, max_body_bytes: int = 2 * 1024 * 1024) -> None:
        self.weight = 0
        self.refused = 0
        self.limit: Final = BODIES * max_body_bytes
        self._limit_of_caller: Final = BODIES_OF_CALLER * max_body_bytes
        self._limit_of_strangers: Final = BODIES_OF_STRANGERS * max_body_bytes
        self._by_caller: dict[str, int] = {}
        self._of_strangers = 0

    @property
    def has_room(self) -> bool:
        """For one more, whatever it weighs."""
        return self.weight + self._limit_of_caller <= self.limit

    def check(self, load: Load, more: int) -> None:
        """Whether there is room for so much more. Raises what `Load.weigh` does."""
        try:
            if load.weight + more > self._limit_of_caller:
                raise TooHeavy("the body holds too many values: send fewer at once")
            if self._by_caller.get(load.caller, 0) + more > self._limit_of_caller:
                raise TooMuchAtOnce("large requests of yours are running: wait for one")
            strangers = 0 if load.known else self._of_strangers + more
            if self.weight + more > self.limit or strangers > self._limit_of_strangers:
                raise TooMuchOverall("too many large requests are running on this server: try again later")
        except (TooHeavy, TooMuchAtOnce):
            self.refused += 1
            raise

    def count(self, load: Load, more: int) -> None:
        """So much more, or less."""
        self.weight += more
        if not load.known:
            self._of_strangers += more
        weight = self._by_caller.get(load.caller, 0) + more
        if weight:
            self._by_caller[load.caller] = weight
        else:
            self._by_caller.pop(load.caller, None)


class Load:
    """Of one request. Whoever makes it holds it; it is over when the last of its holders lets go."""

    __slots__ = ("_holders", "_loads", "caller", "known", "weight")

    def __init__(self, loads: Loads, caller: str, *, known: bool) -> None:
        """It weighs nothing yet. `known`: the caller can be told from others."""
        self.caller: Final = caller
        self.known: Final = known
        self.weight = 0
        self._loads = loads
        self._holders = 1

    def weigh(self, weight: int) -> None:
        """So much in all, from now on. Raises `TooHeavy` where no caller may have so much, `TooMuchAtOnce` where this one has too
        much already, `TooMuchOverall`; it weighs what it did then."""
        self._loads.check(self, weight - self.weight)
        self.bear(weight)

    def bear(self, weight: int) -> None:
        """The same for what was let in before."""
        self._loads.count(self, weight - self.weight)
        self.weight = weight

    def hold(self) -> Self:
        self._holders += 1
        return self

    def let_go(self) -> None:
        self._holders -= 1
        if not self._holders:
            self.bear(0)


class LargeAnswer(dict[str, Any]):
    """What a large message answers to a question of ours. It goes through many hands, so its load is held for as long as anybody has it."""

    __slots__ = ("load",)

    def __init__(self, content: Mapping[str, Any], load: Load) -> None:
        super().__init__(content)
        self.load: Final = load.hold()

    def __del__(self) -> None:
        self.load.let_go()
