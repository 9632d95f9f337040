"""Serving one file or module over two file descriptors: load it, say what it offers or why it is broken, run its calls.

A child does this in its main thread (child.py); the server can do it in a thread of its own, over a socket pair.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from .loading import CannotLoad, Loaded, load
from .plain import utf8
from .registry import Registry

PROTOCOL = 1


def serve(
    receive: int,
    send: int,
    *,
    file: str | None = None,
    module: str | None = None,
    threads: int = 8,
    registry: Registry | None = None,
    started: Callable[[Callable[[], None]], None] = lambda stop: None,
    stopping: Callable[[], None] = lambda: None,
) -> int:
    """Blocks until the server says stop or goes away; 0, or 1 if there is nothing to serve.

    `started` is lent a function that stops it, from any thread or signal handler; `stopping` is called when it begins to.
    """
    registry = Registry() if registry is None else registry
    try:
        try:
            loaded = load(registry, file=file, module=module)
            if not registry.lifespans:
                _say_ready(send, registry, loaded)
            # Only now, so that the server hears sooner that the file is in order.
            import asyncio

            from .loop import Loop

            loop = Loop(registry, threads, loaded.files)
            opened = partial(_opened, send, registry, loaded) if registry.lifespans else None
            asyncio.run(loop.run(receive, send, started, stopping, opened))
        except CannotLoad as error:
            _say(
                send, {"event": "broken", "error": str(error), "traceback": error.trace, "files": error.files}
            )
            return 1
    except BrokenPipeError:
        return 1
    return 0


def _opened(send: int, registry: Registry, loaded: Loaded, error: BaseException | None) -> None:
    """What the file opens is open, or cannot be."""
    if error is not None:
        raise loaded.cannot(error) from error
    _say_ready(send, registry, loaded)


def _say_ready(send: int, registry: Registry, loaded: Loaded) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    offer = {"catalog": registry.catalog(), "files": loaded.files()}
    _say(send, {"event": "ready", "protocol": PROTOCOL, "python": python, **offer})


def _say(fd: int, event: dict[str, Any]) -> None:
    line = utf8(json.dumps(event, ensure_ascii=False, separators=(",", ":"))) + b"\n"
    while line:
        line = line[os.write(fd, line) :]
