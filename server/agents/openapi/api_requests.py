"""From the arguments of a call to a request: its target, headers and body, as the document says that they are written.

A value can be nothing but a value: whatever could be taken for another part of the address is encoded, and a segment of a path that
means another folder is refused. Spec: OpenAPI 3.1.1 §4.8.12 (styles), RFC 6570, RFC 3986.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import msgspec

from server.agents.openapi.operations import ApiOperation, Parameter

TARGET_CHARACTERS: Final = 16 * 1024
BODY_BYTES: Final = 4 * 1024 * 1024
_RESERVED: Final = ":/?@!$'()*,;"  # what a query may hold as it is; & = + # [ ] would be taken for its own
_SEPARATORS: Final[Mapping[str, str]] = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


class Unsendable(ValueError):
    """An argument that cannot be put into a request; written for the caller."""


class PreparedRequest(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    headers: Sequence[tuple[str, str]] = ()
    query: Sequence[str] = ()  # pairs, encoded
    cookies: Sequence[str] = ()
    form: Sequence[str] = ()  # pairs of the body, which some servers read as if they stood in the query
    body: bytes = b""


def prepare_request(operation: ApiOperation, base_path: str, arguments: Mapping[str, Any]) -> PreparedRequest:
    """Arguments are as the tool's schema wants them. Raises `Unsendable`."""
    path = operation.path
    query: list[str] = []
    headers: list[tuple[str, str]] = []
    cookies: list[str] = []
    for parameter in operation.parameters:
        if parameter.argument not in arguments:
            continue
        value = arguments[parameter.argument]
        if parameter.as_json:
            value = msgspec.json.encode(value).decode()
        match parameter.place:
            case "path":
                path = path.replace(f"{{{parameter.name}}}", _in_path(parameter, value))
            case "query":
                query += _in_query(parameter, value)
            case "header":
                headers.append((parameter.name, _in_header(parameter, value)))
            case "cookie":
                cookies += _in_query(parameter, value)
    if any(step in (".", "..") for step in path.split("/")):
        raise Unsendable("these arguments together make a step of one or two dots in the address")
    body = b""
    form: list[str] = []
    if operation.body is not None and operation.body.argument in arguments:
        value = arguments[operation.body.argument]
        match operation.body.kind:
            case "json":
                body = msgspec.json.encode(value)
            case "form":
                form = list(_form(value))
                body = "&".join(form).encode("ascii")
            case "text":
                body = plain(value).encode("utf-8", "replace")
        if len(body) > BODY_BYTES:
            raise Unsendable(f"{operation.body.argument}: is more than {BODY_BYTES // 1024 // 1024} MiB")
        headers.append(("Content-Type", _content_type(operation.body.media_type)))
    return PreparedRequest(
        target=base_path.rstrip("/") + quote(path, safe="/:@!$&'()*+,;=~%"),
        headers=headers,
        query=query,
        cookies=cookies,
        form=form,
        body=body,
    )


def plain(value: object) -> str:
    """A single value as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)


def _in_path(parameter: Parameter, value: Any) -> str:
    name = parameter.name
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        parts = [f"{_encoded(key)}={_encoded(plain(each))}" for key, each in table.items()]
        if not parameter.explode:
            parts = [f"{_encoded(key)},{_encoded(plain(each))}" for key, each in table.items()]
    elif isinstance(value, list):
        parts = [_encoded(plain(each)) for each in cast("list[Any]", value)]
    else:
        parts = [_encoded(plain(value))]
    match parameter.style:
        case "label":
            written = "." + ("." if parameter.explode else ",").join(parts)
        case "matrix":
            named = isinstance(value, dict) and parameter.explode
            pairs = parts if named else [f"{name}={part}" for part in parts]
            written = ";" + (";".join(pairs) if parameter.explode else f"{name}={','.join(parts)}")
        case _:
            written = ",".join(parts)
    # Encoded or not, a server on the way may take these for other folders.
    steps = unquote(written).replace("\\", "/").split("/")
    if not any(parts) or ".." in steps or "." in steps:
        raise Unsendable(f"{parameter.argument}: must not be empty, nor hold a step of one or two dots")
    return written


def _in_query(parameter: Parameter, value: object) -> list[str]:
    name = _encoded(parameter.name)
    safe = _RESERVED if parameter.reserved else ""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        if parameter.style == "deepObject":
            return list(_deep(name, table))
        if parameter.explode:
            return [f"{_encoded(key)}={_encoded(plain(each), safe)}" for key, each in table.items()]
        flat = [part for key, each in table.items() for part in (key, plain(each))]
        return [f"{name}={','.join(_encoded(part, safe) for part in flat)}"]
    if isinstance(value, list):
        parts = [_encoded(plain(each), safe) for each in cast("list[Any]", value)]
        if parameter.explode:
            return [f"{name}={part}" for part in parts]
        return [f"{name}={_SEPARATORS.get(parameter.style, ',').join(parts)}"]
    return [f"{name}={_encoded(plain(value), safe)}"]


def _deep(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    """`filter[from][day]=1`; a list repeats its key."""
    for key, value in table.items():
        here = f"{name}%5B{_encoded(key)}%5D"
        if isinstance(value, dict):
            yield from _deep(here, cast("dict[str, Any]", value))
        else:
            for each in cast("list[Any]", value) if isinstance(value, list) else [value]:
                yield f"{here}={_encoded(plain(each))}"


def _in_header(parameter: Parameter, value: object) -> str:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        joined = "=" if parameter.explode else ","
        written = ",".join(f"{key}{joined}{plain(each)}" for key, each in table.items())
    elif isinstance(value, list):
        written = ",".join(plain(each) for each in cast("list[Any]", value))
    else:
        written = plain(value)
    written = written.strip(" ")
    if not written or not written.isascii() or not written.isprintable():
        raise Unsendable(f"{parameter.argument}: must be printable ASCII text on one line")
    return written


def _form(value: object) -> Iterator[str]:
    if not isinstance(value, dict):
        raise Unsendable("the body of a form must be an object")
    for key, each in cast("dict[str, Any]", value).items():
        for one in cast("list[Any]", each) if isinstance(each, list) else [each]:
            yield f"{_encoded(key)}={_encoded(plain(one))}"


def _content_type(media_type: str) -> str:
    return "application/json" if "*" in media_type else media_type


def _encoded(text: str, safe: str = "") -> str:
    return quote(text, safe=safe, errors="replace")
