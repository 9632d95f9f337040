"""A session's GET and DELETE: the stream of what belongs to no request, the rest of one that broke off, and the end.

Spec: basic/transports "Listening for Messages from the Server", "Resumability and Redelivery", "Session Management"
(2025-11-25 and before).
"""

from __future__ import annotations

from typing import Final

from server.calls.sessions.event_log import StreamNotKnown
from server.calls.sessions.session import EventSource, Session
from server.calls.sessions.sessions import Sessions
from server.mcp.errors import BackendFailed, BadVersionHeader, InvalidRequest, SessionNotFound
from server.mcp.inbound_messages import VERSION_HEADER
from server.mcp.versions import REVISIONS
from server.store.jobs import StoreUnavailable
from server.transport.http.mcp_request import RETRY_LATER, McpRequest
from server.transport.http.session_post import Parting, farewell, follow

LAST_EVENT_ID: Final = b"last-event-id"
_UNKNOWN_VERSION: Final = BadVersionHeader("MCP-Protocol-Version names no version that we know")


async def serve_verb(visit: McpRequest, session: Session) -> None:
    """GET and HEAD."""
    reply = visit.reply
    reply.revision = session.revision
    if not _version_known(visit):
        return await reply.refuse(_UNKNOWN_VERSION)
    if not reply.takes_events:
        return await reply.refuse(InvalidRequest("the answer is text/event-stream"), status=406)
    if visit.head.verb == "HEAD":
        return await reply.close()
    return await _listen(visit, session)


async def end_session(visit: McpRequest, sessions: Sessions, named: str) -> None:
    """DELETE, also of a session that is not here any more and would be taken up again."""
    reply = visit.reply
    if not _version_known(visit):
        return await reply.refuse(_UNKNOWN_VERSION)
    try:
        ended = await sessions.end(named, visit.principal, visit.address)
    except StoreUnavailable as problem:
        visit.head.threshold.log.warning("store.unavailable", method="DELETE", reason=str(problem))
        error = BackendFailed("the server cannot remember right now that a session has ended: try again")
        return await reply.refuse(error, status=503, extra=RETRY_LATER)
    return await (reply.empty(204) if ended else reply.refuse(SessionNotFound("unknown session")))


def _version_known(visit: McpRequest) -> bool:
    version = visit.headers.get(VERSION_HEADER)
    return version is None or version.decode("latin-1").strip() in REVISIONS


async def _listen(visit: McpRequest, session: Session) -> None:
    """For as long as the client stays, or to the end of the stream that it resumes. A client that opens it again has lost
    the one it had: that one ends."""
    stream, after = session.unsolicited, session.unsolicited.handed
    if last_id := visit.headers.get(LAST_EVENT_ID, b"").strip():
        found = session.log.find(last_id.decode("latin-1"))
        if found is None:
            return await _listen_elsewhere(visit, session, last_id.decode("latin-1"))
        stream, after = found
    connected = session.attended_here() if stream is session.unsolicited else session.stream_open()
    with stream.read(after) as reader, connected:
        if stream is session.unsolicited:
            await session.shared()
        # The stream of a request ends with its answer, also if the server is about to go.
        await _write(visit, session, reader, until_drain=stream is session.unsolicited)
    return None


async def _listen_elsewhere(visit: McpRequest, session: Session, last_id: str) -> None:
    """To a stream that another node has, if any does."""
    with session.stream_open():
        try:
            async with session.read_elsewhere(last_id) as reader:
                if reader is not None:
                    return await _write(visit, session, reader)
        except StreamNotKnown:
            unknown = BackendFailed("whether the events after this one are kept is not known yet: try again")
            return await visit.reply.refuse(unknown, status=503, extra=RETRY_LATER)
    error = InvalidRequest("the events after this one are not kept any longer: send the request again")
    return await visit.reply.refuse(error)


async def _write(
    visit: McpRequest, session: Session, reader: EventSource, *, until_drain: bool = True
) -> None:
    try:
        await visit.reply.ping()  # so that the client sees that it is connected
    except OSError:
        return
    parting = await follow(visit, reader, until_drain=until_drain)
    if parting is not Parting.GONE:
        await visit.reply.close(farewell(parting, session.revision))
