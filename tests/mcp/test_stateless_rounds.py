"""The state that a paused call hands to its client, and the answers with which the call comes back."""

from __future__ import annotations

import base64
import os
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.mcp.call_questions import BadQuestion, Question
from server.mcp.errors import BackendFailed, BadState
from server.mcp.stateless_rounds import (
    FRESH,
    MAX_ANSWERS,
    MAX_ROUNDS,
    MAX_STATE_BYTES,
    STATE_LIFETIME_SECONDS,
    Binding,
    Open,
    Replay,
    Rounds,
    RoundState,
    take_answers,
)

KEY = b"k" * 32
CAN = frozenset({"elicitation", "sampling", "roots"})
BINDING = Binding(
    server="demo",
    kind="user",
    subject="u1",
    client_id="c1",
    method="tools/call",
    salient={"name": "delete", "arguments": {"path": "/a", "deep": {"x": 1, "y": [1, 2]}}},
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
STATES = st.builds(
    RoundState,
    answers=st.dictionaries(st.text(max_size=8), st.dictionaries(st.text(max_size=8), JSON), max_size=4),
    asked=st.dictionaries(st.text(max_size=8), st.text(max_size=16), max_size=4),
    checkpoint=JSON,
    round=st.integers(1, MAX_ROUNDS),
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def rounds(clock: Clock | None = None, key: bytes = KEY) -> Rounds:
    return Rounds(key, clock=clock or Clock(), entropy=os.urandom)


def form(message: str = "Name?", *, integer: bool = False) -> Question:
    field = {"type": "integer" if integer else "string"}
    return Question(
        method="elicitation/create",
        params={
            "message": message,
            "requestedSchema": {"type": "object", "properties": {"a": field}, "required": ["a"]},
        },
    )


def sampling(text: str = "Hi") -> Question:
    return Question(
        method="sampling/createMessage",
        params={
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
            "maxTokens": 5,
        },
    )


ROOTS = Question(method="roots/list", params={})
ALICE = {"action": "accept", "content": {"a": "Alice"}}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "Yo"}, "model": "m"}


# The seal


@given(STATES)
def test_a_sealed_state_opens_again_as_it_was(state: RoundState) -> None:
    sealer = rounds()
    assert sealer.open(BINDING, sealer.seal(BINDING, state)) == state


