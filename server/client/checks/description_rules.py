"""The rules by which the words and schemas of tools are judged. Each is a row with its weight, what it looks at, and how to mend what it finds.

They are of what models and their programs stumble over: a name that an API refuses, an argument nobody explained, an answer of unknown form.
All of it is advice. Nothing is refused because of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec

from server.client.samples.sample_arguments import declared, resolved, type_of
from server.lib.json_objects import mapping
from server.mcp.tool_names import MEND, fault_in_name

# Of a server as a whole: what catalogues of agents ask for.
SERVER_CHARACTERS: Final = 200
# Of a tool: a sentence that says what it does and when to use it is longer; some APIs cut what is longer than the second.
LEAST_CHARACTERS: Final = 40
MOST_CHARACTERS: Final = 1024
# From a tool that has more levels models leave some out; from a list of more tools they choose badly.
MOST_LEVELS: Final = 3
MOST_TOOLS: Final = 40
# What is looked at of one tool. A schema may lead back to itself.
MAX_PROPERTIES: Final = 500
MAX_LEVELS: Final = 8
# Named in one finding.
_NAMED: Final = 4

_WHEN: Final = re.compile(
    r"\b(use|used|using|when|whenever|before|after|instead|only if|unless|call this|for example|e\.g\.)\b",
    re.I,
)
_CHOICES: Final = re.compile(r"\b(one of|either|allowed values|possible values|must be \S+ or)\b", re.I)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    tool: str  # empty: of the server as a whole
    rule: str
    words: str
    mend: str


class Share(msgspec.Struct, frozen=True):
    """So many of so many are right. `words` say what is not."""

    right: int
    of: int
    words: str


class ServerWords(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a server about itself."""

    description: str = ""
    instructions: str = ""


Tool: TypeAlias = Mapping[str, Any]
LookAtTool: TypeAlias = Callable[[Tool, bool], Share | None]
LookAtAll: TypeAlias = Callable[[Sequence[Tool], ServerWords | None], Share | None]
Look = TypeVar("Look", LookAtTool, LookAtAll)


class Rule(msgspec.Struct, Generic[Look], frozen=True):
    """A rule of a tool, or of a server. `look` is given a tool and whether the settings have an example of it, or all tools and the
    words of the server; None: there is nothing that it is about."""

    name: str
    weight: int
    look: Look
    mend: str


class _Property(msgspec.Struct, frozen=True):
    """One argument, however deep, with the way to it."""

    way: str
    written: Mapping[str, Any]
    schema: Mapping[str, Any]


# ── the name and the words ───────────────────────────────────────────────────────────────────────────────────────────


def _name(tool: Tool, _: bool) -> Share:
    fault = fault_in_name(str(tool.get("name")))
    return _said(fault is None, fault or "")


def _described(tool: Tool, _: bool) -> Share:
    return _said(bool(_words_of(tool)), "it has no description")


def _long_enough(tool: Tool, _: bool) -> Share | None:
    words = _words_of(tool)
    if not words:
        return None
    has = f"its description has {len(words)} characters"
    if len(words) >= LEAST_CHARACTERS:
        return _said(len(words) <= MOST_CHARACTERS, f"{has}, and some APIs cut it at {MOST_CHARACTERS}")
    return Share(len(words), LEAST_CHARACTERS, f"{has}, which is hardly a sentence")


def _says_when(tool: Tool, _: bool) -> Share | None:
    words = _words_of(tool)
    found = _WHEN.search(words) is not None
    return _said(found, "its description does not say when to use it") if words else None


def _own_words(tool: Tool, _: bool) -> Share | None:
    words = _words_of(tool)
    if not words:
        return None
    said = set(re.findall(r"[a-z0-9]+", words.lower()))
    named = set(re.findall(r"[a-z0-9]+", str(tool.get("name")).lower()))
    return _said(bool(said - named), "its description only repeats its name")


# ── the arguments ────────────────────────────────────────────────────────────────────────────────────────────────────


def _typed(tool: Tool, _: bool) -> Share | None:
    return _of_properties(
        tool,
        lambda each: bool(
            type_of(each.schema) or {"enum", "const", "anyOf", "oneOf", "allOf", "not"} & each.schema.keys()
        ),
        "of no type",
    )


