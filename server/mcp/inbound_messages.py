"""Which era a message belongs to, whether its headers say what its body says, and which method answers it.

Pure: a decoded message and the headers in, a `Route`, `Acknowledged` or `Rejection` out. The order of the checks is the order
in which clients that speak both eras read our refusals. Spec: basic/versioning and basic/transports/streamable-http
(2026-07-28); basic/transports (2025-11-25 and before).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from server.mcp.errors import (
    BadEnvelope,
    BadParams,
    BadVersionHeader,
    HeaderMismatch,
    InvalidRequest,
    McpError,
    MethodNotFound,
    ParseError,
    SessionNotFound,
    UnsupportedVersion,
)
from server.mcp.messages import (
    Batch,
    Malformed,
    Message,
    Notification,
    RequestId,
    RequestMessage,
    ResponseMessage,
    decode_one,
)
from server.mcp.method_params import InitializeParams, Params
from server.mcp.method_table import METHODS, Method
from server.mcp.versions import (
    LATEST,
    LATEST_LEGACY,
    MODERN_VERSIONS,
    REVISIONS,
    TASKS_EXTENSION,
    UNNAMED,
    Revision,
    negotiate,
)

# Names in lower case, as HTTP servers hand them over; several of one name joined by ", ".
Headers: TypeAlias = Mapping[bytes, bytes]

VERSION_HEADER: Final = b"mcp-protocol-version"
METHOD_HEADER: Final = b"mcp-method"
NAME_HEADER: Final = b"mcp-name"
SESSION_HEADER: Final = b"mcp-session-id"

# A batch is one HTTP request and one permit: more calls than this in it are not a client's batching, but a load.
MAX_BATCH: Final = 32


class Route(msgspec.Struct, frozen=True):
    """A request to run."""

    method: Method
    id: RequestId
    params: Params
    revision: Revision
    problem: McpError | None = None  # with the parameters: said only if the method is offered at all
    size: int = 0  # of the parameters as they came, in bytes; 0: not known
    # As they came, where they are not large: for whoever hands on what is not read here.
    came: Raw | None = None


class Acknowledged(msgspec.Struct, frozen=True):
    """A notification, or a response: nothing is answered but that it came."""

    revision: Revision
    message: Notification | ResponseMessage


class Rejection(msgspec.Struct, frozen=True):
    error: McpError
    id: RequestId | None
    revision: Revision


Verdict: TypeAlias = Route | Acknowledged | Rejection

_VISIBLE: Final = re.compile(rb"[\x20-\x7e]*").fullmatch
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}").fullmatch
# Held for as long as a request runs. What is larger is arguments, which are held as they were read.
CAME_BYTES: Final = 64 * 1024

_decode_any: Final = msgspec.json.Decoder(Params).decode
_decode_loose: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_BY_HEADER: Final = MappingProxyType({row.version.encode(): row for row in REVISIONS.values()})
_VERSION_FIELD: Final = "io.modelcontextprotocol/protocolVersion"


def classify(message: Message, headers: Headers, session: Revision | None = None) -> Verdict:
    """Never raises. `session` is what was agreed in the session that the headers name; None where they name none, or one that
    is gone or somebody else's."""
    if isinstance(message, RequestMessage):
        row, params, problem = _params(message)
        if params is not None and params.meta.protocol_version is not UNSET:
            return _modern(message, row, params, problem, params.meta.protocol_version, headers)
        return _handshake_era(message, row, params, problem, headers, session)
    revision, unknown = _named(headers)
    if isinstance(message, Malformed):
        return Rejection(message.error, message.id, session or revision or LATEST)
    modern = (revision is not None and revision.modern) or _newer(unknown)
    if session is None and names_session(headers):
        return Rejection(SessionNotFound("unknown session"), None, revision or UNNAMED)
    if unknown is not None:
        return Rejection(_unknown_version(unknown), None, LATEST if modern else UNNAMED)
    if session is not None:
        return Acknowledged(session, message)
    if modern and not isinstance(message, Notification):
        return Rejection(InvalidRequest("a client sends no responses in this version"), None, LATEST)
    return Acknowledged(revision or UNNAMED, message)


def classify_line(message: Message, agreed: Revision | None) -> Verdict:
    """The same where there are no headers (stdio): each request says itself that it is modern, and every other one belongs to
    the handshake that was `agreed` on, if there was one. Never raises."""
    if isinstance(message, Malformed):
        return Rejection(message.error, message.id, agreed or LATEST)
    if not isinstance(message, RequestMessage):
        return Acknowledged(agreed or LATEST, message)
    row, params, problem = _params(message)
    version = UNSET if params is None else params.meta.protocol_version
    if params is not None and version is not UNSET:
        revision = REVISIONS.get(version)
        error: McpError | None = None
        if revision is None or not revision.modern:
            error = UnsupportedVersion(version, MODERN_VERSIONS)
        elif params.meta.client_capabilities is UNSET:
            error = BadEnvelope("params._meta lacks io.modelcontextprotocol/clientCapabilities")
        if error is not None:
            return Rejection(error, message.id, LATEST)
        return _route(message, row, params, problem, revision or LATEST)
    if params is None:
        problem = problem or BadParams("malformed params")
        return Rejection(problem, message.id, LATEST if _looks_modern(message) else agreed or LATEST)
    if message.method == "initialize":
        asked = params.protocol_version if isinstance(params, InitializeParams) else None
        return _route(message, row, params, problem, negotiate(asked))
    if agreed is None and message.method != "ping":
        return Rejection(
            BadEnvelope(
                f"send `initialize` first, or {_VERSION_FIELD} in params._meta as every request of "
                f"{LATEST.version} carries it"
            ),
            message.id,
            LATEST,
        )
    return _route(message, row, params, problem, agreed or LATEST_LEGACY)