@pytest.mark.requirement("ask.integrity")
@given(STATES, st.data())
@settings(max_examples=60)
def test_a_state_with_one_bit_changed_is_refused(state: RoundState, data: st.DataObject) -> None:
    sealer = rounds()
    raw = bytearray(_raw(sealer.seal(BINDING, state)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadState):
        sealer.open(BINDING, base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


def test_a_state_with_any_byte_or_character_changed_is_refused() -> None:
    sealer = rounds()
    token = sealer.seal(BINDING, RoundState(answers={"a": ALICE}, round=1))
    raw = _raw(token)
    assert sealer.open(BINDING, base64.urlsafe_b64encode(raw).rstrip(b"=").decode()).answers == {"a": ALICE}
    for place in range(len(raw)):
        changed = raw[:place] + bytes([raw[place] ^ 0x01]) + raw[place + 1 :]
        with pytest.raises(BadState):
            sealer.open(BINDING, base64.urlsafe_b64encode(changed).rstrip(b"=").decode())
    for place, old in enumerate(token):
        for new in "AB_-+=":
            if new != old:
                with pytest.raises(BadState):
                    sealer.open(BINDING, token[:place] + new + token[place + 1 :])


@pytest.mark.parametrize(
    "change", [lambda t: t + "-TAMPERED", lambda t: t + "=", lambda t: t + "\n", lambda t: t[:-1]]
)
def test_a_state_with_something_added_or_missing_is_refused(change: Any) -> None:
    sealer = rounds()
    with pytest.raises(BadState):
        sealer.open(BINDING, change(sealer.seal(BINDING, FRESH)))


@pytest.mark.parametrize("token", ["", "AQ", "x" * 400, "é", "A" * (MAX_STATE_BYTES + 1), "\ud800", "\0"])
def test_a_text_that_is_no_state_is_refused(token: str) -> None:
    with pytest.raises(BadState):
        rounds().open(BINDING, token)


@pytest.mark.requirement("ask.binding")
@pytest.mark.requirement("ask.identity", era="modern")
@pytest.mark.parametrize(
    "changed",
    [
        {"server": "other"},
        {"kind": "client"},
        {"subject": "u2"},
        {"client_id": "c2"},
        {"client_id": None},
        {"method": "prompts/get"},
        {"salient": {"name": "erase", "arguments": BINDING.salient["arguments"]}},
        {"salient": {"name": "delete", "arguments": {"path": "/b", "deep": {"x": 1, "y": [1, 2]}}}},
        {"salient": {"name": "delete", "arguments": {"path": "/a", "deep": {"x": 1, "y": [2, 1]}}}},
        {"salient": {"name": "delete"}},
    ],
    ids=str,
)
def test_a_state_opens_for_its_own_caller_and_request_alone(changed: dict[str, Any]) -> None:
    sealer = rounds()
    token = sealer.seal(BINDING, RoundState(checkpoint="kept", round=1))
    other = msgspec.structs.replace(BINDING, **changed)
    with pytest.raises(BadState):
        sealer.open(other, token)


def test_arguments_may_come_back_in_another_order() -> None:
    sealer = rounds()
    token = sealer.seal(BINDING, RoundState(checkpoint="kept", round=1))
    again = {"arguments": {"deep": {"y": [1, 2], "x": 1}, "path": "/a"}, "name": "delete"}
    same = msgspec.structs.replace(BINDING, salient=again)
    assert sealer.open(same, token).checkpoint == "kept"


def test_a_state_of_another_key_is_refused() -> None:
    with pytest.raises(BadState):
        rounds(key=b"x" * 32).open(BINDING, rounds().seal(BINDING, FRESH))


@pytest.mark.requirement("ask.expiry")
def test_a_state_expires_and_says_so_to_its_own_caller_only() -> None:
    clock = Clock()
    sealer = rounds(clock)
    token = sealer.seal(BINDING, FRESH)
    clock.now += STATE_LIFETIME_SECONDS * 1000 - 1
    assert sealer.open(BINDING, token) == FRESH
    clock.now += 1
    with pytest.raises(BadState, match="expired"):
        sealer.open(BINDING, token)
    stranger = msgspec.structs.replace(BINDING, subject="u2")
    with pytest.raises(BadState) as refused:
        sealer.open(stranger, token)
    assert "expired" not in str(refused.value)


def test_a_state_shows_nothing_and_never_looks_the_same() -> None:
    sealer = rounds()
    state = RoundState(answers={"a": ALICE}, checkpoint="a-secret-plan", round=1)
    tokens = {sealer.seal(BINDING, state) for _ in range(20)}
    assert len(tokens) == 20
    for token in tokens:
        assert b"secret" not in _raw(token)
        assert b"Alice" not in _raw(token)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (RoundState(round=MAX_ROUNDS + 1), "times"),
        (RoundState(round=1, asked={str(n): "" for n in range(MAX_ANSWERS + 1)}), "questions"),
        (RoundState(round=1, checkpoint="x" * MAX_STATE_BYTES), "KiB"),
        (RoundState(round=1, checkpoint=object()), "not JSON"),
    ],
)
def test_a_call_that_keeps_too_much_or_asks_too_often_fails(state: RoundState, reason: str) -> None:
    with pytest.raises(BackendFailed, match=reason):
        rounds().seal(BINDING, state)


# The answers


@pytest.mark.parametrize("given", [None, 5, "text", [], [{"a": {}}], True])
def test_responses_that_are_no_object_are_as_none(given: Any) -> None:
    assert take_answers(["a"], given) == {}


