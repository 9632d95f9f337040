"""The settings of `[[server.agent]]` with `kind = "openapi"`: which document, which of its operations, at which address, as whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from server.lib.http_client.fetch import url_problem
from server.lib.shortened import short_name
from server.settings.header_settings import OWN_HEADERS, REFERENCE, header_problems, secret_address_problem

REMOTE: Final = re.compile(r"https?://")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}").fullmatch


class ClientGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token of the client's own (RFC 6749 §4.4)."""

    token_url: Annotated[str, Meta(max_length=2048, description="the address of the token endpoint")]
    client_id: Annotated[str, Meta(min_length=1, max_length=400, description="the id of the client")]
    client_secret: Annotated[
        str, Meta(max_length=4096, description='a reference, "env:NAME" or "file:/path"')
    ]
    scope: Annotated[str, Meta(max_length=1000, description="scopes, with spaces between them")] = ""


class OpenApiConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one API."""

    document: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4096,
            description='the path or address of an OpenAPI document, e.g. "api.yaml"',
        ),
    ]
    sha256: Annotated[
        str, Meta(max_length=64, description="the SHA-256 of the document, in 64 hexadecimal digits")
    ] = ""
    base_url: Annotated[
        str, Meta(max_length=2048, description='what is called, e.g. "https://api.example.org/v1"')
    ] = ""
    include: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=300)], ...],
        Meta(
            max_length=1000, description='operations, e.g. ["tag:stations", "GET /trips*", "createBooking"]'
        ),
    ] = ()
    exclude: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=300)], ...],
        Meta(max_length=1000, description='operations, e.g. ["DELETE *"]'),
    ] = ()
    prefix: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.-]{0,30}$",
            description='what the names of its tools begin with, e.g. "trains_"',
        ),
    ] = ""
    credentials: Annotated[
        Mapping[str, str | ClientGrant],
        Meta(max_length=32, description='a table, e.g. { ApiKeyAuth = "env:API_KEY" }'),
    ] = MappingProxyType({})
    headers: Annotated[
        Mapping[str, str], Meta(max_length=32, description="a table of headers that every request has")
    ] = MappingProxyType({})
    fields: Annotated[
        Mapping[str, tuple[Annotated[str, Meta(min_length=1, max_length=300)], ...]],
        Meta(
            max_length=1000,
            description='what is kept of an answer, by tool, e.g. { getTrips = ["data.id", "data.price"] }',
        ),
    ] = MappingProxyType({})
    answers: Annotated[
        Literal["structured", "promised", "text"], Meta(description='"structured", "promised" or "text"')
    ] = "structured"
    answer_kib: Annotated[int, Meta(ge=1, le=4096, description="KiB from 1 to 4096")] = 256
    deadline_seconds: Annotated[float, Meta(ge=1, le=3600, description="seconds from 1 to 3600")] = 60.0
    max_connections: Annotated[int, Meta(ge=1, le=1024, description="a number from 1 to 1024")] = 32
    ca_file: Annotated[str, Meta(max_length=4096, description="the path of PEM certificates to trust")] = ""

    def __repr__(self) -> str:  # headers may hold a literal that should have been a reference
        return f"{type(self).__name__}(document={self.document!r})"

    @property
    def remote(self) -> bool:
        return REMOTE.match(self.document) is not None


def problems(config: OpenApiConfig) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold. None of them holds a value of a credential or header."""
    found: list[tuple[str, str]] = []
    if config.remote:
        if problem := url_problem(config.document):
            found.append(("document", problem))
        if not config.sha256:
            found.append(
                (
                    "sha256",
                    "is missing; write the SHA-256 of the document at that address, so that it cannot become another",
                )
            )
    if config.sha256 and not _DIGEST(config.sha256.lower()):
        found.append(("sha256", "is not 64 hexadecimal digits"))
    if config.base_url and ((problem := url_problem(config.base_url)) or "?" in config.base_url):
        found.append(
            ("base_url", f"{problem or 'must not have a ?query'}; write e.g. https://api.example.org/v1")
        )
    for name, value in config.credentials.items():
        secret = value if isinstance(value, str) else value.client_secret
        if not REFERENCE.fullmatch(secret):
            found.append(
                (f"credentials.{short_name(name)}", "must be a reference; write env:NAME or file:/path")
            )
        if not isinstance(value, str) and (problem := secret_address_problem(value.token_url)):
            found.append((f"credentials.{short_name(name)}.token_url", problem))
    found += header_problems(config.headers, OWN_HEADERS | {"cookie"})
    return found
