"""The opening that a program gets when it is let in, for the pages that ask a person: which server, and what of it.

The confirm page of device login and the consent page share it. A choice can only be less than what was asked. Without
somebody who knows the servers (`Parts.offerings`) the pages say no more than the settings of identity do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from auth.pages.page_visit import PageVisit
from auth.people.user_accounts import User
from auth.values import scopes
from auth.values.offered_servers import OfferedTool, Offerings
from auth.values.requester import clean

# Of a long list the first are named beside it, those first that change something; a page does not hold more than the rest of these.
TOOLS_NAMED: Final = 6
TOOLS_LISTED: Final = 200
TOOL_NAME_CHARACTERS: Final = 64
TITLE_CHARACTERS: Final = 100


class OpenedServer(msgspec.Struct, frozen=True, kw_only=True):
    title: str  # "": nobody gave it a name, and there is only this one
    host: str
    icon: str = ""


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    changes: bool


class ScopeTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools behind a scope."""

    count: int
    changing: int  # of them; those that move money are behind scopes of their own
    named: tuple[ListedTool, ...]
    further: tuple[ListedTool, ...]
    some_missing: bool

    @property
    def unlisted(self) -> int:
        return self.count - len(self.named) - len(self.further)


class ScopeOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An offered scope. `parts`: those offered too that it includes, which say something only once it is taken away."""

    name: str
    words: str
    ticked: bool
    marked: bool  # as moving money, where its words do not say so
    tools: ScopeTools | None
    parts: tuple[ScopeOffer, ...] = ()


class ScopeReach(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of what is asked for. `words`: of the first permission; "": there is none."""

    words: str = ""
    further: int = 0  # permissions besides it
    money: bool = False  # one of them moves money
    tools: int = 0
    changing: int = 0


def _offerings(visit: PageVisit, server: str) -> Offerings | None:
    """Return who knows what this server is, if anybody does."""
    return visit.parts.offerings if server in visit.parts.site.servers else None


def server_of(visit: PageVisit, name: str) -> OpenedServer:
    site, offerings = visit.parts.site, _offerings(visit, name)
    found = None if offerings is None else offerings.server(name)
    title = "" if found is None else clean(found.title, TITLE_CHARACTERS)
    return OpenedServer(
        title=title or (name if len(site.servers) > 1 else ""),
        host=visit.frame.host,
        icon="" if found is None else found.icon,
    )


def may_move_money(visit: PageVisit, server: str) -> bool:
    offerings = _offerings(visit, server)
    return offerings is None or offerings.moves_money(server)


def scope_words(visit: PageVisit, server: str, names: Collection[str]) -> tuple[str, ...]:
    money = may_move_money(visit, server)
    return tuple(visit.parts.site.scopes.words(name, money=money) for name in scopes.widest(tuple(names)))


def scope_offers(
    visit: PageVisit, user: User, server: str, names: tuple[str, ...], *, ticked: tuple[str, ...] | None
) -> tuple[ScopeOffer, ...]:
    """Offer the scopes that were asked for and this account may give. `ticked` None: nobody has chosen yet."""
    known, money = visit.parts.site.scopes, may_move_money(visit, server)
    if not money:  # a permission for nothing; asked for again where it comes to mean something
        names = tuple(name for name in names if name != scopes.FINANCIAL.name)

    def offer(name: str, parts: tuple[ScopeOffer, ...] = ()) -> ScopeOffer:
        return ScopeOffer(
            name=name,
            words=known.words(name, money=money),
            # What moves money is never ticked for anybody, and not kept ticked after a mistake either.
            ticked=not known.financial(name) and (ticked is None or name in ticked),
            marked=known.financial(name) and "money" not in known.words(name).lower(),
            tools=_tools_behind(visit, user, server, name, names),
            parts=parts,
        )

    outermost = scopes.widest(names)
    within = {name: next(each for each in outermost if scopes.covers((each,), name)) for name in names}
    return tuple(
        offer(name, tuple(offer(part) for part in names if part != name and within[part] == name))
        for name in outermost
    )


def scope_reach(visit: PageVisit, user: User, server: str, offers: Sequence[ScopeOffer]) -> ScopeReach:
    """Add up these offers, ticked or not."""
    if not offers:
        return ScopeReach()
    known, offerings = visit.parts.site.scopes, _offerings(visit, server)
    names = frozenset(each.name for each in offers)
    found: tuple[OfferedTool, ...] = ()
    if offerings is not None:
        found = offerings.tools(server, person=user.id, selection=user.tools, granted=names).tools
    return ScopeReach(
        words=offers[0].words,
        further=len(offers) - 1,
        money=any(known.financial(name) for name in names),
        tools=len(found),
        changing=sum(tool.changes and not tool.moves_money for tool in found),
    )


class OpenedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and what somebody finds there; None: nobody knows, or there is nothing."""

    title: str
    tools: ScopeTools | None


def places_of(visit: PageVisit, user: User) -> tuple[OpenedPlace, ...]:
    """List all that this person could let programs use, within their ceiling; nothing where nobody knows the servers."""
    offerings, site = visit.parts.offerings, visit.parts.site
    if offerings is None:
        return ()
    ceiling = scopes.parse(user.scope)
    granted = frozenset(site.scopes.names if scopes.EVERYTHING in ceiling else ceiling)
    places: list[OpenedPlace] = []
    for name in site.servers:
        found = offerings.tools(name, person=user.id, selection=user.tools, granted=granted)
        tools = _in_words(found.tools, some_missing=found.some_missing)
        places.append(OpenedPlace(title=server_of(visit, name).title, tools=tools))
    return tuple(places)


def _tools_behind(
    visit: PageVisit, user: User, server: str, name: str, names: tuple[str, ...]
) -> ScopeTools | None:
    """Collect the tools that nobody finds any more when this scope is taken away, with all that it includes."""
    offerings = _offerings(visit, server)
    if offerings is None:
        return None
    rest = frozenset(other for other in names if not scopes.covers((name,), other))
    everything = offerings.tools(server, person=user.id, selection=user.tools, granted=frozenset(names))
    without = offerings.tools(server, person=user.id, selection=user.tools, granted=rest)
    left = {tool.name for tool in without.tools}
    lost = tuple(tool for tool in everything.tools if tool.name not in left)
    return _in_words(lost, some_missing=everything.some_missing)


def _in_words(tools: tuple[OfferedTool, ...], *, some_missing: bool) -> ScopeTools | None:
    if not tools:
        return None
    sorted_tools = sorted(tools, key=lambda tool: not tool.changes)  # stable: else in the order of the server
    listed = tuple(
        ListedTool(name=clean(tool.name, TOOL_NAME_CHARACTERS), changes=tool.changes and not tool.moves_money)
        for tool in sorted_tools[:TOOLS_LISTED]
    )
    # One name more takes no more room than saying that there is one.
    first = len(listed) if len(tools) <= TOOLS_NAMED + 1 else TOOLS_NAMED
    return ScopeTools(
        count=len(tools),
        changing=sum(tool.changes and not tool.moves_money for tool in tools),
        named=listed[:first],
        further=listed[first:],
        some_missing=some_missing,
    )
