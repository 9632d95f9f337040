"""The way of a request, by its head: MCP paths to their endpoints, what programs ask OAuth for to identity_http.py, pages to their framework.

Every request passes here, so here are the proxy's word about its caller, the Host check of everything that is not MCP (an MCP
endpoint asks the guard itself, for Origin too), the access line and the hook for metrics. The meaning of a path is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, cast

from server.lib.log.logger import Logger

from .allowed_hosts import Guard, host_of
from .asgi import hosting
from .handler import App, Cycle, Handler, Receive, Resolve, Scope, Send
from .proxy import Proxies

# A log line is for reading: a longer path is cut there.
_LOGGED_PATH_CHARACTERS: Final = 200
_OF_PROGRAMS: Final = frozenset(
    (
        b"authorization",
        b"x-api-key",
        b"dpop",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"mcp-method",
        b"last-event-id",
        b"payment-signature",
        b"x-payment",
    )
)
_FORBIDDEN: Final = (
    b"this server does not answer for the name in the Host header\n\n"
    b"If it is yours: set issuer to the address that you have typed, or add its name to allowed_hosts.\n"
)


class Router:
    """The table of paths, and who answers for each.

    `mcp` maps the paths of servers to what answers there, with a slash at their ends as without. `exact` are further paths, and
    `below` is for whatever lies two levels down ("/main/call/…"), by what its path begins with. `forms` is for the paths of which
    `is_form` is true; all else is for `pages`, an ASGI application.
    """

    def __init__(
        self,
        *,
        mcp: Mapping[str, Resolve],
        exact: Mapping[str, Resolve] = MappingProxyType({}),
        below: Mapping[str, Resolve] = MappingProxyType({}),
        forms: Resolve | None = None,
        is_form: Callable[[str], bool] = lambda path: False,
        pages: App,
        guard: Guard,
        log: Logger,
        proxies: Proxies | None = None,
        observe: Callable[[str, int], None] | None = None,
        tells_all: bool = False,
        secret_paths: Sequence[str] = (),
        pages_of: Mapping[str, tuple[str, bytes]] = MappingProxyType({}),
    ) -> None:
        """Hold the paths, and what is told of each request.

        `secret_paths` are prefixes whose rest is a secret. `pages_of`: of paths that are for programs, the page (and its query) that a
        browser is shown there. `observe` is told the path as it came and the status (0: there was no response) of every request, and
        must not raise. `tells_all` writes a line for every request, too.
        """
        self._endpoints: dict[str, Resolve] = dict(exact)
        for path, resolve in mcp.items():
            self._endpoints[path] = self._endpoints[path + "/"] = resolve
        self._pages_of = dict(pages_of)
        self._below = below
        self._pages = hosting(pages)
        self._forms = forms or self._pages
        self._is_form = is_form
        self._guard = guard
        self._log = log
        self._proxies = proxies
        self._observe = observe
        self._tells_all = tells_all
        self._secret_paths = tuple(secret_paths)

    def resolve(self, scope: Scope) -> RoutedHandler:
        if self._proxies is not None:
            scope = self._proxies.resolve(scope)
        path, shown = cast("str", scope["path"]), scope
        resolve = self._endpoints.get(path) or self._below.get(
            path[: path.find("/", path.find("/", 1) + 1) + 1]
        )
        if resolve is not None:
            page = self._pages_of.get(path.rstrip("/"))
            if page is not None and is_browsing(scope):
                resolve, shown = (
                    None,
                    {**scope, "path": page[0], "raw_path": page[0].encode(), "query_string": page[1]},
                )
        if resolve is not None:
            handler = resolve(scope)
        elif self._guard.admits_host(scope, host_of(scope)):
            handler = (self._forms if self._is_form(path) and shown is scope else self._pages)(shown)
        else:
            handler = hosting(_forbid)(scope)
        return RoutedHandler(
            handler,
            report=partial(self._report, scope),
            observe=None if self._observe is None else partial(self._observe, path),
            # A call that went well has its own line (tool.called); two for each would be half of what a busy server does.
            quiet=resolve is not None and not self._tells_all,
        )

    def _report(self, scope: Scope, cycle: Cycle, seconds: float) -> None:
        client, path = cycle.client, scope["path"]
        tell = self._log.debug if cycle.status == 200 and path in self._endpoints else self._log.info
        tell(
            "http.request",
            method=scope["method"],
            path=self._shown(path),
            status=cycle.status,
            ms=round(seconds * 1000, 1),
            ip=client[0] if client else "",
            request=cycle.request_id,
        )

    def _shown(self, path: str) -> str:
        # Also in a link that was typed with another case, or pasted behind a slash.
        for prefix in self._secret_paths:
            at = path.lower().find(prefix)
            if at >= 0:
                return path[:at][:_LOGGED_PATH_CHARACTERS] + prefix + "***"
        return path[:_LOGGED_PATH_CHARACTERS]


def is_browsing(scope: Scope) -> bool:
    """Return whether a person has typed this address, or followed a link to it.

    A program that speaks MCP says so in its headers, as does one that has logged in; and none that asks for a page at all takes HTML
    and no stream.
    """
    if scope["method"] not in ("GET", "HEAD"):
        return False
    takes_html = False
    for name, value in scope["headers"]:
        if name in _OF_PROGRAMS or (name == b"sec-fetch-mode" and value != b"navigate"):
            return False
        if name == b"accept":
            accept = value.lower()
            if b"text/event-stream" in accept:
                return False
            takes_html = takes_html or b"text/html" in accept
    return takes_html


class RoutedHandler:
    """A `Handler` around another one, and what is told of its requests afterwards."""

    __slots__ = ("_observe", "_quiet", "_report", "answer", "client")

    def __init__(
        self,
        handler: Handler,
        *,
        report: Callable[[Cycle, float], None],
        observe: Callable[[int], None] | None,
        quiet: bool,
    ) -> None:
        """Take what the other one answers with. `quiet`: a good answer is not reported."""
        self.answer: Final = handler.answer
        self.client: Final = handler.client
        self._report = report
        self._observe = observe
        self._quiet = quiet

    def done(self, cycle: Cycle, seconds: float) -> None:
        if self._observe is not None:
            self._observe(cycle.status)
        if not self._quiet or cycle.status != 200:
            self._report(cycle, seconds)


async def _forbid(_scope: Scope, _receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_FORBIDDEN))]
    start: dict[str, Any] = {"type": "http.response.start", "status": 403, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": _FORBIDDEN})
