"""This process's memory: what it holds (keys, tokens, the environment that it was started with) stays in it, and what it needed for a
moment goes back to the system.

Another process of the same user may otherwise read it from /proc, attach to it as a debugger, or find it in a core file: an agent of
somebody's is such a process. Root may still do all of it, and whoever may act as this user has the data directory anyway.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import Final

PR_SET_DUMPABLE: Final = 4  # <sys/prctl.h>
_M_MMAP_THRESHOLD: Final = -3  # <malloc.h>
# What is at least so large gets pages of its own, which the system has back as soon as it is freed. By itself glibc raises this
# with every large block that is freed, up to 32 MiB: then one small block that lives on above some large ones keeps all of them.
LARGE_BYTES: Final = 256 * 1024


def close_memory() -> bool:
    """To be called before any secret is read. → whether the system did it; where it has no such thing, there is only no core.

    Only the soft limit is lowered: what this process starts may want cores of its own, and can have them. The kernel closes and
    opens with each program anew, so agents can be debugged as ever.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    if sys.platform != "linux":
        return True
    return ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


def give_large_blocks_back() -> bool:
    """Whether the platform has such a thing: glibc does."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
    except (OSError, AttributeError):
        return False
