"""The requester, as far as the connection tells, and the cleaning of a stranger's texts before they are stored or shown."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import msgspec

from auth.values.http_messages import WireRequest
from auth.values.ip_networks import counted_as, neighbourhood

# After the network's name, where a web page of somebody else's asks from there. It is counted apart from the programs of that
# network: whatever a page does in a person's browser, it uses up nothing of what the person's own terminal may do.
BY_PAGE = " (page)"

USER_AGENT_LENGTH = 200

# Line ends; and what counts as a letter, a sign or a mark and shows nothing: fillers of Hangul, blank Braille, joiners of Khmer.
_BLANKS = frozenset("\t\r\n\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
_MARKS = 4  # on one letter; no language writes more


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    ip: str
    network: str  # what counts as one requester
    user_agent: str
    page: bool = False  # a browser asks for a web page of somebody else's

    @property
    def neighbourhood(self) -> str:
        """The wider network, for limits on a requester with many networks. Pages are counted apart here, too."""
        return neighbourhood(self.ip) + (BY_PAGE if self.page else "")

    def without_page(self) -> Requester:
        """Return the requester as if the request came from one of our own pages.

        Use it where another site redirects the browser here to finish a request that it began with us.
        """
        return msgspec.structs.replace(self, network=counted_as(self.ip), page=False)

    @classmethod
    def of(cls, request: WireRequest) -> Requester:
        headers = request.headers
        # What a browser says of the page that asks; no page can say it otherwise, and hardly any program says it at all.
        site, sender = headers.get("sec-fetch-site"), headers.get("origin")
        page = (
            site not in ("same-origin", "none")
            if site is not None
            else sender is not None and sender != request.origin
        )
        return cls(
            origin=request.origin,
            ip=request.ip,
            network=counted_as(request.ip) + BY_PAGE if page else counted_as(request.ip),
            user_agent=_user_agent(headers.get("user-agent", "")[: USER_AGENT_LENGTH * 4]),
            page=page,
        )


@lru_cache(maxsize=256)  # of a pure function: the same few programs ask again and again
def _user_agent(text: str) -> str:
    return clean(text, USER_AGENT_LENGTH)


def clean(text: str, limit: int) -> str:
    """Reduce a text to one line of plain characters, and cut it.

    Control, format (bidi, zero width), surrogate and private characters go, and so do piles of accents that would cover other lines;
    spaces, and letters that look like one, are folded. The text is cut first, so that the work is bounded, and again at the end.
    """
    kept: list[str] = []
    marks = 0
    for char in text[: limit * 4]:
        kind = unicodedata.category(char)[0]
        marks = marks + 1 if kind == "M" else 0
        if kind == "Z" or char in _BLANKS:
            kept.append(" ")
        elif kind != "C" and marks <= _MARKS:
            kept.append(char)
    return " ".join("".join(kept).split())[:limit].rstrip()


def shown(text: str, limit: int) -> str:
    """Clean a text for display, with an ellipsis where it was cut."""
    whole = clean(text, limit + 2)  # a space may be the next one, and is nothing at an end
    return whole if len(whole) <= limit else f"{whole[: limit - 1].rstrip()}…"
