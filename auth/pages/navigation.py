"""Where a signed-in person can go, for the head of every page: the pages of an account, and which of them this is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from auth.values.issuer_and_resources import Site

OVERVIEW: Final = "/account"
ACCESS: Final = "/account/access"
PEOPLE: Final = "/account/people"
YOU: Final = "/account/you"
TRY: Final = "/try"


class NavLink(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    words: str
    current: str = ""  # as `aria-current` has it: "page", or "true" for a page that belongs to it


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    words: str
    holds: tuple[str, ...] = ()  # what further paths of this place begin with
    shown: Callable[[bool, Site], bool] = lambda owner, site: True  # of an owner, or anybody else


def _owns(owner: bool, site: Site) -> bool:
    del site
    return owner


def _may_try(owner: bool, site: Site) -> bool:
    return site.tried_by == "people" or (site.tried_by == "owners" and owner)


PLACES: Final = (
    _Place(path=OVERVIEW, words="Overview", holds=("/account/calls",)),
    _Place(
        path=ACCESS,
        words="Access",
        holds=(
            "/account/logins",
            "/account/keys",
            "/account/browsers",
            "/account/consents",
            "/device",
            "/account/audit",
            "/account/upstreams",
        ),
    ),
    _Place(path=PEOPLE, words="People", shown=_owns),
    _Place(path=YOU, words="You", holds=("/account/pass", "/account/money", "/account/connections")),
    _Place(path=TRY, words="Try", shown=_may_try),
)


def links(site: Site, path: str, *, owner: bool) -> tuple[NavLink, ...]:
    """What this person may go to from the page at `path`."""
    return tuple(
        NavLink(path=place.path, words=place.words, current=_current(place, path))
        for place in PLACES
        if place.shown(owner, site)
    )


def _current(place: _Place, path: str) -> str:
    if path == place.path:
        return "page"
    within = place.path != OVERVIEW and path.startswith(place.path + "/")
    return "true" if within or path.startswith(place.holds or ("\0",)) or _tries(place, path) else ""


def _tries(place: _Place, path: str) -> bool:
    """The pages of a server's tools come after its name."""
    return place.path == TRY and path.partition("/try")[0].count("/") == 1 and "/try" in path
