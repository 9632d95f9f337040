"""Streams of changes (server/calls/subscriptions_listen.py): how much may be asked of one, and that whoever has it is asked after."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from server.calls.caller_outlet import KEEP_ALIVE_SECONDS
from server.calls.sessions.subscriptions import MAX_TOPIC_CHARACTERS, MAX_TOPICS, Subscription
from server.calls.subscriptions_listen import check_bounds, tell_changes
from server.mcp.errors import TooManySubscriptions
from server.mcp.method_params import ListenFilter


@pytest.mark.requirement("listen.bounds")
@pytest.mark.parametrize(
    "asked",
    [
        ListenFilter(resource_subscriptions=["test://a"] * (MAX_TOPICS + 1)),
        ListenFilter(task_ids=["t"] * (MAX_TOPICS + 1)),
        ListenFilter(resource_subscriptions=["a"] * MAX_TOPICS, task_ids=["t"]),
        ListenFilter(resource_subscriptions=["a" * MAX_TOPIC_CHARACTERS], task_ids=["t"]),
    ],
)
def test_a_filter_is_measured_before_any_of_it_is_looked_up(asked: ListenFilter) -> None:
    with pytest.raises(TooManySubscriptions):
        check_bounds(asked)


def test_a_filter_within_its_bounds_is_taken() -> None:
    check_bounds(ListenFilter())
    check_bounds(ListenFilter(resource_subscriptions=["a"] * MAX_TOPICS))


async def test_whoever_is_told_of_something_all_the_time_is_asked_after_all_the_same(
    mock_clock: trio.testing.MockClock,
) -> None:
    subscription = Subscription(frozenset({"tools"}))

    class Request:
        """As much of one as a feed has to do with. Whatever is said takes long enough for a look at the caller."""

        def __init__(self) -> None:
            self.line = self
            self.said: list[bytes] = []

        async def still_allowed(self) -> bool:
            return False

        async def send(self, message: bytes) -> None:
            self.said.append(message)
            mock_clock.jump(KEEP_ALIVE_SECONDS + 1)
            subscription.offer("tools")

    request: Any = Request()
    subscription.offer("tools")
    await tell_changes(request, subscription, request, {})
    assert len(request.said) == 1 and b"notifications/tools/list_changed" in request.said[0]