def test_responses_to_other_questions_and_malformed_ones_are_left_out() -> None:
    given = {"a": ALICE, "b": None, "c": 12345, "d": [], "e": ALICE, "x" * 129: ALICE}
    assert take_answers(["a", "b", "c", "d"], given) == {"a": ALICE}
    assert take_answers(None, given) == {"a": ALICE, "e": ALICE}


def test_only_so_many_responses_are_taken() -> None:
    assert len(take_answers(None, {str(n): {} for n in range(1000)})) == MAX_ANSWERS


# Replay: one round after the other, each through a seal


def run(replay: Replay, *asks: dict[str, Question]) -> dict[str, Any] | None:
    """What a call does: it asks one thing after the other, and ends where an answer is missing."""
    found: dict[str, Any] = {}
    for questions in asks:
        result = replay.ask(questions, CAN)
        if isinstance(result, Open):
            return None
        found |= result
    return found


def come_back(replay: Replay, given: Any) -> Replay:
    sealer = rounds()
    return Replay(sealer.open(BINDING, sealer.seal(BINDING, replay.pause())), given)


def test_a_call_that_asks_twice_ends_in_its_third_run() -> None:
    asks = ({"one": form()}, {"two": form("Colour?"), "model": sampling()})
    first = Replay()
    assert run(first, *asks) is None
    assert first.open == asks[0]
    second = come_back(first, {"one": ALICE})
    assert run(second, *asks) is None
    assert second.open == asks[1]
    third = come_back(second, {"two": ALICE, "model": SAMPLED})
    assert run(third, *asks) == {"one": ALICE, "two": ALICE, "model": SAMPLED}
    assert third.open == {}


@pytest.mark.requirement("ask.missing-answer")
@pytest.mark.requirement("ask.malformed-answer")
def test_what_is_missing_or_malformed_is_asked_for_again_and_the_rest_is_kept() -> None:
    asks = {"name": form(), "model": sampling(), "roots": ROOTS}
    first = Replay()
    run(first, asks)
    second = come_back(first, {"name": ALICE, "model": 5, "other": ALICE})
    assert run(second, asks) is None
    assert second.open.keys() == {"model", "roots"}
    third = come_back(second, {"model": {"role": "assistant"}, "roots": {"roots": []}})
    assert run(third, asks) is None
    assert third.open.keys() == {"model"}
    fourth = come_back(third, {"model": SAMPLED})
    assert run(fourth, asks) == {"name": ALICE, "model": SAMPLED, "roots": {"roots": []}}


def test_an_answer_that_does_not_fit_its_form_is_asked_for_again() -> None:
    first = Replay()
    run(first, {"n": form(integer=True)})
    second = come_back(first, {"n": ALICE})
    assert run(second, {"n": form(integer=True)}) is None
    assert "n" not in second.pause().answers


@pytest.mark.requirement("ask.declined", era="modern")
def test_a_refusal_of_the_person_is_an_answer() -> None:
    first = Replay()
    run(first, {"n": form()})
    assert run(come_back(first, {"n": {"action": "decline"}}), {"n": form()}) == {"n": {"action": "decline"}}


def test_a_settled_answer_is_not_changed_by_a_later_request() -> None:
    asks = ({"one": form()}, {"two": form("More?")})
    first = Replay()
    run(first, *asks)
    second = come_back(first, {"one": ALICE})
    run(second, *asks)
    bob = {"action": "accept", "content": {"a": "Bob"}}
    assert run(come_back(second, {"one": bob, "two": bob}), *asks) == {"one": ALICE, "two": bob}


def test_a_person_is_asked_again_when_the_question_has_changed() -> None:
    first = Replay()
    run(first, {"sure": form("Delete 5 files?")})
    second = come_back(first, {"sure": ALICE})
    assert run(second, {"sure": form("Delete 7 files?")}) is None
    third = come_back(second, {"sure": ALICE})
    assert run(third, {"sure": form("Delete 7 files?")}) == {"sure": ALICE}


