"""The forms of elicitation: which schemas a client can draw, and whether what came back fits.

A form is a flat object of primitive properties; that is all that clients are asked to understand. The rest of a question
(its message, its mode) is in call_questions.py. Spec: client/elicitation, schema `PrimitiveSchemaDefinition`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

# More than a person fills in; the options of one field are bounded by the size of the question.
MAX_FIELDS: Final = 64
MAX_NAME: Final = 128
_MAX_REASON: Final = 300


class _Field(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    tag_field="type",
    forbid_unknown_fields=True,
):
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


class _Option(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    const: str
    title: str


class _Text(_Field, frozen=True, kw_only=True, rename="camel", tag="string", forbid_unknown_fields=True):
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    format: Literal["email", "uri", "date", "date-time"] | UnsetType = UNSET
    default: str | UnsetType = UNSET
    enum: Sequence[str] | UnsetType = UNSET
    enum_names: Sequence[str] | UnsetType = UNSET  # of the revisions before `oneOf`; clients still draw it
    one_of: Sequence[_Option] | UnsetType = UNSET


class _Number(_Field, frozen=True, kw_only=True, rename="camel", tag="number", forbid_unknown_fields=True):
    minimum: float | UnsetType = UNSET
    maximum: float | UnsetType = UNSET
    default: float | UnsetType = UNSET


class _Integer(_Field, frozen=True, kw_only=True, rename="camel", tag="integer", forbid_unknown_fields=True):
    minimum: float | UnsetType = UNSET
    maximum: float | UnsetType = UNSET
    default: int | UnsetType = UNSET


class _Boolean(_Field, frozen=True, kw_only=True, rename="camel", tag="boolean", forbid_unknown_fields=True):
    default: bool | UnsetType = UNSET


class _Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    type: Literal["string"] | UnsetType = UNSET
    enum: Sequence[str] | UnsetType = UNSET
    any_of: Sequence[_Option] | UnsetType = UNSET


class _Choices(_Field, frozen=True, kw_only=True, rename="camel", tag="array", forbid_unknown_fields=True):
    min_items: int | UnsetType = UNSET
    max_items: int | UnsetType = UNSET
    items: _Options
    default: Sequence[str] | UnsetType = UNSET


_AnyField: TypeAlias = _Text | _Number | _Integer | _Boolean | _Choices


class RequestedForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`requestedSchema`. The last three are not in the protocol's schema, but generators of schemas write them."""

    schema: str | UnsetType = msgspec.field(default=UNSET, name="$schema")
    type: Literal["object"]
    properties: dict[str, Any]  # decoded one by one, so that a fault names its field
    required: Sequence[str] = ()
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    additional_properties: bool | UnsetType = UNSET


def fault_in_form(form: RequestedForm, schema: Mapping[str, Any]) -> str | None:
    """Say what its author has to change; `form` is the decoded `schema`."""
    if len(form.properties) > MAX_FIELDS:
        return f"a form has at most {MAX_FIELDS} fields"
    fields: dict[str, _AnyField] = {}
    for name, described in form.properties.items():
        try:
            fields[name] = _convert(described)
            fault = _fault(fields[name])
        except msgspec.ValidationError as error:
            fault = str(error)[:_MAX_REASON]
        if not 1 <= len(name) <= MAX_NAME:
            fault = f"its name is not 1 to {MAX_NAME} characters"
        if fault is not None:
            return f"the form's field {name[:MAX_NAME]!r}: {fault}"
    if unknown := [name for name in form.required if name not in form.properties]:
        return f"the form requires {unknown[0][:MAX_NAME]!r}, which is not one of its fields"
    try:
        _validator(schema)
        for name, field in fields.items():
            if field.default is not UNSET and not _validator(form.properties[name]).is_valid(
                msgspec.to_builtins(field.default)
            ):
                return f"the form's field {name!r}: its default is not one of the values that it takes"
    except (ValueError, TypeError, RecursionError) as error:
        return f"the form is not a usable JSON Schema: {str(error).partition(chr(10))[0][:_MAX_REASON]}"
    return None


