"""The rules for docstrings, and the list of files that are older than they are: `tests/docstrings_of_before.txt`.

A class or module is named by a noun phrase, a function by a verb in the imperative, and each sentence names its subject. A file of the
list is let be while its code and docstrings are what they were; imports, comments and layout may change.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
ROOTS: Final = ("server", "auth")
LIST: Final = ROOT / "tests" / "docstrings_of_before.txt"
REFRESH: Final = "python -m tests.docstrings --of-before"
HEAD: Final = (
    "# Files whose docstrings do not follow the rules of tests/docstrings.py yet, with a digest of code and docstrings.\n"
    f"# After a purely mechanical change, such as a rename, refresh it with `{REFRESH}`; otherwise rows only go.\n"
)

# `path:name` → why this docstring may begin otherwise. The name is dotted, and "" for the module.
EXCEPTIONS: Final[Mapping[str, str]] = {}


def _words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# What no noun phrase begins with.
NO_NOUN: Final = _words(
    """
    of what whoever whose which those these that this it its they where when why how who whether there for by with as in from
    """
)
THIRD_PERSON: Final = _words(
    """
    begins closes contains does fails gives has holds is keeps makes opens puts raises reads returns says sends takes tells
    waits writes
    """
)
# What the docstring of a function begins with; add a verb that is missing.
VERBS: Final = _words(
    """
    abort accept acquire act add adopt advance allow announce answer append apply approve ask assert assign attach audit
    authenticate authorize await back begin bind block blot book bound break bridge build bury call cancel cap change charge check
    checkpoint choose claim clean clear close collect combine compare complete compose compute confirm connect consume continue
    convert copy count create cut debit decide declare decode decrypt defer define delete deliver deny derive describe destroy
    detach detect determine disable discard disconnect discover dispatch display divide do download draw drop emit enable encode
    encrypt end enforce enqueue enter escape establish estimate evaluate examine exchange exclude execute exit expect expire
    explain expose extend extract fail fetch fill filter find finish fit fix flush fold follow forbid forget format forward free
    freeze gather generate get give go grant group guard hand handle hash have hide hold identify ignore import include increase
    inform initialize insert inspect install interpret introspect invoke issue iterate join judge keep kill label lead leave let
    limit link list listen load locate lock log look lower make map mark mask match measure mend merge migrate mount move name
    negotiate normalise normalize note notify offer omit open order parse pass patch pause pay perform pick place plan poll post
    prefer prepare preserve present prevent print probe process produce promise propose prove provide prune publish pull push
    put query queue quote raise rank read rebuild receive recognise recognize record recover redact redeem redirect reduce
    refresh refuse register reject relay release reload remember remove rename render renew repeat replace reply report request
    require reseal reserve reset resolve respond restore resume retire retry return reveal revoke rewrite rotate round route run
    save say scan schedule seal search see select send separate serialise serialize serve set settle shorten show shut sign skip
    sleep sort split spread start state step stop store stream strip subscribe subtract succeed suggest sum supply surround
    suspend swap sweep switch take talk tell terminate test throttle throw tie trace track translate trim trust try turn uncap undo
    unlock unsubscribe unwrap update upgrade use validate verify visit void wait wake walk warn watch weigh withdraw wrap write
    yield
    """
)

EXAMPLE_FUNCTION: Final = '"""Return the requested tool selection; if both are given, both apply."""'
EXAMPLE_NOUN: Final = '"""The mutable state of one connection."""'

# A first sentence that is no longer than this, with its indentation and quotes, stands on one line.
WIDTH: Final = 110
_END: Final = re.compile(r"""[.:?…]["'`)*\]]*\Z""")
_SENTENCE: Final = re.compile(r"""[.?]["'`)*\]]*(?=\s|\Z)""")
_WORD: Final = re.compile(r"[\w'’-]+")
# The beginning of a sentence that does not name its subject: in a paragraph or an item, or behind another sentence.
_NO_SUBJECT: Final = re.compile(
    r"""(?:\n[ \t]*\n|\n[ \t]*[-*][ ]|[.?!…]["'`)*\]]*\s)\s*(Of|What|Whoever|Those|The\s+same|It)\b"""
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """A docstring that breaks a rule."""

    path: str
    name: str
    line: int
    rule: str
    example: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name or 'the module'}: {self.rule}, as in {self.example}"


class Looked(NamedTuple):
    """The findings in a file, and the digest of its code and docstrings."""

    findings: tuple[Finding, ...]
    digest: str


def look_at(path: str, source: str | bytes) -> Looked:
    """Check one file, parsed once."""
    tree = ast.parse(source)
    found = tuple(_findings(path, tree))
    return Looked(found, _digest(tree))


def look_at_all(root: Path) -> dict[str, Looked]:
    """Check each file of the product below `root`."""
    with _no_collection():
        return {
            path.relative_to(root).as_posix(): look_at(path.relative_to(root).as_posix(), path.read_bytes())
            for top in ROOTS
            for path in sorted((root / top).rglob("*.py"))
        }


def problems(
    files: Mapping[str, Looked], before: Mapping[str, str], exceptions: Mapping[str, str] = EXCEPTIONS
) -> Iterator[str]:
    """Yield a sentence for each docstring that must change, and each row of the list that must go."""
    unused = set(exceptions)
    for path, (found, digest) in files.items():
        unused -= {f"{path}:{one.name}" for one in found}
        left = [one for one in found if f"{path}:{one.name}" not in exceptions]
        listed = before.get(path)
        if listed is None:
            yield from map(str, left)
        elif not left:
            yield f"{path} follows the rules: remove its row from {LIST.name}"
        elif listed != digest:
            yield f"{path} was changed: let its docstrings follow the rules, and remove its row from {LIST.name} (or, if the change is purely mechanical: {REFRESH})"
            yield from map(str, left)
    yield from (f"{path} is gone: remove its row from {LIST.name}" for path in before if path not in files)
    yield from (f"{one} breaks no rule: remove it from EXCEPTIONS" for one in sorted(unused))


