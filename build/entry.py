"""Where the executable starts: what only a frozen program has to see to, then the command line.

The one-file form is two processes: a launcher that unpacks into a temporary folder, and this one. The launcher passes
signals on and removes the folder afterwards, unless it is killed outright; then both fall to us. Where we are killed with it, the
folder falls to whoever starts next.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from multiprocessing import freeze_support
from pathlib import Path
from threading import Thread

from late import LateLibraries
from unpacked import clear_abandoned, hold

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
# In the environment of one of several processes that serve (server/cluster/workers/worker_handover.py).
WORKER = "OSTIARY_WORKER"


def end_with(launcher: int) -> None:
    """Ask the kernel for SIGTERM, which drains, when the launcher dies. It is single-threaded, so its thread is it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:  # it died before we asked
        os.kill(os.getpid(), signal.SIGTERM)


def find_late_libraries(unpacked: Path) -> None:
    import ostiary_packed

    late = LateLibraries(ostiary_packed.FILES, unpacked)
    sys.meta_path.insert(0, late)
    if sys.argv[1:2] == ["serve"]:  # it needs all of them, in a moment
        Thread(target=late.unpack_all, daemon=True).start()


def run() -> None:
    unpacked = Path(getattr(sys, "_MEIPASS", ""))
    # The folder form has no launcher: there the parent is somebody's shell, and its end is not ours.
    one_file = sys.platform == "linux" and unpacked.name.startswith("_MEI")
    launcher = os.getppid()
    if one_file:
        hold(unpacked)
        find_late_libraries(unpacked)
        if WORKER not in os.environ:
            clear_abandoned(unpacked, launcher)
    from server.__main__ import main

    # A worker of a server shares the folder of its parent, which is not ours to remove; and whoever has started it is no launcher, but a
    # thread of its parent, whose end means nothing. It notices the end of its parent by itself.
    if not one_file or WORKER in os.environ:
        main()
        return
    end_with(launcher)
    try:
        main()
    finally:
        if os.getppid() != launcher:
            shutil.rmtree(unpacked, ignore_errors=True)


if __name__ == "__main__":
    freeze_support()
    run()
