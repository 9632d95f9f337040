"""Types of the standard library that have a usual form in JSON: one row each, for schema, reading and writing."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from .hints import loaded


class Standard(NamedTuple):
    module: str
    name: str
    schema: dict[str, Any]
    read: Callable[[Any, Any], Any]  # the class and the JSON value; raises ValueError
    write: Callable[[Any], Any]


def _iso(cls: Any, value: Any) -> Any:
    # Python reads a final Z only from 3.11 on.
    return cls.fromisoformat(value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value)


def _made(cls: Any, value: Any) -> Any:
    return cls(value)


def _decimal(cls: Any, value: Any) -> Any:
    try:
        return cls(str(value))
    except ArithmeticError as error:
        raise ValueError("not a decimal number") from error


def _seconds(cls: Any, value: Any) -> Any:
    return cls(seconds=value)


def _total(value: Any) -> float:
    return value.total_seconds()


def _text(format: str | None = None) -> dict[str, Any]:  # noqa: A002 - the keyword's name
    return {"type": "string", "format": format} if format else {"type": "string"}


def _isoformat(value: Any) -> str:
    return value.isoformat()


# A datetime is a date, so it comes first.
ROWS = (
    Standard("datetime", "datetime", _text("date-time"), _iso, _isoformat),
    Standard("datetime", "date", _text("date"), _iso, _isoformat),
    Standard("datetime", "time", _text("time"), _iso, _isoformat),
    Standard("datetime", "timedelta", {"type": "number"}, _seconds, _total),
    Standard("uuid", "UUID", _text("uuid"), _made, str),
    Standard("decimal", "Decimal", {"anyOf": [{"type": "number"}, _text()]}, _decimal, str),
    Standard("pathlib", "PurePath", _text(), _made, str),
)


def standard(cls: Any) -> Standard | None:
    """The row of a class, if it has one."""
    if not isinstance(cls, type):
        return None
    for row in ROWS:
        base = loaded(row.module, row.name)
        if base is not None and issubclass(cls, base):
            return row
    return None