def read_list(text: str) -> dict[str, str]:
    """Return the digest of each file in the list."""
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {row[0]: row[1] for row in rows}


def write_list(files: Mapping[str, Looked], exceptions: Mapping[str, str] = EXCEPTIONS) -> str:
    """Return the list of all files that do not follow the rules."""
    return HEAD + "".join(
        f"{path} {digest}\n"
        for path, (found, digest) in sorted(files.items())
        if any(f"{path}:{one.name}" not in exceptions for one in found)
    )


def _findings(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield what is wrong with the docstrings of a module, and of all that is defined in it."""
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, name = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | _Function):
            yield from _finding(path, node, name)
        for child in _statements(node):
            below = (
                f"{name}.{child.name}".lstrip(".") if isinstance(child, ast.ClassDef | _Function) else name
            )
            waiting.append((child, below))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements right below one, of all its branches."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        below = getattr(node, field, None)
        if isinstance(below, list):
            yield from below  # a lambda and a condition have one that is no list


def _finding(path: str, node: ast.Module | ast.ClassDef | _Function, name: str) -> Iterator[Finding]:
    """Yield the first rule that a docstring breaks, if it breaks one."""
    first = node.body[0] if node.body else None
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return
    text = first.value.value
    if not isinstance(text, str):
        return
    function = isinstance(node, _Function)
    rule = broken_rule(
        text, function=function, noun=not function or _is_property(node), indent=first.col_offset
    )
    if rule:
        yield Finding(path, name, first.lineno, rule, EXAMPLE_FUNCTION if function else EXAMPLE_NOUN)


def broken_rule(text: str, *, function: bool, noun: bool, indent: int = 0) -> str:
    """Return the rule that a docstring breaks, or "". A property is a `function` that may be a `noun`, too."""
    if not text.strip() or text[0] in "\n\r":
        return "the first sentence stands on the first line"
    paragraph = re.split(r"\n[ \t]*\n", text.strip(), maxsplit=1)[0]
    said = _WORD.match(paragraph)
    word = said[0] if said else ""
    if function and not noun and not (word.lower() in VERBS and word[0].isupper()):
        return f"it begins with a verb in the imperative, not with {paragraph.split()[0]!r} (VERBS in tests/docstrings.py)"
    if noun and (
        word.lower() in NO_NOUN | THIRD_PERSON or paragraph.lower().startswith(("the same ", "the same,"))
    ):
        return (
            f"it begins with a noun phrase that names the thing, not with {' '.join(paragraph.split()[:2])!r}"
        )
    if not _END.search(paragraph):
        return "its first paragraph ends with a period, colon or question mark"
    end = _SENTENCE.search(paragraph)
    sentence = paragraph[: end.end()] if end else paragraph
    if "\n" in sentence and indent + 6 + len(" ".join(sentence.split())) <= WIDTH:
        return "the first sentence stands on one line, where it fits"
    if unsaid := _NO_SUBJECT.search(text):
        return f"no sentence begins with {' '.join(unsaid[1].split())!r}: name its subject"
    return ""


def _is_property(node: ast.AST) -> bool:
    """Return whether a function is read like a value."""
    marks = getattr(node, "decorator_list", ())
    names = [mark.id if isinstance(mark, ast.Name) else getattr(mark, "attr", "") for mark in marks]
    return not {"property", "cached_property"}.isdisjoint(names)


def _digest(tree: ast.AST) -> str:
    """Return the digest of all but imports, comments and layout; the same in each version of Python."""
    said: list[str] = []
    _note(tree, said.append)
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _note(node: object, note: Callable[[str], None]) -> None:
    """Note the kind of a node and each field that says something."""
    if isinstance(node, list):
        for each in node:
            _note(each, note)
        note("]")
        return
    if not isinstance(node, ast.AST):
        note(repr(node))
        return
    kind = type(node)
    if kind in _UNSEEN:
        return
    note(kind.__name__)
    if kind is ast.Constant:
        note(repr(node.value))  # type: ignore[attr-defined]
        return
    for field in kind._fields:
        value = getattr(node, field, None)
        # Newer versions have more fields, and those are empty.
        if value is not None and value != []:
            note(field)
            _note(value, note)


_UNSEEN: Final = frozenset({ast.Import, ast.ImportFrom, ast.Load, ast.Store, ast.Del})


@contextmanager
def _no_collection() -> Generator[None, None, None]:
    """Keep the garbage collector from walking syntax trees, which takes longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong; with `--of-before`, write the list anew and print the rows that are new in it."""
    files = look_at_all(ROOT)
    before = read_list(LIST.read_text()) if LIST.exists() else {}
    if arguments == ["--of-before"]:
        LIST.write_text(write_list(files))
        now = read_list(LIST.read_text())
        print(f"{len(now)} files do not follow the rules yet")
        print("\n".join(f"new or changed: {path}" for path in now if now[path] != before.get(path)))
        return 0
    if arguments:
        print(f"usage: {REFRESH}", file=sys.stderr)
        return 2
    wrong = list(problems(files, before))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
