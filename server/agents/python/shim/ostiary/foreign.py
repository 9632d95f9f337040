"""Types of msgspec and pydantic, where the author's code has imported them: they bring their own schema and conversion."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, Callable

from .errors import Unfit
from .hints import loaded

Schema = dict[str, Any]


def is_struct(hint: Any) -> bool:
    base = loaded("msgspec", "Struct")
    hint = typing.get_origin(hint) or hint
    return base is not None and isinstance(hint, type) and issubclass(hint, base)


def is_model(hint: Any) -> bool:
    base = loaded("pydantic", "BaseModel")
    return base is not None and isinstance(hint, type) and issubclass(hint, base)


def is_checked(hint: Any) -> bool:
    """A type that pydantic makes from JSON, and that is no model: `HttpUrl`, `EmailStr` and the like."""
    return (
        loaded("pydantic", "TypeAdapter") is not None
        and isinstance(hint, type)
        and hasattr(hint, "__get_pydantic_core_schema__")
    )


def is_foreign(hint: Any) -> bool:
    """A class of fields."""
    return is_struct(hint) or is_model(hint)


def is_field(default: Any) -> bool:
    """Whether a parameter's default is pydantic's `Field(…)`, which says more of it than its default."""
    base = loaded("pydantic.fields", "FieldInfo")
    return base is not None and isinstance(default, base)


def default_of(field: Any) -> Callable[[], Any] | None:
    """What makes the default that is in a `Field(…)`; None where there is none, and the argument is required."""
    if field.default_factory is not None:
        return typing.cast("Callable[[], Any]", field.default_factory)
    default: Any = field.default
    if default is Ellipsis or "Undefined" in type(default).__name__:
        return None
    return lambda: default


def schema_of(hint: Any, *, answers: bool) -> tuple[Schema, dict[str, Schema]]:
    """The schema of a foreign type, and the definitions it refers to as `#/$defs/…`. `answers`: of what is sent."""
    if is_struct(hint):
        components = loaded("msgspec", "json").schema_components
        (schema,), definitions = components((hint,), ref_template="#/$defs/{name}")
        return schema, definitions
    mode = "serialization" if answers else "validation"
    schema = hint.model_json_schema(mode=mode) if is_model(hint) else _adapter(hint).json_schema(mode=mode)
    return schema, schema.pop("$defs", {})


def read(value: Any, hint: Any) -> Any:
    if is_struct(hint):
        try:
            return loaded("msgspec", "convert")(value, hint, str_keys=True)
        except loaded("msgspec", "ValidationError") as error:
            raise Unfit(str(error)) from error
    try:
        return hint.model_validate(value) if is_model(hint) else _adapter(hint).validate_python(value)
    except loaded("pydantic", "ValidationError") as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise Unfit(str(first["msg"]), ".".join(str(step) for step in first["loc"])) from error


def write(value: Any) -> Any:
    if is_struct(type(value)):
        return loaded("msgspec", "to_builtins")(value, str_keys=True)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    return _adapter(value.__class__).dump_python(value, mode="json")


@cache
def _adapter(hint: Any) -> Any:
    return loaded("pydantic", "TypeAdapter")(hint)
