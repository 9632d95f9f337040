"""Which part answers which request: the router of the public listener, made of the running server's services."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Final

from auth import endpoints, entry, pages, wire
from auth.people import links
from server.admission import Admission, anybody
from server.http import guard, landing
from server.http.asgi import Router
from server.http.lazy import Lazily
from server.http.mcp import McpEndpoint
from server.http.proxy import Proxies
from server.http.serving import App
from server.http.sse_2024 import SseEndpoint
from server.http.values import Answer, Direct
from server.services import Services, lent_by
from server.store.jobs import StoreUnavailable

# Paths that requests are counted under, besides the MCP endpoints.
LABELLED: Final = frozenset(
    {"/token", "/device_authorization", "/authorize", "/par", "/revoke", "/device", "/signin", "/healthz"}
)


# A log line is for reading.
LOGGED_PATH_CHARACTERS: Final = 200


def public_app(services: Services) -> Router:
    """The router in front: `/mcp` to the raw endpoint, everything else to the Quart-Trio app."""
    resolved, config, issuer = services.resolved, services.resolved.config, services.identity.site.issuer
    door = guard.Guard(
        hosts=frozenset(
            name
            for host in (_host(issuer), *config.allowed_hosts)
            if (name := guard.authority(host.encode(), _scheme(issuer)))
        ),
        # The issuer's own pages always: a proxy that does not say it is https must not lock them out.
        origins=frozenset(
            name for origin in (issuer, *config.allowed_origins) if (name := guard.normal_origin(origin))
        ),
        any_origin="*" in config.allowed_origins,
    )
    answer = _answer_for(services)
    # Paths as metrics labels: a closed set, whatever is asked for.
    routes = {path: path for path in (*resolved.paths.values(), *LABELLED)}
    endpoints = {name: _mcp_endpoint(services, name, door) for name in services.offerings}
    first = next(iter(endpoints))
    return Router(
        mcp={"" if name == first else name: endpoint for name, endpoint in endpoints.items()},
        exact={
            path: answerer
            for name, endpoint in endpoints.items()
            if services.offerings[name].settings.compat.sse
            for path, answerer in _two_endpoints(
                services, name, endpoint, "" if name == first else f"/{name}"
            ).items()
        },
        direct=Direct(answer),
        is_direct=_is_for_programs,
        fallback=Lazily(partial(_pages_app, answer)),
        guard=door,
        log=services.log,
        proxies=Proxies(networks=resolved.trusted_proxies) if resolved.trusted_proxies else None,
        observe=lambda path, status: services.metrics.request(routes.get(path, "other"), status),
        tells_all=config.log_level == "debug",
        secret_paths=links.PATHS,
    )


def _is_for_programs(path: str) -> bool:
    """What programs ask for: a login's documents and endpoints, and whether we live. The rest is for people."""
    return endpoints.is_endpoint(path) or "/.well-known/" in path or path == "/healthz"


def _pages_app(answer: Answer) -> App:
    from server.http import site

    return site.make_site(answer)


def _two_endpoints(services: Services, name: str, endpoint: McpEndpoint, prefix: str) -> Mapping[str, App]:
    """The transport of 2024-11-05, beside the endpoint whose door it shares."""
    sse = SseEndpoint(
        lent=lent_by(services, name, sessions=True),
        sessions=services.offerings[name].sessions,
        crew=services.crew,
        threshold=endpoint.threshold,
    )
    return {f"{prefix}/sse": sse.listen, f"{prefix}/messages": sse.post}


def _mcp_endpoint(services: Services, name: str, door: guard.Guard) -> McpEndpoint:
    settings, identity = services.offerings[name].settings, services.identity
    everybody = anybody(identity.site.scopes) if services.resolved.open_to_all(settings) else None
    admission, compat = Admission(identity, everybody), settings.compat
    return McpEndpoint(
        name=name,
        lent=lent_by(services, name, sessions=compat.sessions != "none"),
        crew=services.crew,
        sessions_required=compat.sessions == "required",
        batches_widened=compat.batch,
        guard=door.admit,
        authenticate=admission.authenticate,
        forbid=admission.forbid,
        max_body_bytes=services.resolved.config.max_body_kib * 1024,
    )


def _answer_for(services: Services) -> Answer:
    """Identity's endpoints, then its pages, then the landing page; else 404."""
    identity, asks = services.identity, services.resolved.needs_login

    async def answer(request: wire.Request) -> wire.Reply:
        reply: wire.Reply | None = None
        # For the log: a claim link's path is a secret.
        endpoint = entry.endpoint_of(request.path) or request.path[:LOGGED_PATH_CHARACTERS]
        try:
            if asks:
                reply = await identity.handle(request) or await entry.handle(request, services.pages)
        except StoreUnavailable as error:
            services.log.warning("store.unavailable", reason=str(error), path=endpoint)
            return landing.unavailable(_frame(request))
        except Exception:  # a bug: told once, here, because the framework would print the path
            services.log.exception("site.crashed", path=endpoint)
            return landing.broken(_frame(request))
        return reply or landing.answer(request, services.resolved, entropy=secrets.token_bytes)

    return answer


def _frame(request: wire.Request) -> pages.Frame | None:
    """Around an answer that a person reads; None where a program does."""
    if entry.endpoint_of(request.path) is None:
        return None
    return pages.frame_for(request.origin, secrets.token_bytes(pages.NONCE_BYTES))


def _scheme(issuer: str) -> str:
    return issuer.partition("://")[0]


def _host(issuer: str) -> str:
    return issuer.partition("://")[2]
