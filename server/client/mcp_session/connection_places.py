"""Places that the callers of one server have in it, in sessions or connections of their own: who gives way to whom.

Nobody has more than half of them, and whoever has the most gives way first: one caller with many clients makes only itself wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from server.client.mcp_session.session_request import SessionRequest
from server.mcp.call_failures import Busy

FULL: Final = "as many people use it as can at once: try again in a minute"


def holder_of(call: SessionRequest) -> str:
    """Name whose part of the places a session of this caller is."""
    return call.sharer or call.subject


def giving_way(places: Sequence[tuple[str, bool]], newcomer: str, most: int) -> int | None:
    """Return which place has to be given up for one more; None: none. `places` are (holder, whether it is in use); the one
    that was not heard of for longest comes first. Raises `Busy` where there is none to be had."""
    held = Counter(holder for holder, _ in places)
    own = held[newcomer]
    sated = own >= max(most // 2, 1)
    if len(places) < most and not sated:
        return None
    found = [
        number
        for number, (holder, in_use) in enumerate(places)
        if not in_use and (holder == newcomer or (not sated and held[holder] > own))
    ]
    if not found:
        raise Busy(FULL)
    return max(found, key=lambda number: held[places[number][0]])
