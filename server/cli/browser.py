"""Handing a link to a browser on this machine: the one that $BROWSER names, else the desktop's own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import trio

# Whoever has nobody to hand a link to says so at once; a browser that was not running yet stays longer.
REFUSAL_SECONDS: Final = 1.0


def would_be_seen(environ: Mapping[str, str], platform: str) -> bool:
    """May a browser be opened? Where one is named, there is somebody who wants to see it, also over SSH."""
    from server.client.login_ways import headless

    return bool(environ.get("BROWSER")) or not headless(environ, platform)


async def open_browser(link: str) -> bool:
    """Hand the link on. False where nobody took it."""
    for words in commands(link, os.environ, sys.platform):
        program = shutil.which(words[0])
        if program is not None and await _took(program, words):
            return True
    return False


def commands(link: str, environ: Mapping[str, str], platform: str) -> list[list[str]]:
    """What may open the link, the first choice first. $BROWSER is read as everybody does: several with colons between, each a
    program, or a command with %s where the link goes."""
    found: list[list[str]] = []
    for text in environ.get("BROWSER", "").split(os.pathsep):
        try:
            words = shlex.split(text)
        except ValueError:  # a quotation that does not end
            continue
        if words[-1:] == ["&"]:  # nobody waits for it anyway
            words.pop()
        if words:
            placed = [word.replace("%s", link) for word in words]
            found.append(placed if placed != words else [*words, link])
    return found or [["open" if platform == "darwin" else "xdg-open", link]]


async def _took(program: str, words: Sequence[str]) -> bool:
    """Whether it is at work, or has done it."""
    try:
        process = await trio.lowlevel.open_process(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # ctrl-c here is not meant for the browser
            env=environment_of_others(),
        )
    except OSError:
        return False
    with trio.move_on_after(REFUSAL_SECONDS):
        await process.wait()
    return process.returncode in (None, 0)


def environment_of_others() -> dict[str, str]:
    """Ours without what the packed executable set for itself: other programs must load their own libraries."""
    env = dict(os.environ)
    if getattr(sys, "frozen", False):
        for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
            env.pop(name, None)
            if original := env.pop(f"{name}_ORIG", None):
                env[name] = original
    return env
