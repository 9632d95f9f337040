"""How an agent's process is kept at work: it crashes and is started again, its file is edited and it is exchanged."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from server.agents.base.file_watch import FileWatch, look
from server.agents.python import agent_lines
from server.agents.python.process_keeper import Keeper
from server.mcp.call_failures import BackendError
from tests.agents.chat.memory_peer import TOOL, MemoryPeer
from tests.agents.python.python_pair import PARROT, Caller, Log, at_work, soon, tool_call

# Ends, without a word, when it is called with `end`.
MORTAL = """
import os, signal
ready()
while True:
    call = hear()
    if call["do"] == "call" and call["arguments"].get("word") == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    if call["do"] == "call":
        say("final", id=call["id"], result=text(str(os.getpid())))
"""


async def test_a_crash_fails_the_call_and_the_next_one_finds_a_new_process(tmp_path: Path) -> None:
    async with at_work(tmp_path, MORTAL) as work:
        first = await work.say()
        with pytest.raises(BackendError, match=r"ended unexpectedly \(signal SIGKILL\)"):
            await work.call(word="end")
        assert await work.say() != first
        assert work.changes == 0
        (event,) = work.log.of("agent.ended")
        assert "SIGKILL" in event["reason"]
        assert len(work.log.of("agent.started_again")) == 1


async def test_after_a_crash_lists_that_differ_are_announced(tmp_path: Path) -> None:
    script = """
        import os
        seen = options.file + ".seen"
        ready(tool("say"), tool("two" if os.path.exists(seen) else "one"))
        open(seen, "w").close()
        if hear()["arguments"] == {}:
            raise SystemExit(3)
    """
    async with at_work(tmp_path, script, reload=False) as work:
        assert [tool.name for tool in work.backend.tools()] == ["say", "one"]
        with pytest.raises(BackendError, match=r"\(exit status 3\)"):
            await work.call()
        await soon(lambda: work.changes)
        assert [tool.name for tool in work.backend.tools()] == ["say", "two"]


@asynccontextmanager
async def kept(start: Callable[[], MemoryPeer], log: Log) -> AsyncGenerator[Keeper]:
    keeper = Keeper(
        start,
        watched=None,
        exchanged_when_stuck=True,
        calls_at_once=4,
        start_seconds=20,
        longest_call=lambda _: 300,
        name="main[1]",
        log=log.logger,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keeper.run, lambda: None, lambda _: None))
        yield keeper
        nursery.cancel_scope.cancel()


async def test_a_process_that_keeps_ending_is_started_less_and_less_often(
    autojump_clock: trio.testing.MockClock,
) -> None:
    starts: list[float] = []
    log = Log()
    async with trio.open_nursery() as nursery:

        def start() -> MemoryPeer:
            starts.append(trio.current_time())
            peer = MemoryPeer()

            async def live() -> None:
                if len(starts) == 1:
                    await peer.get_ready()
                    await trio.sleep(1)
                elif len(starts) == 12:
                    await peer.get_ready()
                    await trio.sleep(100)
                elif len(starts) == 14:
                    await peer.get_ready()
                    await trio.sleep_forever()
                peer.end("exit status 1")

            nursery.start_soon(live)
            return peer

        async with kept(start, log) as keeper:
            await trio.sleep(10)
            with pytest.raises(BackendError, match="not be started again"):
                await keeper.worker()
            await trio.sleep(1000)
            assert (await keeper.worker()).ended.is_set() is False
        nursery.cancel_scope.cancel()
    pauses = [round(after - before, 1) for before, after in pairwise(starts)]
    assert pauses == [1.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30, 100.2, 0.4]
    assert len(log.of("agent.not_started")) == 11


async def test_a_process_that_cannot_be_started_at_all_is_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    peers: list[MemoryPeer] = []
    log = Log()
    async with trio.open_nursery() as nursery:

        def start() -> MemoryPeer:
            if len(peers) == 1 and trio.current_time() < 5:
                raise FileNotFoundError(2, "No such file or directory")
            peers.append(MemoryPeer())
            nursery.start_soon(peers[-1].get_ready)
            return peers[-1]

        async with kept(start, log) as keeper:
            peers[0].end("exit status 1")
            await trio.sleep(10)
            assert not (await keeper.worker()).ended.is_set()
            assert "No such file" in log.of("agent.not_started")[0]["reason"]


async def test_what_a_process_says_is_not_heard_any_more_once_it_was_exchanged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    peers: list[MemoryPeer] = []
    async with trio.open_nursery() as nursery:

        def start() -> MemoryPeer:
            peers.append(MemoryPeer())
            nursery.start_soon(peers[-1].get_ready)
            return peers[-1]

        async with kept(start, Log()) as keeper:
            await peers[0].say("catalog", catalog={"tools": [TOOL, {**TOOL, "name": "b"}]})
            await trio.testing.wait_all_tasks_blocked()
            assert len(keeper.offer.tools) == 2
            peers[0].end("exit status 0")
            await trio.sleep(1)
            assert len(keeper.offer.tools) == 1


# ── functions that nothing can stop ──


async def until_closed(peer: MemoryPeer, live: Callable[[MemoryPeer], Awaitable[None]]) -> None:
    try:
        await live(peer)
    except AssertionError:  # there is nothing more to hear
        assert peer.closed


async def test_a_process_that_holds_a_stuck_function_is_exchanged_and_finishes_its_calls(
    autojump_clock: trio.testing.MockClock,
) -> None:
    peers: list[MemoryPeer] = []
    log = Log()
    async with trio.open_nursery() as nursery:

        async def live(peer: MemoryPeer) -> None:
            await peer.get_ready()
            if len(peers) > 1:
                return
            cancelled = 0.0
            while True:
                heard = await peer.hear()
                if heard["do"] == "cancel":
                    cancelled = trio.current_time()
                    await peer.say("error", id=heard["id"], kind="cancelled")
                elif heard["do"] == "ping":
                    await peer.say("pong", stuck=1, stuck_seconds=trio.current_time() - cancelled)

        def start() -> MemoryPeer:
            peers.append(MemoryPeer())
            nursery.start_soon(until_closed, peers[-1], live)
            return peers[-1]

        async with kept(start, log) as keeper:
            old = await keeper.worker()
            make = partial(
                agent_lines.CallTool,
                context=agent_lines.CallContext(subject="u", call_id="c"),
                name="say",
                arguments={},
            )
            outcome: list[agent_lines.Finished] = []

            async def last() -> None:
                outcome.append(await old.call(make, Caller()))

            nursery.start_soon(last)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(1):
                await old.call(make, Caller())
            await trio.sleep(50)
            assert await keeper.worker() is old, "another call runs there, and a minute has not passed"
            await trio.sleep(30)
            assert await keeper.worker() is not old
            assert not old.ended.is_set()
            await peers[0].say("final", id=1, result={})
            await old.ended.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert outcome and len(peers) == 2
            assert [len(log.of(event)) for event in ("agent.stuck", "agent.exchanged")] == [1, 1]
        nursery.cancel_scope.cancel()


async def test_a_stuck_function_that_cannot_be_replaced_is_lived_with(
    autojump_clock: trio.testing.MockClock,
) -> None:
    starts: list[float] = []
    async with trio.open_nursery() as nursery:

        async def live(peer: MemoryPeer) -> None:
            await peer.get_ready()
            while True:
                heard = await peer.hear()
                if heard["do"] == "cancel":
                    await peer.say("error", id=heard["id"], kind="cancelled")
                elif heard["do"] == "ping":
                    await peer.say("pong", stuck=8, stuck_seconds=1)

        def start() -> MemoryPeer:
            starts.append(trio.current_time())
            if len(starts) > 1:
                raise FileNotFoundError(2, "No such file or directory")
            peer = MemoryPeer()
            nursery.start_soon(live, peer)
            return peer

        async with kept(start, Log()) as keeper:
            old = await keeper.worker()
            make = partial(
                agent_lines.CallTool,
                context=agent_lines.CallContext(subject="u", call_id="c"),
                name="say",
                arguments={},
            )
            with trio.move_on_after(1):
                await old.call(make, Caller())
            await trio.sleep(100)
            assert await keeper.worker() is old
            assert 2 < len(starts) < 15
        nursery.cancel_scope.cancel()


# ── editing ──


async def test_an_edited_file_is_loaded_beside_the_old_one_which_finishes_its_calls(tmp_path: Path) -> None:
    old = """
        import os, time
        ready(tool("say"))
        call = hear()
        while not os.path.exists(options.file + ".go"):
            time.sleep(0.01)
        say("final", id=call["id"], result=text("old"))
        hear()
    """
    async with at_work(tmp_path, old) as work:
        answers: list[str] = []

        async def call() -> None:
            answers.append(await work.say())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked(0.05)
            work.write(PARROT.replace("ready()", "ready(tool('say'), tool('more'))"))
            await soon(lambda: work.changes)
            assert [tool.name for tool in work.backend.tools()] == ["say", "more"]
            assert await work.say(word="new") == "new"
            assert answers == []
            Path(f"{work.file}.go").touch()
        assert answers == ["old"]
        assert len(work.log.of("agent.reloaded")) == 1
        assert work.log.of("agent.ended") == []


async def test_an_edited_file_that_cannot_be_loaded_changes_nothing_until_it_is_repaired(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, PARROT) as work:
        work.write("say('broken', error='agent.py, line 1: no', traceback='Traceback: no')")
        await soon(lambda: work.log.of("agent.not_reloaded"))
        (event,) = work.log.of("agent.not_reloaded")
        assert (event["level"], event["reason"]) == (
            "warning",
            "the agent cannot be loaded: agent.py, line 1: no",
        )
        assert await work.say(word="still here") == "still here"
        work.write(PARROT.replace("ready()", "ready(tool('say'), tool('more'))"))
        await soon(lambda: work.changes)
        assert len(work.backend.tools()) == 2


async def test_files_that_the_process_names_are_watched_too(tmp_path: Path) -> None:
    helper = tmp_path / "helper.txt"
    helper.write_text("one", "utf-8")
    script = f"""
        name = open({str(helper)!r}).read()
        say("ready", protocol=1, python="3.11.0", catalog={{"tools": [tool(name)]}}, files=[{str(helper)!r}])
        hear()
    """
    async with at_work(tmp_path, script) as work:
        assert [tool.name for tool in work.backend.tools()] == ["one"]
        helper.write_text("another", "utf-8")
        await soon(lambda: work.changes)
        assert [tool.name for tool in work.backend.tools()] == ["another"]


async def test_a_crashed_agent_is_tried_at_once_when_it_is_edited(tmp_path: Path) -> None:
    """A back-off of half a minute would be a long time to look at one's repaired file."""
    async with at_work(tmp_path, MORTAL) as work:
        work.file.unlink()
        with pytest.raises(BackendError):
            await work.call(word="end")
        await soon(lambda: len(work.log.of("agent.not_started")) >= 3)  # now it waits for longer than a look
        work.write(PARROT)
        assert await work.backend.call(tool_call(word="back"), Caller())


def test_a_change_is_reported_once_the_files_are_left_alone(tmp_path: Path) -> None:
    file, absent = tmp_path / "agent.py", tmp_path / "absent.py"
    files = [str(file), str(absent)]
    file.write_text("0", "utf-8")
    known = look(files)
    watch = FileWatch(known)
    assert not watch.settled(look(files))
    seen: list[bool] = []
    for number in range(3):
        file.write_text("x" * (number + 2), "utf-8")
        seen.append(watch.settled(look(files)))
    assert seen == [False, False, False]
    assert watch.settled(look(files))
    absent.touch()
    known[str(file)] = look(files)[str(file)]
    assert [watch.settled(look(files)) for _ in range(2)] == [False, True]
    absent.unlink()
    assert not any(watch.settled(look(files)) for _ in range(3))
