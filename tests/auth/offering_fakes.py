"""Servers for pages to show: what they say of themselves, and tools that need the scopes of their kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from auth.values import scopes
from auth.values.offered_servers import ConnectWay, OfferedServer, OfferedTool, OfferedTools
from server.client.programs.manual_steps import ways

PICTURE = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E"
    "%3Crect width='24' height='24' rx='6' fill='%23345995'/%3E%3Ccircle cx='12' cy='12' r='5' fill='%23fff'/%3E%3C/svg%3E"
)


def tool(name: str) -> OfferedTool:
    """`pay_…` moves money, `add_…` and `delete_…` change something."""
    return OfferedTool(
        name=name,
        changes=name.startswith(("add_", "delete_", "pay_")),
        moves_money=name.startswith("pay_"),
    )


class Offered:
    """Implements `Offerings`. `hidden`: tools that a selection `name` leaves out."""

    def __init__(
        self,
        servers: Mapping[str, OfferedServer],
        tools: Mapping[str, Sequence[str]],
        *,
        some_missing: bool = False,
    ) -> None:
        self.servers = servers
        self.all_tools = tools
        self.some_missing = some_missing
        self.hidden: dict[str, frozenset[str]] = {}

    def server(self, name: str) -> OfferedServer:
        return self.servers[name]

    def tools(self, server: str, *, person: str, selection: str, granted: Collection[str]) -> OfferedTools:
        del person
        hidden = self.hidden.get(selection, frozenset())
        found = [tool(name) for name in self.all_tools.get(server, ()) if name not in hidden]
        return OfferedTools(
            tools=tuple(each for each in found if scopes.covers(granted, _scope_of(each))),
            some_missing=self.some_missing,
        )

    def moves_money(self, server: str) -> bool:
        return any(tool(name).moves_money for name in self.all_tools.get(server, ()))

    def ways(self, server: str, origin: str, program: str) -> Sequence[ConnectWay]:
        return [
            ConnectWay(program=way.program, how=way.how, text=way.text, link=way.link, then=way.then)
            for way in ways(
                f"{origin}/mcp" if server == next(iter(self.servers)) else f"{origin}/{server}/mcp",
                ostiary=program,
            )
        ]


def _scope_of(each: OfferedTool) -> str:
    if each.moves_money:
        return scopes.FINANCIAL.name
    return scopes.WRITE.name if each.changes else scopes.READ.name


def a_support_desk(*more: str) -> Offered:
    """Of the servers that most tests have: `agent` is titled and has tools, `archive` says nothing of itself."""
    return Offered(
        {
            "agent": OfferedServer(
                name="agent",
                title="Support desk",
                description="Answers questions about orders, and looks after tickets.",
                icon=PICTURE,
            ),
            "archive": OfferedServer(name="archive"),
        },
        {"agent": ("ask_model", "find_orders", "add_note", "delete_ticket", "list_tickets", *more)},
    )
