"""The answers that belong to nobody else: health, 404, 500 and 503."""

from __future__ import annotations

import json
from collections.abc import Callable

from auth.pages import html_shell
from auth.values import http_messages
from server.lib.log.logger import Logger
from server.store.jobs import StoreDamaged, StoreUnavailable

# A full disk or a crowded queue is rarely over sooner, and a client should not hammer.
RETRY_AFTER_SECONDS = 5


def health(request: http_messages.WireRequest) -> http_messages.WireReply:
    return _plain(200, "ok\n") if request.method in ("GET", "HEAD") else wrong_method()


def wrong_method() -> http_messages.WireReply:
    """For what can only be read."""
    return _plain(405, "wrong method\n", ("allow", "GET, HEAD"))


def nothing_here(
    request: http_messages.WireRequest, *, entropy: Callable[[int], bytes]
) -> http_messages.WireReply:
    """A page for people, a line for programs."""
    if "text/html" not in request.headers.get("accept", ""):
        return _plain(404, "nothing here\n")
    return html_shell.error_page(
        404, "Nothing here", "This server has no page at this address.", "Check the address, or start at the front page.",
        _frame_of(request, entropy), back=("/", "To the front page"),
    )  # fmt: skip


def is_navigated(request: http_messages.WireRequest) -> bool:
    """Whether a browser was sent here by its person: nothing else says so."""
    headers = request.headers
    return (
        request.method in ("GET", "HEAD")
        and headers.get("sec-fetch-mode") == "navigate"
        and "text/html" in headers.get("accept", "")
    )


def for_programs(
    request: http_messages.WireRequest, refused: http_messages.WireReply, *, entropy: Callable[[int], bytes]
) -> http_messages.WireReply:
    """In place of what a program would be told at an address where there is nothing to see."""
    return html_shell.error_page(
        refused.status, "This address is for programs", "They log in and ask for tokens here. There is nothing to see.",
        "What this server is, and how a program is connected to it, is on the front page.",
        _frame_of(request, entropy), headers=tuple(each for each in refused.headers if each[0].lower() == "allow"),
        back=("/", "To the front page"),
    )  # fmt: skip


def failed(
    error: Exception, path: str, frame: html_shell.Frame | None, log: Logger, reference: str = ""
) -> http_messages.WireReply:
    """What could not be carried out, and its one line in the log. `path` is shown there: no secret may be in it. `reference` is by which
    the log knows the request."""
    if isinstance(error, StoreUnavailable):
        log.warning("store.unavailable", reason=str(error), path=path)
        return damaged(frame) if isinstance(error, StoreDamaged) else unavailable(frame)
    log.exception("site.crashed", exc_info=error, path=path, **({"request": reference} if reference else {}))
    return broken(frame, reference)


def unavailable(frame: html_shell.Frame | None) -> http_messages.WireReply:
    """The store cannot do it now. `frame` where a person reads the answer; programs get OAuth's form of it."""
    wait = ("retry-after", str(RETRY_AFTER_SECONDS))
    if frame is None:
        return _told(503, "temporarily_unavailable", "the server cannot store anything right now", wait)
    return html_shell.error_page(
        503, "Not right now", "The server cannot store anything at the moment. Nothing was changed.",
        "Try again in a moment. If it stays so, look at the server’s log: its disk may be full.",
        frame, headers=(wait,),
    )  # fmt: skip


def damaged(frame: html_shell.Frame | None) -> http_messages.WireReply:
    """What is asked for cannot be read, and will not be until a back-up is restored."""
    if frame is None:
        return _told(503, "temporarily_unavailable", "the database of this server is damaged")
    return html_shell.error_page(
        503, "Out of order", "The database of this server is damaged.",
        "Tell whoever runs this server: a back-up has to be restored.", frame, mark="stop",
    )  # fmt: skip


def broken(frame: html_shell.Frame | None, reference: str = "") -> http_messages.WireReply:
    """The log has the details."""
    if frame is None:
        return _told(500, "server_error", "internal error")
    return html_shell.error_page(
        500, "Something went wrong", "That was a fault of the server, not yours.",
        "Try again. If it happens again, the server’s log says more.", frame,
        back=("/", "To the front page"), reference=reference,
    )  # fmt: skip


def _frame_of(request: http_messages.WireRequest, entropy: Callable[[int], bytes]) -> html_shell.Frame:
    return html_shell.frame_for(request.origin, entropy(html_shell.NONCE_BYTES))


def _told(status: int, error: str, description: str, *headers: tuple[str, str]) -> http_messages.WireReply:
    """Readable by a page of any origin, as every answer of these endpoints is."""
    body = json.dumps({"error": error, "error_description": description}).encode()
    kind = ("content-type", "application/json")
    open_to_all = ("access-control-allow-origin", "*")
    return http_messages.WireReply(
        status=status, headers=(kind, ("cache-control", "no-store"), open_to_all, *headers), body=body
    )


def _plain(status: int, text: str, *headers: tuple[str, str]) -> http_messages.WireReply:
    kind = ("content-type", "text/plain; charset=utf-8")
    return http_messages.WireReply(status=status, headers=(kind, *headers), body=text.encode())
