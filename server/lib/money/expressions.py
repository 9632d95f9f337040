"""Prices by arithmetic over a call's arguments: `0.01 + 0.002 * len(text)`.

Numbers, `+ - * /`, comparisons, `and or not`, `a if b else c`, the call's arguments by their names, parts of an argument as
`options["pages"]`, and the functions of `_FUNCTIONS`. Nothing else of Python is there: what is read is a tree of values of our own, and
no code is ever made of it. Everything is exact. A number is a fraction, also one that came as a float: then it is the decimal that JSON
shows. What comes out must be whole micros; `round_up` makes it so, in the open.

Work is bounded by the length of the text alone: there are no loops, no powers, and no number has more than so many digits.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from server.lib.money.amounts import MOST, ONE, Micros
from server.lib.shortened import short_name

MAX_CHARACTERS: Final = 500
MAX_PARTS: Final = 120  # of the tree
# An argument is a number that people count with: what is larger, or finer, is no basis for a price.
MAX_ARGUMENT: Final = 10**15
MAX_PLACES: Final = 18

_LITERAL: Final = re.compile(r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,12})?")
_Given: TypeAlias = Mapping[str, Any]
_Part: TypeAlias = Callable[[_Given], Any]


class BadExpression(ValueError):
    """What is written is no price; says why."""


class NoPrice(Exception):
    """There is no price for these arguments; says why. Names an argument, and never repeats its value."""


class Expression:
    """Raises `BadExpression`."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.names: Final[set[str]] = set()  # the arguments that it looks at
        self._parts = 0
        self._literals: dict[tuple[int, int], str] = {}
        if len(text) > MAX_CHARACTERS:
            raise BadExpression(f"has more than {MAX_CHARACTERS} characters")
        if not text.isascii() or not text.isprintable():
            raise BadExpression("has characters that no price needs")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise BadExpression("is no arithmetic") from None
        self._source = text.strip()
        self._run = self._read(tree.body)
        if _divides(tree.body):
            raise BadExpression(
                "divides, and what comes out may be finer than a millionth: put round_up( … ) around it"
            )

    def price(self, arguments: _Given) -> Micros:
        """Raises `NoPrice`."""
        try:
            dollars = self._run(arguments)
        except ZeroDivisionError:
            raise NoPrice("the price divides by zero") from None
        if isinstance(dollars, bool) or not isinstance(dollars, Fraction):
            raise NoPrice("the price is no number")
        micros = dollars * ONE
        if micros.denominator != 1:
            raise NoPrice(
                "the price is finer than a millionth of a dollar, and nothing says that it is rounded"
            )
        if not 0 <= micros <= MOST:
            raise NoPrice("the price is negative" if micros < 0 else "the price is more than can be counted")
        return micros.numerator

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, node: ast.expr) -> _Part:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadExpression(f"has more than {MAX_PARTS} parts")
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name(id="true" | "false" as word):  # as JSON writes it
                return lambda _: word == "true"
            case ast.Name(id=name) if name in _FUNCTIONS or name == "given":
                raise BadExpression(f"has {name} without its ( … )")
            case ast.Name(id=name):
                self.names.add(name)
                return lambda given: _value(given, name)
            case ast.Subscript():
                return self._part_of(node)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                return _joined(_OPERATORS[type(sign)], self._read(left), self._read(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                one = self._read(operand)
                return lambda given: -_number(one(given))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                one = self._read(operand)
                return lambda given: not _truth(one(given))
            case ast.BoolOp(op=sign, values=values):
                parts = [self._read(value) for value in values]
                if isinstance(sign, ast.And):
                    return lambda given: all(_truth(part(given)) for part in parts)
                return lambda given: any(_truth(part(given)) for part in parts)
            case ast.Compare():
                return self._comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition, yes, no = self._read(test), self._read(body), self._read(orelse)
                return lambda given: yes(given) if _truth(condition(given)) else no(given)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._function(name, arguments)
            case _:
                raise BadExpression(f"has {_what(node)}, which no price needs")

    def _constant(self, node: ast.Constant) -> _Part:
        value = node.value
        if isinstance(value, bool):
            return lambda _: value
        if isinstance(value, str):
            return lambda _: value
        # Read anew from the text: as a float it would not be what is written.
        written = ast.get_source_segment(self._source, node) or ""
        if not isinstance(value, int | float) or _LITERAL.fullmatch(written) is None:
            raise BadExpression("has a number that is not written plainly, like 12 or 0.002")
        number = Fraction(written)
        return lambda _: number

    def _part_of(self, node: ast.Subscript) -> _Part:
        key = node.slice
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise BadExpression('looks at a part other than by its name, like options["pages"]')
        if not isinstance(node.value, ast.Name | ast.Subscript):
            raise BadExpression("looks at a part of what is no argument")
        whole, name = self._read(node.value), key.value
        return lambda given: _value(_object(whole(given)), name)

    def _comparison(self, node: ast.Compare) -> _Part:
        parts = [self._read(part) for part in (node.left, *node.comparators)]
        kinds = [type(sign) for sign in node.ops]
        if not set(kinds) <= _COMPARISONS.keys():
            raise BadExpression("compares in a way other than == != < <= > >=")
        tests = [_COMPARISONS[kind] for kind in kinds]

        def run(given: _Given) -> bool:
            values = [_plain(part(given)) for part in parts]
            return all(test(values[at], values[at + 1]) for at, test in enumerate(tests))

        return run

    def _function(self, name: str, written: list[ast.expr]) -> _Part:
        if name == "given":  # the one that asks for a name, not for its value
            if len(written) != 1 or not isinstance(written[0], ast.Name):
                raise BadExpression("given( … ) takes the name of an argument")
            asked = written[0].id
            self.names.add(asked)
            return lambda given: given.get(asked) is not None
        if name not in _FUNCTIONS:
            raise BadExpression(f"has {name[:40]}( … ): there are {', '.join([*_FUNCTIONS, 'given'])}")
        function, least, most = _FUNCTIONS[name]
        if not least <= len(written) <= most:
            raise BadExpression(f"gives {name}( … ) {len(written)} values")
        parts = [self._read(part) for part in written]
        return lambda given: function(*(part(given) for part in parts))


def _joined(operate: Callable[[Fraction, Fraction], Fraction], left: _Part, right: _Part) -> _Part:
    return lambda given: operate(_number(left(given)), _number(right(given)))


def _divides(node: ast.expr) -> bool:
    """Whether what comes out may be the outcome of a division that nothing rounds."""
    match node:
        case ast.Call(func=ast.Name(id="round_up" | "len" | "given")):
            return False
        case ast.Call(args=arguments):
            return any(_divides(each) for each in arguments)
        case ast.BinOp(left=left, op=sign, right=right):
            return isinstance(sign, ast.Div) or _divides(left) or _divides(right)
        case ast.UnaryOp(operand=operand):
            return _divides(operand)
        case ast.IfExp(body=body, orelse=orelse):
            return _divides(body) or _divides(orelse)
        case _:
            return False


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _value(given: _Given, name: str) -> Any:
    if given.get(name) is None:
        raise NoPrice(f"the price depends on {short_name(name)}, which is not given")
    return given[name]


def _object(value: Any) -> _Given:
    if not isinstance(value, Mapping):
        raise NoPrice("the price depends on a part of an argument that has none")
    return cast("_Given", value)


def _number(value: Any) -> Fraction:
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoPrice("the price counts with an argument that is no number")
    if not -MAX_ARGUMENT <= value <= MAX_ARGUMENT:  # false for NaN, too
        raise NoPrice("the price depends on a number that is too large")
    # As JSON shows it: 0.1 is a tenth, whatever a float makes of it.
    number = Fraction(value) if isinstance(value, int) else Fraction(repr(value))
    if number.denominator > 10**MAX_PLACES:
        raise NoPrice("the price depends on a number that is too fine")
    return number


def _plain(value: Any) -> Any:
    """To be compared: a number, a text or a truth."""
    if isinstance(value, bool | str):
        return value
    return _number(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NoPrice("the price depends on whether something is so that is neither true nor false")
    return value


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    if type(one) is not type(other) or isinstance(one, bool):
        raise NoPrice("the price compares what cannot be compared")
    return one, other


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda one, other: test(*_alike(one, other))


def _length(value: Any) -> Fraction:
    if not isinstance(value, str | list | tuple | Mapping):
        raise NoPrice("the price depends on the length of what has none")
    return Fraction(len(cast("Any", value)))


def _round_up(value: Any, step: Any = Fraction(1, ONE)) -> Fraction:
    """To whole micros, or to whole steps of so many dollars."""
    size = _number(step)
    if size <= 0:
        raise NoPrice("the price is rounded to steps of nothing")
    return math.ceil(_number(value) / size) * size


def _least(*values: Any) -> Fraction:
    return min(_number(value) for value in values)


def _greatest(*values: Any) -> Fraction:
    return max(_number(value) for value in values)


# name → what it does, how few values it takes, how many
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Any], int, int]]] = MappingProxyType(
    {
        "len": (_length, 1, 1),
        "min": (_least, 2, 10),
        "max": (_greatest, 2, 10),
        "round_up": (_round_up, 1, 2),
    }
)
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = MappingProxyType(
    {
        ast.Add: lambda one, other: one + other,
        ast.Sub: lambda one, other: one - other,
        ast.Mult: lambda one, other: one * other,
        ast.Div: lambda one, other: one / other,
    }
)
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = MappingProxyType(
    {
        ast.Eq: lambda one, other: type(one) is type(other) and one == other,
        ast.NotEq: lambda one, other: type(one) is not type(other) or one != other,
        ast.Lt: _ordered(operator.lt),
        ast.LtE: _ordered(operator.le),
        ast.Gt: _ordered(operator.gt),
        ast.GtE: _ordered(operator.ge),
    }
)


_NAMED: Final[Mapping[type[ast.expr], str]] = MappingProxyType(
    {
        ast.Attribute: "a point behind a name",
        ast.Lambda: "a function",
        ast.ListComp: "a loop",
        ast.GeneratorExp: "a loop",
        ast.JoinedStr: "a text with holes",
        ast.Call: "a call of what is no function",
        ast.BinOp: "an operator besides + - * /",
    }
)


def _what(node: ast.expr) -> str:
    return _NAMED.get(type(node), f"a part ({type(node).__name__})")
