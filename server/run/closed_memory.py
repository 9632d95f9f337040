"""What this process holds in memory (keys, tokens, the environment that it was started with) stays in it.

Another process of the same user may otherwise read it from /proc, attach to it as a debugger, or find it in a core file: an agent of
somebody's is such a process. Root may still do all of it, and whoever may act as this user has the data directory anyway.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import Final

PR_SET_DUMPABLE: Final = 4  # <sys/prctl.h>


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
