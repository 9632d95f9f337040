"""The questions of a server of the handshake era, in the words of our own questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Raw

from server.client.mcp_session.session_messages import members
from server.mcp.call_questions import ABILITIES, Question, QuestionMethod
from server.mcp.carried_extensions import QUESTION_KEYS, is_extension

_METHODS: Final[Mapping[str, tuple[QuestionMethod, str]]] = {
    "elicitation/create": ("elicitation/create", "elicitation"),
    "sampling/createMessage": ("sampling/createMessage", "sampling"),
    "roots/list": ("roots/list", "roots"),
}
# Of the server's dealings with us: nothing that our own client would be told.
_OURS: Final = frozenset({"_meta", "task", "elicitationId"})
KEY_CHARACTERS: Final = 100
MADE_UP: Final = "upstream-"  # how keys of ours begin


def kind_of(method: str) -> str | None:
    """Return "elicitation", "sampling" or "roots"; None: nothing that a client is asked."""
    found = _METHODS.get(method)
    return None if found is None else found[1]


def question_of(method: str, params: Raw | Mapping[str, Any]) -> Question | None:
    """Return the question, not checked yet: an outlet does that before it asks."""
    found = _METHODS.get(method)
    if found is None:
        return None
    given = params if isinstance(params, Mapping) else members(params)
    return Question(method=found[0], params={key: value for key, value in given.items() if key not in _OURS})


def key_of(params: Raw) -> str:
    """Return the key of a question, where its server told it; else nothing."""
    meta = members(params).get("_meta")
    key = cast("Mapping[str, Any]", meta).get(QUESTION_KEYS) if isinstance(meta, Mapping) else None
    fits = isinstance(key, str) and len(key) <= KEY_CHARACTERS and not key.startswith(MADE_UP)
    return cast("str", key) if fits else ""


def abilities_for(questions: frozenset[str]) -> frozenset[str]:
    """Return all that somebody has who can be asked these kinds of questions, and has these extensions."""
    can = frozenset(word for word in ABILITIES if word.partition(".")[0] in questions)
    return can | frozenset(filter(is_extension, questions))
