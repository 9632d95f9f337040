"""URI templates (RFC 6570) read backwards: which values of its variables make a template into this URI.

The RFC says how to expand; matching is defined here, as far as it can be (§1.4 there: "not always"). What cannot be is
refused when the template is read, by name: prefixes (`{a:3}`), lists (`{a*}`, but for `{/path*}`), and whatever leaves
open where a variable ends. Where two readings remain, a variable takes as much as it can. No regular expressions: the time
is the length of the template times that of the URI, both of which are bounded.

Values come back decoded, and a URI is no match at all if one of them could lead a careless reader of files astray.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import msgspec

MAX_TEMPLATE: Final = 2048
MAX_COMPARED: Final = 2048
MAX_VARIABLES: Final = 32

_NAME: Final = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*").fullmatch
_LITERAL: Final = re.compile(r"(?:[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]|%[0-9A-Fa-f]{2})*").fullmatch
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_OPERATORS: Final = "+#./;?&"
_WILDCARD: Final = re.compile(r"\{([A-Za-z0-9_.]+)\*\}")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="
# Where these stand unencoded in a URI, they mean something: a variable that is a part of a path or a name ends there.
_STOPS: Final = frozenset("/?#")
_UNSAFE: Final = frozenset(map(chr, range(0x21))) | {"\x7f"}


class BadTemplate(ValueError):
    """A template that cannot be matched; the text says what is wrong with it."""


class _Literal(msgspec.Struct, frozen=True):
    text: str


class _Variable(msgspec.Struct, frozen=True):
    """`head` and then the value; with a head, both may be missing."""

    name: str
    operator: str
    head: str
    stops: frozenset[str]
    many: bool = False  # `{/path*}`


class _Query(msgspec.Struct, frozen=True):
    """`{?a,b}` or `{&a}`: any of them, in any order, up to the fragment."""

    head: str
    names: tuple[str, ...]


_Part: TypeAlias = _Literal | _Variable | _Query


class _Expression(msgspec.Struct, frozen=True):
    """What stands between braces."""

    text: str
    operator: str
    names: tuple[str, ...]
    many: bool


class UriTemplate:
    """A template to match URIs with. Raises `BadTemplate`. `wildcards`: `{path*}` takes slashes too, as `{+path}`, which is what servers made
    with FastMCP mean by it."""

    __slots__ = ("_parts", "text", "variables")

    def __init__(self, text: str, *, wildcards: bool = False) -> None:
        self.text: Final = text
        tokens = list(_tokens(_WILDCARD.sub(r"{+\1}", text) if wildcards else text))
        names = [name for token in tokens if isinstance(token, _Expression) for name in token.names]
        if len(names) > MAX_VARIABLES:
            raise BadTemplate(f"a template has at most {MAX_VARIABLES} variables")
        if twice := {name for name in names if names.count(name) > 1}:
            raise BadTemplate(f"the variable {min(twice)} stands in it twice")
        self.variables: Final = tuple(names)
        self._parts: Final = tuple(_parts(tokens))

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def match(self, uri: str) -> dict[str, str] | None:
        """The value of every variable that is there; None when the URI is not one of the template's."""
        if len(uri) > MAX_COMPARED or not self._may_match(uri) or not _UNSAFE.isdisjoint(uri):
            return None
        ends = _ends(self._parts, uri)
        if ends is None:
            return None
        values: dict[str, str] = {}
        before = ""
        place = 0
        for part, end in zip(self._parts, ends, strict=True):
            raw = uri[place:end]
            if isinstance(part, _Query):
                found = _pairs(part, raw)
                if found is None:
                    return None
                values |= found
            elif isinstance(part, _Variable) and (raw or not part.head):
                value = _value(part, raw, before)
                if value is None:
                    return None
                values[part.name] = value
            before = uri[:end]
            place = end
        return values

    def expand(self, values: Mapping[str, str]) -> str:
        """The URI. Raises KeyError for a variable that has no value and cannot be left out."""
        return "".join(_expanded(part, values) for part in self._parts)

    def _may_match(self, uri: str) -> bool:
        first, last = self._parts[0], self._parts[-1]
        return (not isinstance(first, _Literal) or uri.startswith(first.text)) and (
            not isinstance(last, _Literal) or uri.endswith(last.text)
        )


