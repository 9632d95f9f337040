"""The questions that a call may ask of its caller's client: a form or a page for the person, a completion of the client's model, its roots.

One question is a method and its parameters, whatever carries it: a request of the server (handshake era), an entry of
`inputRequests` (2026-07-28), or an outstanding input of a task. Pure. Forms are in elicitation_forms.py, messages to a model in
sampling.py. Spec: client/elicitation, client/sampling, client/roots.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from server.mcp.carried_extensions import APPS, extension_words
from server.mcp.elicitation_forms import RequestedForm, fault_in_form, problem_in_form, with_enum_names
from server.mcp.sampling import Sampling, fault_in_sampling, one_block_each, problem_in_sampled
from server.mcp.versions import Revision

QuestionMethod = Literal["elicitation/create", "sampling/createMessage", "roots/list"]
Ability: TypeAlias = Literal["elicitation", "elicitation.url", "sampling", "sampling.tools", "roots"]

# What a client can be asked for; "elicitation" is a form.
ABILITIES: Final[tuple[Ability, ...]] = (
    "elicitation",
    "elicitation.url",
    "sampling",
    "sampling.tools",
    "roots",
)

# Half of what a request may hold by default, so that an answer with a picture in it comes through, and no two fill it.
MAX_QUESTION_BYTES: Final = 1024 * 1024
MAX_ANSWER_BYTES: Final = 1024 * 1024
# A person reads it before they answer.
MAX_MESSAGE: Final = 16 * 1024
MAX_URL: Final = 4096
MAX_ROOTS: Final = 1000
_MAX_REASON: Final = 300


class BadQuestion(ValueError):
    """A question that cannot be put to any client. The text is for the author of the tool."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    method: QuestionMethod
    params: Mapping[str, Any]


class _FormQuestion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    mode: Literal["form"] = "form"
    message: str
    requested_schema: RequestedForm


class _UrlQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # No `elicitationId`: where a revision wants one, the server makes it.
    mode: Literal["url"]
    message: str
    url: str


class _RootsQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Root(msgspec.Struct, frozen=True, kw_only=True):
    uri: str
    name: str | None = None


class _Roots(msgspec.Struct, frozen=True, kw_only=True):
    roots: list[_Root]


class _Elicited(msgspec.Struct, frozen=True, kw_only=True):
    action: Literal["accept", "decline", "cancel"]
    content: Any = None


def abilities(capabilities: Any, revision: Revision | None = None) -> frozenset[str]:
    """Return what a `ClientCapabilities` object, or whatever came in its place, declares: words of `ABILITIES`, and of its extensions
    (carried_extensions.py). `revision` leaves out what a client that speaks it cannot have meant."""
    found: set[str] = set()
    elicitation = _object(capabilities, "elicitation")
    if elicitation is not None:
        # An object that names no mode is from before there were modes, or from a client that has only the first.
        if _object(elicitation, "form") is not None or not elicitation.keys() & {"form", "url"}:
            found.add("elicitation")
        if _object(elicitation, "url") is not None:
            found.add("elicitation.url")
    sampling = _object(capabilities, "sampling")
    if sampling is not None:
        found.add("sampling")
        if _object(sampling, "tools") is not None:
            found.add("sampling.tools")
    if _object(capabilities, "roots") is not None:
        found.add("roots")
    if revision is not None:
        if not revision.elicits:
            found.discard("elicitation")
        if not revision.elicits_by_url:
            found -= {"elicitation.url", "sampling.tools"}  # both came with 2025-11-25
    if isinstance(capabilities, Mapping) and "extensions" in capabilities:
        extensions = _object(capabilities, "extensions")
        words = extension_words(extensions or {})
        found |= words
        if words - {APPS}:  # of such there are as many as clients write
            return frozenset(found)
    return same_abilities(frozenset(found))


@cache
def same_abilities(found: frozenset[str]) -> frozenset[str]:
    """Return one object for all that are equal: each session keeps one, and there are few."""
    return found


def needed(question: Question) -> Ability:
    match question.method:
        case "elicitation/create":
            return "elicitation.url" if question.params.get("mode") == "url" else "elicitation"
        case "sampling/createMessage":
            tools = question.params.keys() & {"tools", "toolChoice"}
            return "sampling.tools" if tools else "sampling"
        case "roots/list":
            return "roots"


def missing(questions: Mapping[str, Question], can: frozenset[str]) -> Mapping[str, Any]:
    """Return the `ClientCapabilities` that a client would have to declare besides; empty when all can be asked."""
    lacking = {needed(question) for question in questions.values()} - can
    required: dict[str, Any] = {}
    modes: dict[str, Any] = {name: {} for name, word in _MODES if word in lacking}
    if modes:
        required["elicitation"] = modes
    if lacking & {"sampling", "sampling.tools"}:
        required["sampling"] = {"tools": {}} if "sampling.tools" in lacking else {}
    if "roots" in lacking:
        required["roots"] = {}
    return required


_MODES: Final = (("form", "elicitation"), ("url", "elicitation.url"))


