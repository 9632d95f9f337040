"""The servers as pages show them: what each says of itself, which tools somebody would find, and how programs are told of it.

Everything is asked anew each time, of the endpoints as they are now: settings are read again while they run, and agents change their tools.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import UNSET

from auth.values.identity_model import Principal, PrincipalKind
from auth.values.offered_servers import ConnectWay, OfferedServer, OfferedTool, OfferedTools
from server.agents.base.catalog import ToolEntry
from server.calls.rights.standing import Standing
from server.calls.servers.endpoint import Endpoint

PICTURE: Final = "data:image/"


class ShownServers:
    """Implements `auth.values.offered_servers.Offerings`."""

    def __init__(self, endpoints: Mapping[str, Endpoint], paths: Mapping[str, str], issuer: str) -> None:
        """`endpoints` by the names of servers; filled in once they are open. `issuer`: under which pictures are ours, too."""
        self._endpoints = endpoints
        self._paths = paths
        self._issuer = issuer

    def server(self, name: str) -> OfferedServer:
        info = self._endpoints[name].identity.info
        icons = () if info.icons is UNSET else info.icons
        return OfferedServer(
            name=name,
            title="" if info.title is UNSET else info.title,
            description="" if info.description is UNSET else info.description,
            icon=next((icon.src for icon in icons if self._is_ours(icon.src)), ""),
        )

    def tools(self, server: str, *, person: str, selection: str, granted: Collection[str]) -> OfferedTools:
        endpoint = self._endpoints[server]
        somebody = Principal(
            kind=PrincipalKind.USER,
            subject=person,
            scopes=frozenset(granted),
            tools=selection,
            reach=frozenset(),
        )
        return OfferedTools(
            tools=tuple(
                _shown(entry)
                for entry in endpoint.catalog.entries()
                if endpoint.rights.standing(somebody, entry) is Standing.ALLOWED
            ),
            some_missing=endpoint.catalog.awaits_more,
        )

    def moves_money(self, server: str) -> bool:
        catalog = self._endpoints[server].catalog
        return catalog.awaits_more or any(entry.terms.tier == "financial" for entry in catalog.entries())

    def ways(self, server: str, origin: str, program: str) -> Sequence[ConnectWay]:
        from server.client.programs.manual_steps import name_for, ways  # with the first page that shows them

        url = origin + self._paths[server]
        # Programs keep servers by their names, and several of one host need one each.
        name = "" if server == next(iter(self._paths)) else f"{name_for(url)}-{server}"
        return [
            ConnectWay(program=way.program, how=way.how, text=way.text, link=way.link, then=way.then)
            for way in ways(url, name, program)
        ]

    def _is_ours(self, address: str) -> bool:
        """A page asks no stranger for anything: whoever serves the picture would learn who looks at it."""
        return address.startswith((PICTURE, f"{self._issuer}/"))


def _shown(entry: ToolEntry) -> OfferedTool:
    tier = entry.terms.tier
    return OfferedTool(name=entry.tool.name, changes=tier != "read", moves_money=tier == "financial")
