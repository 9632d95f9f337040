"""Ends programs whose server was killed: they would go on with what somebody has begun anew by then.

A small shell beside the server reads from a pipe which groups of processes there are. When the pipe ends, however that came about, it kills
those that are left. It is told that one is over before anybody else can bear its number.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

SHELL: Final = "/bin/sh"
# A child of nobody's, so that nobody has to wait for its end; it ends with the pipe.
SCRIPT: Final = """
exec 3<&0
{
    groups=' '
    while read -r word group; do
        case $word in
            +) groups="$groups$group " ;;
            -) case $groups in *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;; esac ;;
        esac
    done
    for group in $groups; do kill -s KILL -- "-$group"; done
} <&3 3<&- &
"""


class Guardian:
    """Started with the first program. What it is told never waits."""

    def __init__(self) -> None:
        self._groups = set[int]()
        self._pipe = -1

    def be_there(self) -> None:
        """Raises `OSError`. Blocks for the milliseconds that a shell takes to start, once."""
        if self._pipe >= 0:
            return
        reading, writing = os.pipe()
        try:
            subprocess.run(
                [SHELL, "-c", SCRIPT],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            os.close(writing)
            raise error if isinstance(error, OSError) else OSError("no shell") from error
        finally:
            os.close(reading)
        os.set_blocking(writing, False)
        self._pipe = writing
        for group in self._groups:
            self._say("+", group)

    def watch(self, group: int) -> None:
        self._groups.add(group)
        self._say("+", group)

    def forget(self, group: int) -> None:
        """Before it is reaped."""
        self._groups.discard(group)
        self._say("-", group)

    def close(self) -> None:
        """It ends, and kills what is left."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)

    def __del__(self) -> None:  # a back-end that was made, and never served
        self.close()

    def _say(self, word: str, group: int) -> None:
        try:
            if self._pipe >= 0:
                os.write(self._pipe, f"{word} {group}\n".encode())
        except BlockingIOError:
            pass  # somebody has stopped it
        except OSError:  # or killed it: the next program has another
            self.close()
