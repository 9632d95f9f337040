"""What an agent's author may know of who calls. What lets somebody in is no part of it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any, Final, cast

from auth.values.identity_model import Principal
from server.agents.base.backend import AskedBy
from server.calls.sessions.session import Session

# What a client says of itself may be as long as a body.
SHOWN_CHARACTERS: Final = 100
CONVERSATION_CHARACTERS: Final = 22  # some 132 bits


def facts_of(principal: Principal, session: Session | None, client_info: Any, server: str) -> AskedBy:
    name, version = _client(session, client_info)
    return AskedBy(
        kind=principal.kind.value,
        person=principal.person,
        program=principal.known_as[0] if principal.known_as else "",
        client_id=principal.client_id,
        scopes=sorted(principal.scopes),
        client_name=name,
        client_version=version,
        session=_conversation(principal, session, server),
    )


def _client(session: Session | None, info: Any) -> tuple[str, str]:
    if session is not None:
        name, _, version = session.client.rpartition("/")
        return name, version
    if not isinstance(info, dict):
        return "", ""
    told = cast("dict[str, Any]", info)
    return _shown(told.get("name")), _shown(told.get("version"))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(each for each in text[:SHOWN_CHARACTERS] if each.isprintable())


def _conversation(principal: Principal, session: Session | None, server: str) -> str:
    """A name that leads back to nothing: the id of a session is as good as a key to it."""
    if session is not None:
        of = f"session {session.id}"
    elif principal.identified:
        of = f"caller {principal.key()}"
    else:
        return ""
    digest = sha256(f"ostiary conversation\0{server}\0{of}".encode("utf-8", "surrogatepass")).digest()
    return urlsafe_b64encode(digest)[:CONVERSATION_CHARACTERS].decode()