def _tokens(text: str) -> Iterator[str | _Expression]:
    if not 1 <= len(text) <= MAX_TEMPLATE:
        raise BadTemplate(f"a template has 1 to {MAX_TEMPLATE} characters")
    place = 0
    while place < len(text):
        brace = text.find("{", place)
        literal = text[place:] if brace < 0 else text[place:brace]
        if literal:
            if "}" in literal:
                raise BadTemplate("it has a } without its {")
            if not _LITERAL(literal):
                raise BadTemplate(
                    f"{literal[:80]!r} holds a character that has to be percent-encoded in a URI"
                )
            yield literal
        if brace < 0:
            return
        end = text.find("}", brace)
        if end < 0:
            raise BadTemplate("it has a { without its }")
        yield _expression(text[brace : end + 1])
        place = end + 1


def _expression(text: str) -> _Expression:
    body = text[1:-1]
    shown = text[:80]
    if body[:1] and body[0] in "=,!@|":
        raise BadTemplate(f"{shown}: the operator {body[0]} is reserved")
    operator = body[0] if body[:1] and body[0] in _OPERATORS else ""
    specs = body[len(operator) :].split(",")
    many = specs[0].endswith("*")
    if many and (operator != "/" or len(specs) > 1):
        raise BadTemplate(f"{shown}: a list cannot be matched, but for one alone after a slash: {{/path*}}")
    names = tuple(spec[:-1] if many else spec for spec in specs)
    for name in names:
        if ":" in name:
            raise BadTemplate(
                f"{shown}: the prefix of a value cannot be matched, for it does not tell the value"
            )
        if name.endswith("*"):
            raise BadTemplate(
                f"{shown}: a list cannot be matched, but for one alone after a slash: {{/path*}}"
            )
        if not _NAME(name):
            raise BadTemplate(
                f"{shown}: {name!r} is no name of a variable: use A-Z a-z 0-9 _ and single dots"
            )
    if len(names) > 1 and operator and operator in "+#.":
        raise BadTemplate(f"{shown}: it cannot be told where one of several variables ends here")
    return _Expression(text=shown, operator=operator, names=names, many=many)


def _parts(tokens: Sequence[str | _Expression]) -> Iterator[_Part]:
    in_query = False
    for index, token in enumerate(tokens):
        after = tokens[index + 1 :]
        if isinstance(token, str):
            in_query = in_query or "?" in token
            yield _Literal(token)
            continue
        _check_neighbour(token, after)
        if token.operator in ("?", "&"):
            in_query = True
            yield _Query(token.operator, token.names)
            continue
        stops = _stops(token, after, in_query)
        if token.operator == "":
            for place, name in enumerate(token.names):
                if place:
                    yield _Literal(",")
                yield _Variable(name, "", "", stops)
            continue
        for name in token.names:
            head = {"+": "", ";": f";{name}"}.get(token.operator, token.operator)
            yield _Variable(name, token.operator, head, stops, token.many)


def _check_neighbour(token: _Expression, after: Sequence[str | _Expression]) -> None:
    """Refuses what leaves open where a variable ends."""
    following = after[0] if after else None
    if token.operator in ("?", "&"):
        fragment = following is None or (
            following.startswith("#") if isinstance(following, str) else following.operator == "#"
        )
        if not fragment:
            raise BadTemplate(f"{token.text} takes the rest of a query: only a fragment can follow it")
        return
    if token.operator == "#" and following is not None:
        raise BadTemplate(f"{token.text} takes the rest of a URI: nothing can follow it")
    if not isinstance(following, _Expression):
        return
    if following.operator in ("", "+"):
        raise BadTemplate(f"it cannot be told where {token.text} ends and {following.text} begins")
    if following.operator in ("/", ".", ";") and (token.operator == "+" or token.many):
        raise BadTemplate(
            f"{token.text} takes all that {following.text} could: it cannot be told where it ends"
        )


def _stops(token: _Expression, after: Sequence[str | _Expression], in_query: bool) -> frozenset[str]:
    """The characters that end a variable, wherever they stand unencoded."""
    if token.operator in ("+", "#"):
        stops: set[str] = set()
    else:
        stops = set(_STOPS)
        if token.many:
            stops.discard("/")
        if in_query:
            stops.add("&")
        if token.operator == ";":
            stops.add(";")
        if len(token.names) > 1 and token.operator == "":
            stops.add(",")
    later = [other.operator for other in after if isinstance(other, _Expression)]
    stops |= {operator for operator in later if operator in ("?", "#")}
    if "&" in later and (in_query or any(isinstance(other, str) and "?" in other for other in after)):
        stops.add("&")
    if after and isinstance(after[0], _Expression):
        stops |= {after[0].operator}
    return frozenset(stops)