def _explained(tool: Tool, _: bool) -> Share | None:
    return _of_properties(
        tool,
        lambda each: any(
            isinstance(where.get("description"), str) and where["description"].strip()
            for where in (each.written, each.schema)
        ),
        "without a description",
    )


def _bounded(tool: Tool, _: bool) -> Share | None:
    return _of_properties(tool, _has_bounds, "without bounds")


def _has_bounds(each: _Property) -> bool:
    schema = each.schema
    keys = schema.keys()
    match type_of(schema):
        case "string":
            return bool({"enum", "const", "maxLength", "format", "pattern"} & keys)
        case "integer" | "number":
            return bool({"enum", "const"} & keys) or (
                bool({"minimum", "exclusiveMinimum"} & keys) and bool({"maximum", "exclusiveMaximum"} & keys)
            )
        case "array":
            return "maxItems" in keys
        case _:
            return True


def _enumerated(tool: Tool, _: bool) -> Share | None:
    def named(each: _Property) -> bool:
        said = each.written.get("description") or each.schema.get("description")
        free = (
            type_of(each.schema) == "string"
            and not {"enum", "const", "pattern", "oneOf"} & each.schema.keys()
        )
        return not (free and isinstance(said, str) and _CHOICES.search(said))

    return _of_properties(tool, named, "whose description lists values that its schema does not")


def _closed(tool: Tool, _: bool) -> Share:
    schema = mapping(tool.get("inputSchema"))
    closed = any(schema.get(key) is False for key in ("additionalProperties", "unevaluatedProperties"))
    return _said(closed, "it takes arguments that it does not know, so that a misspelt one is lost")


def _shallow(tool: Tool, _: bool) -> Share | None:
    deepest = max((each.way.count(".") + 1 for each in _properties(tool)), default=0)
    if not deepest:
        return None
    words = f"its arguments are {deepest} levels deep, and models lose their way in so many"
    return _said(deepest <= MOST_LEVELS, words)


def _exemplified(tool: Tool, in_settings: bool) -> Share | None:
    whole = in_settings or bool(declared(mapping(tool.get("inputSchema"))))
    properties = list(_properties(tool))
    if not whole and not properties:
        return None
    each_has = all("examples" in each.schema or "examples" in each.written for each in properties)
    return _said(whole or each_has, "it has no example")


# ── what it does, and what it answers ────────────────────────────────────────────────────────────────────────────────


def _annotated(tool: Tool, _: bool) -> Share:
    hints = mapping(tool.get("annotations"))
    told = any(isinstance(hints.get(key), bool) for key in ("readOnlyHint", "destructiveHint"))
    return _said(told, "it does not say whether it only reads, so programs must suppose the worst")


def _titled(tool: Tool, _: bool) -> Share:
    title = tool.get("title") or mapping(tool.get("annotations")).get("title")
    return _said(isinstance(title, str) and bool(title.strip()), "it has no title for people")


def _promises(tool: Tool, _: bool) -> Share:
    words = "it has no outputSchema, so that programs cannot know the form of its answer"
    return _said(bool(mapping(tool.get("outputSchema"))), words)


def _promises_in_words(tool: Tool, _: bool) -> Share | None:
    schema = mapping(tool.get("outputSchema"))
    found = list(islice(_walk(schema, schema, "", 0), MAX_PROPERTIES))
    lacking = [
        each.way
        for each in found
        if not each.written.get("description") and not each.schema.get("description")
    ]
    return _share(found, lacking, "of its answer", "without a description")


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _introduced(_: Sequence[Tool], words: ServerWords | None) -> Share | None:
    if words is None:
        return None
    said = len(words.description.strip()) + len(words.instructions.strip())
    if said >= SERVER_CHARACTERS:
        return _said(True)
    what = f"the server says {said} characters of itself" if said else "the server says nothing of itself"
    return Share(said, SERVER_CHARACTERS, what)


def _few_enough(tools: Sequence[Tool], _: ServerWords | None) -> Share | None:
    if not tools:
        return None
    words = f"the server has {len(tools)} tools, and models choose badly among more than {MOST_TOOLS}"
    return _said(len(tools) <= MOST_TOOLS, words)


