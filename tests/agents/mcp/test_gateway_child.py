"""Upstreams that are child processes: started, listened to, started again, and ended with all that they started."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from upstreams import gate, soon, words

from server.mcp.call_failures import BackendError

PROGRAM = str(Path(__file__).with_name("stdio_upstream.py"))


def command(how: str = "well") -> list[str]:
    return [sys.executable, PROGRAM, how]


async def test_a_child_is_spoken_to_over_its_standard_streams() -> None:
    async with gate(command=command()) as door:
        assert words(await door.call("hello")) == "hello"


async def test_it_sees_of_our_environment_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "1")
    async with gate(command=command()) as door:
        seen = json.loads(words(await door.call("env")))
        assert "A_SECRET_OF_OURS" not in seen
        assert seen["PATH"] == "/usr/bin:/bin"


async def test_it_works_in_the_directory_of_the_settings(tmp_path: Path) -> None:
    async with gate(command=command(), working_dir=str(tmp_path)) as door:
        assert words(await door.call("where")) == os.path.realpath(tmp_path)


async def test_a_child_that_crashes_is_started_again_and_its_last_words_are_for_the_log_alone() -> None:
    async with gate(command=command(), id="files") as door:
        with pytest.raises(BackendError) as caught:
            await door.call("files__crash")
        assert str(caught.value) == "the upstream files has ended (exit status 3)"
        assert words(await door.call("files__hello")) == "hello"
        assert door.backend.trouble() is None
        assert any("swordfish" in event["line"] for event in door.log.of("agent.said"))


async def test_one_that_ends_at_once_is_in_trouble_which_its_owner_is_told() -> None:
    async with gate(command=command("falls")) as door:
        trouble = door.backend.trouble()
        assert trouble is not None
        assert trouble.words == "has ended (exit status 7); it said: no such thing as a database"
        assert trouble.since > 1_700_000_000_000


async def test_one_that_starts_once_and_for_no_caller_is_in_trouble_until_it_does(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    once = f"[ -e {mark} ] && exit 7; touch {mark}; exec {shlex.join(command())}"
    async with gate(command=["sh", "-c", once]) as door:
        assert door.backend.trouble() is None
        with pytest.raises(BackendError, match="has ended"):
            await door.call("hello")
        trouble = door.backend.trouble()
        assert trouble is not None
        assert trouble.words == "serves no caller: has ended (exit status 7)"
        mark.unlink()
        assert words(await door.call("hello")) == "hello"
        assert door.backend.trouble() is None


async def test_a_command_that_does_not_exist_is_in_trouble() -> None:
    async with gate(command=["/no/such/program"]) as door:
        trouble = door.backend.trouble()
        assert trouble is not None
        assert trouble.words == "cannot be started: /no/such/program: No such file or directory"


async def test_what_it_prints_besides_messages_is_passed_over() -> None:
    async with gate(command=command("prints")) as door:
        assert words(await door.call("hello")) == "hello"
        assert len(door.log.of("upstream.garbage")) == 2  # of our own, and of the caller's


async def test_one_that_takes_no_other_first_word_than_initialize_is_given_it_the_second_time() -> None:
    async with gate(command=command("strict")) as door:
        await soon(lambda: door.backend.trouble() is None)
        assert words(await door.call("hello")) == "hello"


async def test_one_that_says_nothing_holds_up_the_start_for_its_time_and_no_longer() -> None:
    async with gate(command=command("silent"), start_seconds=1) as door:
        trouble = door.backend.trouble()
        assert trouble is not None
        assert not door.backend.tools()


async def test_its_end_is_that_of_all_that_it_started() -> None:
    async with gate(command=command()) as door:
        pid = int(words(await door.call("spawn")))
        os.kill(pid, 0)
    await soon(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False
