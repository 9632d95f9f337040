from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.lib.server_sent_events import EventDecoder, EventTooLarge

STREAM = b"\xef\xbb\xbf: hello\n\ndata: one\r\ndata:two\r\rid: 7\nretry: 5\nevent: message\ndata:  three\n\nevent: other\ndata: no\n\ndata\n\ndata: cut"
EVENTS = [b"one\ntwo", b" three", b""]


def decode(chunks: list[bytes]) -> list[bytes]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_events_are_read_as_the_standard_says() -> None:
    assert decode([STREAM]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_network_cuts_the_stream_changes_nothing(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert decode([STREAM[a:b] for a, b in itertools.pairwise(places)]) == EVENTS


def test_byte_by_byte_is_no_different() -> None:
    assert decode([STREAM[index : index + 1] for index in range(len(STREAM))]) == EVENTS


@pytest.mark.parametrize("chunk", [b"data: " + b"x" * 50 + b"\n", b"x" * 50, b"data: xx\n"])
def test_an_event_that_never_ends_is_cut_off(chunk: bytes) -> None:
    decoder = EventDecoder(limit=200)
    with pytest.raises(EventTooLarge, match="more than"):
        list(map(decoder.feed, [chunk] * 100))


def test_many_events_are_no_large_event() -> None:
    decoder = EventDecoder(limit=20)
    assert sum(len(decoder.feed(b"data: 0123456789\n\n")) for _ in range(1000)) == 1000
