"""Types of msgspec and pydantic, where the author's code has imported them: they bring their own schema and conversion."""

from __future__ import annotations

import typing
from typing import Any

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


def is_foreign(hint: Any) -> bool:
    return is_struct(hint) or is_model(hint)


def schema_of(hint: Any, *, answers: bool) -> tuple[Schema, dict[str, Schema]]:
    """The schema of a foreign type, and the definitions it refers to as `#/$defs/…`. `answers`: of what is sent."""
    if is_struct(hint):
        components = loaded("msgspec", "json").schema_components
        (schema,), definitions = components((hint,), ref_template="#/$defs/{name}")
        return schema, definitions
    schema = hint.model_json_schema(mode="serialization" if answers else "validation")
    return schema, schema.pop("$defs", {})


def read(value: Any, hint: Any) -> Any:
    if is_struct(hint):
        try:
            return loaded("msgspec", "convert")(value, hint, str_keys=True)
        except loaded("msgspec", "ValidationError") as error:
            raise Unfit(str(error)) from error
    try:
        return hint.model_validate(value)
    except loaded("pydantic", "ValidationError") as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise Unfit(str(first["msg"]), ".".join(str(step) for step in first["loc"])) from error


def write(value: Any) -> Any:
    if is_struct(type(value)):
        return loaded("msgspec", "to_builtins")(value, str_keys=True)
    return value.model_dump(mode="json", by_alias=True)
