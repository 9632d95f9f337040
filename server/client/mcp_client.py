"""An MCP client for one endpoint: settle the era, list tools, call them. The newest revision is tried first; a server
that does not know it is spoken to with the handshake of 2025-11-25 and older (MCP versioning, "dual-era clients").

A server may ask back while a tool runs if `call` is given somebody who answers, and is of the newest revision. Tasks are
declared where a tool cannot be called otherwise (task_polling.py). Nothing else is: it cannot be sampled, so a server has no reason to try.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import trio

from server import __version__
from server.client import task_polling
from server.client.client_errors import BadAnswer, CallRefused, ClientError, Unreachable
from server.client.discovery import MODERN
from server.client.json_rpc import OnMessage, RpcEndpoint, RpcReply
from server.client.mcp_answers import info_of, mapping, paying, refused, strings
from server.client.server_info import ServerInfo
from server.client.server_questions import MAX_ROUNDS, Answerer, capabilities, read_questions
from server.lib.counted import counted
from server.lib.json_objects import decode_object
from server.lib.oauth_client.addresses import host_of
from server.mcp.request_headers import header_value, parameter_headers

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
META = "io.modelcontextprotocol"
CLIENT_INFO = {"name": "ostiary-cli", "version": __version__}
# Of this a client can be sure that the other side is modern, even though it refuses.
MODERN_REFUSALS = frozenset({-32020, -32021, -32022})
UNSUPPORTED_VERSION = -32022
METHOD_NOT_FOUND = -32601

DEFAULT_SECONDS = 30.0
FAREWELL_SECONDS = 2.0
# More pages than any catalogue has: a server that keeps turning them is broken.
MAX_PAGES = 200
MAX_TOOLS = 10_000

Progress = Callable[[float, float | None, str], None]


class McpClient:
    """Call `connect` first and `aclose` at the end. Methods raise `ClientError`s and may be cancelled at any time."""

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint = endpoint
        self._ids = itertools.count(1)
        self._server: ServerInfo | None = None
        self._session_id: str | None = None

    @property
    def nameless(self) -> bool:
        """It came in to pay, without a login."""
        return self._endpoint.nameless

    async def connect(self) -> ServerInfo:
        with trio.move_on_after(DEFAULT_SECONDS):
            self._server = await self._discover() or await self._initialize()
            return self._server
        raise Unreachable(f"{host_of(self._endpoint.url)} did not answer in time")

    @property
    def server(self) -> ServerInfo:
        """Who it is, once it is connected to."""
        if self._server is None:
            raise RuntimeError("connect comes first")
        return self._server

    async def tools(self) -> list[dict[str, Any]]:
        """The whole catalogue, page by page."""
        return await self.listed("tools/list", "tools", "name")

    async def listed(self, method: str, kind: str, named_by: str) -> list[dict[str, Any]]:
        """A list of the server's: `kind` is its key in the result, `named_by` the one that each entry has. Page by page."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            # An empty string is a cursor like any other.
            params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
            result = await self._request(method, params, seconds=DEFAULT_SECONDS)
            page = result.get(kind)
            if not isinstance(page, list):
                raise BadAnswer(f"{host_of(self._endpoint.url)} sent no list of {kind}")
            found.extend(
                cast("dict[str, Any]", entry)
                for entry in cast("list[Any]", page)
                if isinstance(entry, dict) and isinstance(cast("dict[str, Any]", entry).get(named_by), str)
            )
            following = result.get("nextCursor")
            if not isinstance(following, str):
                return found
            if following in seen or len(found) > MAX_TOOLS:
                break
            seen.add(following)
            cursor = following
        raise BadAnswer(f"{host_of(self._endpoint.url)} never comes to the end of its list of {kind}")

    async def call(
        self,
        tool: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        progress: Progress | None = None,
        seconds: float,
        answerer: Answerer | None = None,
        paid: PaidCall | None = None,
    ) -> dict[str, Any]:
        """The tool's result, also one with `isError`. `tool` is an entry of `tools()`. `seconds` is for each answer of the
        server; how long `answerer` takes does not count. Without `paid` a result that asks for payment is the result; with it,
        raises what `paid` raises."""
        name = str(tool["name"])
        headers = {"Mcp-Name": header_value(name), **parameter_headers(tool.get("inputSchema"), arguments)}
        modern = self.server.era == "modern"
        whole: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
        # An older server is asked for a task; a newer one decides, for clients that say that they know tasks.
        whole |= {"task": {}} if not modern and task_polling.always_a_task(tool) else {}
        params, declared = whole, capabilities(answerer)

        async def request() -> dict[str, Any]:
            return await self._request(
                "tools/call",
                params,
                seconds=seconds,
                modern_headers=headers,
                progress=progress,
                declared=declared,
                meta={} if paid is None else paid.meta,
            )

        if paid is not None:
            await paid.begin()
        for _ in range(MAX_ROUNDS):
            try:
                result = await request() if paid is None else await paying(request, paid)
            except CallRefused as error:
                if not task_polling.needs_task(error) or "extensions" in declared:
                    raise
                declared |= task_polling.CAPABILITY
                continue
            if (task_id := task_polling.task_id_of(result)) is not None:
                wire = _TaskWire(self, task_id, name, declared, progress, answerer)
                ended = await task_polling.wait_for(wire, modern=modern, seconds=seconds)
                if ended is None:
                    raise self._too_slow(seconds)
                if paid is not None and await paid.again(ended):
                    params = whole
                    continue
                return ended
            kind = result.get("resultType", "complete")
            if kind == "complete":
                return result
            if kind != "input_required" or not modern:
                raise BadAnswer(f"{host_of(self._endpoint.url)} answered with an unknown kind of result")
            # Only what belongs to the last answer goes along, and a state exactly as it came.
            params = {**whole, **await self._answered(name, result, answerer)}
        raise BadAnswer(f"{name} does not come to the end of its questions")

    async def ask(
        self,
        method: str,
        task_id: str,
        more: Mapping[str, Any],
        declared: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the answer to a request about a task. The one for its result waits as long as it takes."""
        seconds = math.inf if method == "tasks/result" else DEFAULT_SECONDS
        return await self._request(
            method,
            {"taskId": task_id, **more},
            seconds=seconds,
            modern_headers={"Mcp-Name": header_value(task_id)},
            declared=declared,
        )

    async def answers(
        self, name: str, questions: Mapping[str, Any], answerer: Answerer | None
    ) -> Mapping[str, Any]:
        """Return what is said to the questions of a task."""
        if answerer is None:
            raise BadAnswer(
                f"{name} has a question, though nobody was there to be asked",
                hint="call it on a terminal, or give --answer FIELD=VALUE",
            )
        return await answerer(self.server, read_questions(questions, answerer.modes))

    async def _answered(
        self, name: str, result: Mapping[str, Any], answerer: Answerer | None
    ) -> dict[str, Any]:
        """What a request is sent again with: the answers, and the state of the server."""
        requests, state = result.get("inputRequests"), result.get("requestState")
        if not requests and not isinstance(state, str):
            raise BadAnswer(f"{name} wants an answer, and asks no question")
        again: dict[str, Any] = {"requestState": state} if isinstance(state, str) else {}
        if not requests:
            return again
        return {**again, "inputResponses": dict(await self.answers(name, requests, answerer))}

    async def contents(self, uri: str) -> list[dict[str, Any]]:
        """Of a resource; none where there is no such thing (MCP, "Reading Resources")."""
        try:
            result = await self._request(
                "resources/read",
                {"uri": uri},
                seconds=DEFAULT_SECONDS,
                modern_headers={"Mcp-Name": header_value(uri)},
            )
        except CallRefused:
            return []
        contents = result.get("contents")
        return [
            cast("dict[str, Any]", each)
            for each in (cast("list[Any]", contents) if isinstance(contents, list) else [])
            if isinstance(each, dict)
        ]

    async def document(self, uri: str) -> dict[str, Any] | None:
        """A resource that is one JSON object; None where there is no such thing."""
        contents = await self.contents(uri)
        text = contents[0].get("text") if contents else None
        return decode_object(text) if isinstance(text, str) else None

    async def aclose(self) -> None:
        """End a legacy session, if there is one, without making anybody wait for it."""
        if self._session_id is None:
            return
        session_id, self._session_id = self._session_id, None
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            try:
                await self._endpoint.delete(
                    headers={"Mcp-Session-Id": session_id}, silence_seconds=FAREWELL_SECONDS
                )
            except ClientError:
                return

    # ---- settling the era --------------------------------------------------------------------------------------------

    async def _discover(self) -> ServerInfo | None:
        """The modern opening; None when the server is to be spoken to in the old way."""
        message = self._message("server/discover", _modern_meta({}))
        reply = await self._endpoint.post(
            message, headers=_modern_headers("server/discover"), silence_seconds=DEFAULT_SECONDS
        )
        answer = reply.message or {}
        result = mapping(answer.get("result"))
        if result:
            if MODERN not in strings(result.get("supportedVersions")):
                return None
            info = mapping(mapping(result.get("_meta")).get(f"{META}/serverInfo"))
            return info_of("modern", MODERN, info, result.get("instructions"))
        error = mapping(answer.get("error"))
        code = error.get("code")
        if code == UNSUPPORTED_VERSION:
            return (
                None
                if MODERN not in strings(mapping(error.get("data")).get("supported"))
                else info_of("modern", MODERN, {})
            )
        if code in MODERN_REFUSALS:
            raise refused(error, "server/discover")
        if code == METHOD_NOT_FOUND and reply.status == 404:
            return info_of("modern", MODERN, {})
        return None

    async def _initialize(self) -> ServerInfo:
        params = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": CLIENT_INFO}
        reply = await self._endpoint.post(
            self._message("initialize", params), headers={}, silence_seconds=DEFAULT_SECONDS
        )
        result = self._result(reply, "initialize")
        version = result.get("protocolVersion")
        if version not in LEGACY:
            raise BadAnswer(f"{host_of(self._endpoint.url)} speaks no version of MCP that is known here")
        session_id = reply.session_id
        if session_id is not None and not (
            0 < len(session_id) <= 1024 and all("!" <= character <= "~" for character in session_id)
        ):
            raise BadAnswer(f"{host_of(self._endpoint.url)} sent an unusable session id")
        self._session_id = session_id
        server = info_of(
            "legacy", str(version), mapping(result.get("serverInfo")), result.get("instructions")
        )
        await self._endpoint.post(
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            headers=self._legacy_headers(server),
            silence_seconds=DEFAULT_SECONDS,
        )
        return server

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float,
        modern_headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        declared: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """`meta` goes into `_meta` besides what the protocol wants there."""
        server = self.server
        if server.era == "legacy":
            return await self._legacy_request(server, method, params, seconds, progress, meta)
        body = _modern_meta(params, declared)
        body["_meta"] |= meta
        if progress is not None:
            body["_meta"]["progressToken"] = 1
        with trio.move_on_after(seconds):
            reply = await self._endpoint.post(
                self._message(method, body),
                headers={**_modern_headers(method), **(modern_headers or {})},
                silence_seconds=seconds,
                on_message=_progress_to(progress),
            )
            return self._result(reply, method)
        raise self._too_slow(seconds)

    async def _legacy_request(
        self,
        server: ServerInfo,
        method: str,
        params: Mapping[str, Any],
        seconds: float,
        progress: Progress | None,
        meta: Mapping[str, Any],
        *,
        may_reconnect: bool = True,
    ) -> dict[str, Any]:
        body = dict(params)
        if meta or progress is not None:
            body["_meta"] = {**meta, **({} if progress is None else {"progressToken": 1})}
        message = self._message(method, body)
        headers = self._legacy_headers(server)
        report = _progress_to(progress)

        async def on_message(found: dict[str, Any]) -> None:
            if "method" in found and "id" in found:
                await self._answer(found, headers)
            else:
                await report(found)

        reply: RpcReply | None = None
        with trio.move_on_after(seconds):
            try:
                reply = await self._endpoint.post(
                    message, headers=headers, silence_seconds=seconds, on_message=on_message
                )
            except trio.Cancelled:
                await self._cancel(message["id"], headers)
                raise
        if reply is None:
            raise self._too_slow(seconds)
        if reply.status == 404 and self._session_id is not None and may_reconnect:
            # The session is gone (a restart, an idle limit): a new one, once.
            self._server = server = await self._initialize()
            return await self._legacy_request(
                server, method, params, seconds, progress, meta, may_reconnect=False
            )
        return self._result(reply, method)

    async def _answer(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """A legacy server may ask on the stream. Only ping was not declared away."""
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if request.get("method") == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": METHOD_NOT_FOUND, "message": "not offered by this client"}
        await self._endpoint.post(answer, headers=headers, silence_seconds=DEFAULT_SECONDS)

    async def _cancel(self, request_id: object, headers: Mapping[str, str]) -> None:
        """Legacy: leaving does not stop the work, saying so does."""
        notification = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": request_id, "reason": "the caller left"},
        }
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            try:
                await self._endpoint.post(notification, headers=headers, silence_seconds=FAREWELL_SECONDS)
            except ClientError:
                return

    def _message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    def _legacy_headers(self, server: ServerInfo) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": server.version}
        if self._session_id is not None:
            headers["Mcp-Session-Id"] = self._session_id
        return headers

    def _result(self, reply: RpcReply, method: str) -> dict[str, Any]:
        answer = reply.message or {}
        error = mapping(answer.get("error"))
        if error:
            raise refused(error, method)
        result = answer.get("result")
        if not isinstance(result, dict):
            raise BadAnswer(
                f"{host_of(self._endpoint.url)} answers {method} with status {reply.status} and no result",
                hint=f"is this an MCP server? `ostiary doctor {quote(self._endpoint.url)}` looks closer",
            )
        return cast("dict[str, Any]", result)

    def _too_slow(self, seconds: float) -> Unreachable:
        return Unreachable(
            f"{host_of(self._endpoint.url)} gave no result within {counted(seconds, 'second')}",
            hint="allow more with --timeout",
        )


class _TaskWire:
    """The requests about one task, and what is done with what it says."""

    def __init__(
        self,
        client: McpClient,
        task_id: str,
        tool: str,
        declared: Mapping[str, Any],
        progress: Progress | None,
        answerer: Answerer | None,
    ) -> None:
        self._client = client
        self._task_id = task_id
        self._tool = tool
        self._declared = declared
        self._progress = progress
        self._answerer = answerer

    async def request(self, method: str, more: Mapping[str, Any]) -> dict[str, Any]:
        return await self._client.ask(method, self._task_id, more, self._declared)

    async def answer(self, questions: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._client.answers(self._tool, questions, self._answerer)

    def tell(self, words: str) -> None:
        if self._progress is not None:
            self._progress(0.0, None, words)


def _progress_to(progress: Progress | None) -> OnMessage:
    async def on_message(message: dict[str, Any]) -> None:
        if progress is None or message.get("method") != "notifications/progress":
            return
        params = mapping(message.get("params"))
        done, total, text = params.get("progress"), params.get("total"), params.get("message")
        if isinstance(done, int | float) and not isinstance(done, bool):
            progress(
                float(done),
                float(total) if isinstance(total, int | float) else None,
                text if isinstance(text, str) else "",
            )

    return on_message


def _modern_meta(params: Mapping[str, Any], declared: Mapping[str, Any] | None = None) -> dict[str, Any]:
    meta = {
        f"{META}/protocolVersion": MODERN,
        f"{META}/clientInfo": CLIENT_INFO,
        f"{META}/clientCapabilities": dict(declared or {}),
    }
    return {**params, "_meta": meta}


def _modern_headers(method: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
