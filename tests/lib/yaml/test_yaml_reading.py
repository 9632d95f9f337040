"""YAML against what it means; what is not read is refused with its line, and nothing hostile takes long or much."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.lib.yaml.flow_style import BadYaml
from server.lib.yaml.yaml_reader import read_yaml

READ: list[tuple[str, Any]] = [
    ('a: 1\nb: [1, "x", {c: d}]\n', {"a": 1, "b": [1, "x", {"c": "d"}]}),
    (
        "- a\n- b: 1\n  c: 2\n-\n  - x\n- - y\n  - z\n",
        ["a", {"b": 1, "c": 2}, ["x"], ["y", "z"]],
    ),
    ("k:\n- 1\n- 2\nl: x\n", {"k": [1, 2], "l": "x"}),
    ("l: |\n  a\n   b\n\n  c\nm: >-\n  x\n  y\n\n  z\n", {"l": "a\n b\n\nc\n", "m": "x y\nz"}),
    ("a: |+\n  x\n\nb: |2\n    y\n  z\nc: >\n  f\n   g\n  h\n", {"a": "x\n\n", "b": "  y\nz\n", "c": "f\n g\nh\n"}),
    ('n: "q\\u0041\\n\n\n  w"\no: "x\\\n   y"\n', {"n": "qA\n\nw", "o": "xy"}),
    ('e: "\\ud83d\\ude00"\n', {"e": "😀"}),
    (
        "x: &a {p: 1}\ny: *a\nz:\n  <<: *a\n  q: 2\nw:\n  <<: [*a, {r: 3}]\n  p: 9\n",
        {"x": {"p": 1}, "y": {"p": 1}, "z": {"p": 1, "q": 2}, "w": {"p": 9, "r": 3}},
    ),
    ("a: &x\n  b: 1\nc: *x\n", {"a": {"b": 1}, "c": {"b": 1}}),
    ("200: ok\n\"a b\": 'it''s'\ntrue: 1\n", {"200": "ok", "a b": "it's", "true": 1}),
    ("d: 2020-01-01\ne: yes\nf: ~\ng:\nh: null\n", {"d": "2020-01-01", "e": "yes", "f": None, "g": None, "h": None}),
    ("h: text # c\ni: http://x/y#z\nj: a#b\n", {"h": "text", "i": "http://x/y#z", "j": "a#b"}),
    ("%YAML 1.2\n---\na: multi\n  line\n\n  text\nb: 1\n...\n", {"a": "multi line\ntext", "b": 1}),
    ("a: -1.5e3\nb: 0x1F\nc: 1.0\nd: .5\ne: +3\nf: 0o17\n", {"a": -1500.0, "b": 31, "c": 1.0, "d": 0.5, "e": 3, "f": 15}),
    ("f: 1_000\ng: 1e999\nh: .inf\ni: -\n", None),
    ("a:\n  - b\n  # comment\n  - c\n\nd: {\n  e: f, # here, too\n  g: [1,\n 2]\n}\n", {"a": ["b", "c"], "d": {"e": "f", "g": [1, 2]}}),
    ("- |\n  t\n- >\n  u\n  v\n- \"s\"\n", ["t\n", "u v\n", "s"]),
    ("url: https://a.b/c?d={e}\npattern: ^[a-z]+$\n", {"url": "https://a.b/c?d={e}", "pattern": "^[a-z]+$"}),
    ("b: !!str 12\nc: !!int 3\nd: !!str\n", {"b": "12", "c": 3, "d": ""}),
    ("[a: 1, b]\n", [{"a": 1}, "b"]),
    ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ("\ufeffa: 1\n", {"a": 1}),
    ("a: |\n  x\n  y", {"a": "x\ny"}),
    ("just text\n", "just text"),
    ("# nothing\n", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), [each for each in READ if "1_000" not in each[0]])
def test_what_people_write_is_what_it_means(text: str, meant: Any) -> None:
    assert read_yaml(text) == meant


def test_what_json_has_no_number_for_stays_a_text() -> None:
    assert read_yaml("f: 1_000\ng: 1e999\nh: .inf\ni: " + "9" * 40 + "\n") == {
        "f": "1_000",
        "g": "1e999",
        "h": ".inf",
        "i": "9" * 40,
    }


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a: 1\na: 2\n", 2, "second time"),
        ("a:\n\tb: 1\n", 2, "tab"),
        ("a: b: c\n", 1, "colon"),
        ("a: *n\n", 1, "anchor"),
        ("a: &x [*x]\n", 1, "nothing complete"),
        ("a: !include b\n", 1, "tag"),
        ("? [a]\n: 1\n", 1, "key"),
        ("{[a]: 1}\n", 1, "key"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a:\n    b: 1\n  c: 2\n", 3, "indented more|belongs|neither"),
        ("- a\nb\n", 2, "neither|belongs"),
        ("a: @x\n", 1, "quoted"),
        ('a: "x\n', 2, "text ends"),
        ("a: [1, 2\n", 2, "text ends"),
        ("a: [1 2] 3\n", 1, "behind the end"),
        ('a: "\\q"\n', 1, "escape"),
        ('a: "\\u12"\n', 1, "digits"),
        ("a: x\x00y\n", 1, "character"),
        ("<<: 1\n", 2, "merges"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(BadYaml, match=why) as caught:
        read_yaml(text)
    assert abs(caught.value.line - line) <= 1


def test_aliases_that_unfold_to_too_much_are_refused_before_they_do() -> None:
    tens = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(BadYaml, match="more than 1000000 values"):
        read_yaml(f"a0: &a0 [{', '.join('x' * 10)}]\n{tens}")


def test_an_alias_shares_what_it_names() -> None:
    read = read_yaml("a: &a [1, 2]\nb: *a\n")
    assert read["a"] is read["b"]


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "- " * 50_000, "{a: " * 5_000, "x:\n" + "".join(" " * n + "a:\n" for n in range(1, 400))],
)
def test_what_is_nested_without_end_is_refused(text: str) -> None:
    with pytest.raises(BadYaml, match="levels deep"):
        read_yaml(text)


def test_more_values_than_wanted_are_refused() -> None:
    assert read_yaml("[1, 2, 3]", most=10) == [1, 2, 3]
    with pytest.raises(BadYaml, match="more than 10 values"):
        read_yaml("- 1\n" * 20, most=10)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda key: key != "<<"), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(_JSON, st.sampled_from([None, 2]))
def test_json_is_yaml(value: Any, indent: int | None) -> None:
    assert read_yaml(json.dumps(value, indent=indent, ensure_ascii=True)) == value


@given(st.text(max_size=200))
def test_no_text_does_anything_but_be_read_or_refused(text: str) -> None:
    with suppress(BadYaml):
        json.dumps(read_yaml(text))
