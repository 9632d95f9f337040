"""Tools, resources, templates and prompts of a file: each a function, and how lists show it.

The shapes are those of MCP 2025-11-25; facts about a tool that only we know are beside them (`taskByHand`, `deadlineSeconds`).
"""

from __future__ import annotations

import collections.abc
import difflib
import os
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Callable, Optional, Union

from . import foreign
from .answers import tool_result
from .content import Content, Message, Progress, Result, given, icons_of
from .docstring import described, parameters_of, summary_of
from .errors import Misuse
from .function import Function
from .hints import MISSING, alternatives, is_record, strip
from .hooks import Hook
from .page import Page, PlacedPage
from .param import with_notes
from .plain import plain
from .prices import PRICE, fixed
from .schema import LISTS, MAPPINGS, Schemas, is_anything, with_default

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from .answers import Shape

Wire = dict[str, Any]
Icons = Optional[Sequence[Union[str, Mapping[str, Any]]]]
Dict = Optional[Mapping[str, Any]]
Tags = Optional[Union[str, Iterable[str]]]

# Where the server, and clients that care, find them.
TAGS = "io.ostiary/tags"
VERSION = "io.ostiary/version"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TASK = ("forbidden", "optional", "required", "by_hand")
_HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
_WILD = re.compile(r"\{(\w+)\*\}")  # other libraries' way of writing {+path}
_VARIABLES = re.compile(r"\{[+#./;?&]?([^{}]+)\}")


class Defaults:
    """The settings of a file for all its tools."""

    def __init__(self) -> None:
        self.structured = False
        self.coerce = False
        self.show_errors = False


class PromptOptions(typing.TypedDict, total=False):
    """The options of `@prompt`, which all decorators have."""

    name: str | None
    title: str | None
    description: str | None
    icons: Icons
    meta: Dict
    tags: Tags
    version: str | None
    enabled: bool


class ResourceOptions(PromptOptions, total=False):
    """The options of `@resource`."""

    mime_type: str | None
    size: int | None
    annotations: Dict


class ToolOptions(PromptOptions, total=False):
    """The options of `@tool`."""

    input_schema: Dict
    output_schema: Dict
    annotations: Dict
    task: str | None
    deadline: float | None
    price: Any
    structured: bool | None
    coerce: bool | None
    page: str | os.PathLike[str] | Page | None
    for_page: bool


def _hints(annotations: Dict, where: str) -> Wire | None:
    """Return a tool's annotations as they are sent. They say what a call needs, so none is overlooked."""
    if annotations is None:
        return None
    found = _named(annotations, {**_HINTS, "title": "title"}, where)
    for name, value in found.items():
        if not isinstance(value, str if name == "title" else bool):
            raise Misuse(f"{where}: the annotation {name} cannot be {value!r}")
    return found


def _notes(annotations: Dict, where: str) -> Wire | None:
    """Return a resource's annotations, which are others, as they are sent."""
    known = {"audience": "audience", "priority": "priority", "last_modified": "lastModified"}
    return None if annotations is None else plain(_named(annotations, known, where))


def _named(annotations: Mapping[str, Any], known: Mapping[str, str], where: str) -> Wire:
    """Name annotations as the wire does. `known`: its names by those of Python, either of which may be written."""
    for name in annotations:
        if name not in known and name not in known.values():
            plain_names = {_plain_name(each): each for each in known}
            near = difflib.get_close_matches(_plain_name(str(name)), plain_names, n=1)
            instead = f"did you mean {plain_names[near[0]]}?" if near else f"there are {', '.join(known)}"
            raise Misuse(f"{where}: {name!r} is no annotation; {instead}")
    return {known.get(name, name): value for name, value in annotations.items()}


def _plain_name(name: str) -> str:
    letters = re.sub(r"[^a-z]", "", name.lower())
    return letters[: -len("hint")] if letters.endswith("hint") else letters


