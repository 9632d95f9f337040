"""Work that outlives its request: it runs in the crew, what goes wrong there stays there, and a drain waits for it."""

from __future__ import annotations

from io import StringIO

import pytest
import structlog
import trio
import trio.testing

from server.calls.sessions.background_tasks import BackgroundTasks


def crew() -> tuple[BackgroundTasks, StringIO]:
    written = StringIO()
    return BackgroundTasks(
        structlog.wrap_logger(
            structlog.PrintLogger(written), processors=[structlog.processors.KeyValueRenderer()]
        )
    ), written


async def test_a_job_goes_on_when_the_task_that_started_it_is_gone() -> None:
    made, _ = crew()
    go_on, done = trio.Event(), trio.Event()

    async def job() -> None:
        await go_on.wait()
        done.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            with trio.CancelScope() as request:
                made.start(job)
                request.cancel()
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            assert made.count() == 1
            go_on.set()
            await done.wait()
            await made.wait_idle()
            assert made.count() == 0
            nursery.cancel_scope.cancel()


async def test_what_was_started_before_the_crew_came_is_done_when_it_comes() -> None:
    made, _ = crew()
    done: list[str] = []

    async def job() -> None:
        done.append("x")

    made.start(job)
    made.start(job)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            await made.wait_idle()
            nursery.cancel_scope.cancel()
    assert done == ["x", "x"]


async def test_a_job_that_fails_is_written_down_and_hurts_no_other() -> None:
    made, written = crew()
    done = trio.Event()

    async def fails() -> None:
        raise RuntimeError("oh")

    async def works() -> None:
        await trio.lowlevel.checkpoint()
        done.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            made.start(fails)
            made.start(works)
            await done.wait()
            await made.wait_idle()
            nursery.cancel_scope.cancel()
    assert "crew.job_failed" in written.getvalue()


async def test_the_end_of_the_crew_cancels_what_is_being_done() -> None:
    made, _ = crew()
    ended: list[str] = []

    async def job() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            ended.append("cancelled")
            raise

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            made.start(job)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert ended == ["cancelled"]
    assert made.count() == 0


async def test_a_crew_with_nothing_to_do_is_not_waited_for() -> None:
    made, _ = crew()
    with trio.fail_after(60):
        await made.wait_idle()

    async def never() -> None:
        await trio.sleep_forever()

    made.start(never)
    with pytest.raises(trio.TooSlowError), trio.fail_after(0):
        await made.wait_idle()
