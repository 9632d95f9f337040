"""Who asks, as far as the connection tells, and texts that a stranger claims: cleaned and cut before they are stored or shown."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from auth.network import counted_as
from auth.wire import Request

USER_AGENT_LENGTH = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Requester:
    origin: str
    ip: str
    network: str  # what counts as one requester
    user_agent: str

    @classmethod
    def of(cls, request: Request) -> Requester:
        return cls(
            origin=request.origin,
            ip=request.ip,
            network=counted_as(request.ip),
            user_agent=clean(request.headers.get("user-agent", ""), USER_AGENT_LENGTH),
        )


def clean(text: str, limit: int) -> str:
    """One line of plain text: no control, format (bidi, zero width), surrogate or private characters; spaces folded.

    Cut first, so that the work is bounded, and again at the end.
    """
    kept = "".join(
        " " if unicodedata.category(char)[0] == "Z" or char in "\t\r\n" else char
        for char in text[: limit * 4]
        if unicodedata.category(char)[0] != "C" or char in "\t\r\n"
    )
    return " ".join(kept.split())[:limit].rstrip()
