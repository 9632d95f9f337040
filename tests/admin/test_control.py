"""The admin socket, over a real Unix socket."""

import contextlib
import errno
import io
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from server import __version__
from server.admin import control, control_socket
from server.lib.log.structured_log import make_logger


async def echo(arguments: Mapping[str, Any], actor: str) -> Any:
    return {"arguments": dict(arguments), "actor": actor}


async def refuse(arguments: Mapping[str, Any], actor: str) -> Any:
    raise control.CommandRefused("no such code", "ostiary pending")


async def break_down(arguments: Mapping[str, Any], actor: str) -> Any:
    raise ZeroDivisionError("a private detail")


async def count_up(arguments: Mapping[str, Any], actor: str) -> Any:
    """Three a page, up to `to`."""
    at, to = arguments.get("at", 0), arguments["to"]
    rows = list(range(at, min(at + 3, to)))
    return control.ListPage(rows=rows, go_on=at + 3 if at + 3 < to else None)


COMMANDS = {"echo": echo, "refuse": refuse, "break": break_down, "count_up": count_up}


@pytest.fixture
async def running(nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    log = make_logger(level="error", style="json", stream=io.StringIO())
    address = await nursery.start(control_socket.serve, data, lambda: COMMANDS, log)
    assert address.stat().st_mode & 0o777 == 0o600
    return data


async def ask(data: Path, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
    with trio.fail_after(60):
        return (await trio.to_thread.run_sync(control.ask, data, name, arguments)).result


async def test_a_command_reaches_its_handler_with_the_peers_uid_as_actor(running: Path) -> None:
    assert await ask(running, "echo", {"n": 1}) == {"arguments": {"n": 1}, "actor": f"local:{os.getuid()}"}


async def test_a_list_comes_whole_however_many_pages_it_has(running: Path) -> None:
    for to in (0, 1, 3, 4, 20):
        assert await ask(running, "count_up", {"to": to}) == list(range(to))


async def test_a_refusal_comes_back_with_its_hint(running: Path) -> None:
    with pytest.raises(control.CommandRefused, match="no such code") as caught:
        await ask(running, "refuse")
    assert caught.value.hint == "ostiary pending"


async def test_a_failing_command_says_internal_error_and_the_socket_lives(running: Path) -> None:
    with pytest.raises(control.CommandRefused, match="internal error"):
        await ask(running, "break")
    with pytest.raises(
        control.CommandRefused, match=f"another build of {__version__} .*: it knows no command 'absent'"
    ):
        await ask(running, "absent")
    assert (await ask(running, "echo"))["arguments"] == {}


@pytest.mark.parametrize(
    "line", [b"\n", b"[]\n", b"\xff\xff\n", b"x" * 200_000, b'{"name":"echo","arguments":' + b"[" * 50_000]
)
async def test_junk_on_the_socket_is_answered_and_does_no_harm(running: Path, line: bytes) -> None:
    address = (running / control.ADDRESS_FILE).read_text()

    def send() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(60)
            sock.connect(address)
            sock.sendall(line)
            sock.shutdown(socket.SHUT_WR)
            return sock.recv(1000)

    with trio.fail_after(60):
        # cut off while still sending: that is an answer, too
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            assert b'"ok":false' in await trio.to_thread.run_sync(send)
    assert (await ask(running, "echo"))["arguments"] == {}


async def test_whoever_only_looks_whether_a_server_is_there_is_no_trouble(running: Path) -> None:
    address = (running / control.ADDRESS_FILE).read_text()

    def look() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(60)
            sock.connect(address)
            sock.shutdown(socket.SHUT_WR)
            return sock.recv(1000)

    assert await trio.to_thread.run_sync(look) == b"", "hung up, without a word"
    assert await trio.to_thread.run_sync(control.runs_on, running)
    assert not control.runs_on(running / "absent")


async def test_a_command_that_takes_too_long_is_said_to_be_neither_done_nor_refused(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    async def dawdle(arguments: Mapping[str, Any], actor: str) -> Any:
        mock_clock.jump(control.DEADLINE_SECONDS)
        await trio.sleep_forever()

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    written = io.StringIO()
    log = make_logger(level="warning", style="json", stream=written)
    await nursery.start(control_socket.serve, tmp_path, lambda: {**COMMANDS, "dawdle": dawdle}, log)
    with pytest.raises(control.CommandNotAnswered) as caught:
        await ask(tmp_path, "dawdle")
    assert caught.value.hint, "what to do about it"
    assert "control.late" in written.getvalue()
    assert (await ask(tmp_path, "echo"))["arguments"] == {}


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a server that comes to nobody, with all places before its socket taken."""
    with contextlib.ExitStack() as open_here:
        address = Path(open_here.enter_context(tempfile.TemporaryDirectory())) / "control"
        (tmp_path / control.ADDRESS_FILE).write_text(str(address))
        listener = open_here.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(address))
        listener.listen(1)
        for _ in range(100):
            waiting = open_here.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting.setblocking(False)
            try:
                waiting.connect(str(address))
            except BlockingIOError:
                break
        yield tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue refuses as nobody does")
def test_a_server_that_comes_to_nobody_is_slow_and_not_absent(crowded: Path) -> None:
    assert control.runs_on(crowded)
    with pytest.raises(control.CommandNotAnswered):
        control.ask(crowded, "echo")
    (crowded / "other").mkdir()
    assert not control.runs_on(crowded / "other")


def test_without_a_server_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(control.CommandRefused, match="no server is running") as caught:
        control.ask(tmp_path, "echo")
    assert "ostiary serve" in caught.value.hint


def test_a_deep_data_directory_still_gets_a_socket_name_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    deep = tmp_path / ("d" * 90)
    address = control_socket.choose_address(deep)
    assert len(os.fsencode(address)) <= 103
    address.parent.rmdir()


async def test_a_socket_in_the_systems_temporary_directory_cannot_be_squatted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    with tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        deep = tmp_path / ("d" * 90)
        deep.mkdir(mode=0o700)
        log = make_logger(level="error", style="json", stream=io.StringIO())
        seen: list[Path] = []
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                address: Path = await nursery.start(control_socket.serve, deep, lambda: COMMANDS, log)
                assert stat.S_IMODE(address.parent.stat().st_mode) == 0o700
                assert (await ask(deep, "echo"))["arguments"] == {}
                nursery.cancel_scope.cancel()
            seen.append(address)
        assert seen[0] != seen[1]
        assert list(Path(short).iterdir()) == []


@pytest.mark.parametrize("lives", [True, False])
async def test_the_socket_of_a_killed_server_is_taken_away_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    with (
        tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as short,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as before,
    ):
        monkeypatch.setattr(tempfile, "tempdir", short)
        left = Path(short) / f"ostiary-{os.getuid()}-before" / "control"
        left.parent.mkdir()
        before.bind(str(left))
        before.listen()
        if not lives:
            before.close()
        data = Path(short) / "data"
        data.mkdir(mode=0o700)
        (data / control.ADDRESS_FILE).write_text(str(left))
        log = make_logger(level="error", style="json", stream=io.StringIO())
        async with trio.open_nursery() as nursery:
            await nursery.start(control_socket.serve, data, lambda: COMMANDS, log)
            assert left.parent.exists() == lives
            nursery.cancel_scope.cancel()


async def test_where_the_socket_is_can_be_read_by_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    log = make_logger(level="error", style="json", stream=io.StringIO())
    pointer = tmp_path / control.ADDRESS_FILE
    pointer.write_text("/nowhere")
    pointer.chmod(0o666)
    before = os.umask(0)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(control_socket.serve, tmp_path, lambda: COMMANDS, log)
            assert stat.S_IMODE(pointer.stat().st_mode) == 0o600
            nursery.cancel_scope.cancel()
    finally:
        os.umask(before)


async def test_running_out_of_file_descriptors_for_a_moment_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    with trio.socket.socket() as any_socket:
        kind = type(any_socket)
    accept, tries = kind.accept, 0

    async def poor(self: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError(errno.EMFILE, "too many open files")
        return await accept(self)

    monkeypatch.setattr(kind, "accept", poor)
    counters = control_socket.ControlCounters()
    log = make_logger(level="error", style="json", stream=io.StringIO())
    async with trio.open_nursery() as nursery:
        await nursery.start(control_socket.serve, tmp_path, lambda: COMMANDS, log, counters)
        assert (await ask(tmp_path, "echo"))["arguments"] == {}
        nursery.cancel_scope.cancel()
    assert tries >= 2
    assert counters.accept_errors == 1


async def test_a_link_laid_in_the_place_of_the_sockets_directory_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "control").write_text("precious")
    laid = tmp_path / "laid"
    laid.symlink_to(mine)
    monkeypatch.setattr(control_socket, "choose_address", lambda data_dir: laid / "control")
    log = make_logger(level="error", style="json", stream=io.StringIO())
    with pytest.raises(control.CommandRefused, match="not private"):
        await control_socket.serve(tmp_path, lambda: COMMANDS, log)
    assert (mine / "control").read_text() == "precious"
