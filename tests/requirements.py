"""What the protocol asks of this server, and of what it does not: the behaviour manifest.

Each row is one rule in our words, with the place where the specification has it, the eras (or single revisions) that it
holds in, and the wires. Tests name the rows that they prove with `@pytest.mark.requirement("id", era=…, transport=…)`;
test_manifest.py holds the two against each other, both ways. A place names revision, document and section; "ext-tasks" is
the tasks extension, "ours" what we settled where the specification leaves it open. Rules for authorization servers are
OAuth's, and tested under tests/auth.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

HTTP: Final = "http"
STDIO: Final = "stdio"
ANY: Final = (HTTP, STDIO)
WEB: Final = (HTTP,)
PIPE: Final = (STDIO,)

MODERN: Final = ("modern",)  # 2026-07-28
LEGACY: Final = ("legacy",)  # every revision with a handshake
BOTH: Final = (*MODERN, *LEGACY)
# Where a rule holds in some revisions of the handshake era only.
R2024_11: Final = ("2024-11-05",)
R2025_03: Final = ("2025-03-26",)
R2025_06: Final = ("2025-06-18",)
R2025_11: Final = ("2025-11-25",)
EACH: Final = (*MODERN, *R2024_11, *R2025_03, *R2025_06, *R2025_11)


class Cell(NamedTuple):
    """One era (or revision) on one wire."""

    era: str
    transport: str

    @property
    def version(self) -> str:
        return {"modern": "2026-07-28", "legacy": "2025-11-25"}.get(self.era, self.era)

    @property
    def modern(self) -> bool:
        return self.era == "modern"


class Requirement(NamedTuple):
    id: str
    eras: tuple[str, ...]
    transports: tuple[str, ...]
    rule: str
    place: str

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(era, transport) for era in self.eras for transport in self.transports)


class NotOurs(NamedTuple):
    """A rule that this server does not claim, and why."""

    rule: str
    place: str
    reason: str


_R = Requirement

# fmt: off
SECTIONS: Final[Mapping[str, tuple[Requirement, ...]]] = MappingProxyType({
    "which era": (
        _R("era.stands-alone",          MODERN, ANY,   "a request whose _meta names a modern version is served by the stateless rules, whatever came before it", "2026-07-28 basic/versioning"),
        _R("era.initialize",            LEGACY, ANY,   "initialize opens the handshake era for its session or process", "2026-07-28 basic/versioning"),
        _R("era.side-by-side",          BOTH,   ANY,   "both eras may be used at once on one endpoint or pipe", "2026-07-28 basic/versioning"),
        _R("era.readable-refusal",      MODERN, WEB,   "every refusal of a modern request is a JSON-RPC error, so that no client takes us for a legacy server", "2026-07-28 basic/versioning, Backward Compatibility"),
        _R("era.probe-first",           MODERN, ANY,   "server/discover works before anything else was said", "2026-07-28 basic/transports/stdio, Backward Compatibility"),
        _R("era.initialize-any-header", LEGACY, WEB,   "initialize is answered whatever version its header names", "ours; 2026-07-28 basic/versioning"),
        _R("era.initialize-with-meta",  MODERN, ANY,   "initialize with modern _meta is a method that does not exist", "2026-07-28 basic/versioning"),
        _R("era.session-header",        MODERN, WEB,   "Mcp-Session-Id and Last-Event-ID mean nothing on a modern request, and no session id is given out", "2026-07-28 basic/transports/streamable-http, Backward Compatibility"),
        _R("era.before-handshake",      LEGACY, PIPE,  "a request before initialize is answered with an error at once, never with silence", "2026-07-28 basic/transports/stdio, Backward Compatibility"),
        _R("era.without-session",       LEGACY, WEB,   "a request without session and modern _meta is served by itself, in the revision of its header or 2025-03-26", "ours; 2025-11-25 basic/transports, Protocol Version Header"),
    ),
    "JSON-RPC": (
        _R("rpc.parse-error",           BOTH,   ANY,   "what is not JSON in UTF-8 is -32700, without an id (HTTP: 400)", "2026-07-28 basic/index, Error Codes"),
        _R("rpc.half-characters",       BOTH,   ANY,   "an escape for half a character is JSON, and taken as U+FFFD", "ours, after RFC 8259 §8.2"),
        _R("rpc.invalid-request",       BOTH,   ANY,   "JSON that is no message is -32600, with the id if it could be read (HTTP: 400)", "2026-07-28 basic/index, Error Codes"),
        _R("rpc.id-type",               BOTH,   ANY,   "an id is a string or an integer, never null", "2026-07-28 basic/index, Requests"),
        _R("rpc.id-echo",               BOTH,   ANY,   "an answer has the id of its request, with its type", "2026-07-28 basic/index, Responses"),
        _R("rpc.id-in-use",             BOTH,   PIPE,  "an id that is in use is not taken for a second request", "2026-07-28 basic/index, Requests"),
        _R("rpc.id-in-use-session",     LEGACY, WEB,   "an id that is in use in its session is not taken for a second request", "2025-11-25 basic/index, Requests"),
        _R("rpc.own-ids",               LEGACY, ANY,   "each of our own requests has an id of its own", "2025-11-25 basic/index, Requests"),
        _R("rpc.notification",          BOTH,   ANY,   "a notification is never answered", "2026-07-28 basic/index, Notifications"),
        _R("rpc.no-client-responses",   MODERN, WEB,   "a response sent by a client is refused with 400", "2026-07-28 basic/transports/streamable-http, Sending Messages"),
        _R("rpc.no-server-requests",    MODERN, ANY,   "the server never sends a request", "2026-07-28 basic/index, Messages"),
        _R("rpc.no-batches",            (*MODERN, *R2024_11, *R2025_06, *R2025_11), ANY, "an array is refused (-32600; HTTP: 400)", "2025-06-18 changelog; 2026-07-28 basic/transports/streamable-http"),
        _R("rpc.batches",               R2025_03, ANY, "an array of requests is answered with an array, one answer for each", "2025-03-26 basic/index, Batching"),
        _R("rpc.batch-taken",           R2025_03, ANY, "an array without requests is taken without an answer", "2025-03-26 basic/transports, Sending Messages to the Server"),
        _R("rpc.batch-empty",           R2025_03, ANY, "an empty array, and one of more than 32 messages, is -32600", "2025-03-26 basic/index, Batching; ours"),
        _R("rpc.batch-initialize",      R2025_03, ANY, "initialize is never part of a batch", "2025-03-26 basic/lifecycle, Initialization"),
        _R("rpc.batch-gone",            R2025_03, WEB, "a batch in a session that is gone is 404", "2025-03-26 basic/transports, Session Management"),
        _R("rpc.codes",                 MODERN, ANY,   "-32002 and -32042 are never sent, and own codes lie outside -32768…-32000", "2026-07-28 basic/index, Error Codes"),
        _R("rpc.author-codes",          BOTH,   ANY,   "an author's error code from the reserved range is not sent as such", "2026-07-28 basic/index, Error Codes"),
        _R("rpc.unknown-meta",          BOTH,   ANY,   "unknown _meta keys and unknown fields are ignored", "2026-07-28 basic/index, _meta"),
        _R("rpc.own-meta",              BOTH,   ANY,   "_meta keys of our own have a prefix of our own", "2026-07-28 basic/index, _meta"),
        _R("rpc.schema-dialect",        BOTH,   ANY,   "schemas are JSON Schema 2020-12 unless $schema says otherwise; one that cannot be used is refused by name", "2026-07-28 basic/index, JSON Schema Usage"),
        _R("rpc.schema-ref",            BOTH,   ANY,   "a $ref is never fetched, and one that leads outside is refused", "2026-07-28 basic/index, JSON Schema Usage"),
        _R("rpc.schema-bounds",         BOTH,   ANY,   "the size of a schema is bounded", "2026-07-28 basic/index, JSON Schema Usage"),
        _R("rpc.stateless",             MODERN, ANY,   "nothing is taken over from an earlier request of the connection: not version, capabilities or identity", "2026-07-28 basic/index, Statelessness"),
    ),
    "HTTP": (
        _R("http.one-path",             BOTH,   WEB,   "one path takes POST, and it does not redirect to itself with a slash", "2026-07-28 basic/transports/streamable-http; ours"),
        _R("http.origin",               BOTH,   WEB,   "an Origin that is not allowed is 403, on every verb; none at all is allowed", "2026-07-28 basic/transports/streamable-http, Security"),
        _R("http.host",                 BOTH,   WEB,   "a Host that is not ours is refused", "2026-07-28 tutorials/security, DNS Rebinding"),
        _R("http.notification",         BOTH,   WEB,   "a notification is taken with 202 and no body", "2026-07-28 basic/transports/streamable-http, Sending Messages"),
        _R("http.response",             LEGACY, WEB,   "a response is taken with 202 and no body", "2025-11-25 basic/transports, Sending Messages to the Server"),
        _R("http.json-or-stream",       BOTH,   WEB,   "a request is answered with JSON or an event stream: JSON unless something is said before the answer", "2026-07-28 basic/transports/streamable-http, Sending Messages; ours"),
        _R("http.stream-content",       BOTH,   WEB,   "a stream has what belongs to its request, then the answer, and then it ends", "2026-07-28 basic/transports/streamable-http, Receiving Messages"),
        _R("http.no-event-ids",         MODERN, WEB,   "events of a modern stream have no ids", "2026-07-28 basic/transports/streamable-http"),
        _R("http.stream-headers",       BOTH,   WEB,   "streams say X-Accel-Buffering: no, and that nobody may keep or change them", "2026-07-28 basic/transports/streamable-http"),
        _R("http.keep-alive",           BOTH,   WEB,   "a stream that is silent shows signs of life", "2026-07-28 basic/transports/streamable-http; ours"),
        _R("http.disconnect-cancels",   MODERN, WEB,   "closing its stream cancels a request: the work stops, and nothing more is sent for it", "2026-07-28 basic/patterns/cancellation"),
        _R("http.disconnect-continues", LEGACY, WEB,   "closing a stream cancels nothing", "2025-11-25 basic/transports, Sending Messages to the Server"),
        _R("http.no-other-verbs",       MODERN, WEB,   "GET, DELETE and the rest are 405 with Allow", "2026-07-28 basic/transports/streamable-http"),
        _R("http.version-header",       MODERN, WEB,   "MCP-Protocol-Version is required and is the version in _meta; else 400 and -32020", "2026-07-28 basic/transports/streamable-http, Protocol Version Header"),
        _R("http.handler-errors",       BOTH,   WEB,   "an error of what was asked for, in a request that is well formed, has HTTP status 200", "ours; 2026-07-28 basic/transports/streamable-http"),
        _R("http.error-in-stream",      BOTH,   WEB,   "once a stream is open, an error travels in it", "2026-07-28 basic/transports/streamable-http"),
        _R("http.accept",               BOTH,   WEB,   "who takes only JSON gets JSON, who takes only streams gets one event, who takes neither 406", "ours; 2026-07-28 basic/transports/streamable-http, Sending Messages"),
        _R("http.content-type",         BOTH,   WEB,   "a body that does not call itself JSON is 415", "ours; 2026-07-28 basic/transports/streamable-http"),
        _R("http.version-on-answers",   BOTH,   WEB,   "every answer names the protocol version", "ours"),
        _R("http.fault",                BOTH,   WEB,   "a fault of the server itself is 500, with the request's id", "ours"),
    ),
    "metadata and results": (
        _R("meta.required",             MODERN, ANY,   "a request without protocolVersion or clientCapabilities, or with malformed ones, is -32602 (HTTP: 400)", "2026-07-28 basic/index, _meta"),
        _R("meta.client-info",          MODERN, ANY,   "clientInfo may be missing, and nothing depends on it", "2026-07-28 basic/index, _meta"),
        _R("meta.version",              MODERN, ANY,   "a version that we do not have is -32022 with supported and requested (HTTP: 400)", "2026-07-28 basic/versioning, Unsupported Versions"),
        _R("meta.unknown-method",       MODERN, ANY,   "an unknown method is -32601 (HTTP: 404), and so is one that only the handshake era has", "2026-07-28 basic/transports/streamable-http"),
        _R("meta.missing-capability",   MODERN, ANY,   "what needs an undeclared capability is -32021 (HTTP: 400) with a requiredCapabilities object", "2026-07-28 basic/index, Capabilities"),
        _R("meta.plain-elicitation",    BOTH,   ANY,   "elicitation: {} declares forms only", "2026-07-28 client/elicitation, Capabilities"),
        _R("meta.result-type",          MODERN, ANY,   "every result has a resultType that the client knows", "2026-07-28 basic/index, Responses"),
        _R("meta.server-info",          MODERN, ANY,   "every result says who sent it", "2026-07-28 basic/index, _meta"),
        _R("meta.errors-plain",         MODERN, ANY,   "an error has no resultType", "2026-07-28 basic/index, Responses"),
        _R("meta.legacy-clean",         LEGACY, ANY,   "no modern field is on a result of the handshake era: ping is exactly {}", "2025-11-25 basic/utilities/ping"),
        _R("meta.internal-error",       BOTH,   ANY,   "an internal error tells nothing of our insides", "2026-07-28 basic/index, Error Codes"),
    ),
    "headers that repeat the body": (
        _R("headers.method",            MODERN, WEB,   "Mcp-Method is required and is the body's method; else 400 and -32020", "2026-07-28 basic/transports/streamable-http, Request Metadata"),
        _R("headers.name",              MODERN, WEB,   "Mcp-Name is required for tools/call, prompts/get and resources/read, and is the name or URI; else 400 and -32020", "2026-07-28 basic/transports/streamable-http, Request Metadata"),
        _R("headers.task-name",         MODERN, WEB,   "Mcp-Name is the task's id for tasks/get, tasks/update and tasks/cancel", "ext-tasks, Streamable HTTP"),
        _R("headers.case",              MODERN, WEB,   "header names are compared without, values with their case", "2026-07-28 basic/transports/streamable-http, Request Metadata"),
        _R("headers.space",             MODERN, WEB,   "space around a value is not part of it", "2026-07-28 basic/transports/streamable-http, Request Metadata"),
        _R("headers.base64",            MODERN, WEB,   "a name in the Base64 form is decoded before it is compared; a malformed one is a mismatch", "2026-07-28 basic/transports/streamable-http, Value Encoding"),
        _R("headers.characters",        MODERN, WEB,   "a recognised header with control or non-ASCII characters is refused", "2026-07-28 basic/transports/streamable-http, Value Encoding"),
        _R("headers.body-counts",       MODERN, WEB,   "what runs is what the body says", "2026-07-28 basic/transports/streamable-http, Request Metadata"),
        _R("headers.mirror-schema",     MODERN, ANY,   "an x-mcp-header that clients would drop the tool for is refused when the tool is registered", "2026-07-28 server/tools, x-mcp-header"),
        _R("headers.mirror",            MODERN, WEB,   "an argument with x-mcp-header and its header say the same, numbers as numbers; else 400 and -32020", "2026-07-28 server/tools, x-mcp-header"),
        _R("headers.mirror-elsewhere",  MODERN, PIPE,  "where there are no headers, none is missing", "2026-07-28 server/tools, x-mcp-header"),
        _R("headers.legacy",            LEGACY, WEB,   "requests of the handshake era are not held to such headers", "2026-07-28 basic/transports/streamable-http, Request Metadata"),
    ),
    "discovery": (
        _R("discover.fields",           MODERN, ANY,   "server/discover names versions, capabilities, how long that holds, and who we are", "2026-07-28 server/discover"),
        _R("discover.versions",         MODERN, ANY,   "the versions of -32022 are those of discover: modern ones only", "2026-07-28 server/discover; ours"),
        _R("discover.declared-works",   BOTH,   ANY,   "what is declared works, and what is not there is not declared", "2026-07-28 basic/index, Capabilities"),
        _R("discover.not-offered",      MODERN, ANY,   "a feature that is not offered is -32601 (HTTP: 404)", "2026-07-28 basic/index, Error Codes"),
        _R("discover.empty-lists",      LEGACY, ANY,   "lists of what was never declared are empty, not errors", "ours"),
        _R("discover.logging",          BOTH,   ANY,   "logging is declared wherever log messages may be sent", "2026-07-28 server/utilities/logging, Capabilities"),
        _R("discover.no-core-tasks",    MODERN, ANY,   "tasks are an extension, and no capability of the core", "2026-07-28 changelog; ext-tasks, Capabilities"),
    ),
    "subscriptions": (
        _R("listen.filter",             MODERN, ANY,   "a subscription without notifications is -32602", "2026-07-28 basic/patterns/subscriptions, Request"),
        _R("listen.acknowledged",       MODERN, ANY,   "the acknowledgement is the first message of a subscription", "2026-07-28 basic/patterns/subscriptions, Acknowledgement"),
        _R("listen.honoured",           MODERN, ANY,   "the acknowledgement leaves out what is not supported", "2026-07-28 basic/patterns/subscriptions, Acknowledgement"),
        _R("listen.only-asked",         MODERN, ANY,   "a kind of notification that was not asked for is not sent", "2026-07-28 basic/patterns/subscriptions, Notifications"),
        _R("listen.only-readable",      MODERN, ANY,   "a resource that the caller may not read is not watched", "2026-07-28 basic/patterns/subscriptions, Security"),
        _R("listen.id",                 MODERN, ANY,   "every message of it carries the listen request's id with its type", "2026-07-28 basic/patterns/subscriptions, Notifications"),
        _R("listen.several",            MODERN, ANY,   "several subscriptions of one client each get their own copy", "2026-07-28 basic/patterns/subscriptions"),
        _R("listen.updated",            MODERN, ANY,   "a resource that is watched is told of by its URI when it changes", "2026-07-28 server/resources, Subscriptions"),
        _R("listen.nothing-lost",       MODERN, ANY,   "what changes the moment the acknowledgement is read is told", "2026-07-28 basic/patterns/subscriptions, Acknowledgement"),
        _R("listen.not-of-calls",       MODERN, ANY,   "progress and log messages never travel on it", "2026-07-28 basic/patterns/subscriptions, Notifications"),
        _R("listen.server-ends",        MODERN, ANY,   "when the server ends it, its result comes last", "2026-07-28 basic/patterns/subscriptions, Termination"),
        _R("listen.server-ends-pipe",   MODERN, PIPE,  "after the result, notifications/cancelled with its id", "2026-07-28 basic/patterns/cancellation; ours"),
        _R("listen.client-ends",        MODERN, ANY,   "a client ends it by leaving, or on a pipe with notifications/cancelled", "2026-07-28 basic/patterns/subscriptions, Termination"),
        _R("listen.bounds",             MODERN, ANY,   "subscriptions, and what each names and holds, are bounded", "2026-07-28 tutorials/security; ours"),
        _R("listen.still-allowed",      MODERN, WEB,   "a subscription ends when its token does", "2026-07-28 basic/authorization/security-considerations; ours"),
    ),
    "asking": (
        _R("ask.methods",               MODERN, ANY,   "input_required answers tools/call, prompts/get and resources/read, and nothing else", "2026-07-28 basic/patterns/mrtr, Supported Requests"),
        _R("ask.shape",                 MODERN, ANY,   "input_required has inputRequests by key, each with method and params, and a requestState", "2026-07-28 basic/patterns/mrtr, Server Requirements"),
        _R("ask.only-declared",         BOTH,   ANY,   "nothing is asked that the client did not declare", "2026-07-28 basic/patterns/mrtr, Server Requirements"),
        _R("ask.retry",                 MODERN, ANY,   "the request sent again under a new id, with answers and state, goes on", "2026-07-28 basic/patterns/mrtr, Client Requirements"),
        _R("ask.any-instance",          MODERN, ANY,   "the retry may come to another instance", "2026-07-28 basic/patterns/mrtr, Server Requirements"),
        _R("ask.integrity",             MODERN, ANY,   "a requestState that was tampered with is an error", "2026-07-28 basic/patterns/mrtr, Security"),
        _R("ask.binding",               MODERN, ANY,   "a requestState is good for its caller, method and parameters alone", "2026-07-28 basic/patterns/mrtr, Security"),
        _R("ask.expiry",                MODERN, ANY,   "a requestState expires", "2026-07-28 basic/patterns/mrtr, Security"),
        _R("ask.missing-answer",        MODERN, ANY,   "an answer that is missing is asked for again", "2026-07-28 basic/patterns/mrtr, Server Requirements"),
        _R("ask.unknown-keys",          MODERN, ANY,   "answers to what was not asked are ignored", "2026-07-28 basic/patterns/mrtr, Server Requirements"),
        _R("ask.malformed-answer",      MODERN, ANY,   "a malformed answer does not complete the request", "2026-07-28 basic/patterns/mrtr, Server Requirements"),
        _R("ask.no-caching",            MODERN, ANY,   "input_required has no caching hints, and a result after it may not be kept", "2026-07-28 server/utilities/caching"),
        _R("ask.content",               BOTH,   ANY,   "the content of an answer is held against the schema that was asked for", "2026-07-28 client/elicitation, Security"),
        _R("ask.declined",              BOTH,   ANY,   "the tool learns that a person declined or cancelled", "2026-07-28 client/elicitation, Response Actions"),
        _R("ask.form",                  BOTH,   ANY,   "a form is a flat object of primitive fields", "2026-07-28 client/elicitation, Requested Schema"),
        _R("ask.url",                   BOTH,   ANY,   "a page to open has a valid web address without credentials", "2026-07-28 client/elicitation, URL Mode"),
        _R("ask.words",                 BOTH,   ANY,   "a question is put in the words of the revision: no elicitationId in the modern one", "2026-07-28 client/elicitation; 2025-11-25 client/elicitation"),
        _R("ask.identity",              BOTH,   ANY,   "an answer counts from the caller and client that were asked", "2026-07-28 client/elicitation, Security"),
        _R("ask.tool-loop",             BOTH,   ANY,   "messages to a model answer each tool use with a message of only tool results", "2026-07-28 client/sampling, Tool Use"),
        _R("ask.own-stream",            LEGACY, ANY,   "a question is a request on the stream of the call that asks it, and on no other", "2025-11-25 basic/transports, Sending Messages to the Server"),
        _R("ask.withdrawn",             LEGACY, ANY,   "a question whose call was cancelled is taken back", "2025-11-25 basic/utilities/cancellation"),
    ),
    "caching and pages": (
        _R("cache.hints",               MODERN, ANY,   "discovery, lists and what is read carry ttlMs and cacheScope", "2026-07-28 server/utilities/caching"),
        _R("cache.private",             MODERN, ANY,   "what depends on who asks is private, the same on every page", "2026-07-28 server/utilities/caching, Security"),
        _R("list.same-for-all",         BOTH,   ANY,   "lists come in one order and do not depend on the connection", "2026-07-28 server/tools, Listing Tools"),
        _R("page.walk",                 BOTH,   ANY,   "cursors lead through the whole list, and the last page has none", "2026-07-28 server/utilities/pagination"),
        _R("page.invalid",              BOTH,   ANY,   "a cursor that was not given out for the list is -32602, the empty one too", "2026-07-28 server/utilities/pagination, Error Handling"),
        _R("page.stable",               BOTH,   ANY,   "a list that changes between pages loses nothing that stays", "2026-07-28 server/utilities/pagination"),
    ),
    "progress, cancellation, logs, completion": (
        _R("progress.wanted",           BOTH,   ANY,   "progress is sent only to a token, which is repeated exactly; 0 is one", "2026-07-28 basic/patterns/progress"),
        _R("progress.rises",            BOTH,   ANY,   "progress strictly rises, and is not sent faster than anybody can look", "2026-07-28 basic/patterns/progress"),
        _R("progress.newest",           BOTH,   ANY,   "the newest progress is always told, at the latest before a question or the answer; pieces of a text all are", "ours; 2026-07-28 basic/patterns/progress"),
        _R("progress.own-stream",       BOTH,   WEB,   "progress comes on the stream of its request", "2026-07-28 basic/patterns/progress"),
        _R("progress.stops",            BOTH,   ANY,   "there is none after the answer", "2026-07-28 basic/patterns/progress"),
        _R("cancel.pipe",               BOTH,   PIPE,  "notifications/cancelled stops the request, which is not answered", "2026-07-28 basic/patterns/cancellation"),
        _R("cancel.session",            LEGACY, WEB,   "notifications/cancelled in the session stops the request, which is not answered", "2025-11-25 basic/utilities/cancellation"),
        _R("cancel.nothing",            BOTH,   ANY,   "cancelling what does not run, and junk, is ignored", "2026-07-28 basic/patterns/cancellation"),
        _R("cancel.initialize",         LEGACY, ANY,   "initialize cannot be cancelled", "2025-11-25 basic/utilities/cancellation"),
        _R("cancel.not-ours",           MODERN, ANY,   "the server sends notifications/cancelled for subscriptions alone", "2026-07-28 basic/patterns/cancellation"),
        _R("timeout.calls",             BOTH,   ANY,   "a call has a deadline, whatever progress it makes", "2026-07-28 basic/patterns/cancellation, Timeouts"),
        _R("log.wanted",                MODERN, ANY,   "log messages are sent only to a request with logLevel, from that level on", "2026-07-28 server/utilities/logging"),
        _R("log.unknown-level",         MODERN, ANY,   "an unknown level is -32602", "2026-07-28 server/utilities/logging"),
        _R("log.set-level",             LEGACY, ANY,   "logging/setLevel holds for its session and is answered with {}; an unknown level is -32602", "2025-11-25 server/utilities/logging"),
        _R("complete.values",           BOTH,   ANY,   "a completion has at most 100 values, and says if there are more", "2026-07-28 server/utilities/completion"),
        _R("complete.unknown",          BOTH,   ANY,   "completing an argument of what does not exist is -32602", "2026-07-28 server/utilities/completion, Error Handling"),
        _R("complete.context",          BOTH,   ANY,   "arguments that are settled are known to the completion", "2026-07-28 server/utilities/completion"),
        _R("complete.hidden",           BOTH,   ANY,   "what the caller may not know of is not completed either", "2026-07-28 server/utilities/completion, Security"),
        _R("complete.capability",       (*MODERN, *R2025_03, *R2025_11), ANY, "completions is declared where the revision has that", "2025-03-26 changelog"),
        _R("complete.no-capability",    R2024_11, ANY, "completion works without being declared, as it did before there was a capability", "2024-11-05 server/utilities/completion"),
    ),
    "tools": (
        _R("tools.schema",              BOTH,   ANY,   "a tool's schemas are valid, and that of its arguments is an object", "2026-07-28 server/tools, Tool"),
        _R("tools.name",                BOTH,   ANY,   "a tool's name has 1 to 128 of A-Z a-z 0-9 _ . - and is the only one of that name", "2026-07-28 server/tools, Tool Names"),
        _R("tools.fields",              EACH,   ANY,   "a tool is listed with the fields that the revision has", "2026-07-28 server/tools; 2025-11-25 server/tools; 2025-03-26 server/tools"),
        _R("tools.structured",          BOTH,   ANY,   "structured content is sent where the revision has its kind; the text says the same", "2026-07-28 server/tools, Structured Content; 2025-06-18 server/tools"),
        _R("tools.structured-older",    (*R2024_11, *R2025_03), ANY, "before 2025-06-18 the text alone carries it", "2025-03-26 server/tools"),
        _R("tools.output",              BOTH,   ANY,   "an answer conforms to its outputSchema, or is an error of ours", "2026-07-28 server/tools, Output Schema"),
        _R("tools.content",             EACH,   ANY,   "kinds of content that a revision lacks are said in text", "2025-03-26 server/tools; 2025-06-18 server/tools"),
        _R("tools.blocks",              BOTH,   ANY,   "blocks of content have the fields of the schema", "2026-07-28 server/tools, Tool Result"),
        _R("tools.unknown",             BOTH,   ANY,   "an unknown tool is -32602", "2026-07-28 server/tools, Error Handling"),
        _R("tools.malformed",           BOTH,   ANY,   "a request that is no tools/call is -32602", "2026-07-28 server/tools, Error Handling"),
        _R("tools.arguments",           BOTH,   ANY,   "wrong arguments are a result with isError that names each, in every revision", "2026-07-28 server/tools, Error Handling; ours"),
        _R("tools.failure",             BOTH,   ANY,   "a tool's own failure is a result with isError", "2026-07-28 server/tools, Error Handling"),
        _R("tools.hidden",              BOTH,   ANY,   "a tool that the caller may not know of is not listed, and answers as one that is unknown", "2026-07-28 server/tools, Security; ours"),
        _R("tools.scope",               BOTH,   WEB,   "a tool that needs a scope which could be granted is listed, and 403 with the challenge", "2026-07-28 basic/authorization, Scope Challenge Handling; ours"),
        _R("tools.changed",             BOTH,   ANY,   "who can hear of it is told that the list has changed", "2026-07-28 server/tools, List Changed Notification"),
    ),
    "resources and prompts": (
        _R("resources.read",            BOTH,   ANY,   "what is read has its URI, and text or Base64", "2026-07-28 server/resources, Reading Resources"),
        _R("resources.missing",         BOTH,   ANY,   "a resource that is not there is an error with its URI: -32602, in the handshake era -32002", "2026-07-28 server/resources, Error Handling; 2025-11-25 server/resources"),
        _R("resources.never-empty",     BOTH,   ANY,   "a missing resource is never shown as one without contents", "2026-07-28 server/resources, Error Handling"),
        _R("resources.templates",       BOTH,   ANY,   "templates are RFC 6570's, and what fits one can be read", "2026-07-28 server/resources, Resource Templates"),
        _R("resources.traversal",       BOTH,   ANY,   "a variable that could lead out of a directory fits no template", "2026-07-28 server/resources, Security"),
        _R("resources.subscribe",       LEGACY, ANY,   "resources/subscribe and unsubscribe are {}, and a change is told in between", "2025-11-25 server/resources, Subscriptions"),
        _R("resources.changed",         BOTH,   ANY,   "who can hear of it is told that the list of resources or prompts has changed", "2026-07-28 server/resources, List Changed Notification; server/prompts"),
        _R("resources.fields",          EACH,   ANY,   "resources, templates and prompts are listed with the fields that the revision has", "2025-06-18 changelog; 2025-11-25 changelog"),
        _R("prompts.get",               BOTH,   ANY,   "a prompt is messages, each with a role and content", "2026-07-28 server/prompts"),
        _R("prompts.unknown",           BOTH,   ANY,   "an unknown prompt is -32602", "2026-07-28 server/prompts, Error Handling"),
        _R("prompts.missing-argument",  BOTH,   ANY,   "a required argument that is missing is -32602", "2026-07-28 server/prompts, Error Handling"),
        _R("server.fields",             EACH,   ANY,   "we introduce ourselves with the fields that the revision has", "2025-06-18 changelog; 2025-11-25 changelog"),
    ),
    "pipes": (
        _R("stdio.lines",               BOTH,   PIPE,  "a message is a line of UTF-8 without line breaks in it, and stdout has nothing else", "2026-07-28 basic/transports/stdio"),
        _R("stdio.stdout",              BOTH,   PIPE,  "what an agent prints does not get among the messages", "2026-07-28 basic/transports/stdio"),
        _R("stdio.side-by-side",        BOTH,   PIPE,  "a request that takes long holds no other up", "2026-07-28 basic/transports/stdio"),
        _R("stdio.end",                 BOTH,   PIPE,  "when its input ends, what runs is finished and the server is done", "2026-07-28 basic/transports/stdio, Shutdown"),
        _R("stdio.no-login",            BOTH,   PIPE,  "who started the server may use it: no login is asked for", "2026-07-28 basic/authorization"),
    ),
    "the handshake era": (
        _R("legacy.echo",               (*R2024_11, *R2025_03, *R2025_06, *R2025_11), ANY, "the version that was asked for is echoed where it has a handshake", "2025-11-25 basic/lifecycle, Version Negotiation"),
        _R("legacy.counter",            LEGACY, ANY,   "any other, also a modern one, is countered with our latest that has", "2025-11-25 basic/lifecycle, Version Negotiation; ours"),
        _R("legacy.introduced",         LEGACY, ANY,   "initialize without its version, capabilities or clientInfo is -32602", "2025-11-25 basic/lifecycle, Initialization"),
        _R("legacy.nothing-said",       LEGACY, ANY,   "initialize that says nothing at all, as typed by hand, is answered with our latest that has a handshake", "ours"),
        _R("legacy.result",             LEGACY, ANY,   "initialize is answered with version, capabilities, who we are, and instructions", "2025-11-25 basic/lifecycle, Initialization"),
        _R("legacy.before-ready",       LEGACY, ANY,   "before notifications/initialized nothing but pings and log messages is sent", "2025-11-25 basic/lifecycle, Initialization"),
        _R("legacy.ping",               LEGACY, ANY,   "either side may ping the other at any time", "2025-11-25 basic/utilities/ping"),
        _R("legacy.version-header",     LEGACY, WEB,   "in a session the version header may be missing or name another that we know; one that names none is 400", "2025-11-25 basic/transports, Protocol Version Header; ours"),
        _R("legacy.unknown-method",     LEGACY, ANY,   "an unknown method is -32601 (HTTP: 200)", "2025-11-25 basic/index, Responses"),
        _R("legacy.listen",             LEGACY, WEB,   "GET opens the stream of what belongs to no request; no answer is sent on it", "2025-11-25 basic/transports, Listening for Messages from the Server"),
        _R("legacy.pushed",             LEGACY, PIPE,  "what belongs to no request comes by itself", "2025-11-25 basic/transports, stdio"),
        _R("legacy.one-stream",         LEGACY, WEB,   "each message is sent on one stream", "2025-11-25 basic/transports, Multiple Connections"),
        _R("legacy.two-streams",        LEGACY, WEB,   "a second GET is served", "2025-11-25 basic/transports, Multiple Connections; ours"),
        _R("legacy.no-idle-stream",     LEGACY, WEB,   "GET without a session is 405 at once, or 401 where a login is needed", "ours; 2025-11-25 basic/transports, Listening for Messages from the Server"),
        _R("session.given",             LEGACY, WEB,   "a session's id comes with the answer to initialize: visible ASCII that cannot be guessed", "2025-11-25 basic/transports, Session Management"),
        _R("session.only-initialize",   LEGACY, WEB,   "nothing but an initialize that succeeds begins a session", "2025-11-25 basic/transports, Session Management; ours"),
        _R("session.required",          LEGACY, WEB,   "where sessions are required, a request without one is 400", "2025-11-25 basic/transports, Session Management"),
        _R("session.gone",              LEGACY, WEB,   "a session that was ended or never was is 404, on every verb", "2025-11-25 basic/transports, Session Management"),
        _R("session.delete",            LEGACY, WEB,   "DELETE ends a session", "2025-11-25 basic/transports, Session Management"),
        _R("session.bound",             LEGACY, WEB,   "a session is its caller's: to others it does not exist", "2025-11-25 tutorials/security, Session Hijacking"),
        _R("session.bounds",            LEGACY, WEB,   "sessions are capped for each caller and in all, and put away when idle", "2025-11-25 tutorials/security; ours"),
        _R("session.resumed",           LEGACY, WEB,   "a session that its server no longer knows, and nobody ended, is taken up again when its caller names it", "2025-11-25 basic/transports, Session Management; ours"),
        _R("resume.ids",                R2025_11, WEB, "event ids are unique in the session and tell their stream", "2025-11-25 basic/transports, Resumability and Redelivery"),
        _R("resume.replay",             R2025_11, WEB, "GET with Last-Event-ID brings the rest of that stream, the answer too, and of no other", "2025-11-25 basic/transports, Resumability and Redelivery"),
        _R("resume.primed",             R2025_11, WEB, "a stream begins with an id and no data", "2025-11-25 basic/transports, Sending Messages to the Server"),
        _R("resume.retry",              R2025_11, WEB, "a stream that is closed early says when to come back", "2025-11-25 basic/transports, Sending Messages to the Server"),
        _R("resume.not-older",          (*R2025_03, *R2025_06), WEB, "older clients get no event without data, and keep their stream", "2025-06-18 basic/transports; ours"),
        _R("sse2024.endpoint",          R2024_11, WEB, "the first event of the old transport names where to post", "2024-11-05 basic/transports, HTTP with SSE"),
        _R("sse2024.messages",          R2024_11, WEB, "posts there are 202, and answers come on the stream", "2024-11-05 basic/transports, HTTP with SSE"),
        _R("sse2024.bound",             R2024_11, WEB, "the address is of use to its caller only", "2024-11-05 basic/transports, HTTP with SSE; ours"),
        _R("sse2024.origin",            R2024_11, WEB, "an Origin that is not allowed is 403 at both addresses", "2024-11-05 basic/transports, Security Warning"),
    ),
    "tasks of 2025-11-25": (
        _R("core-tasks.capability",     R2025_11, ANY, "tasks are declared with list, cancel and tools/call; no other revision has them", "2025-11-25 basic/utilities/tasks, Capabilities"),
        _R("core-tasks.undeclared",     (*R2025_06, *R2025_11), ANY, "where tasks are not declared, params.task means nothing", "2025-11-25 basic/utilities/tasks, Capability Negotiation"),
        _R("core-tasks.forbidden",      R2025_11, ANY, "a task of a tool that forbids it is -32601", "2025-11-25 basic/utilities/tasks, Tool-Level Negotiation"),
        _R("core-tasks.required",       R2025_11, ANY, "a plain call of a tool that requires a task is -32601", "2025-11-25 basic/utilities/tasks, Tool-Level Negotiation"),
        _R("core-tasks.created",        R2025_11, ANY, "a call as a task is answered at once with a task that is working", "2025-11-25 basic/utilities/tasks, Creating Tasks"),
        _R("core-tasks.arguments",      R2025_11, ANY, "wrong arguments of a call as a task, and a task field that is none, are -32602", "2025-11-25 basic/utilities/tasks, Error Handling; ours"),
        _R("core-tasks.fields",         R2025_11, ANY, "a task has its times in ISO 8601 and its actual ttl", "2025-11-25 basic/utilities/tasks, Task"),
        _R("core-tasks.plain",          R2025_11, ANY, "tasks/get, tasks/list and tasks/cancel name no related task", "2025-11-25 basic/utilities/tasks, Associating Task-Related Messages"),
        _R("core-tasks.result",         R2025_11, ANY, "tasks/result waits, and answers what the call would have, its error too, with related-task", "2025-11-25 basic/utilities/tasks, Retrieving Task Results"),
        _R("core-tasks.failed",         R2025_11, ANY, "a result with isError makes the task failed", "2025-11-25 basic/utilities/tasks, Task Status"),
        _R("core-tasks.terminal",       R2025_11, ANY, "a task that has ended never changes again", "2025-11-25 basic/utilities/tasks, Task Status"),
        _R("core-tasks.cancel",         R2025_11, ANY, "tasks/cancel answers with the cancelled task; one that has ended is -32602", "2025-11-25 basic/utilities/tasks, Cancelling Tasks"),
        _R("core-tasks.list",           R2025_11, ANY, "tasks/list has pages of the caller's own tasks", "2025-11-25 basic/utilities/tasks, Listing Tasks"),
        _R("core-tasks.no-list",        R2025_11, WEB, "callers who cannot be told apart have no list", "2025-11-25 basic/utilities/tasks, Security"),
        _R("core-tasks.unknown",        R2025_11, ANY, "an unknown task, and a bad cursor, is -32602", "2025-11-25 basic/utilities/tasks, Error Handling"),
        _R("core-tasks.asks",           R2025_11, ANY, "a task's question comes with tasks/result and names the task", "2025-11-25 basic/utilities/tasks, Input Required"),
        _R("core-tasks.bound",          R2025_11, WEB, "a task is its owner's: to others it is unknown", "2025-11-25 basic/utilities/tasks, Security"),
        _R("tasks.bounds",              (*MODERN, *R2025_11), ANY, "tasks for each owner and in all, their time to live and what they keep are bounded", "2025-11-25 basic/utilities/tasks, Security"),
        _R("tasks.ids",                 (*MODERN, *R2025_11), ANY, "a task's id is ours and cannot be guessed", "2025-11-25 basic/utilities/tasks, Security; ext-tasks, Security"),
    ),
    "tasks as an extension": (
        _R("tasks.declared",            MODERN, ANY,   "the extension is declared where a tool may be a task", "ext-tasks, Capabilities"),
        _R("tasks.each-request",        MODERN, ANY,   "a request that does not declare it gets no task: it waits, or if it cannot, -32021", "ext-tasks, Capabilities"),
        _R("tasks.param-ignored",       MODERN, ANY,   "params.task means nothing", "ext-tasks, Migration"),
        _R("tasks.created",             MODERN, ANY,   "a task is flat, resultType task, with none of what it asks or answers, and is known at once", "ext-tasks, Creating Tasks"),
        _R("tasks.rounds-first",        MODERN, ANY,   "what is asked before a call becomes a task is asked with input_required", "ext-tasks, Multi Round-Trip Requests"),
        _R("tasks.get",                 MODERN, ANY,   "tasks/get is complete, and has what the state has: inputRequests, result or error", "ext-tasks, tasks/get"),
        _R("tasks.is-error",            MODERN, ANY,   "a result with isError is completed", "ext-tasks, Task Status"),
        _R("tasks.update",              MODERN, ANY,   "tasks/update is acknowledged, takes some answers and ignores others", "ext-tasks, tasks/update"),
        _R("tasks.keys",                MODERN, ANY,   "a key names one question for the whole life of a task", "ext-tasks, Input Required"),
        _R("tasks.cancel",              MODERN, ANY,   "tasks/cancel is acknowledged, also when it comes too late", "ext-tasks, tasks/cancel"),
        _R("tasks.not-by-notification", MODERN, ANY,   "cancelling the request of a call does not touch the task that it became", "ext-tasks, tasks/cancel"),
        _R("tasks.no-others",           MODERN, ANY,   "tasks/list and tasks/result do not exist", "ext-tasks, Migration"),
        _R("tasks.unknown",             MODERN, ANY,   "an unknown task is -32602", "ext-tasks, Error Handling"),
        _R("tasks.needs-extension",     MODERN, ANY,   "without the extension on the request its methods, and taskIds, are -32021", "ext-tasks, Capabilities"),
        _R("tasks.told",                MODERN, ANY,   "a subscription with taskIds names those that are honoured, and is told of the whole task", "ext-tasks, Notifications"),
        _R("tasks.silent",              MODERN, ANY,   "no progress and no log messages are sent for a task", "ext-tasks, Notifications"),
        _R("tasks.durable",             MODERN, ANY,   "a task is kept before its id is told, and survives a restart", "ext-tasks, Creating Tasks"),
        _R("tasks.bound",               MODERN, WEB,   "a task is its owner's: to others it is unknown", "ext-tasks, Security"),
    ),
    "switches for old clients": (
        _R("compat.batches",            (*R2024_11, *R2025_06, *R2025_11), ANY, "a server may be told to take arrays in every revision of the handshake era", "ours"),
        _R("compat.no-modern-batches",  MODERN, ANY,   "but never in the modern one", "2025-06-18 changelog; ours"),
        _R("compat.arguments",          BOTH,   ANY,   "a server may be told to refuse wrong arguments with -32602", "2025-06-18 server/tools, Error Handling; ours"),
        _R("compat.tasks",              LEGACY, ANY,   "a server may be told to speak another dialect of tasks, and then speaks that one alone", "ours"),
        _R("compat.tasks-modern",       MODERN, ANY,   "the modern era has its extension whatever the dialect is", "ours"),
    ),
    "authorization": (
        _R("auth.every-request",        BOTH,   WEB,   "every request of any verb needs its token", "2026-07-28 basic/authorization, Token Requirements"),
        _R("auth.challenge",            BOTH,   WEB,   "without a good token 401, with a challenge that leads to the metadata; an error in it only if one was sent", "2026-07-28 basic/authorization, Authorization Server Location"),
        _R("auth.metadata",             BOTH,   WEB,   "the resource's metadata names it as it was typed, with its authorization server", "2026-07-28 basic/authorization; RFC 9728"),
        _R("auth.audience",             BOTH,   WEB,   "a token for another resource, of another issuer, or out of time is refused", "2026-07-28 basic/authorization, Token Handling"),
        _R("auth.no-query",             BOTH,   WEB,   "a token in the query is not looked at", "2026-07-28 basic/authorization, Token Requirements"),
        _R("auth.scopes",               BOTH,   WEB,   "403 names all scopes that are needed, in one challenge", "2026-07-28 basic/authorization, Scope Challenge Handling"),
        _R("auth.hierarchy",            BOTH,   WEB,   "a broader scope implies a narrower one", "2026-07-28 basic/authorization, Scope Challenge Handling"),
        _R("auth.no-passthrough",       BOTH,   WEB,   "no token is passed on to what answers a call", "2026-07-28 basic/authorization/security-considerations"),
        _R("auth.cors",                 BOTH,   WEB,   "browsers may send and read the protocol's headers, and a preflight needs no token", "ours; 2026-07-28 basic/transports/streamable-http"),
    ),
    "safety": (
        _R("safety.loopback",           BOTH,   WEB,   "the server listens on loopback unless told otherwise, and then wants https and a login", "2026-07-28 basic/transports/streamable-http, Security"),
        _R("safety.body",               BOTH,   ANY,   "the size of a message is bounded", "2026-07-28 tutorials/security; ours"),
        _R("safety.head",               BOTH,   WEB,   "the size of a request's head is bounded", "2026-07-28 tutorials/security; ours"),
        _R("safety.nesting",            BOTH,   ANY,   "no depth of nesting, and no junk, is too much", "2026-07-28 tutorials/security; ours"),
        _R("safety.queues",             LEGACY, WEB,   "what is kept of streams is bounded", "2025-11-25 basic/transports, Resumability and Redelivery; ours"),
        _R("safety.no-secrets",         BOTH,   WEB,   "no secret is logged, shown or stored in clear", "2026-07-28 basic/authorization/security-considerations"),
        _R("safety.not-identity",       BOTH,   ANY,   "what a client calls itself decides nothing", "2026-07-28 basic/index, _meta"),
    ),
})
# fmt: on

REQUIREMENTS: Final[Mapping[str, Requirement]] = MappingProxyType(
    {row.id: row for rows in SECTIONS.values() for row in rows}
)


def claimed(requirement: str, *, era: str | None = None, transport: str | None = None) -> tuple[Cell, ...]:
    """The cells that a marker stands for: all that the row has, or those of one era, one wire, or both. None where the row has
    no such cell. Raises `KeyError`."""
    return tuple(
        cell
        for cell in REQUIREMENTS[requirement].cells
        if era in (None, cell.era) and transport in (None, cell.transport)
    )


# fmt: off
NOT_OURS: Final = (
    NotOurs("a modern-only server names its versions in the refusal of initialize", "2026-07-28 basic/versioning", "both eras are served: initialize is answered"),
    NotOurs("cacheScope public", "2026-07-28 server/utilities/caching", "what is offered may depend on who asks, so nothing is shared"),
    NotOurs("resumable modern streams", "2026-07-28 basic/transports/streamable-http", "the revision has none"),
    NotOurs("-32042, URL elicitation required", "2025-11-25 client/elicitation", "a tool asks for a page with elicitation/create, which every client takes that could make use of the error"),
    NotOurs("notifications/elicitation/complete", "2025-11-25 client/elicitation", "MAY; the tool's own answer tells that it has gone on"),
    NotOurs("no secrets are asked for in a form; the opener of a page is who was asked", "2026-07-28 client/elicitation, Security", "the author's page and form: the documentation for authors says so"),
    NotOurs("tool results and prompts are sanitised", "2026-07-28 server/tools, Security", "what an agent answers is the agent's; it is passed on as it is, typed and within bounds"),
    NotOurs("https resources only where the client can fetch them itself; icons are https: or data:", "2026-07-28 server/resources; basic/index, Icons", "the author's choice of addresses: we fetch none"),
    NotOurs("rules for those who show icons, call tools or render results", "2026-07-28 basic/index, Icons", "rules for clients"),
    NotOurs("calls, completions and tasks are rate limited", "2026-07-28 server/tools, Security", "how much runs at once and how much is kept is bounded; how often one may call is not yet"),
    NotOurs("requestState is good for one use only where that matters", "2026-07-28 basic/patterns/mrtr, Security", "a call is run from its start in each round, so an effect that must happen once is the tool's to mark"),
    NotOurs("notifications/tasks/status", "2025-11-25 basic/utilities/tasks", "MAY; clients poll, or wait in tasks/result"),
    NotOurs("progress under the call's token for as long as the task lives", "2025-11-25 basic/utilities/tasks, Progress", "progress is optional: a task shows it as its statusMessage"),
    NotOurs("400 for a malformed authorization header", "2026-07-28 basic/authorization, Error Handling", "401 with the challenge, which tells more"),
    NotOurs("tasks of the client's (sampling and elicitation as tasks)", "2025-11-25 basic/utilities/tasks", "we never ask for one"),
    NotOurs("-32600 where a task is required", "2025-11-25 basic/utilities/tasks, Error Handling", "MAY; the tool's own rule, -32601, is stricter"),
    NotOurs("the audit log of task operations", "2025-11-25 basic/utilities/tasks, Security", "SHOULD; each call of a tool is logged, each poll of a task is not"),
    NotOurs("the old transport is not to be adopted", "2025-11-25 basic/transports, Backwards Compatibility", "a courtesy to old clients, off by default"),
    NotOurs("guarding what we fetch for others (metadata documents, logos)", "2026-07-28 tutorials/security, SSRF", "we fetch only what the configuration names"),
)
# fmt: on