def open_batch(
    batch: Batch, headers: Headers, session: Revision | None = None, *, widened: bool = False
) -> Revision | Rejection:
    """Whether an array may be answered, and in which revision its items are. `widened`: in every revision of the handshake
    era, not only in the one that has them."""
    revision, unknown = _named(headers)
    if session is not None and unknown is None:
        revision = session
    elif revision is None and unknown is None:
        revision = UNNAMED
    if revision is None or not _has_batches(revision, widened):
        return Rejection(InvalidRequest("this version has no batches"), None, revision or LATEST)
    if session is None and SESSION_HEADER in headers:
        return Rejection(SessionNotFound("unknown session"), None, revision)
    return check_batch(batch, revision, widened=widened)


def check_batch(batch: Batch, revision: Revision, *, widened: bool = False) -> Revision | Rejection:
    if not _has_batches(revision, widened):
        return Rejection(InvalidRequest("this version has no batches"), None, revision)
    if not 1 <= len(batch.items) <= MAX_BATCH:
        return Rejection(InvalidRequest(f"a batch holds 1 to {MAX_BATCH} messages"), None, revision)
    return revision


def _has_batches(revision: Revision, widened: bool) -> bool:
    return revision.batches or (widened and not revision.modern)


def classify_item(item: Raw, revision: Revision) -> Verdict:
    message = decode_one(item)
    if isinstance(message, Malformed):
        return Rejection(message.error, message.id, revision)
    if not isinstance(message, RequestMessage):
        return Acknowledged(revision, message)
    if message.method == "initialize":
        return Rejection(InvalidRequest("initialize is never part of a batch"), message.id, revision)
    row, params, problem = _params(message)
    if params is None or params.meta.protocol_version is not UNSET:
        problem = problem or InvalidRequest("this version has no batches")
        return Rejection(problem, message.id, revision)
    return _route(message, row, params, problem, revision)


def _handshake_era(
    message: RequestMessage,
    row: Method | None,
    params: Params | None,
    problem: McpError | None,
    headers: Headers,
    session: Revision | None,
) -> Route | Rejection:
    """A request that does not say itself that it is modern."""
    if params is None:
        # The part that tells the eras apart could not be read as what it should be.
        modern = _looks_modern(message)
        if session is None and names_session(headers) and not modern:
            return Rejection(SessionNotFound("unknown session"), message.id, UNNAMED)
        revision, _ = _named(headers)
        if modern or (revision is not None and revision.modern and SESSION_HEADER not in headers):
            return Rejection(problem or BadEnvelope("malformed _meta"), message.id, LATEST)
        if isinstance(problem, BadEnvelope):
            problem = BadParams(str(problem))
        return Rejection(problem or BadParams("malformed params"), message.id, session or revision or UNNAMED)
    if message.method == "initialize":
        # Whatever the version header says: real clients send the one they would like.
        asked = params.protocol_version if isinstance(params, InitializeParams) else None
        return _route(message, row, params, problem, negotiate(asked))
    revision, unknown = _named(headers)
    if SESSION_HEADER in headers and session is None:
        return Rejection(SessionNotFound("unknown session"), message.id, revision or UNNAMED)
    if unknown is not None:
        return Rejection(_unknown_version(unknown), message.id, LATEST if _newer(unknown) else UNNAMED)
    if session is not None:
        # What was agreed holds, whichever of our versions the header names: a refusal would break real clients.
        return _route(message, row, params, problem, session)
    only_modern = row is not None and not row.legacy
    if (revision is not None and revision.modern) or (revision is None and only_modern):
        return Rejection(
            BadEnvelope(f"params._meta lacks {_VERSION_FIELD}, which every request of this version carries"),
            message.id,
            LATEST,
        )
    return _route(message, row, params, problem, revision or UNNAMED)