def problem_in_form(schema: Mapping[str, Any], content: Any) -> str | None:
    """Say why a filled-in form cannot be used. Names fields, never what was put there."""
    if content is None:
        content = {}  # clients send none where the form has nothing that must be filled in
    if not isinstance(content, dict):
        return "content is not an object"
    values = cast("dict[str, Any]", content)
    fields = cast("Mapping[str, Any]", schema["properties"])
    # What the form did not ask for is the client's to add, but not to nest: a tool reads primitive values here.
    for name, value in values.items():
        if name not in fields and not _primitive(value):
            return "content has a value that is neither primitive nor a list of texts"
    import jsonschema_rs  # not free to load, and a terminal asks no forms

    try:
        # The first fault alone: to look for all of them takes seconds where there are many.
        _validator(schema).validate(values)
    except jsonschema_rs.ValidationError as error:
        where = ".".join(str(step) for step in error.instance_path)
        return f"{where[:MAX_NAME]}: {error.message[:_MAX_REASON]}" if where else error.message[:_MAX_REASON]
    except (ValueError, TypeError, RecursionError):
        return "content is not JSON"
    return None


def with_enum_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Write the form in the words of 2025-06-18: titled options were `enum` and `enumNames` then. Several choices at once were
    not there at all, and stay as they are: a client that does not know them shows what it can."""
    return {
        **schema,
        "properties": {
            name: _with_enum_names(cast("Mapping[str, Any]", field))
            for name, field in cast("Mapping[str, Any]", schema["properties"]).items()
        },
    }


def _with_enum_names(field: Mapping[str, Any]) -> Mapping[str, Any]:
    options = field.get("oneOf")
    if not options:
        return field
    kept = {key: value for key, value in field.items() if key != "oneOf"}
    titled = cast("Sequence[Mapping[str, str]]", options)
    return {
        **kept,
        "enum": [option["const"] for option in titled],
        "enumNames": [option["title"] for option in titled],
    }


def _convert(described: Any) -> _AnyField:
    return msgspec.convert(described, _AnyField)


def _fault(field: _AnyField) -> str | None:
    match field:
        case _Text():
            return _text_fault(field)
        case _Number() | _Integer():
            return _order_fault("minimum", field.minimum, "maximum", field.maximum)
        case _Choices():
            options = _texts(field.items.enum, field.items.any_of)
            return (
                _options_fault("items", options, field.items.enum, field.items.any_of)
                or ("items has neither enum nor anyOf" if options is None else None)
                or _length_fault("minItems", field.min_items, "maxItems", field.max_items)
            )
        case _Boolean():
            return None


def _text_fault(field: _Text) -> str | None:
    if fault := _options_fault("it", _texts(field.enum, field.one_of), field.enum, field.one_of):
        return fault
    if field.enum_names is not UNSET and (field.enum is UNSET or len(field.enum_names) != len(field.enum)):
        return "enumNames needs an enum with as many values"
    return _length_fault("minLength", field.min_length, "maxLength", field.max_length)


def _texts(enum: Sequence[str] | UnsetType, titled: Sequence[_Option] | UnsetType) -> Sequence[str] | None:
    if titled is not UNSET:
        return [option.const for option in titled]
    return None if enum is UNSET else enum


def _options_fault(
    where: str,
    options: Sequence[str] | None,
    enum: Sequence[str] | UnsetType,
    titled: Sequence[_Option] | UnsetType,
) -> str | None:
    if options is None:
        return None
    if enum is not UNSET and titled is not UNSET:
        return f"{where} has its options twice"
    if not options:
        return f"{where} has no options"
    return f"{where} has an option twice" if len(set(options)) != len(options) else None


def _length_fault(low: str, lowest: int | UnsetType, high: str, highest: int | UnsetType) -> str | None:
    for name, bound in ((low, lowest), (high, highest)):
        if bound is not UNSET and bound < 0:
            return f"{name} is less than 0"
    return _order_fault(low, lowest, high, highest)


def _order_fault(low: str, lowest: float | UnsetType, high: str, highest: float | UnsetType) -> str | None:
    if lowest is UNSET or highest is UNSET or lowest <= highest:
        return None
    return f"{low} is greater than {high}"


def _primitive(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in cast("list[Any]", value))
    return isinstance(value, str | int | float)


def _validator(schema: Mapping[str, Any]) -> Any:
    import jsonschema_rs

    # A form is asked a few times at most, so nothing is kept. `mask` keeps what a person wrote out of every message.
    return jsonschema_rs.validator_for(dict(schema), offline=True, mask="the value", validate_formats=True)