def check_question(question: Question) -> None:
    """Check what can be asked of any client. Raises `BadQuestion`."""
    try:
        if len(msgspec.json.encode(question.params)) > MAX_QUESTION_BYTES:
            raise BadQuestion(f"{question.method}: it is larger than {MAX_QUESTION_BYTES // 1024} KiB")
        fault = _fault(question)
    except msgspec.ValidationError as error:
        fault = str(error)[:_MAX_REASON]
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, BadQuestion):
            raise
        fault = f"its parameters are not JSON: {str(error)[:_MAX_REASON]}"
    if fault is not None:
        raise BadQuestion(f"{question.method}: {fault}")


def problem(question: Question, answer: Any) -> str | None:
    """Return why a raw answer to a question that passed `check_question` cannot be used; None when it can. The words hold no values."""
    if not isinstance(answer, Mapping):
        return "the answer is not an object"
    given = cast("Mapping[str, Any]", answer)
    try:
        if len(msgspec.json.encode(given)) > MAX_ANSWER_BYTES:
            return f"the answer is larger than {MAX_ANSWER_BYTES // 1024} KiB"
    except (TypeError, ValueError, RecursionError):
        return "the answer is not JSON"
    match question.method:
        case "elicitation/create":
            return _elicitation_problem(question.params, given)
        case "sampling/createMessage":
            return problem_in_sampled(question.params, given)
        case "roots/list":
            return _roots_problem(given)


def for_revision(question: Question, revision: Revision, *, elicitation_id: str | None = None) -> Question:
    """Return the question in the words of a revision. Raises ValueError for one that the revision has no words for, which
    `abilities(…, revision)` never lets happen."""
    params = question.params
    match needed(question):
        case "elicitation":
            if not revision.elicits:
                raise ValueError(f"{revision.version} has no elicitation")
            if not revision.elicits_by_url:
                params = {key: value for key, value in params.items() if key != "mode"}
                params["requestedSchema"] = with_enum_names(params["requestedSchema"])
        case "elicitation.url":
            if not revision.elicits_by_url:
                raise ValueError(f"{revision.version} has no elicitation by URL")
            if not revision.modern:
                if elicitation_id is None:
                    raise ValueError(f"{revision.version} wants an elicitationId")
                params = {**params, "elicitationId": elicitation_id}
        case "sampling.tools" if not revision.elicits_by_url:
            raise ValueError(f"{revision.version} has no tools in sampling")
        case "sampling" if not revision.elicits_by_url:
            params = {**params, "messages": one_block_each(params["messages"])}
        case _:
            pass
    return question if params is question.params else Question(method=question.method, params=params)


def _object(parent: Any, name: str) -> Mapping[str, Any] | None:
    if not isinstance(parent, Mapping):
        return None
    child = cast("Mapping[str, Any]", parent).get(name)
    return cast("Mapping[str, Any]", child) if isinstance(child, Mapping) else None


def _fault(question: Question) -> str | None:
    params = question.params
    match question.method:
        case "elicitation/create" if params.get("mode") == "url":
            page = msgspec.convert(params, _UrlQuestion)
            return _message_fault(page.message) or _url_fault(page.url)
        case "elicitation/create":
            form = msgspec.convert(params, _FormQuestion)
            return _message_fault(form.message) or fault_in_form(
                form.requested_schema, params["requestedSchema"]
            )
        case "sampling/createMessage":
            return fault_in_sampling(msgspec.convert(params, Sampling))
        case "roots/list":
            msgspec.convert(params, _RootsQuestion)
            return None


def _message_fault(message: str) -> str | None:
    if not message.strip():
        return "its message is empty"
    return f"its message is longer than {MAX_MESSAGE} characters" if len(message) > MAX_MESSAGE else None


def _url_fault(url: str) -> str | None:
    if len(url) > MAX_URL:
        return f"its url is longer than {MAX_URL} characters"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "its url is not a URL"
    # The parser would drop a line break or take a backslash for a name; browsers do as they like with both.
    if parts.scheme not in ("https", "http") or not host or not url.isascii() or not url.isprintable():
        return "its url is not a full http or https URL"
    if " " in url or "\\" in url:
        return "its url holds a character that has to be percent-encoded"
    return "its url holds credentials" if parts.username is not None or "@" in parts.netloc else None


def _elicitation_problem(params: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
    try:
        elicited = msgspec.convert(answer, _Elicited)
    except (msgspec.ValidationError, RecursionError):
        return "action is not accept, decline or cancel"
    # What a page found out comes to the server by another way, so there is nothing in `content` to look at.
    if elicited.action != "accept" or params.get("mode") == "url":
        return None
    return problem_in_form(params["requestedSchema"], elicited.content)


def _roots_problem(answer: Mapping[str, Any]) -> str | None:
    try:
        roots = msgspec.convert(answer, _Roots).roots
    except (msgspec.ValidationError, RecursionError):
        return "roots is not a list of objects with a uri"
    if len(roots) > MAX_ROOTS:
        return f"there are more than {MAX_ROOTS} roots"
    return None if all(root.uri.startswith("file://") for root in roots) else "a root is not a file:// URI"
