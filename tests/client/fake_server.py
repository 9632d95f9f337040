"""An MCP server with its own authorization server, to the standards and no further: what the client is tested against.

It is written apart from the real server on purpose, so that a misreading of a standard cannot agree with itself. Any
path can be overridden by a test; everything that arrives is kept in `seen`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

import h11
import trio

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "say the same text back\nand nothing else",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "what to say"},
                "times": {"type": "integer", "description": "how often"},
                "tags": {"type": "array"},
            },
            "required": ["text"],
            "additionalProperties": False,
        },
    },
    {"name": "fail", "description": "fail on purpose", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "slow", "description": "report progress first", "inputSchema": {"type": "object"}},
    {
        "name": "region",
        "inputSchema": {
            "type": "object",
            "properties": {"where": {"type": "string", "x-mcp-header": "Region"}},
        },
    },
]


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    query: str = ""

    @property
    def asked(self) -> dict[str, str]:
        return dict(parse_qsl(self.query, keep_blank_values=True))

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}")


@dataclass
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] | None = None  # sent one by one, without a length
    break_off: bool = False  # close before anything is sent
    hang: bool = False  # never end the body


Handler = Callable[[Seen], Awaitable[Response]]


def as_json(value: Any, status: int = 200, **headers: str) -> Response:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(status, json.dumps(value).encode(), {"content-type": "application/json", **named})


def as_events(*messages: Any) -> Response:
    chunks = [b": hello\n\n", *(b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages)]
    return Response(200, headers={"content-type": "text/event-stream"}, chunks=chunks)


@dataclass
class FakeServer:
    origin: str = ""
    era: str = "modern"  # modern | legacy
    sessions: bool = True  # legacy: hand out session ids
    login_needed: bool = True
    pending: int = 0  # polls to answer with authorization_pending first
    decision: str = "approve"  # approve | access_denied | expired_token
    interval: int | None = 1
    code_lifetime: int = 600
    token_lifetime: int = 3600
    scopes: list[str] = field(default_factory=lambda: ["mcp"])
    overrides: dict[str, Handler] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    valid: set[str] = field(default_factory=set)  # access tokens that are accepted
    refresh_token: str | None = None  # the current one; anything else is refused
    spent_token: str | None = None  # the one before: a retry with it gets the last answer again
    last_answer: Response = field(default_factory=Response)
    count: Counter[str] = field(default_factory=Counter)
    session_ids: set[str] = field(default_factory=set)
    # How a browser login goes, and what the server is said to be: laid over its metadata.
    metadata: dict[str, Any] = field(default_factory=dict)
    answered: dict[str, str | None] = field(default_factory=dict)  # laid over the authorization response
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)  # registered here, by client id
    insists_on: str | None = None  # a token_endpoint_auth_method that every registration gets
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def requests(self, path: str) -> list[Seen]:
        return [request for request in self.seen if request.path == path]

    async def answer(self, request: Seen) -> Response:
        self.seen.append(request)
        if request.path in self.overrides:
            return await self.overrides[request.path](request)
        return await self.usual(request)

    async def usual(self, request: Seen) -> Response:
        match request.path:
            case "/mcp":
                return self._mcp(request)
            case "/.well-known/oauth-protected-resource/mcp":
                return as_json(self.resource_metadata())
            case "/.well-known/oauth-authorization-server":
                return as_json(self.server_metadata())
            case "/device_authorization":
                return self._device_authorization(request)
            case "/token":
                return self._token(request)
            case "/authorize":
                return self._authorize(request)
            case "/register":
                return self._register(request)
            case "/revoke":
                self.count["revoked"] += 1
                return Response(200)
            case _:
                return as_json({"error": "not_found"}, 404)

    def resource_metadata(self) -> dict[str, Any]:
        return {
            "resource": self.url,
            "authorization_servers": [self.origin],
            "scopes_supported": self.scopes,
            "bearer_methods_supported": ["header"],
        }

    def server_metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "device_authorization_endpoint": f"{self.origin}/device_authorization",
            "revocation_endpoint": f"{self.origin}/revoke",
            "grant_types_supported": [DEVICE_GRANT, "refresh_token"],
            "response_types_supported": ["code"],
            **self.metadata,
        }

    def browser_only(self) -> None:
        """As most servers are: no device codes, but programs that register themselves and log in through a browser."""
        self.metadata |= {
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "registration_endpoint": f"{self.origin}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
        }

    # ---- tokens ------------------------------------------------------------------------------------------------------

    def _device_authorization(self, request: Seen) -> Response:
        if "client_id" not in request.form:
            return as_json({"error": "invalid_client"}, 401)
        answer = {
            "device_code": "dc-secret",
            "user_code": "WDJB-MJHT",
            "verification_uri": f"{self.origin}/device",
            "verification_uri_complete": f"{self.origin}/device?user_code=WDJB-MJHT",
            "expires_in": self.code_lifetime,
        }
        return as_json(answer if self.interval is None else {**answer, "interval": self.interval})

    def _register(self, request: Seen) -> Response:
        """RFC 7591 §3. A server may give a client another method than it asked for."""
        wanted = request.message
        self.count["registered"] += 1
        method = self.insists_on or wanted["token_endpoint_auth_method"]
        made: dict[str, Any] = {
            **wanted,
            "client_id": f"client-{self.count['registered']}",
            "token_endpoint_auth_method": method,
            **({} if method == "none" else {"client_secret": "s3cret: /+%", "client_secret_expires_at": 0}),
        }
        self.clients[made["client_id"]] = made
        return as_json(made, 201)

    def _authorize(self, request: Seen) -> Response:
        """RFC 6749 §4.1.1, decided without a page: whoever comes is somebody who says yes."""
        asked = request.asked
        client = self.clients.get(asked.get("client_id", ""))
        if client is None or asked.get("redirect_uri") not in client["redirect_uris"]:
            return Response(400, b"unknown client", {"content-type": "text/plain"})
        code = f"code-{len(self.codes) + 1}"
        self.codes[code] = asked
        answer: dict[str, str | None] = {"code": code, "state": asked["state"], "iss": self.origin}
        answer |= self.answered
        sent = urlencode({name: value for name, value in answer.items() if value is not None})
        return Response(302, b"", {"location": f"{asked['redirect_uri']}?{sent}"})

    def _shows_itself(self, request: Seen) -> bool:
        """RFC 6749 §2.3: as it was registered, and in no other way. Clients that nobody registered here are public."""
        form, header = request.form, request.headers.get("authorization", "")
        basic = base64.b64decode(header.removeprefix("Basic ")).decode().split(":") if header else []
        named, secret = (
            (unquote(part) for part in basic) if len(basic) == 2 else (form.get("client_id"), None)
        )
        client = self.clients.get(named or "", {})
        match client.get("token_endpoint_auth_method", "none"):
            case "none":
                return not header and "client_secret" not in form and (not self.clients or bool(client))
            case "client_secret_post":
                return not header and form.get("client_secret") == client["client_secret"]
            case _:
                return secret == client["client_secret"] and "client_secret" not in form

    def _token(self, request: Seen) -> Response:
        form = request.form
        if not self._shows_itself(request):
            return as_json({"error": "invalid_client"}, 401)
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            proven = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if (
                asked is None
                or form["redirect_uri"] != asked["redirect_uri"]
                or proven != asked["code_challenge"]
            ):
                return as_json({"error": "invalid_grant"}, 400)
            return self.issue()
        if form["grant_type"] == DEVICE_GRANT:
            if self.pending:
                self.pending -= 1
                return as_json({"error": "authorization_pending"}, 400)
            if self.decision != "approve":
                return as_json({"error": self.decision}, 400)
            return self.issue()
        if form["refresh_token"] == self.spent_token:
            self.count["replayed"] += 1
            return self.last_answer
        if form["refresh_token"] != self.refresh_token:
            return as_json({"error": "invalid_grant"}, 400)
        self.count["refreshed"] += 1
        self.spent_token = self.refresh_token
        self.last_answer = self.issue()
        return self.last_answer

    def issue(self) -> Response:
        self.count["issued"] += 1
        claims = {
            "iss": self.origin,
            "sub": "usr_1",
            "aud": self.url,
            "client_id": "ostiary-cli",
            "scope": " ".join(self.scopes),
            "sid": "gr_1",
            "jti": str(self.count["issued"]),
        }
        access = f"{_b64({'alg': 'ES256', 'typ': 'at+jwt'})}.{_b64(claims)}.{_b64('signature')}"
        self.valid = {access}
        self.refresh_token = f"rt-{self.count['issued']}"
        return as_json(
            {
                "access_token": access,
                "token_type": "Bearer",
                "expires_in": self.token_lifetime,
                "refresh_token": self.refresh_token,
                "scope": " ".join(self.scopes),
            }
        )

    # ---- MCP ---------------------------------------------------------------------------------------------------------

    def _mcp(self, request: Seen) -> Response:
        if (
            self.login_needed
            and request.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid
        ):
            metadata = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            error = ', error="invalid_token"' if "authorization" in request.headers else ""
            challenge = f'Bearer resource_metadata="{metadata}"{error}'
            return as_json({"error": "unauthorized"}, 401, WWW_Authenticate=challenge)
        if request.method == "DELETE":
            self.count["sessions ended"] += 1
            self.session_ids.discard(request.headers.get("mcp-session-id", ""))
            return Response(200)
        if request.method != "POST":
            return Response(405)
        message = request.message
        return self._modern(request, message) if self.era == "modern" else self._legacy(request, message)

    def _modern(self, request: Seen, message: dict[str, Any]) -> Response:
        params = message.get("params", {})
        meta = params.get("_meta", {})
        version = meta.get("io.modelcontextprotocol/protocolVersion")
        method = message["method"]
        named = params.get("name") if method == "tools/call" else None
        if (
            request.headers.get("mcp-protocol-version") != version
            or request.headers.get("mcp-method") != method
        ):
            return _refuse(message, -32020, "headers and body differ", 400)
        if named is not None and request.headers.get("mcp-name") != named:
            return _refuse(message, -32020, "Mcp-Name differs", 400)
        if "io.modelcontextprotocol/clientCapabilities" not in meta:
            return _refuse(message, -32602, "no capabilities", 400)
        if method == "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0}
            result["_meta"] = {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "1.0"}}
            return _result(message, {**result, "resultType": "complete", "cacheScope": "private"})
        found = self._common(message)
        if isinstance(found, Response):
            return found
        return _refuse(message, -32601, "no such method", 404)

    def _legacy(self, request: Seen, message: dict[str, Any]) -> Response:
        method = message.get("method")
        session = request.headers.get("mcp-session-id")
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old fake", "version": "0.9"},
            }
            response = _result(message, result)
            if self.sessions:
                self.count["sessions"] += 1
                self.session_ids.add(f"s-{self.count['sessions']}")
                response.headers["mcp-session-id"] = f"s-{self.count['sessions']}"
            return response
        if self.sessions and session is None:
            return _refuse(message, -32600, "no session", 400)
        if self.sessions and session not in self.session_ids:
            return _refuse(message, -32600, "unknown session", 404)
        if "id" not in message or method is None:
            return Response(202)
        found = self._common(message)
        return found if isinstance(found, Response) else _refuse(message, -32601, "no such method", 200)

    def _common(self, message: dict[str, Any]) -> Response | None:
        params = message.get("params", {})
        if message["method"] == "tools/list":
            # Two pages, the second named by the empty cursor, which is a cursor like any other.
            if params.get("cursor") is None:
                return _result(message, {"tools": TOOLS[:2], "nextCursor": "", "resultType": "complete"})
            return _result(message, {"tools": TOOLS[2:], "resultType": "complete"})
        if message["method"] == "tools/call":
            return self._call(message, params)
        return None

    def _call(self, message: dict[str, Any], params: dict[str, Any]) -> Response:
        given = params.get("arguments", {})
        match params["name"]:
            case "echo":
                return _result(message, _text(json.dumps(given) if len(given) > 1 else given["text"]))
            case "fail":
                return _result(message, {**_text("it could not be done"), "isError": True})
            case "slow":
                token = params["_meta"]["progressToken"]
                progress = {"progressToken": token, "progress": 1, "total": 2, "message": "halfway"}
                note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": _text("done")}
                return as_events(note, answer)
            case "region":
                return _result(message, _text("there"))
            case _:
                return _refuse(message, -32602, "unknown tool", 200)


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "resultType": "complete"}


def _result(message: dict[str, Any], result: Any) -> Response:
    return as_json({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _refuse(message: dict[str, Any], code: int, text: str, status: int) -> Response:
    return as_json(
        {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": text}}, status
    )


def _b64(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@asynccontextmanager
async def serving(fake: FakeServer, host: str = "127.0.0.1") -> AsyncGenerator[FakeServer, None]:
    """The fake on a free port of this machine, until the block ends."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            lambda task_status: trio.serve_tcp(
                lambda stream: _connection(fake, stream), 0, host="127.0.0.1", task_status=task_status
            )
        )
        fake.origin = f"http://{host}:{listeners[0].socket.getsockname()[1]}"
        yield fake
        nursery.cancel_scope.cancel()


async def _connection(fake: FakeServer, stream: trio.SocketStream) -> None:
    try:
        await _converse(fake, stream)
    except (h11.RemoteProtocolError, trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def _converse(fake: FakeServer, stream: trio.SocketStream) -> None:
    http = h11.Connection(h11.SERVER)
    while True:
        request: h11.Request | None = None
        body = b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                break
        if request is None:
            return
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        path, _, query = request.target.decode().partition("?")
        response = await fake.answer(Seen(request.method.decode(), path, headers, body, query))
        if response.break_off:
            return
        pieces = [response.body] if response.chunks is None else response.chunks
        sent = list(response.headers.items())
        if response.chunks is None:
            sent.append(("content-length", str(len(response.body))))
        await stream.send_all(http.send(h11.Response(status_code=response.status, headers=sent)) or b"")
        for piece in pieces:
            await stream.send_all(http.send(h11.Data(data=piece)) or b"")
        if response.hang:
            await trio.sleep_forever()
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return
        http.start_next_cycle()
