"""Sessions of the handshake era, on any wire: what `initialize` agreed on, what runs, what the client was asked.

A session belongs to the caller who began it; for everybody else it does not exist. It is kept in memory. One that is no longer
there, because the process is another or nobody used it for long, is taken up again when its caller names it, with what its id and
other nodes know of it: many clients take a 404 for the end of everything. What an id says is session_ids.py's, what may be said when mcp/handshake_era.py's, what is kept of
streams event_log.py's, and HTTP http/session_*.py's. Spec: basic/lifecycle, basic/transports "Session Management" (2025-11-25).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from auth.values.identity_model import Millis, Principal
from server.calls.sessions.ended_sessions import EndedSessions, topic_of
from server.calls.sessions.event_log import Allowance
from server.calls.sessions.recent_events import Lately
from server.calls.sessions.session import Session
from server.calls.sessions.session_ids import LIFETIME, SessionIds
from server.mcp import call_questions as asking
from server.mcp.errors import TooManySessions
from server.mcp.method_params import InitializeParams
from server.mcp.result_encoding import encode_notification
from server.mcp.versions import Revision

if TYPE_CHECKING:
    from server.calls.sessions.shared_sessions import SessionFacts, SharedSessions

# As many as one person's windows and gateways have open; beyond it the one unused for longest gives way.
MAX_PER_CALLER: Final = 64
# Each costs about 2 KiB, and what its log holds.
MAX_OVERALL: Final = 4096
# Over a pause in the work what a session holds is kept: its streams, and what it watches.
IDLE_SECONDS: Final = 30 * 60.0
# How late an idle session may be put away.
SWEEP_SECONDS: Final = 60.0
# No word of what a session watches is longer on its way from another node.
ON_ITS_WAY_SECONDS: Final = 60.0
# What a client says of itself goes into logs.
SHOWN_CHARACTERS: Final = 100


def caller_of(principal: Principal, address: str) -> str:
    """Whom a session belongs to."""
    return principal.key(address)


def list_changed(kind: str) -> tuple[str, bytes]:
    """What is said of it, for `Session.changed`."""
    method = f"notifications/{kind}/list_changed"
    return method, encode_notification(method, {})


class Sessions:
    """All sessions of one server. Only `run`, `look_up` and `end` wait."""

    def __init__(
        self,
        ids: SessionIds | None = None,
        ended: EndedSessions | None = None,
        *,
        per_caller: int = MAX_PER_CALLER,
        overall: int = MAX_OVERALL,
        idle_seconds: float = IDLE_SECONDS,
        shared: SharedSessions | None = None,
    ) -> None:
        """Without `ids`, on a wire that shows none to its client, nobody else can read them. `shared`: the same sessions may be at
        other nodes."""
        self._ids = ids or SessionIds(
            secrets.token_bytes(32),
            "",
            clock=lambda: time.time_ns() // 1_000_000,
            entropy=secrets.token_bytes,
        )
        self._ended = EndedSessions() if ended is None else ended
        self._per_caller = per_caller
        self._overall = overall
        self._idle_seconds = idle_seconds
        self._allowance = Allowance()
        self._by_caller: dict[str, dict[str, Session]] = {}
        self._all: dict[str, Session] = {}
        self.shared: Final = shared
        self._began_at = self._ids.now()
        self._changed_at: dict[str, Millis] = {}  # when each list was last another
        self._updated = Lately(ON_ITS_WAY_SECONDS)

    def count(self) -> int:
        return len(self._all)

    def create(
        self, principal: Principal, address: str, revision: Revision, params: InitializeParams
    ) -> Session:
        """Called when `initialize` is answered with that revision. Raises `TooManySessions`."""
        caller = principal.key(address)
        can = asking.abilities(params.capabilities, revision)
        session_id = self._ids.make(caller, revision, can)
        return self._admit(session_id, caller, revision, can=can, client=_claimed(params.client_info))

    def find(self, session_id: str, principal: Principal, address: str) -> Session | None:
        """The caller's session of that id, which counts as using it. None: it is not here, or another's."""
        session = self._all.get(session_id)
        if session is None or session.caller != principal.key(address):
            return None
        session.touch()
        return session

    def expecting(self, session_id: str) -> AbstractContextManager[None]:
        """While it is looked up and taken up again: what other nodes say of it meanwhile is not lost."""
        return nullcontext() if self.shared is None else self.shared.expecting(session_id)

    async def look_up(self, session_id: str, principal: Principal, address: str) -> SessionFacts | None:
        """What other nodes know of one that is not here. None: there are none, or it can be nobody's. Raises `StoreUnavailable`."""
        if self.shared is None or session_id in self._ended:
            return None
        if self._ids.read(session_id, principal.key(address)) is None:
            return None
        facts = await self.shared.look_up(session_id)
        if facts.ended_until is not None:
            self._ended.know(topic_of(session_id), facts.ended_until)
        return facts

    def resume(
        self, session_id: str, principal: Principal, address: str, facts: SessionFacts | None = None
    ) -> Session | None:
        """The same for one that is not here any more, taken up again with nothing in it but these `facts`. None: it has ended, never
        was, or is another's. Raises `TooManySessions`."""
        caller = principal.key(address)
        agreed = self._ids.read(session_id, caller)
        if agreed is None or session_id in self._all or session_id in self._ended:
            return None
        made_at = agreed.expires_at - LIFETIME
        session = self._admit(
            session_id, caller, agreed.revision, can=agreed.can, client="", resumed=True, made_at=made_at
        )
        if facts is not None:
            session.log_level = facts.log_level or session.log_level
            session.watched |= facts.watched
            session.reader = facts.reader
        if self.shared is not None:
            self.shared.catch_up(session)
        return session

    def may_have_missed(self, session: Session, kind: str) -> bool:
        """Whether the list may have changed since the session was begun. Among several nodes a session reaches each of them once, mostly with
        nothing changed."""
        if self.shared is None:
            return True
        # Ids hold whole seconds.
        return session.made_at <= max(self._began_at, self._changed_at.get(kind, 0)) + 1000

    async def end(self, session_id: str, principal: Principal, address: str) -> bool:
        """For good, at its client's wish. False: there is none of that id, or it is another's. Raises `StoreUnavailable`: then
        it goes on."""
        agreed = self._ids.read(session_id, principal.key(address))
        if agreed is not None and session_id not in self._ended:
            await self._ended.add(session_id, agreed.expires_at)
        elif self.find(session_id, principal, address) is None:
            return False
        session = self._all.get(session_id)
        if session is not None:
            self.put_away(session)
        if agreed is not None and self.shared is not None:
            self.shared.ended(session_id, agreed.expires_at)
        return True

    def put_away(self, session: Session) -> None:
        """It is not here any longer; whoever knows its id may take it up again."""
        if self._all.pop(session.id, None) is None:
            return
        own = self._by_caller[session.caller]
        del own[session.id]
        if not own:
            del self._by_caller[session.caller]
        if self.shared is not None:
            self.shared.went(session)
        session.close()

    def begin_draining(self) -> None:
        for session in self._all.values():
            session.stop_asking()

    def cut_off(self) -> None:
        for session in self._all.values():
            session.cut_off()

    def publish(self, kind: str) -> None:
        """Tell every session that one of the lists has changed: `tools`, `prompts` or `resources`."""
        method, message = list_changed(kind)
        self._changed_at[kind] = self._ids.now()
        for session in self._all.values():
            session.changed(method, message)

    def watched(self) -> set[str]:
        """Resources of which some session wants to hear."""
        return {uri for session in self._all.values() for uri in session.watched}

    def updated(self, uri: str, apart: str = "") -> None:
        """Tell the sessions that watch it that this resource has changed; with `apart`, the one with this digest (`topic_of`)."""
        if self.shared is not None and not apart:
            self._updated.note(uri)
        kind, message = _update(uri)
        for session in self._all.values():
            if uri in session.watched and apart in ("", topic_of(session.id)):
                session.changed(kind, message)

    def watches_elsewhere(self, session: Session, uri: str, on: bool) -> None:
        """Its client has said so to another node. Of what changed here before that was known, it is told now."""
        (session.watched.add if on else session.watched.discard)(uri)
        if on and uri in self._updated:
            session.changed(*_update(uri))

    async def run(self) -> None:
        """For ever: put away what nobody has used for long."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            too_old = trio.current_time() - self._idle_seconds
            for session in [one for one in self._all.values() if one.last_used <= too_old and not one.busy]:
                self.put_away(session)

    def _admit(
        self,
        session_id: str,
        caller: str,
        revision: Revision,
        *,
        can: frozenset[str],
        client: str,
        resumed: bool = False,
        made_at: Millis = 0,
    ) -> Session:
        own = self._by_caller.get(caller, {})
        if len(own) >= self._per_caller:
            self._make_room(
                own.values(),
                "the one session that you may have is in use"
                if len(own) == 1
                else f"all {len(own)} sessions that you may have are in use",
            )
        if len(self._all) >= self._overall:
            # Its own first: one caller must not live at the expense of the others for longer than it has to.
            unused = [session for session in own.values() if not session.busy]
            self._make_room(unused or self._all.values(), "all sessions of this server are in use")
        own = self._by_caller.setdefault(caller, {})
        session = Session(
            session_id,
            caller,
            revision,
            can=can,
            client=client,
            allowance=self._allowance,
            siblings=own,
            resumed=resumed,
            elsewhere=self.shared,
            made_at=made_at,
        )
        self._all[session.id] = own[session.id] = session
        if self.shared is not None:
            self.shared.came(session, self)
        return session

    def _make_room(self, sessions: Iterable[Session], refusal: str) -> None:
        unused = min(
            (session for session in sessions if not session.busy),
            key=lambda session: session.last_used,
            default=None,
        )
        if unused is None:
            raise TooManySessions(refusal)
        self.put_away(unused)


def _update(uri: str) -> tuple[str, bytes]:
    """What is said of it, for `Session.changed`."""
    method = "notifications/resources/updated"
    return f"{method} {uri}", encode_notification(method, {"uri": uri})


def _claimed(info: Any) -> str:
    """What a client calls itself, fit to be printed."""
    if not isinstance(info, dict):
        return ""
    told = cast("dict[str, Any]", info)
    text = f"{told.get('name', '')}/{told.get('version', '')}"
    return "".join(character for character in text[:SHOWN_CHARACTERS] if character.isprintable())
