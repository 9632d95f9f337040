"""How much memory callers can make the server use: computed from its bounds, and what docs/operating.md says of it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from server.mcp.loads import SMALL_BYTES, weight_of

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
        r"requests of more than (\d+) KiB .*? together weigh at most (\d+) MiB"
        r".*? which is (\d+) MiB of memory"
        r".*? can have (\d+) calls at once .*?, at most (\d+) MiB"
        r".*? comes to (\d+) MiB above idle"
        r".*? at most (\d+) MiB above idle stay",
        text,
    )
    assert said is not None
    assert int(said[1]) * 1024 == SMALL_BYTES
    assert int(said[2]) == bound.LOADS.limit // bound.MIB
    assert int(said[3]) == bound.of_large() // bound.MIB
    assert int(said[4]) == bound.CALLS_AT_ONCE
    assert int(said[5]) == round(bound.of_small() / bound.MIB)
    assert int(said[6]) == round(bound.at_most() / bound.MIB)
    assert int(said[7]) == bound.afterwards() // bound.MIB


def test_the_bound_is_one_that_a_small_machine_keeps() -> None:
    assert memory_bound().at_most() < 1024**3


def _names(count: int, name: str, value: str) -> str:
    return "{" + ",".join(f'"{name}{number:x}":{value}' for number in range(count)) + "}"


SHAPES = (
    "{}", "[]", '""', "0", "999", "1.5", '{"":0}', '{"":{}}', '{"":[0]}', "[0]", "[[0]]", "[" * 50 + "]" * 50, "[[],[]]",
    '"ab"', '"\u00e9"', '"\u20ac"', '"\U0001f600"', r'"\u20ac"', '{"a":1,"b":2}', '{"a":"\u20ac","b":"\u20ac"}',
    *(_names(count, name, value) for count in (5, 6, 11, 43, 171, 22_000) for name, value in (("", "0"), ("\u20ac", '"\u20ac"'))),
)  # fmt: skip


@pytest.mark.parametrize("value", SHAPES, ids=range(len(SHAPES)))
def test_no_arguments_take_more_memory_than_they_weigh(value: str) -> None:
    """By the sizes that the interpreter tells of what a body of this shape becomes."""
    body = ("[" + ",".join([value] * max(1, 60_000 // len(value))) + "]").encode()
    bound = memory_bound()
    assert _size(msgspec.json.decode(body)) + (bound.COPIES - 1) * len(body) <= bound.COPIES * weight_of(body)
    assert _size(msgspec.json.decode(body)) <= bound.SPREAD * len(body), "as of those which nobody weighs"


@pytest.mark.parametrize("letter", ["\u00e9", "\u20ac", "\U0001f600", r"\u20ac", r"\ud83d\ude00"])
def test_one_letter_that_makes_a_text_wide_makes_it_heavy(letter: str) -> None:
    body = ('"' + letter + "x" * 100_000 + '"').encode()
    copies = memory_bound().COPIES
    assert _size(msgspec.json.decode(body)) + (copies - 1) * len(body) <= copies * weight_of(body)


def test_plain_text_weighs_what_it_has_bytes() -> None:
    text = b'{"text":"%s"}' % (b"x" * 100_000)
    assert len(text) < weight_of(text) < len(text) + 100


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(_size(name) + _size(each) for name, each in value.items())
    return sys.getsizeof(value) + (sum(map(_size, value)) if isinstance(value, list) else 0)
