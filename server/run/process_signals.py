"""What signals mean: the first SIGTERM or Ctrl-C drains, the second ends at once. SIGHUP reads settings and a renewed certificate again;
where it means that the terminal was closed, it drains.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

import trio

# One Ctrl-C reaches the one-file program twice: from the terminal, and passed on by its launcher.
ECHO_SECONDS: Final = 0.5


async def heed_signals(
    *,
    drain: Callable[[], None],
    end: Callable[[], None],
    reload: Callable[[], None],
    task_status: trio.TaskStatus[None],
) -> None:
    drains_since: float | None = None
    # Whoever starts it with SIGHUP ignored (nohup) wants it to outlive the terminal.
    had_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP and not (had_terminal and not _has_terminal()):
                reload()
            elif drains_since is None:
                drain()
                drains_since = trio.current_time()
            elif trio.current_time() - drains_since > ECHO_SECONDS:
                end()


def _has_terminal() -> bool:
    """Whether a terminal controls this process, and is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
