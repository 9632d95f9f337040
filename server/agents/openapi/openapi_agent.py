"""An HTTP API as tools: the document is read when the server starts, and each call is one request to the one address that it
has.

A request is sent once. Redirects are not followed, cookies not kept, and nothing that a caller says chooses where it goes. The
answers of an API are bounded, and told without our credentials.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import msgspec
import trio

from server.agents.base.agent_faults import TroubleWatch, wall_clock
from server.agents.base.backend import Announce, Millis, ToolCall, Trouble, Unreached
from server.agents.chat.chat_endpoint import REACH_SECONDS
from server.agents.openapi.api_answers import FieldPaths, failure_of, field_paths, result_of
from server.agents.openapi.api_credentials import AskToken, Credentials, Where, ask_token, same_name
from server.agents.openapi.api_requests import TARGET_CHARACTERS, PreparedRequest, Unsendable, prepare_request
from server.agents.openapi.api_schemas import SchemaWriter
from server.agents.openapi.openapi_document import DOCUMENT_BYTES, BadApi, read_document
from server.agents.openapi.openapi_settings import ClientGrant, OpenApiConfig
from server.agents.openapi.operation_tools import ApiTool, tool_of
from server.agents.openapi.operations import ApiOperation, LeftOut, read_operations
from server.lib.http_client.failures import DeadlinePassed, FetchFailed, NotConnected, Silent
from server.lib.http_client.fetch import Fetcher, header_line, url_problem
from server.lib.http_client.http_client import exchange_once
from server.lib.log.logger import Logger
from server.lib.secret import Secret
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult, failed_result
from server.settings.header_settings import read_headers
from server.settings.secret_reference import SecretUnreadable, read_secret

# Far more than a model can choose among; whoever has more of them selects.
MAX_TOOLS: Final = 1_000
READ_BYTES: Final = 4 * 1024 * 1024  # of an answer, before fields are left out of it
FETCH_SECONDS: Final = 30.0
TOLD: Final = 10
_ACCEPT: Final = "application/json, */*;q=0.5"


class OpenApiBackend:
    """A `Backend`, `Watched` and `Active`: it offers nothing until it runs."""

    def __init__(
        self,
        config: OpenApiConfig,
        *,
        headers: Mapping[str, Secret],
        given: Mapping[str, Secret],
        name: str,
        log: Logger,
        ask: AskToken = ask_token,
        clock: Callable[[], Millis] = wall_clock,
    ) -> None:
        """Take the settings. `given` are the credentials with their references read, `name` is for the log."""
        self._config = config
        self._headers = [(key, value.reveal()) for key, value in headers.items()]
        self._given = given
        self._name = name
        self._log = log
        self._ask = ask
        self._watch = TroubleWatch(clock)
        self._tools: Mapping[str, ApiTool] = {}
        self._schemes: Mapping[str, Sequence[str]] = {}
        self._fields: Mapping[str, FieldPaths] = {}
        self._fetcher: Fetcher | None = None
        self._credentials: Credentials | None = None
        self._base_path = "/"

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        """Read the document. Raises `BackendError` where it cannot be used, whose text continues a sentence about the document."""
        data = await self._document()
        try:
            await trio.to_thread.run_sync(self._open, data)
        except (BadApi, ValueError) as problem:
            raise BackendError(str(problem)) from problem
        task_status.started()

    def tools(self) -> Sequence[Tool]:
        return [each.tool for each in self._tools.values()]

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """Make one request. Raises `BackendError` where it could not be made."""
        offered = self._tools.get(call.tool)
        if offered is None:
            raise BackendError(f"the API has no tool {short_name(call.tool)}")
        deadline = trio.current_time() + self._config.deadline_seconds
        try:
            result = await self._exchange(offered, call, deadline)
            if result is None:  # a token of ours had ended, and the request was refused
                result = await self._exchange(offered, call, deadline, last=True)
        except Unsendable as problem:
            return failed_result(f"Invalid arguments.\n{problem}")
        except DeadlinePassed:
            self._watch.begins("it did not answer in time")
            return failed_result(
                f"The API did not answer within {self._config.deadline_seconds:g} s. It may have done what was asked."
            )
        except NotConnected as problem:
            self._watch.begins(f"it {problem}", unreached=True)
            raise Unreached(f"the API {problem}") from problem
        except FetchFailed as problem:
            self._watch.begins(f"it {problem}")
            return failed_result(f"The API {problem}. It may have done what was asked.")
        assert result is not None
        return result

    def trouble(self) -> Trouble | None:
        return self._watch.found

    async def reach(self) -> None:
        """Open a connection; nothing is sent."""
        if self._fetcher is None:
            return
        try:
            await self._fetcher.reach(deadline=trio.current_time() + REACH_SECONDS)
        except NotConnected as problem:
            self._watch.begins(f"it {problem}", unreached=True)
        except DeadlinePassed:
            self._watch.begins("it cannot be reached: nobody picked up in time", unreached=True)
        else:
            self._watch.reached()

    async def aclose(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.aclose()

    # ── one call ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _exchange(
        self, offered: ApiTool, call: ToolCall, deadline: float, *, last: bool = False
    ) -> ToolResult | None:
        """Make one request. Returns None where the API does not take the token any more, and there can be another."""
        operation = offered.operation
        request = prepare_request(operation, self._base_path, call.arguments)
        fetcher, credentials = self._fetcher, self._credentials
        assert fetcher is not None
        assert credentials is not None
        schemes = self._schemes[call.tool]
        _refuse_our_names(request, credentials.places(schemes))
        head = [("Accept", _ACCEPT), *self._headers, ("X-Request-Id", call.call_id)]
        query, cookies = list(request.query), list(request.cookies)
        ours = {name.lower() for name, _ in head}
        for each in await credentials.present(schemes):
            pair = f"{quote(each.name, safe='')}={quote(each.value.reveal(), safe='')}"
            if each.where == "header":
                head.append((each.name, each.value.reveal()))
                ours.add(each.name.lower())
            elif each.where == "query":
                query.append(pair)
            else:
                cookies.append(pair)
        # What a caller says never takes the place of what we say: tools have no such argument, and objects no such name.
        head += [(name, value) for name, value in request.headers if name.lower() not in ours]
        if cookies:
            head.append(("Cookie", "; ".join(cookies)))
        target = request.target + (f"?{'&'.join(query)}" if query else "")
        if len(target) > TARGET_CHARACTERS:
            raise Unsendable("these arguments make an address that is too long")
        try:
            written = fetcher.prepare(operation.method, head, target=target)
        except ValueError as problem:
            raise Unsendable(credentials.masked(str(problem))) from problem
        async with fetcher.open(written, request.body, deadline=deadline, limit=READ_BYTES) as answer:
            status, retry_after = answer.status, answer.header(b"retry-after")
            if status == 401 and schemes:
                self._watch.begins("it does not take our credential (401)")
            elif status < 500:
                self._watch.is_over()
            else:
                self._watch.begins(f"it answers {status}")
            if 200 <= status < 300:
                return self._result(offered, call, status, answer.media_type, await answer.read())
            said = await answer.beginning(16 * 1024)
        if status == 401 and not last and credentials.refused(schemes):
            return None
        return failure_of(status, retry_after, credentials.masked(said.decode("utf-8", "replace")))

    def _result(
        self, offered: ApiTool, call: ToolCall, status: int, media_type: str, body: bytes
    ) -> ToolResult:
        result = result_of(
            offered.operation,
            status,
            media_type,
            body,
            kept=self._fields.get(call.tool, ()),
            as_text=self._config.answers == "text",
            most=self._config.answer_kib * 1024,
            call_id=call.call_id,
        )
        try:
            if result.is_error or offered.schema.conforms(result.structured):
                return result
        except (ValueError, RecursionError):  # nested deeper than is looked
            pass
        return failed_result("The call was made, and its answer is not what the API's document promises.")

    # ── the document ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _document(self) -> bytes:
        """Return the document. Raises `BackendError`."""
        config = self._config
        data = await (self._fetched() if config.remote else trio.to_thread.run_sync(self._read))
        digest = hashlib.sha256(data).hexdigest()
        if config.sha256 and digest != config.sha256.lower():
            raise BackendError(f"is not the document that the settings mean: its sha256 is {digest}")
        return data

    def _read(self) -> bytes:
        path = Path(self._config.document).expanduser()
        try:
            with path.open("rb") as file:
                return file.read(DOCUMENT_BYTES + 1)
        except OSError as error:
            raise BackendError(f"cannot be read: {error.strerror}") from error

    async def _fetched(self) -> bytes:
        url = self._config.document
        try:
            answer = await exchange_once(
                "GET",
                url,
                headers={"Accept": "application/json, application/yaml, */*"},
                limit=DOCUMENT_BYTES,
                seconds=FETCH_SECONDS,
                ca_file=self._ca_file(),
            )
        except Silent:
            raise BackendError(f"did not answer within {FETCH_SECONDS:g} s") from None
        except FetchFailed as problem:
            raise BackendError(str(problem)) from problem
        if answer.status != 200:
            raise BackendError(f"answered {answer.status}, and no document")
        return answer.body

    def _ca_file(self) -> Path | None:
        return Path(self._config.ca_file).expanduser() if self._config.ca_file else None

    def _open(self, data: bytes) -> None:
        """Read the document, in a thread: a large one takes seconds. Raises `BadApi` and `ValueError`."""
        config = self._config
        document = read_document(data)
        base = config.base_url or document.base_url(config.document if config.remote else "")
        if not base or url_problem(base) is not None or "?" in base:
            raise BadApi(f"does not say at which address the API is ({base[:100] or 'none'}); set base_url")
        grants = {name: each for name, each in config.credentials.items() if isinstance(each, ClientGrant)}
        credentials = Credentials(document, self._given, grants, self._ask)
        operations, left_out = read_operations(
            document, prefix=config.prefix, include=config.include, exclude=config.exclude
        )
        if len(operations) > MAX_TOOLS:
            raise BadApi(
                f"has {len(operations)} operations, and {MAX_TOOLS} can be offered; select some with include"
            )
        arguments = SchemaWriter(document, "request")
        answers = SchemaWriter(document, "answer") if config.answers == "promised" else None
        left = list(left_out)
        tools: dict[str, ApiTool] = {}
        schemes: dict[str, Sequence[str]] = {}
        for operation in operations:
            what = f"{operation.method} {operation.path}"
            chosen = credentials.chosen(operation.security)
            if chosen is None:
                wanted = " or ".join(" and ".join(each) for each in operation.security)
                left.append(LeftOut(what, f"it needs a credential for {wanted[:200]}"))
                continue
            operation = self._without_ours(operation, credentials.places(chosen))
            try:
                tools[operation.tool] = tool_of(operation, arguments, answers)
            except BadApi as problem:
                left.append(LeftOut(what, str(problem)))
                continue
            schemes[operation.tool] = chosen
        self._tell(left, len(tools))
        if not tools:
            why = f": {left[0].operation}: {left[0].reason}" if left else ""
            raise BadApi(f"has no operation that can be offered{why}")
        if unknown := sorted(config.fields.keys() - tools.keys()):
            raise BadApi(f"has no tool {unknown[0]!r}, which fields names")
        self._fetcher = Fetcher(base, connections=config.max_connections, ca_file=self._ca_file())
        self._base_path = urlsplit(base).path or "/"
        self._credentials = credentials
        self._fields = {name: field_paths(paths) for name, paths in config.fields.items()}
        self._schemes, self._tools = schemes, tools

    def _without_ours(self, operation: ApiOperation, ours: frozenset[tuple[Where, str]]) -> ApiOperation:
        """Leave out the arguments that are named like a credential, or a header of the settings, that is sent with it."""
        places = ours | {("header", same_name(name)) for name, _ in self._headers}
        kept = tuple(
            each for each in operation.parameters if (each.place, same_name(each.name)) not in places
        )
        return msgspec.structs.replace(operation, parameters=kept)

    def _tell(self, left_out: Sequence[LeftOut], offered: int) -> None:
        if left_out:
            self._log.warning(
                "openapi.left_out",
                agent=self._name,
                count=len(left_out),
                offered=offered,
                operations=[f"{each.operation}: {each.reason}"[:300] for each in left_out[:TOLD]],
            )


def _refuse_our_names(request: PreparedRequest, ours: frozenset[tuple[Where, str]]) -> None:
    """Raise `Unsendable` where a pair, as of an object whose names a caller chooses, is named like a credential of ours. A server that
    reads the first of two would act as somebody else."""
    pairs = (
        ("query", (*request.query, *request.form)),
        ("cookie", request.cookies),
    )
    for where, given in pairs:
        for pair in given:
            name = unquote(pair.partition("=")[0])
            if (where, same_name(name)) in ours:
                raise Unsendable(
                    f"{short_name(name)}: is the name of what this API is called with; leave it out"
                )


def open_api(config: OpenApiConfig, *, name: str, log: Logger) -> OpenApiBackend:
    """Open an API. Raises `SecretUnreadable` for a credential or header that cannot be read or sent."""
    given = {
        key: read_secret(value if isinstance(value, str) else value.client_secret)
        for key, value in config.credentials.items()
    }
    headers = read_headers(config.headers)
    for key, value in headers.items():
        try:
            header_line(key, value.reveal())
        except ValueError as error:
            raise SecretUnreadable(
                f"the value for the header {key} is not plain ASCII text of one line"
            ) from error
    return OpenApiBackend(config, headers=headers, given=given, name=name, log=log)
