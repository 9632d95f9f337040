"""Reading type hints: of functions, and of the classes whose fields are named and typed. Nothing here knows JSON.

Runs on Python 3.9, where `typing` lacks half of what later ones have: such names are looked up in what is loaded.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from functools import cache
from typing import Any, Callable, NamedTuple, Union, cast

from .errors import Misuse

MISSING: Any = dataclasses.MISSING
Function = Callable[..., Any]


class Field(NamedTuple):
    """A parameter of a function or a field of a class."""

    name: str
    hint: Any  # Any where there is none
    required: bool
    default: Any = MISSING


def loaded(module: str, name: str) -> Any:
    """A name of a module that somebody has imported; else None. So that we import nothing for types nobody uses."""
    return getattr(sys.modules.get(module), name, None)


def hints_of(thing: Any, of: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError as error:
        raise Misuse(
            f"{of}: a type hint cannot be read: {error}. Types of parameters, results and fields must be importable "
            "names of their module when it is loaded (not under `if TYPE_CHECKING`, not inside a function)"
        ) from error
    except TypeError as error:
        older = "; `X | Y` needs Python 3.10, write Optional[X] or Union[X, Y]" if "|" in str(error) else ""
        raise Misuse(f"{of}: a type hint cannot be read: {error}{older}") from error


def own(function: Function) -> Function:
    """The function that holds the hints and the docstring: of a partial, and of an object that can be called."""
    while loaded("functools", "partial") and isinstance(function, loaded("functools", "partial")):
        function = function.func  # type: ignore[attr-defined]
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


_WRAPPERS = ("Required", "NotRequired", "ReadOnly")


def strip(hint: Any) -> tuple[Any, list[Any], bool | None]:
    """The hint itself, what `Annotated` adds to it, and whether a TypedDict's field is said to be required."""
    notes: list[Any] = []
    required: bool | None = None
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            notes = [*hint.__metadata__, *notes]
            hint = hint.__origin__
        elif origin is not None and getattr(origin, "_name", None) in _WRAPPERS:
            if origin._name != "ReadOnly":
                required = origin._name == "Required"
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):  # NewType
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # `type X = …`
            hint = hint.__value__
        elif isinstance(hint, typing.TypeVar):
            hint = Union[hint.__constraints__] if hint.__constraints__ else hint.__bound__ or Any
        else:
            return hint, notes, required


def is_union(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    return origin is Union or (origin is not None and origin is loaded("types", "UnionType"))


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union; the hint alone where it is none."""
    bare = strip(hint)[0]
    return typing.get_args(bare) if is_union(bare) else (hint,)


def is_typed_dict(hint: Any) -> bool:
    return (
        isinstance(hint, type) and issubclass(hint, dict) and hasattr(cast("Any", hint), "__required_keys__")
    )


def is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(cast("Any", hint), "_fields")


def is_record(hint: Any) -> bool:
    """A class with named fields that this module can read: dataclass, TypedDict, NamedTuple."""
    if not isinstance(hint, type):
        return False
    return dataclasses.is_dataclass(hint) or is_typed_dict(hint) or is_named_tuple(hint)


@cache
def fields_of(record: type) -> tuple[Field, ...]:
    """The fields that a record is made from, in their order."""
    hints = hints_of(record, record.__name__)
    known: Any = record  # its class is known by what it has, not by a type
    if is_typed_dict(record):
        needed: frozenset[str] = known.__required_keys__
        found: list[Field] = []
        for name, hint in hints.items():
            said = strip(hint)[2]
            # With `from __future__ import annotations`, Python itself cannot see NotRequired; the hint can.
            found.append(Field(name, hint, name in needed if said is None else said))
        return tuple(found)
    if is_named_tuple(record):
        defaults: dict[str, Any] = known._field_defaults
        names: tuple[str, ...] = known._fields
        return tuple(
            Field(name, hints.get(name, Any), name not in defaults, defaults.get(name, MISSING))
            for name in names
        )
    return tuple(
        Field(
            field.name,
            hints[field.name],
            field.default is MISSING and field.default_factory is MISSING,
            field.default,
        )
        for field in dataclasses.fields(record)
        if field.init
    )
