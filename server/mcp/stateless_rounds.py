"""A call that pauses for answers and comes back with them, without the server keeping anything (2026-07-28).

The first run asks and is answered `input_required`; the client sends the same request again, with the answers and with our
`requestState`; the call then runs again from its start, and what was answered before is there when it asks. Here: sealing
that state, and finding the answers in it. Raising out of the run that has to wait is the caller's part.
Spec: basic/patterns/mrtr.

What is in a state, and why. The questions are not: the run that comes back asks them anew, so the answer is checked against
the question that is asked *now*. What each key stood for is, as a digest: where a person was asked "delete 5 files?" and the
tool would now ask "delete 7 files?" under the same key, the old yes is no answer, and the person is asked again. A model's
completion and a list of roots are no consent, and hold whatever the wording. A tool must therefore not put the time or a
random number into what it asks a person; what it has to remember between runs is a checkpoint.

A state can be presented more than once until it expires: it proves what was answered, not that the call is new.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from server.lib.sealing import Sealer
from server.mcp.call_questions import BadQuestion, Question, check_question, missing, problem
from server.mcp.errors import BackendFailed, BadState

# As long as a person may need for a form, with a walk in between.
STATE_LIFETIME_SECONDS: Final = 30 * 60
# A tool that asks more often than this asks for ever. Some clients give up before: the official SDKs send a call again ten times.
MAX_ROUNDS: Final = 64
MAX_ANSWERS: Final = 64
MAX_KEY: Final = 128
# The client carries it to and fro. Answers are not compressed: how small they get would tell what is in them, and one that
# does not fit (a picture, asked before another question) belongs in a task, which keeps its answers in the store.
MAX_STATE_BYTES: Final = 64 * 1024

_VERSION: Final = 1
_KEY_ID_BYTES: Final = 4
_HEAD_BYTES: Final = 1 + _KEY_ID_BYTES
_FINGERPRINT_BYTES: Final = 12
_REFUSED: Final = "requestState is not valid for this request"


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is, and which. A state opens for an equal one only."""

    server: str
    kind: str  # of the principal
    subject: str
    client_id: str | None
    method: str
    salient: Mapping[str, Any]  # the parameters that make it this request: name or uri, and arguments


