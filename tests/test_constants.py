"""Every number that has a name in the rooms that decide, defaults too: one that changes is seen in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import FunctionType, ModuleType

import msgspec

from tests.snapshots import Snapshot

ROOT = Path(__file__).parent.parent
ROOMS = ("gateway", "limits", "owner", "policy", "request", "store", "till", "trust")
# What they all share.
LOOSE = ("shortened",)


def _numbers(module: ModuleType) -> list[str]:
    """Return those which it defines itself, as an annotation says, and what its functions and classes take where nothing is said."""
    found = {name: getattr(module, name, None) for name in getattr(module, "__annotations__", {})}
    for made in vars(module).values():
        if getattr(made, "__module__", "") == module.__name__ and isinstance(made, type | FunctionType):
            found |= {f"{made.__name__}.{name}": value for name, value in _defaults(made)}
    return [
        f"{name} = {value!r}"
        for name, value in sorted(found.items())
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _defaults(made: Callable[..., object]) -> Iterator[tuple[str, object]]:
    if isinstance(
        made, msgspec.StructMeta
    ):  # its signature wants names that are there for type checkers only
        yield from zip(reversed(made.__struct_fields__), reversed(made.__struct_defaults__), strict=False)
        return
    with suppress(ValueError):  # a class of which nothing is known
        for name, parameter in signature(made).parameters.items():
            yield name, parameter.default


def test_the_numbers_that_bound_what_is_done(snapshot: Snapshot) -> None:
    lines: list[str] = []
    paths = [path for room in ROOMS for path in sorted((ROOT / "server" / room).rglob("*.py"))]
    for path in [*paths, *(ROOT / "server" / f"{name}.py" for name in LOOSE)]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if numbers := _numbers(import_module(name)):
            lines += [name, *(f"  {each}" for each in numbers)]
    snapshot("constants", "\n".join(lines) + "\n")
