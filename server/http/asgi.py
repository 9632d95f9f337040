"""The way from a connection to what answers: MCP paths straight to their handlers, everything else to the Quart-Trio app.

Every request passes here, so here are the proxy's word about its caller, the Host check of everything that is not MCP (an MCP
handler asks the guard itself, for Origin too), the access line and the hook for metrics. What a path means is not here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from .guard import Guard, host_of
from .proxy import Proxies
from .serving import App, Message, Receive, Scope, Send

# A log line is for reading: a longer path is cut there.
_LOGGED_PATH_CHARACTERS: Final = 200
_FORBIDDEN: Final = b"this server does not answer for the name in the Host header\n"


class Router:
    """An ASGI 3 application. `mcp` maps a server's name to its handler; the name "" is the one at `/mcp`.
    `direct` answers the paths of which `is_direct` is true; all else is the fallback's."""

    def __init__(
        self,
        *,
        mcp: Mapping[str, App],
        exact: Mapping[str, App] = MappingProxyType({}),
        direct: App | None = None,
        is_direct: Callable[[str], bool] = lambda path: False,
        fallback: App,
        guard: Guard,
        log: FilteringBoundLogger,
        proxies: Proxies | None = None,
        observe: Callable[[str, int], None] | None = None,
        tells_all: bool = False,
        secret_paths: Sequence[str] = (),
    ) -> None:
        """`exact` are further paths with an application of their own. `secret_paths` are prefixes whose rest is a secret. `observe` is given the path as it came and the status (0: it ended
        without a response) of every request, and must not raise. `tells_all` writes a line for every request, too."""
        self._handlers: dict[str, App] = dict(exact)
        for name, handler in mcp.items():
            path = f"/{name}/mcp" if name else "/mcp"
            self._handlers[path] = self._handlers[path + "/"] = handler
        self._direct = direct or fallback
        self._is_direct = is_direct
        self._fallback = fallback
        self._guard = guard
        self._log = log
        self._proxies = proxies
        self._observe = observe
        self._tells_all = tells_all
        self._secret_paths = tuple(secret_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._proxies is not None:
            scope = self._proxies.resolve(scope)
        began = time.perf_counter()
        watched = _Watched(send)
        try:
            handler = self._handlers.get(scope["path"])
            if handler is not None:
                await handler(scope, receive, watched.send)
            elif self._guard.admits_host(scope, host_of(scope)):
                answer = self._direct if self._is_direct(scope["path"]) else self._fallback
                await answer(scope, receive, watched.send)
            else:
                await _forbid(watched.send)
        finally:
            self._report(scope, watched.status, time.perf_counter() - began)

    def _report(self, scope: Scope, status: int, seconds: float) -> None:
        path: str = scope["path"]
        if self._observe is not None:
            self._observe(path, status)
        # A call that went well has its own line (tool.called); two for each would be half of what a busy server does.
        good_call = status == 200 and path in self._handlers
        if good_call and not self._tells_all:
            return
        client = scope["client"]
        tell = self._log.debug if good_call else self._log.info
        tell(
            "http.request",
            method=scope["method"],
            path=self._shown(path),
            status=status,
            ms=round(seconds * 1000, 1),
            ip=client[0] if client else "",
            request=scope["state"]["request_id"],
        )

    def _shown(self, path: str) -> str:
        for (
            prefix
        ) in self._secret_paths:  # also in a link that was typed with another case, or pasted behind a slash
            at = path.lower().find(prefix)
            if at >= 0:
                return path[:at][:_LOGGED_PATH_CHARACTERS] + prefix + "***"
        return path[:_LOGGED_PATH_CHARACTERS]


class _Watched:
    """Passes messages on and remembers the status."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


async def _forbid(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_FORBIDDEN))]
    start: dict[str, Any] = {"type": "http.response.start", "status": 403, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": _FORBIDDEN})
