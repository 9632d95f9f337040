"""What a trace is a part of, which requests are traced, and what waits to be sent."""

from __future__ import annotations

import pytest

from server.lib.tracing.request_tracing import FOLLOWED_PER_SECOND, Tracing
from server.lib.tracing.trace_spans import MOST_WAITING, Span, SpanBook, TraceContext, context_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def span(name: str = "a") -> Span:
    return Span(
        trace_id=TRACE, span_id=PARENT, parent="", state="", name=name, kind=1, began=1, ended=2, facts={}
    )


class Clock:
    now = 5_000_000_000

    def __call__(self) -> int:
        return self.now


def tracing(
    share: float = 0.5, *, follow: bool = True, entropy: bytes = b"\x01", clock: Clock | None = None
) -> Tracing:
    return Tracing(
        SpanBook(), share=share, follow=follow, clock=clock or Clock(), entropy=lambda size: entropy * size
    )


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-00", False),
        (f"00-{TRACE}-{PARENT}-03", True),
        (f"cc-{TRACE}-{PARENT}-01-what-is-new", True),
    ],
)
def test_a_context_that_can_be_read_is_gone_on_with(text: str, sampled: bool) -> None:
    assert context_of(text, "a=1,b=2") == TraceContext(TRACE, PARENT, sampled, "a=1,b=2")


@pytest.mark.parametrize(
    "text",
    [
        None, "", "00", f"00-{TRACE}-{PARENT}", f"00-{TRACE}-{PARENT}-01-more", f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}-1", f" 00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01\n", f"00-{TRACE[:-1]}é-{PARENT}-01",
    ],
)  # fmt: skip
def test_one_that_cannot_is_none(text: str | None) -> None:
    assert context_of(text) is None


@pytest.mark.parametrize("state", ["x" * 513, "a=\n", "a=é"])
def test_a_state_that_could_not_be_sent_on_is_left_out(state: str) -> None:
    assert context_of(f"00-{TRACE}-{PARENT}-01", state) == TraceContext(TRACE, PARENT, True, "")


def test_of_requests_that_belong_to_nothing_a_share_is_traced() -> None:
    assert tracing(0.5, entropy=b"\x7f").begin(None, "tools/call a", {}) is not None
    assert tracing(0.5, entropy=b"\x80").begin(None, "tools/call a", {}) is None
    assert tracing(1, entropy=b"\xff").begin(None, "tools/call a", {}) is not None


def test_whoever_traces_is_followed_but_not_more_often_than_there_is_room() -> None:
    clock = Clock()
    made = tracing(1e-9, clock=clock)
    wants, does_not = TraceContext(TRACE, PARENT, True, "a=1"), TraceContext(TRACE, PARENT, False)
    begun = made.begin(wants, "tools/list", {})
    assert begun is not None and (begun.trace_id, begun.parent, begun.state) == (TRACE, PARENT, "a=1")
    assert begun.traceparent == f"00-{TRACE}-{'01' * 8}-01"
    assert made.begin(does_not, "tools/list", {}) is None
    found = [made.begin(wants, "tools/list", {}) for _ in range(FOLLOWED_PER_SECOND + 10)]
    assert sum(each is not None for each in found) == FOLLOWED_PER_SECOND - 1
    clock.now += 1_000_000_000
    assert made.begin(wants, "tools/list", {}) is not None


def test_whoever_is_not_followed_is_counted_like_everybody_by_the_trace() -> None:
    low, high = (
        TraceContext("f" * 16 + "0" * 15 + "1", PARENT, True),
        TraceContext("0" * 15 + "1" + "f" * 16, PARENT, True),
    )
    made = tracing(0.5, follow=False)
    assert made.begin(low, "tools/list", {}) is not None and made.begin(high, "tools/list", {}) is None


def test_of_what_waits_for_too_long_the_oldest_goes_and_is_counted() -> None:
    book = SpanBook()
    for number in range(MOST_WAITING + 3):
        book.add(span(str(number)))
    assert (len(book), book.dropped) == (MOST_WAITING, 3)
    taken = book.take()
    assert taken[0].name == "3"
    for number in range(10):
        book.add(span(f"new {number}"))
    book.put_back(taken)  # ten of them have no place any more
    assert (len(book), book.dropped) == (MOST_WAITING, 13)
    assert book.take()[0].name == "13"
