"""How many Python functions the server's main thread calls for one request: a figure that does not depend on the machine.

As a program: `python -P tests/call_counts.py FILE serve …` is `ostiary serve …`, which begins to count when it gets SIGUSR1, and on SIGUSR2
writes into FILE how often each function was called during each request meanwhile. As a module: `counting` starts that program,
and `Counted.calls` measures an exchange with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SERVED = re.compile(r"Listening on http://127\.0\.0\.1:(\d+)")
WARM = 60  # whatever is found once is found by then
COUNTED = 200
REQUEST_BEGINS = "ConnectionCycle.__init__"
# Spells the time of a line of the log, unless the line before is of the same millisecond: so it counts how fast the machine is.
BY_THE_CLOCK = "server/lib/log/structured_log.py:_written"


def main() -> None:
    target = Path(sys.argv[1])
    requests: list[Counter[str]] = [Counter()]

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            if frame.f_code.co_qualname == REQUEST_BEGINS:
                requests.append(Counter())
            name = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
            if not name.endswith(BY_THE_CLOCK):
                requests[-1][name] += 1

    def begin(_number: int, _frame: FrameType | None) -> None:
        requests[:] = [Counter()]
        sys.setprofile(count)

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.setprofile(None)
        half = target.with_suffix(".half")
        half.write_text(json.dumps(requests[1:]), "utf-8")
        half.replace(target)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    sys.argv = ["ostiary", *sys.argv[2:]]
    from server.__main__ import main as serve

    serve()


class Counted:
    """A running server. One request at a time: then the figures are the same in every run."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, target: Path) -> None:
        self.port = port
        self._process = process
        self._target = target

    def calls(self, exchange: Callable[[], object], *, warm: int = WARM) -> Calls:
        """Of the request in the middle: what a server does beside its requests (ticks, sweeps) falls into some of them, and
        into the more of them the slower the machine is."""
        for _ in range(warm):
            exchange()
        self._target.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)  # taken before the first of these is answered
        for _ in range(COUNTED):
            exchange()
        self._process.send_signal(signal.SIGUSR2)
        until = time.monotonic() + 60
        while not self._target.exists():
            if time.monotonic() > until:
                raise AssertionError("the server wrote no counts")
            time.sleep(0.005)
        requests = [Calls(found) for found in json.loads(self._target.read_text("utf-8"))]
        return sorted(requests, key=lambda calls: calls.total)[len(requests) // 2]


class Calls:
    """Of one request, to the beginning of the next."""

    def __init__(self, by_function: Mapping[str, int]) -> None:
        self.by_function = by_function

    @property
    def total(self) -> int:
        return sum(self.by_function.values())

    @property
    def trio(self) -> int:
        """Those of the event loop, and of `outcome`, by which it hands values on."""
        return sum(number for name, number in self.by_function.items() if _is_trio(name))

    def table(self, *, shown: int = 40) -> str:
        rows = sorted(self.by_function.items(), key=lambda row: -row[1])[:shown]
        lines = [f"{number:6}  {_short(name)}" for name, number in rows]
        return "\n".join([f"{self.total:6}  in all, {self.trio} of them trio's", *lines])


def _is_trio(name: str) -> bool:
    return "/site-packages/trio/" in name or "/site-packages/outcome/" in name


def _short(name: str) -> str:
    return name.removeprefix(f"{ROOT}/").rpartition("site-packages/")[2]


class NodeConversation:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, request: bytes) -> tuple[int, bytes]:
        self._socket.sendall(request)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(data) < end + 4 + length:
            data += self._more()
        return int(data[9:12]), data[end + 4 :]

    def _more(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise AssertionError("the server closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()


def tool_call(port: int, tool: str, arguments: Mapping[str, Any], *, token: str | None = None) -> bytes:
    """A request as a client of 2026-07-28 sends it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "counts", "version": "1"},
    }
    body = json.dumps({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta},
    }).encode()  # fmt: skip
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        f"Mcp-Name: {tool}",
        *([f"Authorization: Bearer {token}"] if token else []),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def counting(
    folder: Path, options: Sequence[str], environment: Mapping[str, str] | None = None
) -> Generator[Counted]:
    """`ostiary serve` with these options and its data in `folder`."""
    log, target = folder / "log", folder / "counts"
    command = (
        sys.executable, "-P", str(Path(__file__)), str(target), "serve",
        "--port", "0", "--data-dir", str(folder / "data"), "--log-level", "info", "--log-format", "json", *options,
    )  # fmt: skip
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    homes = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder,
            env={**kept, **homes, **(environment or {})},
        )  # fmt: skip
    try:
        yield Counted(process, _port(process, log), target)
    finally:
        process.terminate()
        process.wait(60)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if found := SERVED.search(log.read_text("utf-8", "replace")):
            return int(found[1])
        time.sleep(0.02)
    raise AssertionError(f"the server did not start:\n{log.read_text('utf-8', 'replace')[-3000:]}")


if __name__ == "__main__":
    main()
