"""The document: bytes in, an `ApiDocument` out, whose references lead nowhere but into itself.

JSON, or YAML as far as server/lib/yaml reads it. OpenAPI 3.0 and 3.1. Nothing is fetched here, whatever a reference names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from server.lib.json_objects import items, mapping
from server.lib.yaml.flow_style import BadYaml
from server.lib.yaml.yaml_reader import read_yaml

# The largest that are published, of the whole API of a large service, have a dozen.
DOCUMENT_BYTES: Final = 16 * 1024 * 1024
MAX_HOPS: Final = 20  # from one reference to the next
SHOWN: Final = 200

_VERSION: Final = re.compile(r"3\.([01])(?:\.[0-9]+)?(?:-.*)?").fullmatch
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


class BadApi(ValueError):
    """A document, or a part of one, that cannot be used; says why, for its owner."""


class ApiDocument:
    """A document. `since_31`: its schemas are JSON Schema, and not a dialect of it."""

    def __init__(self, root: Mapping[str, Any], *, since_31: bool) -> None:
        self.root: Final = root
        self.since_31: Final = since_31

    def resolved(self, node: object) -> Mapping[str, Any]:
        """Return what a node is, or refers to. Raises `BadApi`."""
        for _ in range(MAX_HOPS):
            if not isinstance(node, Mapping):
                raise BadApi("something in it is not a table where one belongs")
            table = mapping(cast("object", node))
            reference = table.get("$ref")
            if not isinstance(reference, str):
                return table
            node = self.at(reference)
        raise BadApi("a reference in it leads to itself")

    def at(self, reference: str) -> object:
        """Return what a local reference names (RFC 6901). Raises `BadApi`."""
        if not reference.startswith("#"):
            raise BadApi(f"it refers to {reference[:SHOWN]!r}, and nothing outside of it is read")
        node: object = self.root
        for token in pointer(reference):
            listed = items(node)
            if listed and token.isascii() and token.isdigit() and len(token) < 10:
                node = listed[int(token)] if int(token) < len(listed) else _MISSING
            else:
                node = mapping(node).get(token, _MISSING)
            if node is _MISSING:
                raise BadApi(f"it refers to {reference[:SHOWN]!r}, which it does not have")
        return node

    def base_url(self, fetched_from: str) -> str:
        """Return where its first server is; empty where it does not say, or not where."""
        servers = items(self.root.get("servers"))
        if not servers:
            return fetched_from and urljoin(fetched_from, "/")
        server = mapping(servers[0])
        variables = mapping(server.get("variables"))

        def usual(found: re.Match[str]) -> str:
            return str(mapping(variables.get(found[1])).get("default") or "")

        url = _VARIABLE.sub(usual, str(server.get("url") or ""))
        if urlsplit(url).scheme in ("http", "https"):
            return url
        return urljoin(fetched_from, url or "/") if fetched_from else ""


_MISSING: Final = object()


def pointer(reference: str) -> list[str]:
    """Return the steps of a local reference."""
    tokens = unquote(reference[1:]).split("/")[1:]
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens]


def read_document(data: bytes) -> ApiDocument:
    """Read a document. Raises `BadApi`."""
    if len(data) > DOCUMENT_BYTES:
        raise BadApi(f"is larger than {DOCUMENT_BYTES // 1024 // 1024} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadApi("is not text in UTF-8") from None
    try:
        root: object = msgspec.json.decode(text) if text.lstrip()[:1] == "{" else read_yaml(text)
    except (msgspec.DecodeError, RecursionError):
        # What begins with a brace may be YAML all the same.
        root = _yaml(text)
    except BadYaml as problem:
        raise BadApi(f"cannot be read as YAML: {problem}") from problem
    if not isinstance(root, Mapping):
        raise BadApi("is no OpenAPI document: it has no keys")
    table = cast("Mapping[str, Any]", root)
    version = table.get("openapi")
    found = _VERSION(str(version)) if version is not None else None
    if found is None:
        older = "swagger" in table
        what = "describes an API in Swagger 2.0" if older else f"is of version {str(version)[:20]!r}"
        raise BadApi(f"{what}; OpenAPI 3.0 and 3.1 are read")
    if not isinstance(table.get("paths"), Mapping):
        raise BadApi("has no paths, so there is nothing to call")
    return ApiDocument(table, since_31=found[1] == "1")


def _yaml(text: str) -> object:
    try:
        return read_yaml(text)
    except BadYaml as problem:
        raise BadApi(f"is neither JSON nor YAML: {problem}") from problem
