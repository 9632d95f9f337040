"""The program as it is, but for one thing: as soon as a file `forget` lies in the working directory, every session is put away, as
if nobody had used it for half an hour, and the file is removed. Run by test_sessions_survive.py."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from server.calls.sessions.sessions import Sessions
from server.cli import run


async def forget(self: Sessions) -> None:
    while True:
        await trio.sleep(0.02)
        if await trio.Path("forget").exists():
            for session in list(self._all.values()):  # pyright: ignore[reportPrivateUsage]
                self.put_away(session)
            Path("forget").unlink()


if __name__ == "__main__":
    Sessions.run = forget
    sys.exit(run(sys.argv[1:]))
