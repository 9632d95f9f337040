"""Docstrings that say what a thing is or does: in each file that is changed or new, and the list of the others only shrinks."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.docstrings import (
    EXCEPTIONS,
    LIST,
    ROOT,
    Looked,
    look_at,
    look_at_all,
    main,
    problems,
    read_list,
    write_list,
)

PATH = "server/lib/made_up.py"


def _looked(source: str) -> Looked:
    return look_at(PATH, dedent(source))


def _said(source: str) -> list[str]:
    return [str(one) for one in _looked(source).findings]


def test_docstrings_follow_the_rules_in_each_file_that_is_changed_or_new() -> None:
    found = list(problems(look_at_all(ROOT), read_list(LIST.read_text())))
    assert not found, "\n" + "\n".join(found)


def test_each_exception_has_a_reason() -> None:
    assert all(":" in place and len(reason) > 10 for place, reason in EXCEPTIONS.items())


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1\n",
        '"""Amounts of money, in millionths."""\n',
        'class A:\n    """The mutable state of one connection."""\n',
        'class A:\n    """A lock between processes.\n\n    - and a list without an end\n    """\n',
        'def f():\n    """Return the tool selection; if both are given, both apply."""\n',
        'async def f():\n    """Wait for the answer. The answer may never come."""\n',
        'def f():\n    """Return what it is: It, or `What`. Items: of what (It.), Itself, Often.\n\n    Whatever it is, thoseIt.What\n    It\n    """\n',
        'def f():\n    """Compare two texts (as RFC 3986 does.)"""\n',
        'def f():\n    """Return the parts of a line:\n\n    name, colon, value\n    """\n',
        'class A:\n    @property\n    def b(self):\n        """The path of the file."""\n',
        'class A:\n    @property\n    def b(self):\n        """Return the path of the file."""\n',
        f'def f():\n    """Return {"one " * 30}\n    and another."""\n',
        'def f():\n    """Return `""`, or\n    a value that is described here in so many words that there is no room for them on the line above."""\n',
        'def f():\n    x = 1\n    """What is no docstring"""\n',
        "def f(): ...\n",
    ],
)
def test_a_good_docstring_is_let_be(source: str) -> None:
    assert _said(source) == []


@pytest.mark.parametrize(
    "word",
    ["Of", "What", "Whoever", "Those", "It", "Its", "There", "For", "By", "The same", "Raises", "Returns"],
)
def test_a_class_and_a_module_are_named_by_a_noun_phrase(word: str) -> None:
    [said] = _said(f'class Door:\n    """{word} one connection."""\n')
    assert said.startswith(f"{PATH}:2: Door: it begins with a noun phrase")
    assert word in said
    assert said.endswith('"""The mutable state of one connection."""')
    [said] = _said(f'"""{word} one connection."""\n')
    assert said.startswith(f"{PATH}:1: the module: it begins with a noun phrase")


@pytest.mark.parametrize(
    "word", ["Returns", "The", "Whether", "What", "return", "`name`:", "False:", "RFC 8259:", "→"]
)
def test_a_function_begins_with_a_verb_in_the_imperative(word: str) -> None:
    [said] = _said(f'class Door:\n    def knock(self):\n        """{word} the answer."""\n')
    assert said.startswith(f"{PATH}:3: Door.knock: it begins with a verb in the imperative")
    assert '"""Return the requested tool selection' in said


@pytest.mark.parametrize(
    ("docstring", "rule"),
    [
        ("Return the answer", "ends with a period"),
        ("Return the answer;\n\n    and more.", "ends with a period"),
        ("\n    Return the answer.\n    ", "on the first line"),
        ("   ", "on the first line"),
        ("Return\n    the answer. And more.", "on one line, where it fits"),
    ],
)
def test_a_docstring_is_a_sentence_on_the_first_line(docstring: str, rule: str) -> None:
    [said] = _said(f'def f():\n    """{docstring}"""\n')
    assert rule in said


