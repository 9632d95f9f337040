from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from server.payments.x402.envelopes import (
    DEPTH,
    ENVELOPE_BYTES,
    UnreadableEnvelope,
    open_envelope,
    pack,
    without_nulls,
)

HELD = {"a": 1, "b": ["ü", None, True, 1.5], "c": {"d": {}}}


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    "packed",
    [
        HELD,
        json.dumps(HELD),
        "  \n" + json.dumps(HELD, indent=2),
        pack(HELD),
        base64.b64encode(json.dumps(HELD).encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(json.dumps(HELD, ensure_ascii=False).encode()).decode(),
        base64.encodebytes(json.dumps(HELD).encode()).decode(),
    ],
    ids=["object", "json", "spread", "packed", "unpadded", "url-safe", "in lines"],
)
def test_an_object_is_the_same_however_it_came(packed: object) -> None:
    assert open_envelope(packed) == HELD


def test_what_is_packed_is_one_line_of_the_standard_alphabet_with_padding() -> None:
    packed = pack({"a": "??>>~~"})
    assert base64.b64decode(packed, validate=True) == b'{"a":"??>>~~"}'
    assert "\n" not in packed


@pytest.mark.parametrize(
    "value",
    [
        None, 7, True, [], b"{}", "", "   ", "null", "[]", "not json", "{", '{"a":1}x', "e30=x!", "{'a': 1}", '{"a": NaN}', '{"a": Infinity}',
        '{"a": -Infinity}', '{"a": 1e999}', {"a": float("nan")}, {"a": float("inf")}, {"a": 2**63}, {"a": -(2**63) - 1}, f'{{"a": {10**30}}}',
        '{"a": ' + "9" * 5000 + "}", {"a": b"x"}, {"a": object()}, {"a": {1, 2}}, {1: "a"}, {"a": "\ud83d"}, {"\ud83d": 1},
        r'{"a": "\ud83d"}', base64.b64encode(b'{"a": "\xff"}').decode(), base64.b64encode(b"[1]").decode(), pack({}) + "\x00", "é30=",
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_what_is_no_object_that_every_program_reads_alike_is_not_read(value: object) -> None:
    with pytest.raises(UnreadableEnvelope):
        open_envelope(value)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"b": {"a": 1, "a": 1}}', '{"a": 1, "\\u0061": 2}'])
def test_a_key_that_is_there_twice_is_not_read(text: str) -> None:
    with pytest.raises(UnreadableEnvelope, match="says something twice"):
        open_envelope(text)
    with pytest.raises(UnreadableEnvelope, match="says something twice"):
        open_envelope(base64.b64encode(text.encode()).decode())


def test_an_object_may_be_so_deep_and_no_deeper() -> None:
    assert open_envelope(nested(DEPTH)) == nested(DEPTH)
    for packed in (nested(DEPTH + 1), json.dumps(nested(DEPTH + 1)), pack(nested(DEPTH + 1))):
        with pytest.raises(UnreadableEnvelope, match="nested"):
            open_envelope(packed)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_a_text_that_only_opens_is_refused_in_no_time(opening: str) -> None:
    text = '{"a":' + opening * ((ENVELOPE_BYTES - 16) // len(opening))
    with pytest.raises(UnreadableEnvelope):
        open_envelope(text)


def test_an_object_that_holds_itself_is_refused() -> None:
    knot: dict[str, Any] = {}
    knot["a"] = knot
    with pytest.raises(UnreadableEnvelope, match="nested"):
        open_envelope(knot)


def test_an_object_may_be_so_long_and_no_longer() -> None:
    room = ENVELOPE_BYTES - len('{"a":""}')
    assert open_envelope({"a": "x" * room})
    assert open_envelope(pack({"a": "x" * room}))
    for packed in (
        {"a": "x" * (room + 1)},
        '{"a":"' + "x" * (room + 1) + '"}',
        pack({"a": "x" * (room + 1)}),
        "{" * 10**6,
    ):
        with pytest.raises(UnreadableEnvelope, match="longer than 16 KiB"):
            open_envelope(packed)


def test_an_object_may_hold_so_many_values_and_no_more() -> None:
    assert open_envelope({"a": [1] * 4094})
    with pytest.raises(UnreadableEnvelope, match="4096 values"):
        open_envelope({"a": [1] * 4095})


def test_what_was_opened_is_a_copy() -> None:
    came = {"a": {"b": [1]}}
    opened = open_envelope(came)
    came["a"]["b"].append(2)
    assert opened == {"a": {"b": [1]}}


def test_nulls_are_taken_out_of_objects_and_nothing_else_is() -> None:
    found = without_nulls(
        {"a": None, "b": {"c": None, "d": {"e": None}}, "f": [None, {"g": None}], "h": False, "i": "", "j": 0}
    )
    assert found == {"b": {"d": {}}, "f": [None, {"g": None}], "h": False, "i": "", "j": 0}
