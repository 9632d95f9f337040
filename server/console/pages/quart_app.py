"""The Quart-Trio app of the pages of people.

This file holds the limits and errors of the whole app, and what comes before every request. Quart appears in `pages/` and nowhere else.
Requests of programs do not come here: MCP (server/transport/http/mcp_endpoint.py), OAuth's endpoints and
documents (server/transport/http/identity_http.py), health and metrics (server/transport/http/health_probes.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from quart import Response, request
from quart.routing import QuartRule
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, InternalServerError, MethodNotAllowed, NotFound

from auth.context.identity_parts import Parts
from auth.pages import front_page, page_admission
from auth.pages.html_shell import NONCE_BYTES, ErrorReply, Frame, frame_for
from auth.values.http_messages import WireReply
from server.console.pages import door_routes, page_routes
from server.lib.log.logger import Logger
from server.store.jobs import StoreUnavailable
from server.transport.http import allowed_hosts, fallback_answers
from server.transport.http.identity_http import FORM_BYTES

if TYPE_CHECKING:
    from server.console.overview.overview_pages import OverviewPages
    from server.console.owner.owner_pages import OwnerPages
    from server.console.tryout.tryout_pages import TryPages

# In the order in which an Allow header names them: no page has any other.
PAGE_METHODS: Final = ("GET", "POST", "HEAD")
# A log line is for reading.
LOGGED_PATH_CHARACTERS: Final = 200


class PageRule(QuartRule):
    """A route whose URL builder is compiled when a URL is built with it: no page does that.

    Werkzeug compiles two for each route as it is added, which takes most of the time of making a site. The method that is overridden
    is one of its own: should it call another one day, routes are only compiled early again.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compile_now = super()._compile_builder

        def build(rule: PageRule, /, **values: Any) -> tuple[str, str]:
            return compile_now(append_unknown)(rule, **values)

        return build


class PublicSite(QuartTrio):
    url_rule_class = PageRule

    def log_exception(self, exception_info: Any) -> None:
        """Log nothing: Quart's line would have the path in it, and a link's path is a secret. `fallback_answers.failed` tells it."""


def make_site(
    parts: Parts,
    log: Logger,
    *,
    trying: TryPages | None = None,
    overview: OverviewPages | None = None,
    owning: OwnerPages | None = None,
    entropy: Callable[[int], bytes] = secrets.token_bytes,
) -> PublicSite:
    """Make the public app. Where nobody logs in, so without `overview` and `owning` (the pages of whoever owns the server), the front page,
    and how one connects, are all there is but for `trying`, where tools are tried out."""
    app = PublicSite("server", static_folder=None, template_folder=None)
    _bound(app)
    app.url_map.merge_slashes = False  # another path is another page, and never a redirect to one
    app.before_request(door_routes.take_in)
    app.register_blueprint(page_routes.make_front(parts, needs_login=overview is not None))
    if overview is not None:
        app.register_blueprint(page_routes.make_pages(parts, overview))
    if owning is not None:
        app.register_blueprint(page_routes.make_owner(owning))
    if trying is not None:
        app.register_blueprint(page_routes.make_try(trying))

    async def refuse_method(error: MethodNotAllowed) -> Response:
        has = error.valid_methods
        if has is None:  # a method that no path has: `take_in` said so
            return await _as_plain(error)
        if overview is None or request.path == front_page.PATH:
            return door_routes.respond(fallback_answers.wrong_method())
        allowed = [method for method in PAGE_METHODS if method in has]
        return door_routes.page(
            await known(page_admission.refuse_method(door_routes.asked(), parts, allowed))
        )

    async def miss(_: NotFound) -> Response:
        return door_routes.respond(
            await known(fallback_answers.nothing_here(door_routes.asked(), entropy=entropy))
        )

    async def known(reply: WireReply) -> WireReply:
        """Return it with whoever is signed in in its head, where it is a page and anybody could be."""
        if overview is None or not isinstance(reply, ErrorReply):
            return reply
        visit = page_admission.admit(door_routes.asked(), parts)
        return reply if isinstance(visit, WireReply) else await page_admission.recognised(reply, visit)

    async def fail(error: StoreUnavailable | InternalServerError) -> Response:
        cause = error if isinstance(error, StoreUnavailable) else error.original_exception
        assert isinstance(cause, Exception)  # no view raises a 500 by itself
        state = cast("dict[str, Any]", request.scope).get("state", {})
        reference = str(state.get("request_id", ""))
        return door_routes.respond(
            fallback_answers.failed(cause, _path_for_log(), _frame(entropy), log, reference)
        )

    app.register_error_handler(NotFound, miss)
    app.register_error_handler(MethodNotAllowed, refuse_method)
    app.register_error_handler(StoreUnavailable, fail)
    app.register_error_handler(InternalServerError, fail)
    return app


def _bound(app: QuartTrio) -> None:
    """Allow no body larger than a form of ours and no answer to OPTIONS that nobody wrote; tell errors in a line."""
    app.config["MAX_CONTENT_LENGTH"] = FORM_BYTES
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.register_error_handler(HTTPException, _as_plain)


def _is_page() -> bool:
    return not {page_routes.PAGES, page_routes.OWNER, page_routes.TRY_IT}.isdisjoint(request.blueprints)


def _path_for_log() -> str:
    """Return the route of a page, since a link's secret stands in the path."""
    if _is_page() and request.url_rule is not None:
        return request.url_rule.rule.replace("<", "{").replace(">", "}")
    return request.scope["path"][:LOGGED_PATH_CHARACTERS]


def _frame(entropy: Callable[[int], bytes]) -> Frame | None:
    """Make the frame of an answer that a person reads; None where a program may."""
    if not _is_page():
        return None
    return frame_for(allowed_hosts.origin_of(dict(request.scope)), entropy(NONCE_BYTES))


async def _as_plain(error: HTTPException) -> Response:
    return _plain(f"{error.name.lower()}\n", error.code or 500)


def _plain(text: str, status: int = 200) -> Response:
    return Response(text, status=status, content_type="text/plain; charset=utf-8")
