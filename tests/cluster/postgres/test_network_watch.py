"""Whether a network carries again (server/cluster/postgres/network_watch.py). A listener whose queue is full answers nobody, as a cut network does."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, ClassVar, cast

import pytest
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from server.cluster.postgres import network_watch
from server.cluster.postgres.network_watch import KNOCK_SECONDS, PAUSE_SECONDS, SILENT_SECONDS, NetworkWatch
from server.cluster.postgres.postgres_wire import WireConnection


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Door:
    """Of a database server."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._stuck: list[socket.socket] = []
        self.socket = stack.enter_context(socket.socket())
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(0)
        self.address: tuple[str, int] = self.socket.getsockname()

    def shut(self) -> None:
        """Whoever knocks from now on is not answered."""
        for _ in range(3):
            one = self._stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(self.address)
            self._stuck.append(one)

    def open(self) -> None:
        while self._stuck:  # else they would knock again
            self._stuck.pop().close()
        self.socket.settimeout(0.2)
        while True:
            try:
                self._stack.enter_context(self.socket.accept()[0])
            except TimeoutError:
                return


class Told:
    """A watch that remembers what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.calls.append(name)


def test_a_connection_is_watched_for_as_long_as_it_waits() -> None:
    def asking() -> PQGen[str]:
        yield Wait.R
        return "answer"

    told: Any = Told()
    watched: Any = WireConnection._watched(cast("Any", None), asking(), told)  # pyright: ignore[reportPrivateUsage]
    next(watched)
    with pytest.raises(StopIteration) as ended:
        watched.send(Ready.R)
    assert (ended.value.value, told.calls) == ("answer", ["begin", "end"])


@pytest.fixture
def door() -> Iterator[Door]:
    with ExitStack() as stack:
        yield Door(stack)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(door: Door, clock: Clock) -> Iterator[NetworkWatch]:
    watch = NetworkWatch(door.address, clock=clock)
    watch.begin()
    yield watch
    watch.end()


def knocks(watch: NetworkWatch, clock: Clock, times: int) -> list[bool]:
    """What comes of so many that are waited for until they are in vain."""
    found: list[bool] = []
    for _ in range(times):
        clock.now += KNOCK_SECONDS
        found.append(watch.is_back())
    return found


def test_nobody_knocks_where_the_answer_is_not_late(door: Door, watch: NetworkWatch, clock: Clock) -> None:
    clock.now += SILENT_SECONDS - 0.01
    assert not watch.is_back()
    door.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        door.socket.accept()


def test_a_network_that_was_gone_and_answers_is_back(door: Door, watch: NetworkWatch, clock: Clock) -> None:
    door.shut()
    clock.now += SILENT_SECONDS
    assert not watch.is_back()
    assert knocks(watch, clock, 5) == [False] * 5
    door.open()
    assert not watch.is_back()  # that one is lost: TCP would send it anew after a second
    clock.now += KNOCK_SECONDS
    found = [watch.is_back() for _ in range(2)]
    assert found == [False, True]


def test_a_network_that_was_never_gone_is_not_back_however_late_the_answer(
    door: Door, watch: NetworkWatch, clock: Clock
) -> None:
    clock.now += SILENT_SECONDS
    for _ in range(3):
        assert not watch.is_back()  # knocks
        assert not watch.is_back()  # is answered
        door.open()
        clock.now += PAUSE_SECONDS
    # And each wait stands for itself.
    door.shut()
    assert knocks(watch, clock, 3) == [False] * 3
    watch.begin()
    door.open()
    clock.now += SILENT_SECONDS
    assert [watch.is_back() for _ in range(3)] == [False] * 3


class NoWay(socket.socket):
    """A router says that there is no way, some time after it was asked. The system tells that once."""

    outcomes: ClassVar[list[int]] = []

    def connect_ex(self, address: object) -> int:
        del address
        return errno.EINPROGRESS

    def getsockopt(self, *what: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        del what
        return self.outcomes.pop(0) if self.outcomes else 0


def test_where_there_is_no_way_it_is_not_back_until_somebody_answers(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_watch.socket, "socket", NoWay)
    monkeypatch.setattr(NoWay, "outcomes", [errno.EHOSTUNREACH] * 4 + [0])
    watch = NetworkWatch(("192.0.2.1", 5432), clock=clock)
    watch.begin()
    clock.now += SILENT_SECONDS
    found: list[bool] = []
    for _ in range(5):
        found += [watch.is_back(), watch.is_back()]
        clock.now += KNOCK_SECONDS
    assert found == [False] * 9 + [True]
    watch.end()


def test_one_that_is_lost_on_the_way_does_not_count(door: Door, watch: NetworkWatch, clock: Clock) -> None:
    door.shut()
    clock.now += SILENT_SECONDS
    assert not watch.is_back()
    door.open()
    clock.now += KNOCK_SECONDS
    assert [watch.is_back() for _ in range(3)] == [False] * 3


def test_whoever_refuses_is_reached(door: Door, watch: NetworkWatch, clock: Clock) -> None:
    """The server may have been ended meanwhile."""
    door.shut()
    clock.now += SILENT_SECONDS
    assert not watch.is_back()
    assert knocks(watch, clock, 2) == [False] * 2
    door.socket.close()
    clock.now += KNOCK_SECONDS
    assert [watch.is_back() for _ in range(2)] == [False, True]
