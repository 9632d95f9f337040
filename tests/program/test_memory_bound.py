"""How much memory one caller can make the server use: computed from its bounds, and what docs/operating.md says of it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).parent.parent.parent


def memory_bound() -> ModuleType:
    """What `scripts/leaks` measures against."""
    spec = importlib.util.spec_from_file_location(
        "memory_bound", ROOT / "scripts" / "bench.d" / "memory_bound.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_document_says_is_what_the_bounds_come_to() -> None:
    bound = memory_bound()
    text = " ".join((ROOT / "docs" / "operating.md").read_text("utf-8").split())
    said = re.search(
        r"One caller from one address can have (\d+) calls at once\."
        r".*?at most (\d+) MiB, or (\d+) MiB .*? is ([0-9.]+) GiB above idle, or ([0-9.]+) GiB"
        r".*? at most (\d+) MiB above idle stay",
        text,
    )
    assert said is not None
    assert int(said[1]) == bound.CALLS_AT_ONCE
    assert int(said[2]) == bound.of_calls(1) // bound.MIB
    assert int(said[3]) == bound.of_calls(1, spread=True) // bound.MIB
    assert float(said[4]) == round(bound.at_most() / 1024**3, 1)
    assert float(said[5]) == round(bound.at_most(spread=True) / 1024**3, 1)
    assert int(said[6]) == bound.afterwards() // bound.MIB


@pytest.mark.parametrize(
    "value",
    ["{}", "[]", '""', "0", "1.5", '{"":0}', '{"":{}}', '{"":[0]}', "[0]", "[[0]]", "[" * 50 + "]" * 50, '"\u20ac"'],
)  # fmt: skip
def test_no_arguments_take_more_memory_for_each_byte_than_is_reckoned_with(value: str) -> None:
    """By the sizes that the interpreter tells of what a body of this shape becomes."""
    body = ("[" + ",".join([value] * 10_000) + "]").encode()
    assert _size(msgspec.json.decode(body)) <= memory_bound().SPREAD * len(body)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(map(_size, value.values()))
    return sys.getsizeof(value) + (sum(map(_size, value)) if isinstance(value, list) else 0)