def _told_apart(tools: Sequence[Tool], _: ServerWords | None) -> Share | None:
    by_words: dict[str, list[str]] = {}
    for tool in tools:
        if words := _words_of(tool):
            by_words.setdefault(words, []).append(str(tool.get("name")))
    alike = [name for names in by_words.values() if len(names) > 1 for name in names]
    if len(tools) < 2:
        return None
    return _share(list(tools), alike, "of its tools", "described in the words of another")


# ── ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _said(right: bool, words: str = "") -> Share:
    """Return a share of all or nothing. `words` say what is not right."""
    return Share(1, 1, "") if right else Share(0, 1, words)


def _words_of(tool: Tool) -> str:
    words = tool.get("description")
    return words.strip() if isinstance(words, str) else ""


def _of_properties(tool: Tool, right: Callable[[_Property], bool], what: str) -> Share | None:
    found = list(_properties(tool))
    return _share(found, [each.way for each in found if not right(each)], "of its arguments", what)


def _share(found: Sequence[object], lacking: Sequence[str], of: str, what: str) -> Share | None:
    if not found:
        return None
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    verb = "is" if len(lacking) == 1 else "are"
    words = f"{len(lacking)} {of} {verb} {what}: {', '.join(lacking[:_NAMED])}{more}"
    return Share(len(found) - len(lacking), len(found), words)


def _properties(tool: Tool) -> Iterator[_Property]:
    schema = mapping(tool.get("inputSchema"))
    return islice(_walk(schema, schema, "", 0), MAX_PROPERTIES)


def _walk(schema: Mapping[str, Any], root: Mapping[str, Any], way: str, level: int) -> Iterator[_Property]:
    if level >= MAX_LEVELS:
        return
    for name, written in mapping(schema.get("properties")).items():
        inner = resolved(written, root)
        here = f"{way}.{name}" if way else name
        yield _Property(here, mapping(written), inner)
        yield from _walk(inner, root, here, level + 1)
        items = inner.get("items")
        if isinstance(items, dict):
            yield from _walk(resolved(cast("Any", items), root), root, here, level + 1)


RULES: Final[Sequence[Rule[LookAtTool]]] = (
    Rule("name", 10, _name, MEND),
    Rule("description", 20, _described, "say what it does, and when to use it"),
    Rule("description-length", 10, _long_enough, "say in one to five sentences what it does, and what it answers"),
    Rule("description-when", 5, _says_when, "add a sentence that begins with “Use this when”"),
    Rule("description-own", 5, _own_words, "say what a reader of the name alone does not know"),
    Rule("argument-types", 10, _typed, "give each property a type"),
    Rule("argument-descriptions", 15, _explained, "give each property a description: its meaning, its unit, its form"),
    Rule("argument-bounds", 5, _bounded, "give numbers a minimum and a maximum, texts a maxLength, lists a maxItems"),
    Rule("argument-enums", 5, _enumerated, "list the values in an enum"),
    Rule("arguments-closed", 5, _closed, "write additionalProperties = false into its inputSchema"),
    Rule("argument-levels", 5, _shallow, "take fewer levels, or several tools in its place"),
    Rule("example", 5, _exemplified, "write one into its inputSchema's examples, or into the settings"),
    Rule("annotations", 10, _annotated, "set readOnlyHint or destructiveHint"),
    Rule("title", 2, _titled, "give it a title"),
    Rule("output-schema", 8, _promises, "describe the answer in an outputSchema"),
    Rule("output-descriptions", 5, _promises_in_words, "give each property of its outputSchema a description"),
)  # fmt: skip

SERVER_RULES: Final[Sequence[Rule[LookAtAll]]] = (
    Rule("server-description", 10, _introduced, f"say in {SERVER_CHARACTERS} characters or more what it is for, in description or instructions"),
    Rule("tool-count", 5, _few_enough, "offer fewer at once: expose, groups, or several servers"),
    Rule("tools-told-apart", 5, _told_apart, "say of each what the others do not do"),
)  # fmt: skip