class _Offer:
    """A function that is offered, and its entry in a list."""

    known: type = PromptOptions

    def __init__(self, function: Callable[..., Any], what: str, options: Mapping[str, Any]) -> None:
        self.function = Function(function, what)
        known = self.known.__annotations__
        for option in options:
            if option not in known:
                raise Misuse(f"{self.function.where}: {option}= is no option; there are {', '.join(known)}")
        self.enabled: bool = options.get("enabled", True)
        self.name: str = options.get("name") or self.function.name
        self.description: str | None = options.get("description") or summary_of(self.function.doc)
        tags: Tags = options.get("tags")
        self.tags = frozenset([tags] if isinstance(tags, str) else tags or ())
        self.wire: Wire

    def _list(self, options: Mapping[str, Any], *, meta: Dict, **more: Any) -> None:
        """Make its entry, with `more` that this kind has."""
        version = options.get("version")
        marks = given(**{TAGS: sorted(self.tags) or None, VERSION: version or None})
        self.wire = given(
            name=self.name,
            title=options.get("title"),
            description=self.description,
            icons=icons_of(options.get("icons")),
            _meta={**plain(dict(meta or {})), **marks} if marks or meta is not None else None,
            **more,
        )

    def rename(self, name: str) -> None:
        self.name = self.wire["name"] = name


