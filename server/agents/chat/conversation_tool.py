"""One turn of a conversation as a tool call: its arguments, the names of sessions, and how the tool is described.

A `session_id` belongs to the subject that uses it. Two callers that both say "1" have two conversations: what an agent
is told is `<tag of the subject>.<session_id>`, so the caller's own name stays readable there and exact between calls.
Where many strangers share one subject (callers without a login), made-up names would meet, so only names that we made
count: they cannot be guessed. A model that is refused reads how to go on.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from server.agents.base.backend import AgentRequest, ToolCall
from server.agents.chat.chat_endpoint import EndpointConfig
from server.mcp.messages import Tool, ToolAnnotations
from server.mcp.result_encoding import ToolResult, failed_result

MESSAGE_CHARACTERS = 8000
AGENT_CHARACTERS = 200
SESSION_CHARACTERS = 200  # a UUID is 36; names of one's own are short too
ENTROPY_BYTES = 12
MARK_BYTES = 12  # 96 bits each: not to be guessed, and 32 characters together
KEY_BYTES = 16

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ConversationTurn(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    session_id: str
    agent_id: str = ""


class SessionNames:
    """The maker of session ids, who tells which a subject may use, and what the agent is told instead."""

    def __init__(self, key: bytes, *, agent: str) -> None:
        """Derive the key of this agent: two agents are told different tags, so they cannot find out which callers they
        share. `key` must survive restarts, or conversations do not."""
        if len(key) < KEY_BYTES:
            raise ValueError(f"a session key has at least {KEY_BYTES} bytes")
        self._key = hmac.digest(key, agent.encode(), "sha256")

    def make(self, subject: str, entropy: bytes) -> str:
        if len(entropy) != ENTROPY_BYTES:
            raise ValueError(f"a session id is made of {ENTROPY_BYTES} random bytes")
        return base64.urlsafe_b64encode(entropy + self._mark(subject, entropy)).decode("ascii")

    def may_use(self, call: AgentRequest, session_id: str) -> bool:
        return call.told_apart or self._is_ours(call.subject, session_id)

    def for_agent(self, subject: str, session_id: str) -> str:
        tag = hmac.digest(self._key, b"subject\0" + subject.encode(), "sha256").hex()
        return f"{tag[:24]}.{session_id}"

    def _is_ours(self, subject: str, session_id: str) -> bool:
        try:
            raw = base64.b64decode(session_id, altchars=b"-_", validate=True)
        except ValueError:
            return False
        entropy = raw[:ENTROPY_BYTES]
        return hmac.compare_digest(raw[ENTROPY_BYTES:], self._mark(subject, entropy))

    def _mark(self, subject: str, entropy: bytes) -> bytes:
        return hmac.digest(self._key, b"made\0" + entropy + subject.encode(), "sha256")[:MARK_BYTES]


def read_turn(
    call: ToolCall, *, names: SessionNames | None, fresh: str, agents: Sequence[str] | None = ()
) -> ConversationTurn | ToolResult:
    """Return the arguments, trimmed, or the result that says what is wrong with each of them.

    `names` None lets any caller use any session. `fresh` is used where the caller names no session. `agents` are those that may
    be asked, the only one by default; empty means that the tool has no such argument, None any agent."""
    wrong: list[str] = []
    arguments = call.arguments
    message = _text(arguments, "message", MESSAGE_CHARACTERS, wrong)
    session_id = _text(arguments, "session_id", SESSION_CHARACTERS, wrong, default=fresh)
    if not session_id.isprintable():
        wrong.append("session_id: must be printable")
    elif session_id != fresh and names is not None and not names.may_use(call, session_id):
        wrong.append(
            "session_id: is not one returned to you; leave it out to start a conversation, then pass the one returned"
        )
    agent_id = ""
    if agents is None or agents:
        only = agents[0] if agents and len(agents) == 1 else None
        agent_id = _text(arguments, "agent_id", AGENT_CHARACTERS, wrong, default=only)
        if agents is not None and agent_id and agent_id not in agents:
            wrong.append(f"agent_id: must be one of {', '.join(agents)}")
    if wrong:
        return failed_result("invalid arguments: " + "; ".join(wrong))
    return ConversationTurn(message=message, session_id=session_id, agent_id=agent_id)


def _text(
    arguments: Mapping[str, Any], name: str, most: int, wrong: list[str], *, default: str | None = None
) -> str:
    value = arguments.get(name)
    text = value.strip() if isinstance(value, str) else ""
    # Clients that send every field send null or an empty text for "none".
    if default is not None and (value is None or (isinstance(value, str) and not text)):
        return default
    if not 1 <= len(text) <= most:
        wrong.append(f"{name}: must be a text of 1 to {most} characters")
        return ""
    return text


def conversation_tool(
    config: EndpointConfig, description: str, *, agents: Sequence[str] | None = (), result: Mapping[str, Any]
) -> Tool:
    """Return the tool as callers see it; `agents` as for `read_turn`, `result` the properties beyond reply and session_id."""
    properties: dict[str, Any] = {}
    required = ["message"]
    if agents is None or agents:
        properties["agent_id"] = {
            "type": "string",
            "description": "Which agent to talk to.",
            "minLength": 1,
            "maxLength": AGENT_CHARACTERS,
            **({"enum": list(agents)} if agents else {}),
        }
        if agents is None or len(agents) > 1:
            required.insert(0, "agent_id")
    properties["message"] = {
        "type": "string",
        "description": "What to say to the agent, as plain text.",
        "minLength": 1,
        "maxLength": MESSAGE_CHARACTERS,
    }
    properties["session_id"] = {
        "type": "string",
        "description": "The session_id of an earlier result, to continue that conversation. Leave it out to start one.",
        "maxLength": SESSION_CHARACTERS,
    }
    return Tool(
        name=config.tool_name,
        title=config.tool_title,
        description=config.tool_description or description,
        input_schema={
            "$schema": DIALECT,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        output_schema={
            "$schema": DIALECT,
            "type": "object",
            "properties": {
                "reply": {"type": "string", "description": "What the agent answered."},
                "session_id": {"type": "string", "description": "Pass this on to continue the conversation."},
                **result,
            },
            "required": ["reply", "session_id"],
            "additionalProperties": False,
        },
        # An agent may do anything that its owner lets it; that is all that can be said from here.
        annotations=ToolAnnotations(open_world_hint=True),
    )
