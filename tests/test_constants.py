"""Every number that has a name in the rooms that decide: a bound that changes is seen in one line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.snapshots import Snapshot

ROOT = Path(__file__).parent.parent
ROOMS = ("gateway", "limits", "owner", "policy", "request", "store", "till", "trust")


def _numbers(module: ModuleType) -> list[str]:
    """Return those which it defines itself: an annotation says so."""
    found = {name: getattr(module, name, None) for name in getattr(module, "__annotations__", {})}
    return [
        f"{name} = {value!r}"
        for name, value in sorted(found.items())
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def test_the_numbers_that_bound_what_is_done(snapshot: Snapshot) -> None:
    lines: list[str] = []
    for room in ROOMS:
        for path in sorted((ROOT / "server" / room).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if numbers := _numbers(import_module(name)):
                lines += [name, *(f"  {each}" for each in numbers)]
    snapshot("constants", "\n".join(lines) + "\n")
