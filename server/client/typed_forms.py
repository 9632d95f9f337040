"""The forms of elicitation as the person's side sees them: which fields there are, and what a typed line means in each.

Pure: nothing is shown or asked here. A form is written by somebody else's server, so one that cannot be drawn is refused,
and a default that does not fit its own field is left out. Whether the answer will do is in the end for the server to say.
Spec: client/elicitation, schema `PrimitiveSchemaDefinition`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from server.client.client_errors import BadAnswer
from server.client.formats import FORMATS
from server.lib.json_objects import items, mapping

# More than a person fills in.
MAX_FIELDS: Final = 64
MAX_NAME: Final = 128
# Nobody reads through more of them; the rest of a list of countries, say, would still be a list of countries.
MAX_OPTIONS: Final = 1000
# JSON's numbers are doubles to most who read them.
MAX_INTEGER: Final = 2**53 - 1
_LARGEST: Final = sys.float_info.max


class BadValue(ValueError):
    """Words that do not fit their field. The text tells the person what would."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    value: str
    title: str


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: Literal["text", "integer", "number", "boolean", "choice", "choices"]
    title: str = ""
    description: str = ""
    required: bool = False
    default: Any = None  # null is no value of any field
    format: str = ""
    least: float | None = None  # of a number, of a text's length, of how many are chosen
    most: float | None = None
    options: Sequence[Option] = ()

    @property
    def takes_nothing(self) -> bool:
        """True if there is an answer without typing anything: a default, nothing at all, or an empty choice."""
        return (
            not self.required or self.default is not None or (self.kind == "choices" and self.least is None)
        )


def read_form(schema: Any) -> list[FormField]:
    """Read the fields of a `requestedSchema`, in their order. Raises `BadAnswer`."""
    properties = mapping(mapping(schema).get("properties"))
    if mapping(schema).get("type") != "object" or not isinstance(mapping(schema).get("properties"), dict):
        raise BadAnswer("the server asks with a form that is none")
    if len(properties) > MAX_FIELDS:
        raise BadAnswer(f"the server asks with a form of more than {MAX_FIELDS} fields")
    needed = items(mapping(schema).get("required"))
    return [_field(name, mapping(described), name in needed) for name, described in properties.items()]


def parse(field: FormField, text: str, *, by_number: bool = False) -> Any:
    """Return the value that a line means. A choice is made by a value or a title; `by_number`: the options were shown with numbers, and
    a number is always an option's place. Raises `BadValue`."""
    if any(_is_control(character) for character in text):
        raise BadValue("there are control characters in it, such as arrow keys make")
    match field.kind:
        case "text":
            return _text(field, text)
        case "integer" | "number":
            return _number(field, text.strip())
        case "boolean":
            return _boolean(text.strip().casefold())
        case "choice":
            return _chosen(field, text.strip(), by_number=by_number)
        case "choices":
            words = _words(field, text)
            return check_choices(field, [_chosen(field, word, by_number=by_number) for word in words])


def check_choices(field: FormField, values: Sequence[str]) -> list[str]:
    found = list(dict.fromkeys(values))
    if field.least is not None and len(found) < field.least:
        raise BadValue(f"choose at least {field.least:g}")
    if field.most is not None and len(found) > field.most:
        raise BadValue(f"choose at most {field.most:g}")
    return found


def nothing(field: FormField) -> Any:
    """Return the value of a field that nothing was typed into; None where it is left out. Raises `BadValue`."""
    if field.default is not None:
        return field.default
    if not field.required:
        return None
    if field.takes_nothing:
        return []
    raise BadValue("this is needed")


def wanted(field: FormField) -> str:
    """Say what to type, in a few words of ours."""
    match field.kind:
        case "text":
            known = FORMATS.get(field.format)
            return (
                _bounded("text", field, "characters")
                if known is None
                else f"{known.wanted}, as in {known.example}"
            )
        case "integer":
            return _bounded("whole number", field)
        case "number":
            return _bounded("number", field)
        case "boolean":
            return "yes or no"
        case "choice":
            return f"one of 1 to {len(field.options)}"
        case "choices":
            return _bounded(f"any of 1 to {len(field.options)}, with commas", field, "of them")


# ---- reading a form --------------------------------------------------------------------------------------------------


def _field(name: str, described: Mapping[str, Any], required: bool) -> FormField:
    if not 1 <= len(name) <= MAX_NAME:
        raise BadAnswer(
            f"the server asks with a form whose fields have no names of 1 to {MAX_NAME} characters"
        )
    common: dict[str, Any] = {
        "name": name,
        "title": _string(described, "title"),
        "description": _string(described, "description"),
        "required": required,
    }
    match described.get("type"):
        case "string":
            options = _options(described, "oneOf")
            field = FormField(
                **common,
                kind="text" if options is None else "choice",
                format=_string(described, "format"),
                least=_bound(described, "minLength") if options is None else None,
                most=_bound(described, "maxLength") if options is None else None,
                options=options or (),
            )
        case "integer" | "number" as kind:
            least, most = _bound(described, "minimum"), _bound(described, "maximum")
            field = FormField(**common, kind=kind, least=least, most=most)
        case "boolean":
            field = FormField(**common, kind="boolean")
        case "array":
            least, most = _bound(described, "minItems") or None, _bound(described, "maxItems")
            options = _options(mapping(described.get("items")), "anyOf")
            if options is None:
                raise BadAnswer(
                    f"the server asks for “{name}”, a list without choices, which a form cannot have"
                )
            field = FormField(**common, kind="choices", options=options, least=least, most=most)
        case _:
            raise BadAnswer(f"the server asks for “{name}” in a way that a form cannot have")
    return msgspec.structs.replace(field, default=_default(field, described.get("default")))