def test_an_answer_of_an_earlier_round_is_held_against_what_is_asked_now() -> None:
    first = Replay()
    run(first, {"sure": form("Delete 5 files?")})
    second = come_back(first, {"sure": ALICE})
    run(second, {"sure": form("Delete 5 files?")}, {"more": form("More?")})
    third = come_back(second, {"more": ALICE})
    assert run(third, {"sure": form("Delete 7 files?")}, {"more": form("More?")}) is None
    assert third.open.keys() == {"sure"}


def test_a_completion_holds_whatever_the_wording() -> None:
    first = Replay()
    run(first, {"model": sampling("at 10:00")})
    assert run(come_back(first, {"model": SAMPLED}), {"model": sampling("at 10:01")}) == {"model": SAMPLED}


def test_answers_without_a_state_are_taken_for_what_is_asked() -> None:
    replay = Replay(FRESH, {"name": ALICE, "unknown": {"action": "accept"}, "junk": None})
    assert replay.answers.keys() == {"name", "unknown"}
    assert run(replay, {"name": form()}) == {"name": ALICE}


def test_nothing_that_was_never_asked_gets_into_a_state() -> None:
    replay = Replay(FRESH, {"name": ALICE, "unknown": {"action": "accept"}})
    run(replay, {"name": form()}, {"next": form("Next?")})
    state = replay.pause()
    assert state.answers == {"name": ALICE}
    assert state.asked.keys() == {"name", "next"}
    assert state.round == 1


def test_the_checkpoint_of_the_last_run_is_there_in_the_next() -> None:
    first = Replay()
    assert first.resumed is None
    first.checkpoint({"step": 1})
    run(first, {"a": form()})
    second = come_back(first, None)
    assert second.resumed == {"step": 1}
    run(second, {"a": form()})
    assert come_back(second, None).resumed == {"step": 1}


def test_what_the_client_lacks_is_named_and_is_not_asked() -> None:
    replay = Replay()
    result = replay.ask({"a": form(), "b": sampling()}, frozenset({"sampling"}))
    assert isinstance(result, Open)
    assert result.required == {"elicitation": {"form": {}}}
    assert replay.open == {}
    assert run(replay, {"b": sampling()}) is None
    assert replay.open.keys() == {"b"}


def test_an_answer_that_is_there_needs_no_ability() -> None:
    first = Replay()
    run(first, {"a": form()})
    assert come_back(first, {"a": ALICE}).ask({"a": form()}, frozenset()) == {"a": ALICE}


def test_a_tool_that_never_stops_asking_is_stopped() -> None:
    replay = Replay()
    for n in count(1):
        run(replay, {"a": form()}, {"b": form(f"attempt {n}")})
        if n > MAX_ROUNDS:
            break
        replay = come_back(replay, {"a": ALICE, "b": ALICE})
    with pytest.raises(BackendFailed):
        come_back(replay, {})


@pytest.mark.parametrize("key", ["", "k" * 129])
def test_a_key_is_bounded(key: str) -> None:
    with pytest.raises(BadQuestion, match="key"):
        Replay().ask({key: form()}, CAN)


def test_one_key_is_one_question_in_a_run() -> None:
    replay = Replay(FRESH, {"a": ALICE})
    replay.ask({"a": form()}, CAN)
    replay.ask({"a": form()}, CAN)
    with pytest.raises(BadQuestion, match="two different questions"):
        replay.ask({"a": form("Another?")}, CAN)


def test_a_question_that_no_client_could_be_asked_is_the_authors_fault() -> None:
    with pytest.raises(BadQuestion):
        Replay().ask({"a": Question(method="roots/list", params={"x": 1})}, CAN)


def _raw(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
