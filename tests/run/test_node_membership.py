"""A process among those on its database (server/run/node_membership.py): what it does when others are gone, or it cannot say that it lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from server.calls.servers.server_opening import now_millis
from server.lib.log.logger import Logger
from server.run.node_membership import (
    LAPSES_SECONDS,
    SILENT_COUNTED_SECONDS,
    Membership,
    home_of,
    this_node,
)
from server.store.jobs import StoreUnreachable
from server.store.node_rows import ALIVE_MILLIS, BEAT_SECONDS, Beat, MemberNode


class ScriptedStore:
    """Answers each write with what a test has put there; with nothing, it cannot be reached."""

    def __init__(self) -> None:
        self.alive: tuple[MemberNode, ...] | None = None
        self.was_dead = self.was_late = False
        self.silent = 0
        self.ahead_millis = 0  # of its clock
        self.tells_time = True
        self.buries: list[bool] = []
        self.writes = 0
        self.counted = 0  # how often it was asked who fell silent

    async def write(self, job: Callable[..., Any]) -> Beat:
        said = getattr(job, "keywords", {})
        counts = said.get("counts_silent", False)
        self.writes += 1
        self.buries.append(said.get("buries", False))
        await trio.lowlevel.checkpoint()
        if self.alive is None:
            raise StoreUnreachable("nobody is there")
        self.counted += counts
        return Beat(
            alive=self.alive,
            was_dead=self.was_dead,
            was_late=self.was_late,
            at=now_millis() + self.ahead_millis if self.tells_time else 0,
            silent=self.silent if counts else None,
        )


@pytest.fixture
def here(tmp_path: Path) -> MemberNode:
    return this_node("here", tmp_path, address="127.0.0.1:1")


class Said:
    """What a membership does, by name."""

    def __init__(self, store: ScriptedStore, node: MemberNode, *, alone: bool = False) -> None:
        self.events: list[str] = []
        self.all: list[str] = []
        membership = Membership(store, node, cast("Logger", self), alone=alone)  # pyright: ignore[reportArgumentType]
        membership.on_loss.append(lambda: self.all.append("loss"))
        membership.on_lapse.append(lambda: self.all.append("lapse"))
        self.membership = membership

    def info(self, event: str, **more: Any) -> None:
        del more
        self.events.append(event)

    warning = info


async def for_seconds(membership: Membership, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await membership.run()


async def test_others_that_come_and_go_are_told_of_and_what_they_left_is_looked_for(
    here: MemberNode, autojump_clock: trio.testing.MockClock
) -> None:
    store = ScriptedStore()
    said = Said(store, here)
    other = replace(here, boot_id="other", name="there:1")
    store.alive = (here,)
    await said.membership.enter()
    assert said.membership.words().endswith("0 others alive")
    store.alive = (here, other)
    await for_seconds(said.membership, BEAT_SECONDS + 1)
    assert (said.events, said.all, said.membership.others) == (["node.came"], [], (other,))
    assert said.membership.words().endswith("1 other alive")
    assert said.membership.told()["others"][0]["name"] == "there:1"
    store.alive = (here,)
    await for_seconds(said.membership, BEAT_SECONDS + 1)
    assert (said.events[1:], said.all, said.membership.others) == (["node.gone"], ["loss"], ())


async def test_one_that_cannot_say_that_it_lives_lets_go_once_before_the_others_find_it_dead(
    here: MemberNode, autojump_clock: trio.testing.MockClock
) -> None:
    store = ScriptedStore()
    said = Said(store, here)
    store.alive = (here,)
    await said.membership.enter()
    store.alive = None
    await for_seconds(said.membership, LAPSES_SECONDS - 0.5)
    assert (said.events, said.all, said.membership.lapsed) == (["node.silent"], [], False)
    await for_seconds(said.membership, 60)
    assert (said.all, said.membership.lapsed) == (["lapse"], True)
    assert LAPSES_SECONDS * 1000 < ALIVE_MILLIS
    store.alive, store.was_dead = (here,), True
    await for_seconds(said.membership, 1)  # it begins with saying so
    assert not said.membership.lapsed
    assert "node.was_taken_for_dead" in said.events
    store.alive = None
    await for_seconds(said.membership, 30)
    assert said.all == ["lapse", "lapse"]


async def test_who_fell_silent_is_counted_when_somebody_comes_or_goes_and_seldom_otherwise(
    here: MemberNode, autojump_clock: trio.testing.MockClock
) -> None:
    store = ScriptedStore()
    said = Said(store, here)
    store.alive = (here, replace(here, boot_id="other", name="there:1"))
    await said.membership.enter()
    await for_seconds(said.membership, 60)
    assert (store.counted, said.membership.silent) == (1, 0)
    store.alive, store.silent = (here,), 1
    await for_seconds(said.membership, 3 * BEAT_SECONDS)
    assert (store.counted, said.membership.silent) == (2, 1)
    store.silent = 0  # the day is over
    await for_seconds(said.membership, SILENT_COUNTED_SECONDS + 2 * BEAT_SECONDS)
    assert (store.counted, said.membership.silent) == (3, 0)


async def test_how_far_the_clocks_are_apart_is_told_each_time_and_logged_once(
    here: MemberNode, autojump_clock: trio.testing.MockClock
) -> None:
    store = ScriptedStore()
    said = Said(store, here)
    store.alive = (here,)
    await said.membership.enter()
    await for_seconds(said.membership, 3)
    assert said.membership.clock_off_seconds == 0
    for millis in (60_000, -60_000):
        store.ahead_millis = millis
        await for_seconds(said.membership, 10)
        # What may have passed between the looks is not counted.
        assert 55 < said.membership.clock_off_seconds <= 60
    assert said.events == ["node.clock_differs"]
    store.ahead_millis = 0
    await for_seconds(said.membership, 3)
    assert said.membership.clock_off_seconds == 0
    store.tells_time = False  # nobody was there, this one neither
    await for_seconds(said.membership, 3)
    assert (said.membership.clock_off_seconds, said.events) == (0, ["node.clock_differs"])


async def test_one_that_has_just_come_or_was_late_is_patient_with_the_others(
    here: MemberNode, autojump_clock: trio.testing.MockClock
) -> None:
    store = ScriptedStore()
    said = Said(store, here)
    store.alive = (here,)
    await said.membership.enter()
    await for_seconds(said.membership, 10)
    assert store.buries == [False, False, False, False, True, True]  # the first is that it came
    store.was_late = True
    await said.membership.beat()
    store.was_late = False
    store.buries.clear()
    await for_seconds(said.membership, 7)
    assert store.buries == [False, False, False, True]


async def test_one_that_slept_unnoticed_until_the_others_took_it_for_dead_lets_go(
    here: MemberNode, autojump_clock: trio.testing.MockClock
) -> None:
    store = ScriptedStore()
    said = Said(store, here)
    store.alive = (here,)
    await said.membership.enter()
    store.was_dead = True
    await said.membership.beat()
    assert (said.all, said.membership.lapsed) == (["lapse"], False)


async def test_on_a_file_nothing_is_said_again(
    here: MemberNode, autojump_clock: trio.testing.MockClock
) -> None:
    store = ScriptedStore()
    store.alive = (here,)
    said = Said(store, here, alone=True)
    await said.membership.enter()
    await for_seconds(said.membership, 100)
    await said.membership.leave()
    assert (store.writes, said.membership.words(), said.membership.others) == (1, "", ())


def test_a_data_directory_is_known_again_and_no_other_is_taken_for_it(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    assert home_of(tmp_path / "one") == home_of(tmp_path / "one") != home_of(tmp_path / "other")