class Tool(_Offer):
    known = ToolOptions

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        defaults: Defaults | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        super().__init__(function, "the tool", options)
        defaults = defaults or Defaults()
        input_schema, task, deadline = (options.get(name) for name in ("input_schema", "task", "deadline"))
        structured, coerce = options.get("structured"), options.get("coerce")
        self.hooks: Sequence[Hook] | None = None  # of its file
        self._structured = structured
        self._structures = defaults.structured if structured is None else structured
        if not _NAME.fullmatch(self.name):
            raise Misuse(
                f"{self.function.where}: the name {self.name!r} must be 1 to 64 of letters, digits, '_', '.', '-'"
            )
        if task is not None and task not in _TASK:
            raise Misuse(f"{self.function.where}: task={task!r} is none of {', '.join(_TASK)}")
        if deadline is not None and not deadline > 0:
            raise Misuse(f"{self.function.where}: deadline={deadline!r} is in seconds, and more than 0")
        self._whole: str | None = None  # the parameter that takes all arguments as one dict
        self._own_schema = input_schema is not None
        given_input = self._take(input_schema) if input_schema is not None else self._input()
        self.shape: Shape
        given_output, self.shape = self._output(options.get("output_schema"))
        self.answer = partial(tool_result, shape=self.shape)
        page = options.get("page")
        self.page = None if page is None else PlacedPage(page, function, self.function.where)
        meta = self._priced(options.get("meta"), options.get("price"))
        # An author's schema is passed on unaltered, with its order.
        self._list(
            options,
            meta=self._with_page(meta, bool(options.get("for_page"))),
            inputSchema=given_input,
            outputSchema=given_output,
            annotations=_hints(options.get("annotations"), self.function.where),
            execution={"taskSupport": task} if task not in (None, "by_hand") else None,
            taskByHand=True if task == "by_hand" else None,
            deadlineSeconds=deadline,
            coerces=True if (defaults.coerce if coerce is None else coerce) else None,
        )

    def rename(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise Misuse(f"{self.function.where}: the name {name!r} is too long, or is none")
        super().rename(name)

    def arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by the names of the function's parameters. Raises `Unfit`."""
        if self._whole is not None:
            return {self._whole: dict(arguments)}
        return self.function.from_json(arguments, strict=not self._own_schema)

    def _priced(self, meta: Dict, price: Any) -> Dict:
        if price is None:
            return meta
        if meta is not None and PRICE in meta:
            raise Misuse(f"{self.function.where}: it has a price= already, beside that of its meta")
        return {**(meta or {}), PRICE: fixed(price, self.function.where)}

    def _with_page(self, meta: Dict, for_page: bool) -> Dict:
        page = None if self.page is None else self.page.uri
        marks = given(resourceUri=page, visibility=["app"] if for_page else None)
        return {**(meta or {}), "ui": {**(meta or {}).get("ui", {}), **marks}} if marks else meta

    def move_page(self, moved: Mapping[str, str]) -> None:
        """Give its page another address."""
        if self.page is not None:
            self.page.uri = moved[self.page.uri]
            meta = self.wire["_meta"]
            self.wire["_meta"] = {**meta, "ui": {**meta["ui"], "resourceUri": self.page.uri}}

    def _input(self) -> Wire:
        schemas = Schemas()
        told = parameters_of(self.function.doc)
        properties: dict[str, Wire] = {}
        for field in self.function.parameters:
            where = f"{self.function.where}, parameter {field.name!r}"
            schema = schemas.of(field.hint, where)
            if field.default is not MISSING:
                schema = with_default(schema, field.default)
            properties[field.name] = described(schema, told.get(field.name))
        schema = given(
            type="object",
            properties=properties or None,
            required=[field.name for field in self.function.parameters if field.required] or None,
        )
        if not self.function.takes_any:
            schema["additionalProperties"] = False
        return schemas.closed(schema)

    def _take(self, schema: Mapping[str, Any]) -> Wire:
        """Check that the function can be called with what the author's own schema allows."""
        where = self.function.where
        if schema.get("type") != "object":
            raise Misuse(f'{where}: input_schema must say "type": "object" at its root')
        properties: Any = schema.get("properties", {})
        names = {field.name for field in self.function.parameters}
        if len(names) == 1 and not names & set(properties):
            (field,) = self.function.parameters
            bare = strip(field.hint)[0]
            if is_anything(bare) or (typing.get_origin(bare) or bare) in MAPPINGS:
                self._whole = field.name
                return dict(schema)
        missing = [] if self.function.takes_any else [name for name in properties if name not in names]
        if missing:
            raise Misuse(
                f"{where}: input_schema has {', '.join(missing)}, which the function does not take. Give it parameters "
                "of these names, **kwargs, or one parameter (arguments: dict) for all of them"
            )
        if not schema.get("patternProperties") and schema.get("additionalProperties") is False:
            for field in self.function.parameters:
                if field.required and field.name not in properties:
                    raise Misuse(f"{where}: the parameter {field.name!r} is not in input_schema")
        return dict(schema)

    def _output(self, schema: Dict) -> tuple[Wire | None, Shape]:
        if schema is not None:
            return dict(schema), "object" if schema.get("type") == "object" else "any"
        if self.function.is_async_generator or self.function.is_generator:
            return None, "none"
        hint, notes, _ = strip(self.function.returns)
        where = f"{self.function.where}, its result"
        schemas = Schemas(answers=True)
        if _is_object(hint):
            found = with_notes(schemas.of(hint, where), notes, where)
            return schemas.closed({"type": "object", **found}), "object"
        if _is_list_of_objects(hint):
            items = with_notes(schemas.of(hint, where), notes, where)
            # Until 2025-11-25 the root is an object, and so it is everywhere.
            around = {"type": "object", "properties": {"result": items}, "required": ["result"]}
            return schemas.closed(around), "wrapped"
        if not self._structures or is_anything(hint) or hint in (None, type(None)) or _holds_content(hint):
            return None, "none"
        try:
            found = with_notes(schemas.of(hint, where), notes, where)
        except Misuse:
            if self._structured:
                raise
            return None, "none"  # not every tool of a file can keep what the file settles
        around = {"type": "object", "properties": {"result": found}, "required": ["result"]}
        return schemas.closed(around), "beside"


def _is_object(hint: Any) -> bool:
    if is_record(hint) or foreign.is_foreign(hint):
        return not issubclass(hint, (Content, Message, Progress, Result))
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if foreign.is_foreign(origin) or is_record(origin):
        return True
    return origin in MAPPINGS and len(args) == 2 and not is_anything(args[1])


def _holds_content(hint: Any) -> bool:
    return any(
        isinstance(bare, type) and issubclass(bare, (Content, Message, Progress, Result, bytes, bytearray))
        for bare in (strip(member)[0] for member in alternatives(hint))
    )


def _is_list_of_objects(hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin not in (*LISTS, tuple) or origin is collections.abc.Iterable or not args:
        return False
    if origin is tuple and (len(args) != 2 or args[1] is not Ellipsis):
        return False
    return all(_is_object(strip(member)[0]) for member in alternatives(args[0]))


class Resource(_Offer):
    """A resource; with variables in its address, a template."""

    known = ResourceOptions

    def __init__(self, uri: str, function: Callable[..., Any], **options: Unpack[ResourceOptions]) -> None:
        if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance] - @resource without an address
            raise Misuse('a resource needs its address: @resource("test://name")')
        super().__init__(function, f"the resource {uri}:", options)
        self.uri = uri
        self.mime_type = options.get("mime_type")
        self.variables = tuple(
            variable.strip().rstrip("*").split(":")[0]
            for group in _VARIABLES.findall(uri)
            for variable in group.split(",")
        )
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
            raise Misuse(f'{self.function.where}: an address begins with a scheme, as in "notes://{uri}"')
        wild = _WILD.search(uri)
        if wild is not None:
            raise Misuse(
                f"{self.function.where}: {wild[0]} stands for one step of a path; a variable that may hold slashes is {{+{wild[1]}}}"
            )
        self._check()
        self._list(
            options,
            meta=options.get("meta"),
            **{"uriTemplate" if self.variables else "uri": uri},
            mimeType=self.mime_type,
            size=None if self.variables else options.get("size"),
            annotations=_notes(options.get("annotations"), self.function.where),
        )

    def move(self, uri: str) -> None:
        """Give it another address, with the same variables."""
        self.uri = self.wire["uriTemplate" if self.variables else "uri"] = uri

    def _check(self) -> None:
        taken = {field.name for field in self.function.parameters}
        for field in self.function.parameters:
            if field.required and field.name not in self.variables:
                raise Misuse(
                    f"{self.function.where}: {field.name!r} is no variable of the address; write {{{field.name}}} in it, "
                    "or give the parameter a default"
                )
        for variable in self.variables:
            if variable not in taken and not self.function.takes_any:
                raise Misuse(
                    f"{self.function.where}: the variable {{{variable}}} needs a parameter of its name"
                )


class Prompt(_Offer):
    def __init__(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> None:
        super().__init__(function, "the prompt", options)
        told = parameters_of(self.function.doc)
        arguments: list[Wire] = []
        for field in self.function.parameters:
            notes = with_notes({}, strip(field.hint)[1], self.function.where)
            arguments.append(
                given(
                    name=field.name,
                    title=notes.get("title"),
                    description=notes.get("description") or told.get(field.name),
                    required=field.required,
                )
            )
        self._list(options, meta=options.get("meta"), arguments=arguments or None)


class Completion:
    """A function of what was typed so far, `value`, and of the arguments that are settled, `known`."""

    def __init__(self, target: str, argument: str, function: Callable[..., Any]) -> None:
        self.target = target
        self.argument = argument
        self.function = Function(function, f"the completion of {target}, {argument}:")
        names = [field.name for field in self.function.parameters if field.name != "known"]
        self.takes_known = len(names) < len(self.function.parameters) or self.function.takes_any
        if len(names) != 1:
            raise Misuse(f"{self.function.where}: it takes what was typed, and `known` if it likes")
        self._value = names[0]

    def arguments(self, value: str, known: Mapping[str, str]) -> dict[str, Any]:
        return {self._value: value, **({"known": dict(known)} if self.takes_known else {})}
