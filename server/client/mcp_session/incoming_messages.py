"""The messages of a server besides answers, and whose they are.

Messages on the stream of a request are that request's. Over a pipe or a wire that all requests share, only progress says which it
belongs to; a question or a log message is passed on where there can be no doubt whose it is: one caller's request runs alone, and
nobody else's ran there lately. Anybody else who might be meant is never told or asked; callers without a login are told apart by their address.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import trio

from server.client.mcp_session.handshake_questions import key_of, kind_of, question_of
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Asked,
    Told,
    log_of,
    members,
    progress_of,
    refusal_message,
    reply_message,
)
from server.lib.log.logger import Logger
from server.mcp.call_failures import CannotAsk
from server.mcp.call_outlet import LEVELS, LogLevel, LogMessage
from server.mcp.call_questions import missing

# What a server still says of a request that is over comes sooner than this.
LATELY_SECONDS: Final = 30.0
CALLERS_KNOWN: Final = 1024
URI_CHARACTERS: Final = 2048
NOT_OFFERED: Final = "the caller's client does not offer what this needs to ask"

_LISTS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
    }
)


class ServerNews(msgspec.Struct, frozen=True):
    """The hearers of what belongs to no request. Neither waits."""

    lists: Callable[[], None]  # some list changed
    resource: Callable[[str], None]  # what this URI holds


UNHEARD: Final = ServerNews(lists=lambda: None, resource=lambda uri: None)


class IncomingMessages:
    """The reader of what comes on one link. `told` and `asked` are given whose stream it came on; nothing here waits."""

    def __init__(
        self,
        running: Mapping[int, SentRequest],
        tells: ServerNews,
        *,
        questions: frozenset[str],
        name: str,
        log: Logger,
    ) -> None:
        self._running = running
        self._tells = tells
        self._questions = questions
        self._name = name
        self._log = log
        self._lately: OrderedDict[str, float] = OrderedDict()  # callers, and when a request of theirs ended

    def ended(self, running: SentRequest) -> None:
        """Remember whose request is over: what it left may still be heard."""
        if running.asker is None:
            return
        lately = self._lately
        lately[running.asker] = trio.current_time()
        lately.move_to_end(running.asker)
        if len(lately) > CALLERS_KNOWN:
            lately.popitem(last=False)

    def told(
        self,
        message: Told,
        size: int,
        running: SentRequest | None,
        *,
        shared: bool,
        tells: ServerNews | None = None,
    ) -> None:
        """Pass on what was told. `tells`: who hears what belongs to no request, where that is one caller."""
        tells = tells or self._tells
        match message.method:
            case "notifications/progress":
                found = progress_of(message.params)
                if found is not None:
                    token, progress = found
                    whose = self._running.get(token) if type(token) is int else None
                    if whose is not None:
                        whose.tell(progress, size)
            case "notifications/message":
                event = log_of(message.params)
                whose = self._alone() if shared else running
                if event is not None:
                    self._heard_log(event, size, whose)
            case "notifications/resources/updated":
                uri = members(message.params).get("uri")
                if isinstance(uri, str) and len(uri) <= URI_CHARACTERS:
                    tells.resource(uri)
            case "notifications/cancelled":
                number = members(message.params).get("requestId")
                if isinstance(number, int | str):
                    # Each session numbers its questions by itself: only what all share tells nothing by where it came.
                    heard = list(self._running.values()) if shared else [] if running is None else [running]
                    for each in heard:
                        each.withdrawn(number)
            case method if method in _LISTS:
                tells.lists()
            case _:
                pass

    def asked(
        self, message: Asked, running: SentRequest | None, *, followed: bool, shared: bool
    ) -> bytes | None:
        """Return the answer that is given at once; None: whoever follows the request answers. `followed`: somebody does, who can be asked.
        `shared`: the question came where all requests' messages come."""
        if message.method == "ping":
            return reply_message(message.id, {})
        kind = kind_of(message.method)
        if kind is None or kind not in self._questions:
            return refusal_message(message.id, METHOD_NOT_FOUND, "not offered by this client")
        whose = self._alone() if shared else running
        question = question_of(message.method, message.params)
        if whose is not None and question is not None and not followed:
            whose.refused = CannotAsk(NOT_OFFERED, missing({"": question}, frozenset()))
            return refusal_message(message.id, INVALID_PARAMS, NOT_OFFERED)
        if whose is None or whose.asker is None or question is None:
            why = "it cannot be told whose request this belongs to, so nobody is asked"
            return refusal_message(message.id, INVALID_PARAMS, why)
        if not whose.ask(message.id, question, key_of(message.params)):
            return refusal_message(message.id, INVALID_PARAMS, "too many questions are open")
        return None

    def _heard_log(self, event: LogMessage, size: int, whose: SentRequest | None) -> None:
        if whose is not None and whose.asker is not None:
            whose.tell(event, size)

    def _alone(self) -> SentRequest | None:
        """Return the one request that runs, if it cannot be anybody else's that is meant."""
        calls = [each for each in self._running.values() if each.asker is not None]
        if len(calls) != 1:
            return None
        only = calls[0]
        since = trio.current_time() - LATELY_SECONDS
        others = any(at > since for asker, at in self._lately.items() if asker != only.asker)
        return None if others or len(self._lately) >= CALLERS_KNOWN else only


def lower(wanted: LogLevel, level: LogLevel | None) -> bool:
    """Return whether a session tells less than is wanted. A session has one level for all its callers, the lowest that any of them wants;
    each is told from its own on."""
    return level is None or LEVELS.index(wanted) < LEVELS.index(level)


def cancelled_params(number: int) -> Mapping[str, Any]:
    return {"requestId": number, "reason": "the caller does not wait for it any more"}
