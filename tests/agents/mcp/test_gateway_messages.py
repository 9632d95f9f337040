"""What an upstream says, read as a stranger's: each kind of message, and what is cut or passed over."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from server.client.mcp_session import session_messages
from server.client.mcp_session.session_messages import (
    EMPTY,
    GARBAGE,
    ID_CHARACTERS,
    INTERNAL_ERROR,
    PROGRESS_CHARACTERS,
    SAID_CHARACTERS,
    Answered,
    Asked,
    ServerRefusal,
    Told,
    encode,
    log_of,
    members,
    outcome,
    progress_of,
    read_message,
    refusal_of,
    said,
)

LONGEST = "i" * ID_CHARACTERS


def body(**message: Any) -> bytes:
    return msgspec.json.encode(message)


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("said_so", "read"),
    [
        (body(id=1, result={"a": 1}), Answered(1, raw({"a": 1}), None)),
        (body(id=LONGEST, error={"code": 1}), Answered(LONGEST, None, raw({"code": 1}))),
        (body(id=None, error={}), Answered(None, None, raw({}))),
        (body(error={}), Answered(None, None, raw({}))),
        (body(method="m"), Told("m", EMPTY)),
        (body(method="m", params={"a": 1}), Told("m", raw({"a": 1}))),
        (body(id=1, method="m"), Asked(1, "m", EMPTY)),
        (body(id=LONGEST, method="m", params=[]), Asked(LONGEST, "m", raw([]))),
        (body(id=f"{LONGEST}i", method="m"), GARBAGE),
        (body(id=f"{LONGEST}i", result={}), GARBAGE),
        (body(id=None, method="m"), GARBAGE),
        (body(id=1), GARBAGE),
        (body(id=[], result={}), GARBAGE),
        (b"[]", GARBAGE),
        (b"{", GARBAGE),
        (b"[" * 100_000, GARBAGE),
    ],
)
def test_each_kind_of_message_is_told_from_the_others(said_so: bytes, read: object) -> None:
    assert read_message(said_so) == read


def test_an_answer_is_a_result_or_a_refusal() -> None:
    assert outcome(Answered(1, raw({"a": 1}), None)) == raw({"a": 1})
    assert outcome(Answered(1, None, None)) == EMPTY
    refusal = outcome(Answered(1, None, raw({"code": 7, "message": "no", "data": {"a": 1}})))
    assert isinstance(refusal, ServerRefusal)
    assert (refusal.code, str(refusal), refusal.data) == (7, "no", {"a": 1})


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        ({"code": True}, INTERNAL_ERROR, None),
        ({"code": "7"}, INTERNAL_ERROR, None),
        ({}, 0, None),
        ({"code": 0, "data": []}, 0, None),
        ({"code": -1, "data": {"a": 1}}, -1, {"a": 1}),
        ([], INTERNAL_ERROR, None),
    ],
)
def test_an_error_that_is_odd_is_still_a_refusal(error: Any, code: int, data: Any) -> None:
    found = refusal_of(raw(error))
    assert (found.code, found.data) == (code, data)
    assert str(found)


def test_progress_is_for_its_token_and_its_words_are_cut() -> None:
    longest = "p" * PROGRESS_CHARACTERS
    for words, shown in ((None, None), ("", ""), (longest, longest), (f"{longest}p", f"{longest}…")):
        found = progress_of(raw({"progressToken": 7, "progress": 0.5, "total": 2, "message": words}))
        assert found is not None
        token, progress = found
        assert (token, progress.progress, progress.total, progress.message) == (7, 0.5, 2, shown)
    assert progress_of(raw({"progress": "much"})) is None


def test_a_line_of_a_log_has_its_level_and_the_name_of_its_logger_is_cut() -> None:
    found = log_of(raw({"level": "error", "data": [1], "logger": f"{LONGEST}i"}))
    assert found is not None
    assert (found.level, found.data, found.logger) == ("error", [1], LONGEST)
    plain = log_of(raw({}))
    assert plain is not None
    assert (plain.level, plain.logger) == ("info", None)
    assert log_of(raw({"level": "loud"})) is None


def test_what_a_stranger_says_is_cut_and_printable() -> None:
    assert said(7) == ""
    assert said("a\x1b[31m\nb ") == "a [31m\nb"
    assert said("s" * (SAID_CHARACTERS + 1)) == "s" * SAID_CHARACTERS
    assert said("abc", 2) == "ab"


@pytest.mark.parametrize(("value", "found"), [({"a": 1}, {"a": 1}), ([], {}), ("a", {}), (None, {})])
def test_members_are_those_of_an_object(value: Any, found: Any) -> None:
    assert members(raw(value)) == found
    assert members(Raw(b"{")) == {}


def test_what_is_said_holds_mappings_and_nothing_that_is_no_json() -> None:
    assert encode({"params": MappingProxyType({"a": 1})}) == b'{"params":{"a":1}}'
    with pytest.raises(TypeError, match="object"):
        encode({"params": object()})


@pytest.mark.parametrize(
    ("message", "said_so"),
    [
        (session_messages.request_message(1, "m", {}), {"id": 1, "method": "m", "params": {}}),
        (session_messages.notification_message("m", {}), {"method": "m", "params": {}}),
        (session_messages.reply_message("q", {"a": 1}), {"id": "q", "result": {"a": 1}}),
        (session_messages.refusal_message("q", 7, "no"), {"id": "q", "error": {"code": 7, "message": "no"}}),
    ],
)
def test_what_is_said_is_json_rpc(message: bytes, said_so: Any) -> None:
    assert msgspec.json.decode(message) == {"jsonrpc": "2.0", **said_so}
