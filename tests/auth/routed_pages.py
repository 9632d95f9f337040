"""The pages by their routes: the public app, asked with values in place of bytes on a socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import urlencode

import structlog
import trio
from werkzeug.exceptions import MethodNotAllowed, NotFound

from auth.pages.page_visit import Parts
from auth.values.http_messages import WireReply, WireRequest
from server.admin.audit_commands import AuditAdmin
from server.admin.upstream_commands import UpstreamAdmin
from server.agents.mcp.trust.upstream_registry import UpstreamRegistry
from server.console.overview.overview_pages import OverviewPages
from server.console.overview.overview_values import RunningParts
from server.console.owner.owner_pages import OwnerPages
from server.console.owner.upstreams_page import OfferFaults
from server.console.pages.quart_app import PublicSite, make_site
from server.settings.tool_selection import SelectableNames

# What selections of tools can name.
OFFERED = {"agent": SelectableNames(groups={}, tools=("echo", "search"))}
NOTHING_RUNS = RunningParts()
AUDIT_KEY = b"house audit chain"
FORM = b"application/x-www-form-urlencoded"
# Said anew of what is sent on, also where a real browser's request is.
FRAMING = frozenset(("host", "content-type", "content-length", "transfer-encoding"))


def site_for(
    parts: Parts,
    *,
    log: Any = None,
    needs_login: bool = True,
    running: RunningParts = NOTHING_RUNS,
    find_desk: Callable[[], UpstreamRegistry | None] = lambda: None,
    offers: Callable[[], Sequence[OfferFaults]] = tuple,
) -> PublicSite:
    """`running`: what the Overview knows of the server."""
    return make_site(
        parts,
        log or structlog.get_logger(),
        overview=OverviewPages(parts, running) if needs_login else None,
        owning=owner_pages(parts, find_desk, offers) if needs_login else None,
    )


def owner_pages(
    parts: Parts,
    find_desk: Callable[[], UpstreamRegistry | None],
    offers: Callable[[], Sequence[OfferFaults]] = tuple,
) -> OwnerPages:
    store = cast("Any", parts.store)
    audit = AuditAdmin(
        store=store,
        clock=parts.clock,
        subkey=lambda _: AUDIT_KEY,
        committed_head=lambda: None,
        written_heads=lambda: (),
    )
    upstreams = UpstreamAdmin(store=store, find_desk=find_desk)
    return OwnerPages(parts, servers=lambda: OFFERED, audit=audit, upstreams=upstreams, offers=offers)


def route_of(site: PublicSite, request: WireRequest) -> str | None:
    """As it is written at its view: "/claim/<token>"."""
    try:
        rule, _ = site.url_map.bind("localhost").match(request.path, request.method, return_rule=True)
    except (NotFound, MethodNotAllowed):
        return None
    return rule.rule


class RoutedPages:
    """Pages alone, as `auth` knows them: what no route fits is others'."""

    def __init__(self) -> None:
        self._site: PublicSite | None = None
        self._parts: Parts | None = None
        self.running = NOTHING_RUNS  # settled before the first page
        self.desk: UpstreamRegistry | None = None  # where there are upstreams
        self.faults: Sequence[OfferFaults] = ()  # of what its servers offer

    async def answer(self, request: WireRequest, parts: Parts) -> WireReply | None:
        """The page for a request, by its route; None where none leads to one."""
        if self._site is None or self._parts is not parts:  # a test may have changed what pages are made with
            self._site = site_for(
                parts, running=self.running, find_desk=lambda: self.desk, offers=lambda: self.faults
            )
            self._parts = parts
        if not is_routed(self._site, request.path):
            return None
        return await ask(self._site, request)


def is_routed(site: PublicSite, path: str) -> bool:
    return bool(site.url_map.bind("localhost").allowed_methods(path))


async def ask(site: PublicSite, request: WireRequest) -> WireReply:
    """The answer as it leaves the app, without its length."""
    scheme, _, host = request.origin.partition("://")
    headers = [(b"host", host.encode())]
    headers += [
        (name.encode(), value.encode("latin-1"))
        for name, value in request.headers.items()
        if name not in FRAMING
    ]
    body = urlencode(request.form, errors="surrogatepass").encode()
    if request.form:
        headers += [(b"content-type", FORM), (b"content-length", b"%d" % len(body))]
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": scheme,
        "path": request.path,
        "query_string": urlencode(request.query, errors="surrogatepass").encode(),
        "root_path": "",
        "headers": headers,
        "client": (request.ip, 1),
        "server": None,
        "state": {},
    }
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not messages:
            await trio.sleep_forever()
        return messages.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    await site(scope, receive, send)  # pyright: ignore[reportArgumentType]
    start, *parts = sent
    fields = tuple((name.decode(), value.decode()) for name, value in start["headers"])
    return WireReply(
        status=start["status"],
        headers=tuple(field for field in fields if field[0] != "content-length"),
        body=b"".join(part["body"] for part in parts),
    )
