"""A session's GET and DELETE: the stream of what belongs to no request, the rest of one that broke off, and the end.

Spec: basic/transports "Listening for Messages from the Server", "Resumability and Redelivery", "Session Management"
(2025-11-25 and before).
"""

from __future__ import annotations

from typing import Final

from server.http.session_post import Parting, farewell, follow
from server.http.visit import McpVisit
from server.mcp.errors import BadVersionHeader, InvalidRequest
from server.mcp.inbound import VERSION_HEADER
from server.mcp.versions import REVISIONS
from server.sessions.sessions import Session, Sessions

LAST_EVENT_ID: Final = b"last-event-id"


async def serve_verb(visit: McpVisit, session: Session, sessions: Sessions) -> None:
    """GET, HEAD and DELETE."""
    reply = visit.reply
    reply.revision = session.revision
    version = visit.headers.get(VERSION_HEADER)
    if version is not None and version.decode("latin-1").strip() not in REVISIONS:
        return await reply.refuse(BadVersionHeader("MCP-Protocol-Version names no version that we know"))
    if visit.head.verb == "DELETE":
        sessions.end(session)
        return await reply.empty(204)
    if not reply.takes_events:
        return await reply.refuse(InvalidRequest("the answer is text/event-stream"), status=406)
    if visit.head.verb == "HEAD":
        return await reply.close()
    return await _listen(visit, session)


async def _listen(visit: McpVisit, session: Session) -> None:
    """For as long as the client stays, or to the end of the stream that it resumes. A client that opens it again has lost
    the one it had: that one ends."""
    stream, after = session.unsolicited, session.unsolicited.handed
    if last_id := visit.headers.get(LAST_EVENT_ID, b"").strip():
        found = session.log.find(last_id.decode("latin-1"))
        if found is None:
            error = InvalidRequest(
                "the events after this one are not kept any longer: send the request again"
            )
            return await visit.reply.refuse(error)
        stream, after = found
    with session.stream_open(), stream.read(after) as reader:
        if stream is session.unsolicited:
            session.catch_up()
        try:
            await visit.reply.ping()  # so that the client sees that it is connected
        except OSError:
            return None
        parting = await follow(visit, reader, until=visit.cycle.draining)
    if parting is not Parting.GONE:
        await visit.reply.close(farewell(parting, session.revision))
    return None
