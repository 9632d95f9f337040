"""All pages of the owner, put together of the parts of the running server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from auth.pages.page_visit import Parts
from server.admin.audit_commands import AuditAdmin
from server.admin.upstream_commands import UpstreamAdmin
from server.console.owner.api_key_pages import KeyPages
from server.console.owner.audit_page import TrailPages
from server.console.owner.people_page import PeoplePages
from server.console.owner.person_page import PersonPages
from server.console.owner.upstreams_page import OfferFaults, UpstreamPages
from server.settings.tool_selection import SelectableNames


class OwnerPages:
    """All pages of the owner. `servers`: what each of them offers now, for selections of tools; `audit`: the commands that read the trail;
    `upstreams`: those of upstreams, and who knows them; `offers`: what is wrong with what servers offer."""

    def __init__(
        self,
        parts: Parts,
        *,
        servers: Callable[[], Mapping[str, SelectableNames]],
        audit: AuditAdmin,
        upstreams: UpstreamAdmin,
        offers: Callable[[], Sequence[OfferFaults]] = tuple,
    ) -> None:
        self.parts: Final = parts
        self.people: Final = PeoplePages(parts, servers)
        self.person: Final = PersonPages(self.people)
        self.keys: Final = KeyPages(parts, servers)
        self.trail: Final = TrailPages(parts, audit)
        self.upstreams: Final = UpstreamPages(parts, upstreams, offers)
