"""Checked JSON to the values that a function's hints promise: dataclasses, enums, dates, sets. Schema first: schema.py.

The server has checked arguments against the schema, so this is no second check of limits and lengths; it says `Unfit`
where a value cannot become what the hint says.
"""

from __future__ import annotations

import collections
import json
import typing
from typing import Any, Literal

from . import foreign
from .errors import Unfit
from .hints import fields_of, is_named_tuple, is_record, is_typed_dict, is_union, loaded, strip
from .plain import plain
from .schema import LISTS, MAPPINGS, SCALARS, SETS, is_anything, names_of
from .standard import standard

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


def convert(value: Any, hint: Any) -> Any:
    bare = hint if type(hint) is type else strip(hint)[0]
    if bare is str or is_anything(bare):
        if bare is str and not isinstance(value, str):
            raise Unfit("not a string")
        return value
    if bare is None or (isinstance(bare, type) and bare in SCALARS):
        return _scalar(value, bare)
    if is_union(bare):
        return _union(value, typing.get_args(bare))
    origin = typing.get_origin(bare)
    if origin is Literal:
        return _literal(value, typing.get_args(bare))
    kind = origin or bare
    enum = loaded("enum", "Enum")
    if enum is not None and isinstance(kind, type) and issubclass(kind, enum):
        return _member(value, kind)
    row = standard(kind)
    if row is not None:
        return _standard(value, kind, row.read)
    if kind in (bytes, bytearray):
        return _bytes(value, kind)
    if foreign.is_foreign(kind) or foreign.is_checked(kind):
        return foreign.read(value, bare)
    if is_record(kind):
        return _record(value, kind)
    return _collection(value, kind, typing.get_args(bare))


def _scalar(value: Any, kind: Any) -> Any:
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is int:
        # JSON Schema counts 3.0 among the integers.
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif kind is bool and isinstance(value, bool):
        return value
    elif kind in (None, type(None)) and value is None:
        return None
    raise Unfit(f"not {SCALARS[type(None) if kind is None else kind]}")


def _union(value: Any, members: tuple[Any, ...]) -> Any:
    # A value that is one of the members already is not made into another: 1 stays 1 in Union[float, int].
    if type(value) in members and not isinstance(value, str):
        return value
    problems: list[Unfit] = []
    for member in members:
        try:
            return convert(value, member)
        except Unfit as error:
            problems.append(error)
    # The most telling one: that which got furthest into the value.
    raise max(problems, key=lambda problem: len(problem.at))


def _literal(value: Any, allowed: tuple[Any, ...]) -> Any:
    for item in allowed:
        written = plain(item)
        if written == value and type(written) is type(value):
            return item
    raise Unfit(f"not one of {', '.join(str(plain(item)) for item in allowed)}")


def _member(value: Any, enum: Any) -> Any:
    for member, name in zip(enum, names_of(enum)):
        if name == value and type(name) is type(value):
            return member
    raise Unfit(f"not one of {', '.join(str(name) for name in names_of(enum))}")


def _standard(value: Any, kind: Any, read: typing.Callable[[Any, Any], Any]) -> Any:
    try:
        return read(kind, value)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise Unfit(f"not a {kind.__name__}") from error


def _bytes(value: Any, kind: Any) -> Any:
    import base64

    try:
        return kind(base64.b64decode(value, validate=True))
    except (ValueError, TypeError) as error:
        raise Unfit("not base64") from error


def _record(value: Any, record: Any) -> Any:
    if not isinstance(value, dict):
        raise Unfit("not an object")
    given = typing.cast("dict[str, Any]", value)
    fields = fields_of(record)
    made = {
        field.name: _below(given[field.name], field.hint, field.name)
        for field in fields
        if field.name in given
    }
    for field in fields:
        if field.required and field.name not in made:
            raise Unfit("missing", field.name)
    for name in given:
        if name not in made:
            raise Unfit("unknown", name)
    if is_typed_dict(record):
        return made
    try:
        return record(**made)
    except (ValueError, TypeError) as error:
        if is_named_tuple(record):
            raise
        raise Unfit(str(error)) from error  # what the author's __post_init__ says


def _below(value: Any, hint: Any, step: str) -> Any:
    try:
        return convert(value, hint)
    except Unfit as error:
        raise error.below(step) from error


def _collection(value: Any, kind: Any, args: tuple[Any, ...]) -> Any:
    if kind in MAPPINGS:
        if not isinstance(value, dict):
            raise Unfit("not an object")
        given = typing.cast("dict[str, Any]", value)
        if len(args) == 2:
            given = {from_text(key, args[0]): _below(item, args[1], key) for key, item in given.items()}
        if kind is collections.defaultdict:
            return collections.defaultdict(None, given)
        return collections.OrderedDict(given) if kind is collections.OrderedDict else given
    if not isinstance(value, list):
        raise Unfit("not an array")
    items = typing.cast("list[Any]", value)
    if kind is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
        hints = () if args == ((),) else args
        if len(items) != len(hints):
            raise Unfit(f"not {len(hints)} items")
    else:
        hints = (args[0] if args else Any,) * len(items)
    made = [_below(item, hint, f"[{number}]") for number, (item, hint) in enumerate(zip(items, hints))]
    if kind is tuple:
        return tuple(made)
    if kind in SETS:
        return frozenset(made) if kind is frozenset else set(made)
    if kind is collections.deque:
        return collections.deque(made)
    if kind in LISTS:
        return made
    raise Unfit(f"nothing becomes a {kind}")


def from_text(text: str, hint: Any) -> Any:
    """What a text stands for where everything arrives as text: arguments of prompts, variables of templates, keys."""
    bare = strip(hint)[0]
    if bare is str or is_anything(bare):
        return text
    if is_union(bare):
        members = [member for member in typing.get_args(bare) if member is not type(None)]
        for member in sorted(members, key=lambda member: strip(member)[0] is str):
            try:
                return from_text(text, member)
            except Unfit:
                continue
        raise Unfit("does not fit")
    if bare is bool:
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise Unfit("neither true nor false")
    if bare in (int, float):
        try:
            return bare(text)
        except ValueError as error:
            raise Unfit("not a whole number" if bare is int else "not a number") from error
    for item, written in options_of(bare):
        if written == text:
            return item
    kind = typing.get_origin(bare) or bare
    if options_of(bare) or standard(kind) is not None or kind in (bytes, bytearray):
        return convert(text, bare)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Unfit("not JSON") from error
    return convert(value, bare)


def options_of(hint: Any) -> list[tuple[Any, str]]:
    """The values of a Literal or an Enum with the texts they go by; nothing for other hints."""
    bare = strip(hint)[0]
    if typing.get_origin(bare) is Literal:
        return [(item, _written(plain(item))) for item in typing.get_args(bare)]
    enum = loaded("enum", "Enum")
    if enum is not None and isinstance(bare, type) and issubclass(bare, enum):
        return [(member, _written(name)) for member, name in zip(typing.cast("Any", bare), names_of(bare))]
    return []


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