def _options(described: Mapping[str, Any], titled: str) -> list[Option] | None:
    """Return the options; None where anything may be typed."""
    named = described.get(titled)
    values = described.get("enum")
    if isinstance(named, list):
        entries = [mapping(entry) for entry in items(named)]
        pairs: list[tuple[Any, Any]] = [(entry.get("const"), entry.get("title")) for entry in entries]
    elif isinstance(values, list):
        plain = items(values)
        # `enumNames` is of the revisions before `oneOf`.
        names = items(described.get("enumNames"))
        pairs = list(zip(plain, names if len(names) == len(plain) else plain, strict=True))
    else:
        return None
    if not 1 <= len(pairs) <= MAX_OPTIONS or not all(isinstance(value, str) for value, _ in pairs):
        raise BadAnswer(f"the server asks with choices that are not 1 to {MAX_OPTIONS} texts")
    return [Option(value=value, title=title if isinstance(title, str) else value) for value, title in pairs]


def _default(field: FormField, value: Any) -> Any:
    """Return what Enter would take, if it is a value of the field."""
    known = {option.value for option in field.options}
    try:
        match field.kind:
            case "text":
                return parse(field, value) if isinstance(value, str) and value else None
            case "integer" | "number":
                fits = isinstance(value, int if field.kind == "integer" else int | float)
                return _in_bounds(field, value) if fits and not isinstance(value, bool) else None
            case "boolean":
                return value if isinstance(value, bool) else None
            case "choice":
                return value if isinstance(value, str) and value in known else None
            case "choices":
                values = cast("list[Any]", value) if isinstance(value, list) else None
                if values is None or not all(isinstance(one, str) and one in known for one in values):
                    return None
                return check_choices(field, values)
    except BadValue:
        return None


# ---- reading a line --------------------------------------------------------------------------------------------------


def _text(field: FormField, text: str) -> str:
    if known := FORMATS.get(field.format):
        found = known.read(text.strip())
        if found is None:
            raise BadValue(f"that is not {known.named}: write it as {known.example}")
        text = found
    if field.least is not None and len(text) < field.least:
        raise BadValue(f"at least {_characters(field.least)}")
    if field.most is not None and len(text) > field.most:
        raise BadValue(f"at most {_characters(field.most)}")
    return text


def _number(field: FormField, text: str) -> int | float:
    if re.fullmatch(r"[+-]?[0-9]{1,16}", text) and abs(int(text)) <= MAX_INTEGER:
        return _in_bounds(field, int(text))
    if field.kind == "integer":
        raise BadValue("that is not a whole number, as in 3")
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text) and len(text) <= 100:
        return _in_bounds(field, float(text))
    raise BadValue("that is not a number, as in 3 or 1.5")


def _in_bounds(field: FormField, value: float) -> int | float:
    if not -_LARGEST <= value <= _LARGEST:
        raise BadValue("that is too large a number")
    if field.least is not None and value < field.least:
        raise BadValue(f"at least {_plain(field.least)}")
    if field.most is not None and value > field.most:
        raise BadValue(f"at most {_plain(field.most)}")
    return value


def _boolean(text: str) -> bool:
    if text in ("y", "yes", "true"):
        return True
    if text in ("n", "no", "false"):
        return False
    raise BadValue("yes or no")


def _chosen(field: FormField, text: str, *, by_number: bool) -> str:
    options = field.options
    if by_number and re.fullmatch(r"[0-9]{1,4}", text):
        if 1 <= int(text) <= len(options):
            return options[int(text) - 1].value
        raise BadValue(f"the choices are 1 to {len(options)}")
    folded = text.casefold()
    readings: tuple[Callable[[Option], bool], ...] = (
        lambda option: option.value == text,
        lambda option: option.title.strip() == text,
        lambda option: folded in (option.value.casefold(), option.title.strip().casefold()),
    )
    for fits in readings:
        values = {option.value for option in options if fits(option)}
        if len(values) == 1:
            return values.pop()
    raise BadValue(
        f"the choices are 1 to {len(options)}"
        if by_number
        else "the choices are "
        + ", ".join(option.value for option in options[:8])
        + (", …" if options[8:] else "")
    )


def _words(field: FormField, text: str) -> list[str]:
    """Split several choices in one line. A comma that is part of a value or a title is not between two."""
    if any(text.strip() in (option.value, option.title) for option in field.options):
        return [text.strip()]
    if re.fullmatch(r"[0-9\s]+", text):
        return text.split()
    return [word.strip() for word in text.split(",") if word.strip()]


# ---- words ---------------------------------------------------------------------------------------------------------


def _bounded(words: str, field: FormField, unit: str = "") -> str:
    unit = f" {unit}" if unit else ""
    # That a text is not empty goes without saying.
    least = None if field.kind == "text" and field.least is not None and field.least <= 1 else field.least
    match least, field.most:
        case None, None:
            return words
        case float() | int() as least, None:
            return f"{words}, at least {_plain(least)}{unit}"
        case None, float() | int() as most:
            return f"{words}, at most {_plain(most)}{unit}"
        case least, most:
            return f"{words}, {_plain(least)} to {_plain(most)}{unit}"


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) <= MAX_INTEGER else str(number)


def _characters(count: float) -> str:
    return f"{_plain(count)} character{'' if count == 1 else 's'}"


def _is_control(character: str) -> bool:
    return (ord(character) < 0x20 and character not in "\t\n") or 0x7F <= ord(character) <= 0x9F


def _bound(described: Mapping[str, Any], name: str) -> float | None:
    value = described.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not -_LARGEST <= value <= _LARGEST:
        return None
    return value


def _string(described: Mapping[str, Any], name: str) -> str:
    value = described.get(name)
    return value if isinstance(value, str) else ""
