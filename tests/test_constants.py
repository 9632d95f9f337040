"""Every number that has a name in the rooms that decide, defaults too: one that changes is seen in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import cast

import msgspec

from tests.snapshots import Snapshot

ROOT = Path(__file__).parent.parent
ROOMS = (
    "agents/mcp",
    "calls",
    "client/mcp_session",
    "cluster/postgres",
    "console/owner",
    "lib/oauth_client",
    "lib/rates",
    "payments/seller",
    "store",
)
# What they all share, and what people are shown of their money.
LOOSE = ("lib/shortened", "run/account_money")


def _numbers(module: ModuleType) -> list[str]:
    """Return those which it defines itself, as an annotation says, and what its functions and classes take where nothing is said."""
    found: dict[str, object] = {}
    for name in getattr(module, "__annotations__", {}):
        found |= _within(name, getattr(module, name, None))
    for made in vars(module).values():
        if getattr(made, "__module__", "") == module.__name__ and isinstance(made, type | FunctionType):
            found |= {f"{made.__name__}.{name}": value for name, value in _defaults(made)}
    return [
        f"{name} = {value!r}"
        for name, value in sorted(found.items())
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _within(name: str, value: object) -> dict[str, object]:
    """Return a value, or those in a table: of rows that have a name, what is not usual for a row."""
    rows: list[tuple[object, object]] = []
    match value:
        case Mapping():
            named = cast("Mapping[object, object]", value)
            rows = [(f"[{key}]", each) for key, each in named.items() if isinstance(key, str)]
        case tuple():
            for place, each in enumerate(cast("tuple[object, ...]", value)):
                row = msgspec.structs.astuple(each)[:1] if isinstance(each, msgspec.Struct) else (str(place),)
                rows += [(f"[{key}]", each) for key in row if isinstance(key, str)]
        case msgspec.Struct():
            usual = dict(_defaults(type(value)))
            told = msgspec.structs.asdict(value).items()
            rows = [(f".{field}", each) for field, each in told if usual.get(field) != each]
        case _:
            return {name: value}
    found: dict[str, object] = {}
    for place, each in rows:
        found |= _within(f"{name}{place}", each)
    return found


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