def _ends(parts: Sequence[_Part], uri: str) -> list[int] | None:
    """Where every part ends, or None. From the back: from which places can the rest be matched? Then from the front,
    taking the longest way each time, which never leads into a dead end."""
    good = bytearray(len(uri) + 1)
    good[len(uri)] = 1
    choices: list[list[int]] = []
    for part in reversed(parts):
        if isinstance(part, _Literal):
            reach = _literal_reach(part.text, uri, good)
        elif isinstance(part, _Query):
            reach = _query_reach(part.head, uri, good)
        else:
            reach = _variable_reach(part, uri, good)
        choices.append(reach)
        good = bytearray(end >= 0 for end in reach)
    ends: list[int] = []
    place = 0
    for reach in reversed(choices):
        place = reach[place]
        if place < 0:
            return None
        ends.append(place)
    return ends


def _literal_reach(text: str, uri: str, good: bytearray) -> list[int]:
    reach = [-1] * (len(uri) + 1)
    place = uri.find(text)
    while place >= 0:
        if good[place + len(text)]:
            reach[place] = place + len(text)
        place = uri.find(text, place + 1)
    return reach


def _variable_reach(part: _Variable, uri: str, good: bytearray) -> list[int]:
    size = len(uri)
    longest = [-1] * (size + 2)  # the farthest good end of a value of at least one character
    for place in range(size - 1, -1, -1):
        if uri[place] not in part.stops:
            longest[place] = (
                longest[place + 1] if longest[place + 1] >= 0 else (place + 1 if good[place + 1] else -1)
            )
    if not part.head:
        return longest[: size + 1]
    reach = [place if good[place] else -1 for place in range(size + 1)]  # it may be missing
    place = uri.find(part.head)
    while place >= 0:
        start = place + len(part.head)
        if part.operator == ";":
            if uri[start : start + 1] == "=":
                end = longest[start + 1]
                reach[place] = end if end >= 0 else (start + 1 if good[start + 1] else reach[place])
            elif good[start]:
                reach[place] = start
        elif longest[start] >= 0:
            reach[place] = longest[start]
        place = uri.find(part.head, place + 1)
    return reach


def _query_reach(head: str, uri: str, good: bytearray) -> list[int]:
    reach = [place if good[place] else -1 for place in range(len(uri) + 1)]
    place = uri.find(head)
    while place >= 0:
        fragment = uri.find("#", place)
        end = len(uri) if fragment < 0 else fragment
        if good[end]:
            reach[place] = end
        place = uri.find(head, place + 1)
    return reach


def _pairs(part: _Query, raw: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    if not raw:
        return found
    for pair in raw[1:].split("&"):
        name, _, text = pair.partition("=")
        value = _decoded(text)
        if name not in part.names or name in found or value is None or _astray(value):
            return None
        found[name] = value
    return found


def _value(part: _Variable, raw: str, before: str) -> str | None:
    text = raw[len(part.head) :]
    if part.operator == ";":
        text = text.removeprefix("=")
    value = _decoded(text)
    if value is None or _astray(value):
        return None
    if part.many:
        # As many slashes as there were: none of them came out of a segment, and the first one roots nothing.
        return value if value.count("/") == text.count("/") and not value.startswith(("/", "\\")) else None
    if part.operator == "+" and before.endswith("/") and before != "file://" and value[:1] in ("/", "\\"):
        # "dir/" and then "/etc": joined to a directory, it would be a path from the root.
        return None
    if part.operator in ("+", "#"):
        return value
    return None if "/" in value or "\\" in value else value


def _decoded(text: str) -> str | None:
    if _BROKEN_ESCAPE(text):
        return None
    try:
        return unquote_to_bytes(text).decode()
    except ValueError:
        return None


def _astray(value: str) -> bool:
    return "\0" in value or ".." in value.replace("\\", "/").split("/")


def _expanded(part: _Part, values: Mapping[str, str]) -> str:
    match part:
        case _Literal():
            return part.text
        case _Query():
            pairs = [f"{name}={quote(values[name], safe='')}" for name in part.names if name in values]
            return part.head + "&".join(pairs) if pairs else ""
        case _Variable():
            if part.head and part.name not in values:
                return ""
            value = values[part.name]
            if part.operator == ";":
                return part.head + (f"={quote(value, safe='')}" if value else "")
            # Reserved characters stay as they are after + and #; slashes, between the segments of a path.
            safe = _RESERVED if part.operator in ("+", "#") else "/" if part.many else ""
            return part.head + quote(value, safe=safe)
