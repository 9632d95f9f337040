"""The operations of a document, each read by itself: what it takes, what it answers, as whom it is called.

An operation that cannot be called from here (its body is a file upload, say) is left out, with the reason for its owner.
Spec: OpenAPI 3.1.1 §4.8.8 to §4.8.17.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from server.agents.openapi.openapi_document import ApiDocument, BadApi
from server.lib.json_objects import items, mapping
from server.mcp.tool_names import LegalNames, legal

Place: TypeAlias = Literal["path", "query", "header", "cookie"]
BodyKind: TypeAlias = Literal["json", "form", "text"]

METHODS: Final = ("get", "put", "post", "delete", "patch")
NAME_CHARACTERS: Final = 64
MAX_PARAMETERS: Final = 200
# Which the exchange itself needs, or which say as whom it is called (§4.8.12.1).
_NOT_SENT: Final = frozenset(
    {
        "accept", "content-type", "authorization", "host", "content-length", "connection", "cookie", "user-agent", "te",
        "transfer-encoding", "accept-encoding", "expect", "upgrade", "trailer", "keep-alive", "x-request-id",
    }
)  # fmt: skip
# The usual one first.
_STYLES: Final[Mapping[str, Sequence[str]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
_PATH_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
_METHOD_WORD: Final = re.compile(r"(GET|PUT|POST|DELETE|PATCH) +(\S.*)").fullmatch
_JSON: Final = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json").fullmatch


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter. `argument` is what callers name it by."""

    name: str
    argument: str
    place: Place
    style: str
    explode: bool
    required: bool
    reserved: bool = False
    as_json: bool = False
    schema: Any
    description: str = ""


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    argument: str
    media_type: str
    kind: BodyKind
    required: bool
    schema: Any
    description: str = ""


class ApiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document's words about the answers with one status, `2XX` or `default`; `schema` where they are JSON."""

    has_content: bool
    schema: Any | None = None


