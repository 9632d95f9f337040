"""Which decisions a file of the product makes, and how each could be made wrongly.

A mutant is an edit of the text at the place of its node, so that every line keeps its number. It also tells that it was reached.
Left out is what no test should hold: logs, `__repr__`, annotations, assertions, causes of errors, blocks for type checkers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

# How each comparison is written, as a pattern, and what it is mistaken for: its neighbour, its opposite.
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.In: (r"\bin\b", ("not in",)),
    ast.NotIn: (r"\bnot\s+in\b", ("in",)),
    ast.Is: (r"\bis\b", ("is not",)),
    ast.IsNot: (r"\bis\s+not\b", ("is",)),
}
_LOG_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception"})
_NO_DECISIONS: Final = (ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.pattern)
_OTHER_FIELDS: Final = frozenset({"annotation", "returns", "cause"})


class Mutant(NamedTuple):
    file: str  # from the top of the checkout
    line: int
    kind: str
    before: str
    after: str
    start: int  # in bytes
    end: int

    def written(self, source: bytes, reached: str) -> bytes:
        """The file with the edit, which runs `reached`, an expression that is None, before anything else."""
        lines = "\n" * (self.before.count("\n") - self.after.count("\n"))
        edit = f"({reached} or ({self.after}{lines}))" if self.after else f"{reached}{lines}"
        return source[: self.start] + edit.encode() + source[self.end :]


def mutants(file: str, source: bytes) -> list[Mutant]:
    return [] if Path(file).name == "__main__.py" else list(_Reader(file, source).read())


class _Reader:
    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def read(self) -> Iterator[Mutant]:
        yield from self._below(ast.parse(self._source), in_init=False)

    def _below(self, node: ast.AST, *, in_init: bool) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in _OTHER_FIELDS:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._at(child, in_init=in_init)

    def _at(self, node: ast.AST, *, in_init: bool) -> Iterator[Mutant]:
        if isinstance(node, _NO_DECISIONS) or _is_log(node) or _is_outside(node):
            return
        match node:
            case ast.FunctionDef(name="__repr__"):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                in_init = node.name == "__init__"
            case ast.Compare():
                yield from self._comparison(node)
            case ast.BoolOp(op=op, values=values):
                was, now = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for left, right in pairwise(values):
                    yield from self._between(node, "and/or", left, right, rf"\b{was}\b", now)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._mutant(node, "not", self._text(operand))
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                for now in (number + 1, number - 1) if number else (1,):
                    yield self._mutant(node, "number", str(now))
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
                yield self._mutant(node, "write", "")
            case ast.Assign() | ast.AugAssign() if not in_init and _is_write(node):
                yield self._mutant(node, "write", "")
            case _:
                pass
        for test in _conditions(node):
            yield self._mutant(test, "if", f"not ({self._text(test)})")
        yield from self._below(node, in_init=in_init)

    def _comparison(self, node: ast.Compare) -> Iterator[Mutant]:
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, operands[1:], node.ops, strict=False):
            was, instead = _COMPARISONS[type(operator)]
            for now in instead:
                yield from self._between(node, "comparison", left, right, was, now)

    def _between(
        self, node: ast.expr, kind: str, left: ast.expr, right: ast.expr, was: str, now: str
    ) -> Iterator[Mutant]:
        """Replace the operator between two operands, beside which there may be brackets."""
        (start, last), (_, begin), (end, _) = self._span(node), self._span(left), self._span(right)
        gap = self._source[begin:end].decode()
        changed, found = re.subn(was, now, gap)
        if found == 1 and "#" not in gap:
            before, after = self._source[start:begin].decode(), self._source[end:last].decode()
            yield self._mutant(node, kind, before + changed + after)

    def _mutant(self, node: ast.AST, kind: str, after: str) -> Mutant:
        start, end = self._span(node)
        return Mutant(self._file, node.lineno, kind, self._text(node), after, start, end)  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[
            node.end_lineno - 1
        ] + node.end_col_offset


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Conditions that can only be negated as a whole; a comparison and a `not` have mutants of their own."""
    tests = [node.test] if isinstance(node, ast.If | ast.IfExp | ast.While) else []
    tests += node.ifs if isinstance(node, ast.comprehension) else []
    for test in tests:
        negation = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        if not negation and not isinstance(test, ast.Compare | ast.Constant) and not _is_outside(test):
            yield test


def _is_write(node: ast.Assign | ast.AugAssign) -> bool:
    """Whether it changes something that is there before and after. In `__init__` it would only leave a name out."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)


def _is_log(node: ast.AST) -> bool:
    called = node.value if isinstance(node, ast.Expr) else node
    match called:
        case ast.Call(func=ast.Attribute(value=whose, attr=level)):
            name = whose.attr if isinstance(whose, ast.Attribute) else getattr(whose, "id", "")
            return level in _LOG_LEVELS and name.lstrip("_") in ("log", "logger")
        case _:
            return False


def _is_outside(node: ast.AST) -> bool:
    """Whether it is for a type checker, or for a start as a program."""
    text = ast.unparse(node.test) if isinstance(node, ast.If) else ""
    return text in ("TYPE_CHECKING", "typing.TYPE_CHECKING") or text.startswith("__name__ == ")