class RoundState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call stands between two runs."""

    answers: Mapping[str, Any] = MappingProxyType({})  # raw, by the key of their question
    asked: Mapping[str, str] = MappingProxyType({})  # what every key stood for that was asked so far
    checkpoint: Any = None
    round: int = 0  # how often the caller was asked


# A call that runs for the first time.
FRESH: Final = RoundState()


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    expires_ms: int
    round: int
    asked: dict[str, str]
    answers: dict[str, Any]
    checkpoint: Any


_decode: Final = msgspec.json.Decoder(_Sealed).decode
_encode: Final = msgspec.json.encode


class Rounds:
    """Seals and opens states with a key of its own (32 bytes). `clock` is in milliseconds."""

    def __init__(
        self,
        key: bytes,
        *,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        lifetime_seconds: int = STATE_LIFETIME_SECONDS,
    ) -> None:
        self._sealer = Sealer(key, entropy)
        # A state of another key is then told apart without trying it. Says nothing about the key.
        self._head = bytes([_VERSION]) + hashlib.sha256(b"requestState key id" + key).digest()[:_KEY_ID_BYTES]
        self._clock = clock
        self._lifetime_ms = lifetime_seconds * 1000

    def seal(self, binding: Binding, opened: RoundState) -> str:
        """Raises `BackendFailed` where the call cannot be paused (again): it asks too often, or has too much to keep."""
        if opened.round > MAX_ROUNDS:
            raise BackendFailed(f"the call asked its caller more than {MAX_ROUNDS} times")
        if len(opened.asked) > MAX_ANSWERS or len(opened.answers) > MAX_ANSWERS:
            raise BackendFailed(f"the call asked its caller more than {MAX_ANSWERS} questions")
        sealed = _Sealed(
            self._clock() + self._lifetime_ms,
            opened.round,
            dict(opened.asked),
            dict(opened.answers),
            opened.checkpoint,
        )
        try:
            plain = _encode(sealed)
        except (TypeError, ValueError, RecursionError):
            raise BackendFailed("the call's checkpoint is not JSON") from None
        token = self._head + self._sealer.seal(plain, self._bound_to(binding))
        text = urlsafe_b64encode(token).rstrip(b"=").decode()
        if len(text) > MAX_STATE_BYTES:
            raise BackendFailed(
                f"the call has more than {MAX_STATE_BYTES // 1024} KiB of answers and checkpoint to keep while it waits"
            )
        return text

    def open(self, binding: Binding, token: str) -> RoundState:
        """Raises `BadState`. Whoever shows a state that is not theirs is told no more than that."""
        raw = _bytes(token)
        if raw is None or raw[:_HEAD_BYTES] != self._head:
            raise BadState(_REFUSED)
        try:
            state = _decode(self._sealer.open(raw[_HEAD_BYTES:], self._bound_to(binding)))
        except (ValueError, RecursionError):  # not sealed here, or by a version that writes otherwise
            raise BadState(_REFUSED) from None
        if self._clock() >= state.expires_ms:
            raise BadState("requestState has expired: send the request again without it")
        return RoundState(
            answers=state.answers, asked=state.asked, checkpoint=state.checkpoint, round=state.round
        )

    def _bound_to(self, binding: Binding) -> bytes:
        # The head is part of it, so that every bit of a token counts.
        salient = hashlib.sha256(_encode(binding.salient, order="deterministic")).hexdigest()
        return self._head + _encode(
            [binding.server, binding.kind, binding.subject, binding.client_id, binding.method, salient]
        )


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """What was not answered yet."""

    questions: Mapping[str, Question]
    # `ClientCapabilities` that the client lacks for them; empty when it can be asked.
    required: Mapping[str, Any]


class Replay:
    """The answers of one run. `given` is `inputResponses` as the client sent them, `opened` the state that came along; a
    client that sent answers and no state is taken at its word that they are for what will be asked."""

    def __init__(self, opened: RoundState = FRESH, given: Any = None) -> None:
        fresh = opened.round == 0
        unanswered = opened.asked.keys() - opened.answers.keys()
        self._answers = {**opened.answers, **take_answers(None if fresh else unanswered, given)}
        self._asked = dict(opened.asked)
        self._checkpoint = opened.checkpoint
        self._round = opened.round
        self._open: dict[str, Question] = {}
        self._seen: dict[str, str] = {}

    @property
    def open(self) -> Mapping[str, Question]:
        """What the client is to be asked: all that this run asked and found no answer to."""
        return MappingProxyType(self._open)

    @property
    def answers(self) -> Mapping[str, Any]:
        """What has come in so far, unchecked."""
        return MappingProxyType(self._answers)

    @property
    def has_more_answers(self) -> bool:
        """Than this run has asked for until now."""
        return not self._answers.keys() <= self._seen.keys()

    @property
    def resumed(self) -> Any:
        """The last checkpoint."""
        return self._checkpoint

    def checkpoint(self, data: Any) -> None:
        """Goes into the state if the run pauses; a later run starts with it."""
        self._checkpoint = data

    def ask(self, questions: Mapping[str, Question], can: frozenset[str]) -> Mapping[str, Any] | Open:
        """The answers if all are there and good; else what is open. One that is malformed counts as not given, so that it
        is asked for again. Raises `BadQuestion`."""
        answers: dict[str, Any] = {}
        unanswered: dict[str, Question] = {}
        for key, question in questions.items():
            if not 1 <= len(key) <= MAX_KEY:
                raise BadQuestion(f"the key of a question has 1 to {MAX_KEY} characters")
            check_question(question)
            fingerprint = _fingerprint(question)
            if self._seen.setdefault(key, fingerprint) != fingerprint:
                raise BadQuestion(f"two different questions of one call have the key {key!r}")
            if self._answered(key, question, fingerprint):
                answers[key] = self._answers[key]
            else:
                unanswered[key] = question
        if not unanswered:
            return answers
        required = missing(unanswered, can)
        if not required:
            self._open |= unanswered
        return Open(questions=unanswered, required=required)

    def pause(self) -> RoundState:
        """What to seal when the run has ended for want of answers."""
        asked = {**self._asked, **{key: self._seen[key] for key in self._open}}
        return RoundState(
            answers={
                key: answer for key, answer in self._answers.items() if key in asked and key not in self._open
            },
            asked=asked,
            checkpoint=self._checkpoint,
            round=self._round + 1,
        )

    def _answered(self, key: str, question: Question, fingerprint: str) -> bool:
        if key not in self._answers or problem(question, self._answers[key]) is not None:
            return False
        # Where no state came along there is nothing to hold the wording against; the next state has it.
        same = self._asked.setdefault(key, fingerprint) == fingerprint
        return same or question.method != "elicitation/create"


def take_answers(asked_before: Collection[str] | None, given: Any) -> dict[str, Any]:
    """`inputResponses`: what is an object and was asked for (None: whatever it is for). All else is as if it were not there,
    so that it is asked for again."""
    if not isinstance(given, Mapping):
        return {}
    found: dict[str, Any] = {}
    for key, answer in cast("Mapping[str, Any]", given).items():
        if len(found) == MAX_ANSWERS:
            break
        if (
            isinstance(answer, Mapping)
            and len(key) <= MAX_KEY
            and (asked_before is None or key in asked_before)
        ):
            found[key] = answer
    return found


def _fingerprint(question: Question) -> str:
    text = _encode([question.method, question.params], order="deterministic")
    return urlsafe_b64encode(hashlib.sha256(text).digest()[:_FINGERPRINT_BYTES]).decode()


def _bytes(token: str) -> bytes | None:
    if not 0 < len(token) <= MAX_STATE_BYTES or not token.isascii():
        return None
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError:
        return None
    # The decoder skips what is not of its alphabet, and the last character has bits to spare: one text per token.
    return raw if urlsafe_b64encode(raw).rstrip(b"=").decode() == token else None
