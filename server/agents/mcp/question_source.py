"""The source of a question: which upstream asks, said in front of whatever it asks, and what no upstream may ask.

Clients show a question under this server's name, in any wording that the upstream likes. So its words never stand alone, and nothing is
asked here that a person would tell this server only: no secret, and no page of another host than the upstream's own.
Spec: client/elicitation ("Security Considerations").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from server.agents.mcp.mcp_settings import McpConfig
from server.agents.mcp.program_names import program_name
from server.agents.mcp.secret_fields import secret_field
from server.lib.log.logger import Logger
from server.lib.log.visible_text import clean
from server.lib.oauth_client.addresses import is_loopback
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet, PassingOutlet
from server.mcp.call_questions import MAX_MESSAGE, BadQuestion, Question, check_question

# Of who asks.
SOURCE_CHARACTERS: Final = 400
_CUT: Final = "…"


class QuestionSource:
    """One upstream, as those are told of it whom it asks."""

    def __init__(self, config: McpConfig, *, name: str, log: Logger) -> None:
        """Note where the upstream is. `name` is for the log."""
        self._name = name
        self._log = log
        self._listed = frozenset(config.question_hosts)
        where = urlsplit(config.url or (f"tcp://{config.tcp}" if config.tcp else ""))
        self._own_host = where.hostname or ""
        # Each port of this machine is a program of its own.
        self._own_port = where.port if config.url and is_loopback(config.url) else None
        if config.tcp and is_loopback(f"http://{config.tcp}"):
            self._own_host = ""
        self._plain = where.scheme == "http"
        if config.command:
            told = f"the program behind this server ({program_name(config.command)})"
        else:
            told = f"the server behind this one at {where.netloc.rpartition('@')[2]}"
        self._told = clean(f"{config.id}, {told}" if config.id else told)[:SOURCE_CHARACTERS]

    def named(self, question: Question) -> Question:
        """Return it with whose it is in front; what is no question is for the outlet to refuse. Raises `BackendError` for what is not asked
        for an upstream."""
        try:
            check_question(question)
        except BadQuestion:
            return question
        params = question.params
        match question.method:
            case "elicitation/create" if params.get("mode") == "url":
                host = self._allowed_host(params["url"])
                return self._with(question, "message", f"{self._told}, asks you to open a page at {host}:")
            case "elicitation/create":
                if (field := secret_field(params)) is not None:
                    raise self._refusal(
                        "asks for a secret in a form, which is not put to anybody", field=clean(field)
                    )
                return self._with(question, "message", f"{self._told}, asks:")
            case "sampling/createMessage":
                # The one text that clients show a person, and give the model, before the messages.
                return self._with(question, "systemPrompt", f"{self._told}, asks your model:")
            case "roots/list":
                return question

    def _with(self, question: Question, key: str, words: str) -> Question:
        theirs = str(question.params.get(key, ""))
        # In one line: what looks like a line of ours cannot begin in it.
        plain = theirs if key == "systemPrompt" else " ".join(clean(theirs).split())
        room = MAX_MESSAGE - len(words) - 1
        if key == "message" and len(plain) > room:
            plain = plain[: room - len(_CUT)] + _CUT
        return Question(method=question.method, params={**question.params, key: f"{words} {plain}".rstrip()})

    def _allowed_host(self, url: str) -> str:
        """Return the host of a page that may be opened, as it is shown."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        own = host == self._own_host and self._own_port in (None, parts.port)
        kept = parts.scheme == "https" or (own and self._plain) or is_loopback(url)
        if not kept or not (own or host in self._listed):
            raise self._refusal(
                f"wants a page of another host opened ({short_name(host)}), which nobody is asked: the owner of this server can allow it"
                " with question_hosts",
                host=short_name(host),
            )
        return parts.netloc

    def _refusal(self, reason: str, **more: str) -> BackendError:
        self._log.warning("upstream.question_refused", agent=self._name, reason=reason, **more)
        return BackendError(f"{self._told}, {reason}" + (f": {more['field']}" if "field" in more else ""))


class SourcedOutlet(PassingOutlet):
    """The line to a caller, on which an upstream asks."""

    def __init__(self, outlet: Outlet, source: QuestionSource) -> None:
        self._outlet = outlet  # as the base class would, which costs a function call each time
        self._source = source

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        return await super().ask({key: self._source.named(each) for key, each in questions.items()})
