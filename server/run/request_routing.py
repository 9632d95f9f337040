"""The router of the public listener, made of the running server's services."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from shlex import quote
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from auth.endpoints import endpoint_table
from auth.people import one_time_links
from auth.values import http_messages
from auth.values.endpoint_paths import AUTHORIZATION_SERVER, DEVICE_AUTHORIZATION, KEY_DOCUMENTS, PAR
from auth.values.requester import Requester
from server.calls.rights.standing import Standing
from server.calls.servers.server_opening import now_millis
from server.run.pages_ahead import LazyPages
from server.run.services import Services
from server.transport.admission.bearer_check import Admission, anybody
from server.transport.http import allowed_hosts, fallback_answers
from server.transport.http.asgi import hosting
from server.transport.http.entry import Threshold
from server.transport.http.handler import App, Resolve
from server.transport.http.health_probes import PublicReadiness
from server.transport.http.identity_http import Answer, form_handler
from server.transport.http.mcp_endpoint import McpEndpoint
from server.transport.http.plain_calls import ToolCalls
from server.transport.http.proxy import Proxies
from server.transport.http.router import Router
from server.transport.http.sse_2024 import SseEndpoint
from server.transport.http.unknown_hosts import UnknownHosts

if TYPE_CHECKING:
    from server.calls.shown_prices import Storefront
    from server.console.overview.overview_pages import OverviewPages
    from server.console.owner.owner_pages import OwnerPages
    from server.console.owner.upstreams_page import OfferFaults
    from server.console.tryout.tryout_pages import TryPages
    from server.run.one_of_several import OneOfSeveral
    from server.run.one_process import OneProcess
    from server.run.served_certificate import ServedCertificate
    from server.transport.http.manifests import Manifests, OfferedTool
    from server.transport.http.security_txt import SecurityTxt

# Paths that requests are counted under, besides the MCP endpoints.
# Where all that is sold to everybody is listed, and whether it can be paid for now: price_list.py, loaded where something is sold.
PRICES: Final = "/.well-known/x402"
PAYMENT_STATUS: Final = "/x402/status"
# What servers say of themselves: manifests.py.
MANIFEST: Final = "/.well-known/mcp.json"
# What a program asks before it sends its person to a page.
BEFORE_A_PAGE: Final = frozenset({AUTHORIZATION_SERVER, DEVICE_AUTHORIZATION, PAR})
CARD: Final = "/.well-known/agent-card.json"
# Whom to tell of a weakness: security_txt.py, loaded where somebody is named.
SECURITY_TXT: Final = "/.well-known/security.txt"
# What a balancer asks, by whatever name it knows this machine: a word that is nobody's secret, so no guard stands before it.
READY: Final = "/readyz"
# What a browser is shown at the address of a server: auth/pages/front_page.py, loaded with the first page.
CONNECT_PAGE: Final = "/connect"
LABELLED: Final = frozenset(
    {
        "/token",
        "/device_authorization",
        "/authorize",
        "/par",
        "/revoke",
        "/device",
        "/signin",
        "/healthz",
        READY,
    }
)

# None: it was asked for something else.
Prices: TypeAlias = Callable[[http_messages.WireRequest], Awaitable[http_messages.WireReply | None]]

# A log line is for reading.
LOGGED_PATH_CHARACTERS: Final = 200


def lazy_pages(
    services: Services, place: OneProcess | OneOfSeveral, certificate: ServedCertificate | None = None
) -> LazyPages:
    return LazyPages(partial(_pages_app, services, place, certificate), services.log)


def public_router(services: Services, pages: LazyPages) -> Router:
    """Route `/mcp` to its endpoint, what programs ask of a login to forms, everything else to the Quart-Trio app."""
    resolved, issuer = services.resolved, services.identity.parts.site.issuer
    config, (scheme, _, host) = resolved.config, issuer.partition("://")
    door = allowed_hosts.Guard(
        hosts=frozenset(
            name
            for each in (host, *config.allowed_hosts)
            if (name := allowed_hosts.authority(each.encode(), scheme))
        ),
        # The issuer's own pages always: a proxy that does not say it is https must not lock them out.
        origins=frozenset(
            name
            for origin in (issuer, *config.allowed_origins)
            if (name := allowed_hosts.normal_origin(origin))
        ),
        any_origin="*" in config.allowed_origins,
        refused=UnknownHosts(services.log, monotonic),
    )
    # Paths as metrics labels: a closed set, whatever is asked for.
    routes = {path: path for path in (*resolved.paths.values(), *resolved.aliases, *LABELLED)}
    endpoints = {name: _mcp_endpoint(services, name, door) for name in services.endpoints}
    calls = {
        (prefix := f"/{name}/call/"): ToolCalls(each.endpoint, each.threshold, prefix).resolve
        for name, each in endpoints.items()
    }
    first = next(iter(endpoints))
    return Router(
        mcp={path: endpoints[name].resolve for name, path in resolved.paths.items()}
        | {path: endpoints[name].resolve for path, name in resolved.aliases.items()},
        exact={READY: hosting(PublicReadiness(is_ready=lambda: not services.probe.glance().problem))}
        | {
            path: answerer
            for name, endpoint in endpoints.items()
            if services.servers.settings[name].compat.sse
            for path, answerer in _two_endpoints(
                services, name, endpoint, "" if name == first else f"/{name}"
            ).items()
        }
        | _deposit_desks(services, endpoints),
        below=calls,
        forms=form_handler(
            _answer_for(services, _price_list(services, endpoints), _manifests(services), pages.expect)
        ),
        is_form=_is_for_programs,
        pages=pages,
        guard=door,
        log=services.bounded_log,
        proxies=Proxies(networks=resolved.trusted_proxies) if resolved.trusted_proxies else None,
        observe=services.metrics.counting_requests(routes),
        tells_all=config.log_level == "debug",
        secret_paths=one_time_links.PATHS,
        pages_of={
            path: (CONNECT_PAGE, f"server={name}".encode())
            for path, name in (
                *((path, name) for name, path in resolved.paths.items()),
                *resolved.aliases.items(),
            )
        },
    )


def _is_for_programs(path: str) -> bool:
    """Return whether programs ask for a path: documents and endpoints of a login, health. The rest is for people."""
    return endpoint_table.is_endpoint(path) or "/.well-known/" in path or path in ("/healthz", PAYMENT_STATUS)


def _pages_app(
    services: Services, place: OneProcess | OneOfSeveral, certificate: ServedCertificate | None
) -> App:
    """Make the pages, in a thread, when the first is asked for: they and their framework take a while to load."""
    from server.console.pages import quart_app

    return quart_app.make_site(
        services.identity.parts,
        services.bounded_log,
        trying=_try_pages(services),
        overview=_overview_pages(services, place, certificate) if services.resolved.needs_login else None,
        owning=_owner_pages(services) if services.resolved.needs_login else None,
    )


def _overview_pages(
    services: Services, place: OneProcess | OneOfSeveral, certificate: ServedCertificate | None
) -> OverviewPages:
    from server.console.overview.outages import outages
    from server.console.overview.overview_pages import OverviewPages
    from server.console.overview.overview_values import RunningParts
    from server.run.agent_outages import nothing_recorded
    from server.run.node_reports import nodes_told

    endpoints = services.endpoints

    def offered() -> list[tuple[str, str]]:
        return [(name, tool) for name, endpoint in endpoints.items() for tool in endpoint.catalog.tools]

    def to_accept() -> list[tuple[str, str]]:
        found = [(each.server, each.summary) for each in _offer_faults(services) if each.summary]
        if (desk := services.servers.trust.desk) is not None:
            found += [
                (str(key), waiting) for key, each in desk.known.items() if (waiting := each.guard.waiting())
            ]
        return found

    around = RunningParts(
        outages=lambda now: outages(
            endpoints, services.store, nothing_recorded, now
        ),  # which is done already
        offered=offered,
        to_accept=to_accept,
        certificate=(lambda: "") if certificate is None else certificate.note,
        write_down=services.write_down,
        nodes=partial(nodes_told, services, place),
    )
    return OverviewPages(services.identity.parts, around)


def _owner_pages(services: Services) -> OwnerPages:
    from server.console.owner.owner_pages import OwnerPages
    from server.run.admin_commands import audit_admin, upstream_admin

    return OwnerPages(
        services.identity.parts,
        servers=services.selectable,
        audit=audit_admin(services),
        upstreams=upstream_admin(services),
        offers=partial(_offer_faults, services),
    )


def _offer_faults(services: Services) -> list[OfferFaults]:
    from server.console.owner.upstreams_page import OfferFaults

    return [
        OfferFaults(server=name, refused=endpoint.refused_names, left_out=endpoint.catalog.all_left_out())
        for name, endpoint in services.endpoints.items()
    ]


def _try_pages(services: Services) -> TryPages | None:
    resolved = services.resolved
    who = resolved.config.try_page
    if who == "off":
        return None
    from server.console.tryout.tryout_pages import TryPages

    servers = services.servers
    return TryPages(servers.endpoints, servers.settings, resolved, services.identity.parts, who=who)


def _two_endpoints(services: Services, name: str, endpoint: McpEndpoint, prefix: str) -> dict[str, Resolve]:
    """Return the transport of 2024-11-05, beside the endpoint whose threshold it shares."""
    sse = SseEndpoint(
        services.endpoints[name],
        endpoint.threshold,
        services.crew,
        sessions=services.servers.sessions[name],
    )
    return {f"{prefix}/sse": sse.listening, f"{prefix}/messages": sse.posting}


def _mcp_endpoint(services: Services, name: str, door: allowed_hosts.Guard) -> McpEndpoint:
    settings, identity = services.servers.settings[name], services.identity
    everybody = anybody(identity.parts.site.scopes) if services.resolved.open_to_all(settings) else None
    sells = settings.anonymous_pay and services.money is not None
    endpoint, compat = services.endpoints[name], settings.compat
    admission = Admission(identity, everybody, sells, endpoint.rights)
    return McpEndpoint(
        endpoint if compat.sessions != "none" else endpoint.without_sessions(),
        Threshold(
            name=name,
            guard=door.admit,
            doorkeeper=admission,
            log=services.bounded_log,
            max_body_bytes=services.resolved.config.max_body_kib * 1024,
            loads=services.loads,
            storefront=_storefront(services, name),
            sells_to_all=sells,
            gate=None if endpoint.limits is None else endpoint.limits.gate,
        ),
        services.crew,
        sessions_required=compat.sessions == "required",
        batches_widened=compat.batch,
    )


def _deposit_desks(services: Services, endpoints: Mapping[str, McpEndpoint]) -> dict[str, Resolve]:
    money = services.money
    make = None if money is None else money.deposits
    if make is None:
        return {}
    from auth.grant_types.purchased_logins import NotForSale, issue_tokens
    from server.transport.http.deposit_endpoint import DepositEndpoint

    parts = services.identity.parts

    async def issue(
        payer: str, server: str, payment_id: str, requester: Requester
    ) -> Mapping[str, Any] | None:
        try:
            return await issue_tokens(
                parts, payer=payer, server=server, payment_id=payment_id, requester=requester
            )
        except NotForSale:
            services.log.warning("token.not_sold", server=server, payment=payment_id)
            return None

    def desk(name: str, endpoint: McpEndpoint) -> DepositEndpoint:
        sells_tokens = _sells_tokens(services, name)
        return DepositEndpoint(
            make(services.servers.settings[name]), endpoint.threshold, issue if sells_tokens else None
        )

    return {f"/{name}/deposit": desk(name, endpoint).resolve for name, endpoint in endpoints.items()}


def _sells_tokens(services: Services, name: str) -> bool:
    """Return whether tokens of logins are of any use there."""
    settings = services.servers.settings[name]
    return "login" in settings.accepts and not services.resolved.open_to_all(settings)


def _addresses(services: Services, name: str) -> Mapping[str, str]:
    """Return the paths of a server that sells to everybody; `deposit` where a payer is given a token."""
    money = services.money
    found = {"name": name, "mcp": services.resolved.paths[name], "calls": f"/{name}/call/"}
    if money is not None and money.deposits is not None and _sells_tokens(services, name):
        found["deposit"] = f"/{name}/deposit"
    return found


def _storefront(services: Services, name: str) -> Storefront | None:
    if services.endpoints[name].till is None:
        return None
    from server.calls.shown_prices import Storefront

    site = services.identity.parts.site
    address = site.issuer + site.servers[name]
    return Storefront(
        services.endpoints[name],
        ordinary=site.scopes.ordinary,
        address=f"{site.issuer}/{name}/call/",
        prices=site.issuer + PRICES,
        setup={
            "command": f"ostiary login {quote(address)}",
            "message": "Log in once in a terminal; calls are then paid from the balance of that login.",
            "docs": f"{site.issuer}/",
        },
    )


def _price_list(services: Services, endpoints: Mapping[str, McpEndpoint]) -> Prices | None:
    money = services.money
    if money is None:
        return None
    from server.transport.http.price_list import PATHS, PriceList

    assert {PRICES, PAYMENT_STATUS} <= PATHS
    sold = {
        name: storefront
        for name, endpoint in endpoints.items()
        if (storefront := endpoint.threshold.storefront) is not None
        and (
            endpoint.threshold.sells_to_all or services.resolved.open_to_all(services.servers.settings[name])
        )
    }
    facilitators = money.facilitators
    prices = PriceList(
        tuple(sold.values()),
        money.assets,
        servers=[_addresses(services, name) for name in sold],
        probe=facilitators.supported,
        known=lambda: facilitators.support,
    )

    async def answer(request: http_messages.WireRequest) -> http_messages.WireReply | None:
        return await prices.answer(request) if request.path in PATHS else None

    return answer


def _manifests(services: Services) -> Callable[[http_messages.WireRequest], http_messages.WireReply | None]:
    """Return the answerer of manifests, which are loaded with the first that somebody asks for."""
    made: list[Manifests] = []

    def answer(request: http_messages.WireRequest) -> http_messages.WireReply | None:
        if not made:
            from server.transport.http import manifests

            assert (manifests.MANIFEST, manifests.CARD) == (MANIFEST, CARD)
            site = services.identity.parts.site
            made.append(
                manifests.Manifests(site, services.endpoints, offered=partial(_offered_to_all, services))
            )
        return made[0].answer(request)

    return answer


def _security_txt(services: Services) -> SecurityTxt | None:
    """Return the document, or None if nobody is named."""
    contacts = services.resolved.config.security_contact
    if not contacts:
        return None
    from server.transport.http import security_txt

    assert security_txt.PATH == SECURITY_TXT
    return security_txt.SecurityTxt(contacts, services.identity.parts.site.issuer, now_millis)


def _offered_to_all(services: Services, name: str) -> list[OfferedTool] | None:
    """Return the tools of a server that may be called without a login; None if nobody may."""
    if name not in services.resolved.open_servers:
        return None
    endpoint, somebody = services.endpoints[name], anybody(services.identity.parts.site.scopes)
    return [
        (entry.tool, entry.terms.tier)
        for entry in endpoint.catalog.tools.values()
        if endpoint.rights.standing(somebody, entry) is Standing.ALLOWED
    ]


def _answer_for(
    services: Services,
    prices: Prices | None,
    manifests: Callable[[http_messages.WireRequest], http_messages.WireReply | None],
    expect_page: Callable[[], None],
) -> Answer:
    """Answer what programs ask for: identity's endpoints and documents, what is sold, and health; else 404."""
    identity, asks = services.identity, services.resolved.needs_login
    security = _security_txt(services)

    async def answer(request: http_messages.WireRequest) -> http_messages.WireReply:
        reply: http_messages.WireReply | None = None
        try:
            if prices is not None:
                reply = await prices(request)
            if reply is None and (MANIFEST in request.path or CARD in request.path):
                reply = manifests(request)
            if security is not None and request.path == SECURITY_TXT:
                reply = security.answer(request)
            # Who sells without a login signs receipts all the same.
            signs = services.money is not None and request.path in KEY_DOCUMENTS
            if reply is None and (asks or signs):
                reply = await identity.handle(request)
                if request.path in BEFORE_A_PAGE:
                    expect_page()
                if reply is not None and reply.status >= 400 and fallback_answers.is_navigated(request):
                    return fallback_answers.for_programs(request, reply, entropy=secrets.token_bytes)
        except Exception as error:
            return fallback_answers.failed(
                error, request.path[:LOGGED_PATH_CHARACTERS], None, services.bounded_log
            )
        if reply is not None:
            return reply
        if request.path == "/healthz":
            return fallback_answers.health(request)
        return fallback_answers.nothing_here(request, entropy=secrets.token_bytes)

    return answer
