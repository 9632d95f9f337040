"""What a terminal shows while a call says nothing (server/cli/spinner.py)."""

from __future__ import annotations

import io
import re

import pytest
import trio
from trio.testing import MockClock

from server.cli.spinner import Spinner
from server.cli.terminal import StatusLine


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True

    def drawn(self) -> list[str]:
        """What stood on the line, one after the other; "" where it was cleared."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue())
        return [part.rstrip() for part in plain.split("\r\x1b[K")[1:]]


@pytest.fixture(autouse=True)
def term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def autojump_clock() -> MockClock:
    return MockClock(autojump_threshold=0)


def spinner(screen: Screen) -> tuple[StatusLine, Spinner]:
    status = StatusLine(screen)
    return status, Spinner(status, "ask_model")


async def test_a_second_of_silence_is_followed_by_how_long_it_takes_and_nothing_of_it_stays(
    autojump_clock: MockClock,
) -> None:
    screen = Screen()
    _, turning = spinner(screen)

    async def work() -> int:
        await trio.sleep(0.95)
        assert screen.getvalue() == ""
        await trio.sleep(2.5)
        return 7

    assert await turning.during(work) == 7
    *drawn, last = screen.drawn()
    assert last == ""
    assert [re.sub(r"^. ", "", line) for line in drawn[:1] + drawn[-1:]] == [
        "ask_model  1 s",
        "ask_model  3 s",
    ]
    assert len({line[0] for line in drawn}) > 1


async def test_it_gives_way_to_progress_and_to_questions_and_goes_on_after_them(
    autojump_clock: MockClock,
) -> None:
    screen = Screen()
    status, turning = spinner(screen)

    async def work() -> None:
        await trio.sleep(1.55)
        status.show("40% of it")
        at = len(screen.drawn())
        await trio.sleep(5)
        assert screen.drawn()[at:] == []
        with status.held():
            at = len(screen.drawn())
            screen.write("Which day? ")
            status.show("50% of it")
            await trio.sleep(5)
            assert screen.drawn()[at:] == []
            assert screen.getvalue().endswith("Which day? ")
        await trio.sleep(1)
        assert screen.drawn()[-1].endswith("ask_model  12 s")

    await turning.during(work)
    assert screen.drawn()[-1] == ""


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
async def test_it_goes_with_an_error_too(autojump_clock: MockClock, error: BaseException) -> None:
    screen = Screen()
    _, turning = spinner(screen)

    async def work() -> None:
        await trio.sleep(2)
        raise error

    with pytest.raises(BaseExceptionGroup) as caught:
        await turning.during(work)
    assert caught.value.exceptions == (error,)
    assert screen.drawn()[-1] == ""


async def test_a_pipe_sees_nothing_of_it(autojump_clock: MockClock) -> None:
    out = io.StringIO()
    status = StatusLine(out)

    async def work() -> None:
        await trio.sleep(60)

    await Spinner(status, "ask_model").during(work)
    assert out.getvalue() == ""