@pytest.mark.parametrize("word", ["Of", "What", "Whoever", "Those", "The same", "The\n    same", "It"])
@pytest.mark.parametrize(
    "before", [". ", '." ', ".)\n    ", "?  ", "! ", "… ", ".\n\n    ", ":\n\n    - one\n    - ", ":\n    * "]
)
def test_each_sentence_has_its_subject(before: str, word: str) -> None:
    [said] = _said(f'def f():\n    """Return the answer.\n\n    The answer{before}{word} is late.\n    """\n')
    assert f"no sentence begins with {' '.join(word.split())!r}" in said


def test_what_is_defined_within_branches_and_functions_is_looked_at() -> None:
    said = _said(
        '''
        try:
            if True:
                pass
            else:
                def a():
                    def b():
                        """What b is."""
        except OSError:
            class C:
                """What C is."""
        match 1:
            case 1:
                def d():
                    """What d is."""
        '''
    )
    assert sorted(line.split(": ")[1] for line in said) == ["C", "a.b", "d"]


BAD = '"""What it is."""\n'


def test_a_file_of_before_is_let_be_until_its_code_or_docstrings_change() -> None:
    files = {PATH: _looked(BAD + "import os\n\n\ndef f(a, b):\n    return 'a'\n")}
    before = read_list(write_list(files))
    assert list(before) == [PATH]
    assert not list(problems(files, before))
    same = BAD + 'from x import (\n  os)\n# why\ndef f(\n    a,\n    b,\n):\n    return ("a")\n'
    assert not list(problems({PATH: _looked(same)}, before))
    for changed in (
        BAD + "def f(a, c):\n    return 'a'\n",
        BAD + "def f(a, b):\n    return None\n",
        BAD + "def f(a, b):\n    return\n",
        BAD.replace("it", "this") + "def f(a, b):\n    return 'a'\n",
    ):
        said = list(problems({PATH: _looked(changed)}, before))
        assert len(said) == 2
        assert "was changed" in said[0]
        assert "the module: it begins with a noun phrase" in said[1]


def test_a_new_file_follows_the_rules() -> None:
    [said] = problems({PATH: _looked(BAD)}, {})
    assert "noun phrase" in said


def test_a_row_goes_with_its_file_and_when_the_file_follows() -> None:
    [said] = problems({}, {PATH: "0" * 12})
    assert said == f"{PATH} is gone: remove its row from docstrings_of_before.txt"
    good = _looked('"""The state."""\n')
    for digest in (good.digest, "0" * 12):
        [said] = problems({PATH: good}, {PATH: digest})
        assert said == f"{PATH} follows the rules: remove its row from docstrings_of_before.txt"


def test_an_exception_lets_one_docstring_be_and_goes_when_it_is_not_needed() -> None:
    files = {PATH: _looked(BAD + 'def f():\n    """What f is."""\n')}
    [said] = problems(files, {}, {f"{PATH}:f": "shown to people as it is"})
    assert "the module" in said
    both = {f"{PATH}:": "shown to people as it is", f"{PATH}:f": "shown to people as it is"}
    assert not list(problems(files, {}, both))
    assert not read_list(write_list(files, both))
    [said] = problems({PATH: _looked('"""The state."""\n')}, {}, {f"{PATH}:": "shown to people as it is"})
    assert said == f"{PATH}: breaks no rule: remove it from EXCEPTIONS"


def test_the_command_writes_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for top in ("server", "auth"):
        (tmp_path / top).mkdir()
        (tmp_path / top / "good.py").write_text('"""The state."""\n')
    (tmp_path / "auth" / "bad.py").write_text(BAD)
    monkeypatch.setattr("tests.docstrings.ROOT", tmp_path)
    monkeypatch.setattr("tests.docstrings.LIST", tmp_path / "list.txt")
    assert main([]) == 1
    assert "auth/bad.py:1" in capsys.readouterr().out
    assert main(["--of-before"]) == 0
    assert "new or changed: auth/bad.py" in capsys.readouterr().out
    assert list(read_list((tmp_path / "list.txt").read_text())) == ["auth/bad.py"]
    assert main([]) == 0
    assert main(["--other"]) == 2
