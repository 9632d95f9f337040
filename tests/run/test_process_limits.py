"""What each server's callers are bounded by, made of the settings."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from auth.values.identity_model import Principal, PrincipalKind
from server.lib.log.metrics import Metrics
from server.run.caller_limits import UNUSED_LOOK_SECONDS, ProcessLimits
from server.settings.limit_settings import LimitsConfig, ServerLimitsConfig
from server.settings.policy_settings import ToolConfig
from server.settings.setting_shapes import ServerConfig
from server.store.inline_store import InlineStore, open_inline_store
from server.store.limits.daily_quotas import UNUSED_MILLIS
from server.store.limits.tool_limits import ToolBounds

ALICE = Principal(kind=PrincipalKind.USER, subject="alice", grant_id="g")
ADDRESS = "203.0.113.7"


def process(config: LimitsConfig, store: Any = None, metrics: Metrics | None = None) -> ProcessLimits:
    return ProcessLimits(config, store, None, metrics or Metrics("1"))  # type: ignore[arg-type]


def test_servers_share_what_is_not_their_own() -> None:
    limits = process(LimitsConfig(address="2/min", caller="2/min"))
    first, second, own = (
        limits.make(ServerConfig(name=name, limits=settings)).gate
        for name, settings in (
            ("first", ServerLimitsConfig()),
            ("second", ServerLimitsConfig()),
            ("own", ServerLimitsConfig(address="2/min", caller="")),
        )
    )
    assert not first.knock(ADDRESS) and not second.knock(ADDRESS)
    assert first.knock(ADDRESS) and second.knock(ADDRESS)
    assert not own.knock(ADDRESS)
    assert [bool(gate.recognise(ALICE, ADDRESS)) for gate in (first, second, first)] == [False, False, True]
    assert not any(own.recognise(ALICE, ADDRESS) for _ in range(100))


def test_no_limit_is_no_limit() -> None:
    gate = process(LimitsConfig(address="", caller="", calls_at_once=0)).make(ServerConfig()).gate
    for _ in range(1000):
        assert not gate.knock(ADDRESS) and not gate.recognise(ALICE, ADDRESS)
    assert gate.calls_at_once == 0


@pytest.mark.parametrize(
    ("common", "server", "bounded"),
    [
        (LimitsConfig(), ServerConfig(), False),
        (LimitsConfig(), ServerConfig(tools={"echo": ToolConfig(tier="read")}), False),
        (LimitsConfig(), ServerConfig(tools={"echo": ToolConfig(limit="1/s")}), True),
        (LimitsConfig(), ServerConfig(tools={"echo": ToolConfig(limit_all="1/s")}), True),
        (LimitsConfig(quota="5/day"), ServerConfig(), True),
        (LimitsConfig(quota="5/day"), ServerConfig(limits=ServerLimitsConfig(quota="")), False),
    ],
)
def test_tools_have_bounds_only_where_something_is_said_of_them(
    common: LimitsConfig, server: ServerConfig, bounded: bool
) -> None:
    assert (process(common).make(server).bounds is not None) is bounded


async def test_quotas_of_servers_are_counted_apart_and_given_back_at_the_end() -> None:
    async with open_inline_store(clock=lambda: 1_800_000_000_000) as store:
        for _ in range(2):  # the second time, what the first held ahead is there again
            limits = process(LimitsConfig(quota="100/day"), store)
            for name in ("first", "second"):
                bounds = limits.make(replace(ServerConfig(), name=name)).bounds
                assert bounds is not None
                assert [await bounds.use("echo", "user:alice") for _ in range(50)] == [None] * 50
            await limits.aclose()
        bounds = process(LimitsConfig(quota="100/day"), store).make(ServerConfig(name="first")).bounds
        assert bounds is not None
        denied = await bounds.use("echo", "user:alice")
        assert denied is not None and (denied.limit, denied.allowed) == ("quota", "100/day")


async def test_what_one_process_holds_ahead_and_nobody_uses_is_soon_there_for_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def clock() -> int:
        return 1_800_000_000_000 + round(trio.current_time() * 1000)

    def opened(store: InlineStore) -> tuple[ProcessLimits, ToolBounds]:
        limits = ProcessLimits(
            LimitsConfig(quota="100/day"),
            store,
            None,  # type: ignore[arg-type]
            Metrics("1"),
            shared=True,
            clock=clock,
        )
        bounds = limits.make(ServerConfig()).bounds
        assert bounds is not None
        return limits, bounds

    async with open_inline_store(clock=clock) as store, trio.open_nursery() as background:
        (one, few), (_, many) = opened(store), opened(store)
        background.start_soon(one.keep_giving_back)
        assert await few.use("echo", "user:alice") is None
        assert [await many.use("echo", "user:alice") is None for _ in range(100)] == [True] * 95 + [False] * 5
        await trio.sleep(UNUSED_MILLIS / 1000 + UNUSED_LOOK_SECONDS)
        assert [await many.use("echo", "user:alice") is None for _ in range(5)] == [True] * 4 + [False]
        background.cancel_scope.cancel()


def test_who_was_held_back_is_counted_by_limit() -> None:
    metrics = Metrics("1")
    limits = process(LimitsConfig(address="1/min"), metrics=metrics)
    gate = limits.make(ServerConfig()).gate
    gate.knock(ADDRESS)
    gate.turned_back(ADDRESS, gate.knock(ADDRESS))
    ((_, name, _, label, read),) = metrics.read_by_label
    assert (name, label, read()["address"], read()["tool"]) == ("held_back", "limit", 1, 0)
