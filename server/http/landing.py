"""What a person sees who opens the address in a browser, and the answers that belong to nobody else: 404, 500 and 503."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

from markupsafe import Markup

from auth import pages, wire
from server.settings.resolve import Resolved

# A full disk or a crowded queue is rarely over sooner, and a client should not hammer.
RETRY_AFTER_SECONDS = 5


def answer(request: wire.Request, resolved: Resolved, *, entropy: Callable[[int], bytes]) -> wire.Reply:
    if request.path in ("/", "/healthz") and request.method not in ("GET", "HEAD"):
        return _plain(405, "wrong method\n", ("allow", "GET, HEAD"))
    if request.path == "/healthz":
        return _plain(200, "ok\n")
    frame = pages.frame_for(request.origin, entropy(pages.NONCE_BYTES))
    if request.path == "/":
        # Behind a proxy the request may have come by another name or scheme than callers are to use.
        origin = request.origin if resolved.loopback else resolved.issuer
        return pages.shell_page("This is an agent's door", _welcome(origin, resolved), frame)
    if "text/html" in request.headers.get("accept", ""):
        return pages.error_page(
            404, "Nothing here", "This server has no page at this address.", "Check the address, or start at the front.",
            frame, back=("/", "To the front page"),
        )  # fmt: skip
    return _plain(404, "nothing here\n")


def unavailable(frame: pages.Frame | None) -> wire.Reply:
    """The store cannot do it now. `frame` where a person reads the answer; programs get OAuth's form of it."""
    wait = ("retry-after", str(RETRY_AFTER_SECONDS))
    if frame is None:
        return _told(503, "temporarily_unavailable", "the server cannot store anything right now", wait)
    return pages.error_page(
        503, "Not right now", "The server cannot store anything at the moment. Nothing was changed.",
        "Try again in a moment. If it stays so, look at the server’s log: its disk may be full.",
        frame, headers=(wait,),
    )  # fmt: skip


def broken(frame: pages.Frame | None) -> wire.Reply:
    """The log has the details."""
    if frame is None:
        return _told(500, "server_error", "internal error")
    return pages.error_page(
        500, "Something went wrong", "That was a fault of the server, not yours.",
        "Try again. If it happens again, the server’s log says more.", frame,
    )  # fmt: skip


def _told(status: int, error: str, description: str, *headers: tuple[str, str]) -> wire.Reply:
    """Readable by a page of any origin, as every answer of these endpoints is."""
    body = json.dumps({"error": error, "error_description": description}).encode()
    kind = ("content-type", "application/json")
    open_to_all = ("access-control-allow-origin", "*")
    return wire.Reply(
        status=status, headers=(kind, ("cache-control", "no-store"), open_to_all, *headers), body=body
    )


def _plain(status: int, text: str, *headers: tuple[str, str]) -> wire.Reply:
    kind = ("content-type", "text/plain; charset=utf-8")
    return wire.Reply(status=status, headers=(kind, *headers), body=text.encode())


def _welcome(origin: str, resolved: Resolved) -> Markup:
    """The endpoints, and how to get in. Everything from the settings is escaped here."""
    rows: list[str] = []
    for server in resolved.servers:
        url = html.escape(origin + resolved.paths[server.name])
        rows.append(
            f"<div><dt>{html.escape(server.title or server.name)}</dt><dd><code>{url}</code></dd></div>"
        )
    which = "one of these addresses" if len(rows) > 1 else "this address"
    first = html.escape(origin + next(iter(resolved.paths.values())))
    login = (
        f"<h2>From a terminal</h2><pre><code>ostiary login {first}\nostiary tools {first}</code></pre>"
        '<p>Somebody gave you a code? <a href="/device">Enter it here</a>.</p>'
        if resolved.needs_login
        else "<h2>Who may call</h2><p>No login is needed on this machine.</p>"
    )
    return Markup(
        f"<h1>Here is an agent’s door</h1><p>It can be called over MCP. Give {which} to your client:</p>"
        f'<dl class="tall">{"".join(rows)}</dl>{login}'
    )
