"""The search for a circle among things that lead to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


def first_cycle(edges: Mapping[T, Iterable[T]]) -> T | None:
    """Return a thing that can be reached from itself, if there is one. No recursion: links can be thousands deep."""
    done: set[T] = set()
    for start in edges:
        trail: list[tuple[T, Iterator[T]]] = [] if start in done else [(start, iter(edges[start]))]
        on_trail = {start}
        while trail:
            here, targets = trail[-1]
            target = next(targets, None)
            if target is None:
                trail.pop()
                on_trail.discard(here)
                done.add(here)
            elif target in on_trail:
                return target
            elif target not in done and target in edges:
                trail.append((target, iter(edges[target])))
                on_trail.add(target)
    return None
