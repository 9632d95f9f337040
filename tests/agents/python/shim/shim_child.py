"""A real child that serves a file, and the server's end of its line."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

SHIM = Path(__file__).parent.parent.parent.parent.parent / "server" / "agents" / "python" / "shim"
# Generous: a machine that builds something else at the same time.
PATIENCE_SECONDS = 60.0


class Child:
    def __init__(
        self, file: Path | None, *options: str, module: str | None = None, python: str = sys.executable,
        cwd: Path | None = None,
    ) -> None:  # fmt: skip
        theirs, self._to = os.pipe()
        self._from, out = os.pipe()
        what = ("--file", str(file)) if file else ("--module", str(module))
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self.process = subprocess.Popen(
            [python, "-u", "-X", "utf8", str(SHIM / "run.py"), "--fds", f"{theirs},{out}", *what, *options],
            pass_fds=(theirs, out),
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            cwd=cwd or (file.parent if file else None),
        )
        os.close(theirs)
        os.close(out)
        self._held = b""
        self._next = 0

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        os.close(self._from)
        self.process.kill()
        self.process.wait()
        self._printed.close()

    def tell(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._to, data) :]

    def hear(self) -> dict[str, Any]:
        """The next line. Raises `EOFError` when the child has ended."""
        end = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self._held:
            if not select.select([self._from], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the child says nothing; so far: {self._held[:200]!r}")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise EOFError
            self._held += chunk
        line, _, self._held = self._held.partition(b"\n")
        return json.loads(line)

    def start(self, name: str, arguments: dict[str, Any] | None = None, /, **context: Any) -> int:
        return self.send("tool", context, name=name, arguments=arguments or {})

    def send(self, kind: str, context: dict[str, Any] | None = None, **fields: Any) -> int:
        self._next += 1
        basis = {"subject": "ada", "call_id": f"c{self._next}", "can": [], "resumed": None, "progress": False, "level": None}  # fmt: skip
        message = {
            "do": "call",
            "id": self._next,
            "kind": kind,
            **fields,
            "context": {**basis, **(context or {})},
        }
        self.tell(message)
        return self._next

    def end(self, call: int) -> dict[str, Any]:
        """The event that ends the call; every other one before it is an error."""
        event = self.hear()
        assert event["id"] == call, event
        assert event["event"] in ("final", "error"), event
        return event

    def call(self, name: str, arguments: dict[str, Any] | None = None, /, **context: Any) -> dict[str, Any]:
        """The result of a tool."""
        event = self.end(self.start(name, arguments, **context))
        assert event["event"] == "final", event
        return event["result"]

    def text(self, name: str, arguments: dict[str, Any] | None = None, /, **context: Any) -> str:
        (block,) = self.call(name, arguments, **context)["content"]
        return block["text"]

    def hang_up(self) -> None:
        if self._to >= 0:
            os.close(self._to)
            self._to = -1

    def wait(self) -> tuple[int, str]:
        """Exit status, and everything that was printed."""
        status = self.process.wait(PATIENCE_SECONDS)
        self._printed.seek(0)
        return status, self._printed.read().decode()


Serve = Callable[..., Child]  # with the text of a file, and what else a child is started with


def text_of(event: dict[str, Any]) -> str:
    """Return the text of a tool's answer."""
    return event["result"]["content"][0]["text"]