def _modern(
    message: RequestMessage,
    row: Method | None,
    params: Params,
    problem: McpError | None,
    version: str,
    headers: Headers,
) -> Route | Rejection:
    revision = REVISIONS.get(version)
    error: McpError | None = None
    if headers.get(VERSION_HEADER) != version.encode() and not _same(headers.get(VERSION_HEADER), version):
        error = HeaderMismatch("MCP-Protocol-Version is missing, or is not the version in params._meta")
    elif revision is None or not revision.modern:
        error = UnsupportedVersion(version, MODERN_VERSIONS)
    elif params.meta.client_capabilities is UNSET:
        error = BadEnvelope("params._meta lacks io.modelcontextprotocol/clientCapabilities")
    elif (row is None or headers.get(METHOD_HEADER) != row.wire) and not _same(
        headers.get(METHOD_HEADER), message.method
    ):
        error = HeaderMismatch("Mcp-Method is missing, or is not the method in the body")
    if error is not None:
        return Rejection(error, message.id, LATEST)
    if problem is None and row is not None and row.named_by is not None and row.modern:
        name: Any = getattr(params, row.named_by)
        if (
            isinstance(name, str)
            and (
                # What mostly comes: printable ASCII, as it is.
                headers.get(NAME_HEADER) != name.encode()
                or not (name.isascii() and name.isprintable())
                or name.startswith("=?")
            )
            and not mirrors(headers.get(NAME_HEADER), name)
        ):
            return Rejection(
                HeaderMismatch("Mcp-Name is missing, malformed, or is not what the body names"),
                message.id,
                LATEST,
            )
    if row is not None and row.modern and not row.streams:
        return Route(
            row,
            message.id,
            params,
            revision or LATEST,
            problem,
            len(message.params),
            message.params if len(message.params) <= CAME_BYTES else None,
        )
    return _route(message, row, params, problem, revision or LATEST)


def _route(
    message: RequestMessage, row: Method | None, params: Params, problem: McpError | None, revision: Revision
) -> Route | Rejection:
    if row is None or not (row.modern if revision.modern else row.legacy):
        return Rejection(MethodNotFound(message.method), message.id, revision)
    if row.streams:
        params = _lean(params)
    kept = not row.streams and len(message.params) <= CAME_BYTES  # a stream may last for days
    return Route(
        row, message.id, params, revision, problem, len(message.params), message.params if kept else None
    )


def _lean(params: Params) -> Params:
    """A stream may last for days, and its parameters with it: of what the client declared, only that which is asked for then."""
    declared = params.meta.client_capabilities
    if declared is UNSET:
        return params
    extensions: Any = declared.get("extensions")
    has_tasks = isinstance(extensions, Mapping) and TASKS_EXTENSION in extensions
    kept: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}} if has_tasks else {}
    return replace(params, meta=replace(params.meta, client_capabilities=kept))


def _params(message: RequestMessage) -> tuple[Method | None, Params | None, McpError | None]:
    """The method's row, its parameters, and what is wrong with them. Without the method's own parameters the common
    ones are returned, so that the era can be told; None when not even these could be read."""
    row = METHODS.get(message.method)
    problem: McpError | None = None
    try:
        if row is not None:
            try:
                return row, row.decode(message.params), None
            except msgspec.ValidationError as error:
                problem = BadParams(f"invalid params: {error}")
        return row, _decode_any(message.params), problem
    except msgspec.ValidationError as error:
        return row, None, BadEnvelope(f"invalid params: {error}")
    except (msgspec.DecodeError, RecursionError):
        # The first pass has checked what it skipped, so no input is known that gets here; should one, it is not our fault.
        return row, None, ParseError("the body is not JSON, or is nested too deeply")


def _looks_modern(message: RequestMessage) -> bool:
    try:
        return _VERSION_FIELD in _decode_loose(_decode_loose(message.params)["_meta"])
    except (msgspec.DecodeError, RecursionError, KeyError):
        return False


def names_session(headers: Headers) -> bool:
    """Whether a request names a session where sessions exist: in the handshake era."""
    revision, unknown = _named(headers)
    return (
        SESSION_HEADER in headers and not _newer(unknown) and not (revision is not None and revision.modern)
    )


def revision_of(headers: Headers) -> Revision:
    """What an answer is labelled with when there is no message to go by."""
    return _named(headers)[0] or LATEST


def _named(headers: Headers) -> tuple[Revision | None, str | None]:
    """The revision that the version header names, or else the value that names none."""
    value = headers.get(VERSION_HEADER)
    if value is None:
        return None, None
    if value in _BY_HEADER:
        return _BY_HEADER[value], None
    text = value.decode("latin-1").strip()
    revision = REVISIONS.get(text)
    return revision, None if revision is not None else text


def _newer(version: str | None) -> bool:
    return version is not None and _DATE(version) is not None and version > LATEST_LEGACY.version


def _unknown_version(version: str) -> McpError:
    if _newer(version):
        return UnsupportedVersion(version, MODERN_VERSIONS)
    return BadVersionHeader("MCP-Protocol-Version names no version that we know")


def _same(header: bytes | None, value: str) -> bool:
    return header is not None and _VISIBLE(header.strip()) is not None and header.strip() == value.encode()


def mirrors(header: bytes | None, value: str) -> bool:
    """Whether a header repeats a string of the body, in clear or in the Base64 form for what headers cannot carry."""
    if header is None:
        return False
    header = header.strip(b" \t")
    if not _VISIBLE(header):
        return False
    if header.startswith(b"=?base64?") and header.endswith(b"?=") and len(header) >= 11:
        return header[9:-2] == b64encode(value.encode())
    return header == value.encode()
