"""All pages of the owner, put together of the parts of the running server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from auth.visit import Parts
from server.admin.audit import AuditAdmin
from server.admin.upstreams import UpstreamAdmin
from server.owner.keys import KeyPages
from server.owner.people import PeoplePages
from server.owner.person import PersonPages
from server.owner.trail import TrailPages
from server.owner.upstreams import UpstreamPages
from server.rights.selection import SelectableNames


class OwnerPages:
    """`servers`: what each of them offers now, for selections of tools; `audit`: the commands that read the trail; `upstreams`: those
    of upstreams, and who knows them."""

    def __init__(
        self,
        parts: Parts,
        *,
        servers: Callable[[], Mapping[str, SelectableNames]],
        audit: AuditAdmin,
        upstreams: UpstreamAdmin,
    ) -> None:
        self.parts: Final = parts
        self.people: Final = PeoplePages(parts, servers)
        self.person: Final = PersonPages(self.people)
        self.keys: Final = KeyPages(parts, servers)
        self.trail: Final = TrailPages(parts, audit)
        self.upstreams: Final = UpstreamPages(parts, upstreams)
