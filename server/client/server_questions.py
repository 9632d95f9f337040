"""The questions of a server to the person who calls its tool (client/elicitation), read to be shown, and what an answer looks like. Nothing
is shown or asked here; the fields of a form are in typed_forms.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec

from server.client.client_errors import BadAnswer
from server.client.server_info import ServerInfo
from server.client.typed_forms import FormField, read_form
from server.mcp.call_questions import Question as ServerQuestion

Mode = Literal["form", "url"]

MAX_QUESTIONS: Final = 32  # at once
MAX_KEY: Final = 128
MAX_URL: Final = 4096

DECLINED: Final[Mapping[str, Any]] = {"action": "decline"}


class FormQuestion(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    fields: list[FormField]


class PageQuestion(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    url: str  # http or https, printable ASCII without blanks, no credentials
    host: str


Question: TypeAlias = FormQuestion | PageQuestion


class Answerer(Protocol):
    """The one who answers. Only what `modes` has is declared to the server; a question of another kind never gets here."""

    @property
    def modes(self) -> frozenset[Mode]: ...

    async def __call__(
        self, server: ServerInfo, questions: Mapping[str, Question], /
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return an `ElicitResult` for every key. May take as long as a person takes, and may raise."""
        ...


def accepted(content: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an answer; a page that was opened has no content."""
    return {"action": "accept"} if content is None else {"action": "accept", "content": dict(content)}


def read_questions(questions: Mapping[str, ServerQuestion], modes: frozenset[Mode]) -> dict[str, Question]:
    """Read what a server asks. Raises `BadAnswer` for what was not offered, and for what cannot be shown."""
    if len(questions) > MAX_QUESTIONS or any(len(key) > MAX_KEY for key in questions):
        raise BadAnswer(f"the server asks more than {MAX_QUESTIONS} questions at once")
    return {key: _question(each, modes) for key, each in questions.items()}


def _question(asked: ServerQuestion, modes: frozenset[Mode]) -> Question:
    method, params = asked.method, asked.params
    mode = params.get("mode", "form")
    if method != "elicitation/create" or mode not in modes:
        kind = "a page to be opened" if method == "elicitation/create" else method
        raise BadAnswer(f"the server asks for {kind}, which was not offered to it")
    message = params.get("message")
    text = message if isinstance(message, str) else ""
    if mode == "form":
        return FormQuestion(message=text, fields=read_form(params.get("requestedSchema")))
    url = params.get("url")
    host = _host(url) if isinstance(url, str) else None
    if not isinstance(url, str) or host is None:
        raise BadAnswer("the server wants a page opened whose address is no plain http or https URL")
    return PageQuestion(message=text, url=url, host=host)


def _host(url: str) -> str | None:
    """Return where a page is, if its address may be shown as one that leads there."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    # A name before the @ reads like a host, and browsers take a backslash for a slash.
    good = len(url) <= MAX_URL and url.isascii() and url.isprintable() and not set(url) & {" ", "\\"}
    return (
        parts.netloc
        if good and host and parts.scheme in ("http", "https") and "@" not in parts.netloc
        else None
    )
