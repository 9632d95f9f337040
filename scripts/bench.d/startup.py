"""From starting the program to its first 200: warm, and with nothing of it in the page cache."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from targets import START_SECONDS, Broken, environment, free_port, stop
from wire import fetch_status

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def first_200_ms(command: tuple[str, ...], *, repeats: int, cold: bool) -> float | None:
    """Median milliseconds, each start on a data directory that an earlier one made. None: this needs root."""
    if cold and not os.access(DROP_CACHES, os.W_OK):
        return None
    with tempfile.TemporaryDirectory(prefix="ostiary-bench-") as folder:
        start_ms(command, Path(folder))  # makes the data directory and keys; not counted
        times: list[float] = []
        for _ in range(repeats):
            if cold:
                os.sync()
                DROP_CACHES.write_text("3\n")
            times.append(start_ms(command, Path(folder)))
    return median(times)


def start_ms(command: tuple[str, ...], folder: Path) -> float:
    admin = free_port()
    options = ("serve", "--port", "0", "--admin-port", str(admin), "--data-dir", str(folder / "data"))
    with (folder / "log").open("wb") as log:
        begun = time.perf_counter()
        process = subprocess.Popen(
            (*command, *options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment(folder),
        )
        try:
            while fetch_status("127.0.0.1", admin, "/healthz") != 200:
                if process.poll() is not None or time.perf_counter() - begun > START_SECONDS:
                    raise Broken(
                        f"it did not start:\n{(folder / 'log').read_text('utf-8', 'replace')[-2000:]}"
                    )
                time.sleep(0.002)
            return (time.perf_counter() - begun) * 1e3
        finally:
            stop(process)
