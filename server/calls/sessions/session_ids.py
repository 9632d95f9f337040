"""The ids of sessions: each says, sealed, what its session agreed on, so that a server which no longer knows it can take it up again.

An id opens for the caller and the server that it was made for. Neither is in it, so that it stays short whatever they are called: it
goes to and fro in a header. All else is lost with the session where there is no other node: its log level, what it watched, its streams,
open questions, and what else its client declared of extensions than that it draws pages. ended_sessions.py knows which were ended. Spec: basic/transports "Session Management" (2025-11-25 and before), tutorials/security
"Session Hijacking".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import Final

import msgspec

from auth.jose.base64url import pack, unpack
from auth.values.identity_model import Millis
from server.lib.sealing import NONCE_BYTES, TAG_BYTES, NotSealedHere, Sealer
from server.mcp.call_questions import same_abilities
from server.mcp.carried_extensions import APPS, name_of
from server.mcp.versions import REVISIONS, Revision

# A program that was left open over the holidays goes on. That a session was ended is remembered for as long.
LIFETIME_DAYS: Final = 30

_SECOND: Final = 1000
LIFETIME: Final = LIFETIME_DAYS * 24 * 3600 * _SECOND
# Another for another content: an id of a build that seals otherwise is none of ours, and its client begins again.
_FORMAT: Final = b"\x01"
# When, in seconds; the revision's date as a number; a bit for each ability, and for pages.
_AGREED: Final = struct.Struct(">IIB")
_RAW_BYTES: Final = len(_FORMAT) + NONCE_BYTES + _AGREED.size + TAG_BYTES
ID_CHARACTERS: Final = -(-_RAW_BYTES * 4 // 3)
# Ids outlive builds: a bit keeps its meaning for ever.
_BITS: Final = MappingProxyType[str, int](
    {"elicitation": 1, "elicitation.url": 2, "sampling": 4, "sampling.tools": 8, "roots": 16, APPS: 32}
)
_BY_DATE: Final = MappingProxyType(
    {int(row.version.replace("-", "")): row for row in REVISIONS.values() if not row.modern}
)


class Agreed(msgspec.Struct, frozen=True):
    """The outcome of `initialize`, as far as a session cannot do without it."""

    revision: Revision
    can: frozenset[str]
    expires_at: Millis  # until then it can be taken up again


class SessionIds:
    """The ids of one server, under a key (32 bytes) that may be shared with others. `clock` is in milliseconds."""

    def __init__(
        self, key: bytes, server: str, *, clock: Callable[[], Millis], entropy: Callable[[int], bytes]
    ) -> None:
        self._sealer = Sealer(key, entropy)
        self._server = server
        self._clock = clock

    def now(self) -> Millis:
        return self._clock()

    def make(self, caller: str, revision: Revision, can: Collection[str]) -> str:
        date = int(revision.version.replace("-", ""))
        plain = _AGREED.pack(self._clock() // _SECOND, date, sum(_BITS.get(name_of(word), 0) for word in can))
        raw = _FORMAT + self._sealer.seal(plain, self._bound_to(caller))
        return pack(raw)

    def read(self, session_id: str, caller: str) -> Agreed | None:
        """Return what was agreed on in the session of this id. None: it is none of ours, or another's, or too old to be taken up again."""
        raw = _bytes(session_id)
        if raw is None:
            return None
        try:
            plain = self._sealer.open(raw[len(_FORMAT) :], self._bound_to(caller))
        except NotSealedHere:
            return None
        made_at, date, bits = _AGREED.unpack(plain)
        revision, expires_at = _BY_DATE.get(date), made_at * _SECOND + LIFETIME
        if revision is None or self._clock() >= expires_at:
            return None
        can = same_abilities(frozenset(one for one, bit in _BITS.items() if bits & bit))
        return Agreed(revision, can, expires_at)

    def _bound_to(self, caller: str) -> bytes:
        return _FORMAT + msgspec.json.encode([self._server, caller])


def _bytes(session_id: str) -> bytes | None:
    if len(session_id) != ID_CHARACTERS:
        return None
    try:
        raw = unpack(session_id)
    except ValueError:
        return None
    return raw if raw.startswith(_FORMAT) else None