class ApiOperation(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    method: str
    path: str
    tags: Sequence[str] = ()
    summary: str = ""
    description: str = ""
    deprecated: bool = False
    parameters: Sequence[Parameter] = ()
    body: RequestBody | None = None
    answers: Mapping[str, ApiAnswer]
    # Any one of these is enough; of each, all. Empty: no security is asked for.
    security: Sequence[Sequence[str]] = ()

    def slim(self) -> ApiOperation:
        """Return what a call needs: without the schemas, which would keep most of the document in memory."""
        return msgspec.structs.replace(
            self,
            description="",
            parameters=[
                msgspec.structs.replace(each, schema=None, description="") for each in self.parameters
            ],
            body=None if self.body is None else msgspec.structs.replace(self.body, schema=None),
            answers={
                status: msgspec.structs.replace(each, schema=None if each.schema is None else True)
                for status, each in self.answers.items()
            },
        )

    def answer(self, status: int) -> ApiAnswer | None:
        found = self.answers.get(str(status)) or self.answers.get(f"{status // 100}XX")
        return found or self.answers.get("default")


class LeftOut(msgspec.Struct, frozen=True):
    operation: str
    reason: str


def read_operations(
    document: ApiDocument, *, prefix: str, include: Sequence[str], exclude: Sequence[str]
) -> tuple[Sequence[ApiOperation], Sequence[LeftOut]]:
    """Read the operations that are selected, in the order of the document. Raises `BadApi` for a word of `include` or
    `exclude` that selects nothing."""
    found: list[ApiOperation] = []
    left_out: list[LeftOut] = []
    unused = {*include, *exclude}
    names = LegalNames(NAME_CHARACTERS)
    for path, method, item, operation in _each(document, left_out):
        what = f"{method.upper()} {path}"
        name = names.give(prefix + _tool_name(operation, method, path))
        tags = [tag for tag in items(operation.get("tags")) if isinstance(tag, str)]
        ids = (name, str(operation.get("operationId") or ""))
        chosen = [word for word in include if _selects(word, ids, method, path, tags)]
        against = [word for word in exclude if _selects(word, ids, method, path, tags)]
        unused -= {*chosen, *against}
        if (include and not chosen) or against:
            continue
        try:
            found.append(_read(document, name, method, path, tags, item, operation))
        except BadApi as problem:
            left_out.append(LeftOut(what, str(problem)))
    if unused:
        words = ", ".join(repr(word) for word in sorted(unused)[:10])
        raise BadApi(f"has no operation that include or exclude could mean by {words}")
    return found, left_out


def _each(
    document: ApiDocument, left_out: list[LeftOut]
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    for path, written in cast("Mapping[str, object]", document.root["paths"]).items():
        if not path.startswith("/"):
            continue  # an extension
        try:
            item = document.resolved(written)
        except BadApi as problem:
            left_out.append(LeftOut(path, str(problem)))
            continue
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, Mapping):
                yield path, method, item, cast("Mapping[str, Any]", operation)


def _tool_name(operation: Mapping[str, Any], method: str, path: str) -> str:
    written = operation.get("operationId")
    if not isinstance(written, str) or not any(each.isalnum() for each in written):
        written = f"{method}{path}"
    return legal(written).strip("_")


def _selects(word: str, ids: tuple[str, str], method: str, path: str, tags: Sequence[str]) -> bool:
    """Match a word: `tag:NAME`, `/path/*`, `GET /path/*`, `GET *`, or the name of the operation or of its tool, with `*`."""
    if word.startswith("tag:"):
        return any(fnmatchcase(tag, word[4:]) for tag in tags)
    if found := _METHOD_WORD(word):
        return found[1].lower() == method and _is_path(path, found[2])
    if word.startswith("/"):
        return _is_path(path, word)
    return any(fnmatchcase(each, word) for each in ids if each)


def _is_path(path: str, pattern: str) -> bool:
    return path == pattern or fnmatchcase(path, pattern)


def _read(
    document: ApiDocument,
    tool: str,
    method: str,
    path: str,
    tags: Sequence[str],
    item: Mapping[str, Any],
    operation: Mapping[str, Any],
) -> ApiOperation:
    parameters = _parameters(document, path, item, operation)
    return ApiOperation(
        tool=tool,
        method=method.upper(),
        path=path,
        tags=tags,
        summary=_text(operation.get("summary")) or _text(item.get("summary")),
        description=_text(operation.get("description")) or _text(item.get("description")),
        deprecated=operation.get("deprecated") is True,
        parameters=parameters,
        body=_body(document, operation, {each.argument for each in parameters}),
        answers=_answers(document, operation),
        security=_security(document, operation),
    )


def _parameters(
    document: ApiDocument, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> Sequence[Parameter]:
    """Read the parameters. The operation's take the place of those that all of its path have."""
    written: dict[tuple[str, str], Mapping[str, Any]] = {}
    for source in (item, operation):
        for each in items(source.get("parameters")):
            table = document.resolved(each)
            name, place = table.get("name"), table.get("in")
            if not isinstance(name, str) or place not in get_args(Place):
                raise BadApi("a parameter has no name, or none of the four places")
            written[name, str(place)] = table
    if len(written) > MAX_PARAMETERS:
        raise BadApi(f"it takes more than {MAX_PARAMETERS} parameters")
    sent = [key for key in written if key[1] != "header" or key[0].lower() not in _NOT_SENT]
    names = [name for name, _ in sent]
    found: list[Parameter] = []
    for name, place in sent:
        argument = name if names.count(name) == 1 else f"{name}_{place}"
        found.append(_parameter(written[name, place], name, argument, cast("Place", place)))
    in_path = {each.name for each in found if each.place == "path"}
    if lacking := [name for name in _PATH_VARIABLE.findall(path) if name not in in_path]:
        raise BadApi(f"its path has {{{lacking[0][:80]}}}, which is no parameter of it")
    return found


def _parameter(table: Mapping[str, Any], name: str, argument: str, place: Place) -> Parameter:
    content = mapping(table.get("content"))
    as_json = bool(content)
    if as_json:
        media_type, media = next(iter(content.items()), ("", None))
        if not _is_json(media_type):
            raise BadApi(f"its parameter {name[:80]} is written as {media_type[:80] or 'nothing'}")
        schema = mapping(media).get("schema", {})
    else:
        schema = table.get("schema", {})
    style = str(table.get("style") or _STYLES[place][0])
    if style not in _STYLES[place]:
        raise BadApi(f"its parameter {name[:80]} has the style {style[:40]}, which its place does not have")
    explode = table.get("explode")
    return Parameter(
        name=name,
        argument=argument,
        place=place,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        required=place == "path" or table.get("required") is True,
        reserved=table.get("allowReserved") is True,
        as_json=as_json,
        schema=schema,
        description=_text(table.get("description")),
    )


def _body(document: ApiDocument, operation: Mapping[str, Any], taken: set[str]) -> RequestBody | None:
    if "requestBody" not in operation:
        return None
    table = document.resolved(operation["requestBody"])
    content = mapping(table.get("content"))
    chosen = _chosen(content)
    if chosen is None:
        if not content:
            return None
        kinds = ", ".join(str(each)[:60] for each in list(content)[:5])
        raise BadApi(f"its body is {kinds}; JSON, forms and text can be sent, files cannot")
    media_type, kind = chosen
    return RequestBody(
        argument=next(name for name in ("body", "request_body", "request_body_") if name not in taken),
        media_type=media_type,
        kind=kind,
        required=table.get("required") is True,
        schema=mapping(content[media_type]).get("schema", {} if kind != "text" else {"type": "string"}),
        description=_text(table.get("description")),
    )


def _chosen(content: Mapping[str, Any]) -> tuple[str, BodyKind] | None:
    for media_type in content:
        if _is_json(media_type):
            return media_type, "json"
    for media_type in content:
        essence = _essence(media_type)
        if essence in ("*/*", "application/*"):
            return media_type, "json"
        if essence == "application/x-www-form-urlencoded":
            return media_type, "form"
    for media_type in content:
        if _essence(media_type).startswith("text/"):
            return media_type, "text"
    return None


def _answers(document: ApiDocument, operation: Mapping[str, Any]) -> Mapping[str, ApiAnswer]:
    found: dict[str, ApiAnswer] = {}
    for status, written in mapping(operation.get("responses")).items():
        try:
            content = mapping(document.resolved(written).get("content"))
        except BadApi:
            continue  # what it answers is seen when it does
        media = next((media for media_type, media in content.items() if _is_json(media_type)), None)
        found[status.upper() if status != "default" else status] = ApiAnswer(
            has_content=bool(content), schema=mapping(media).get("schema")
        )
    return found


def _security(document: ApiDocument, operation: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    written = operation.get("security", document.root.get("security"))
    return [tuple(mapping(each)) for each in items(written)]


def _is_json(media_type: str) -> bool:
    return _JSON(_essence(media_type)) is not None


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _text(node: object) -> str:
    return node.strip() if isinstance(node, str) else ""
