"""How the C library's allocator gives memory back."""

from __future__ import annotations

import ctypes
from typing import Final

_M_MMAP_THRESHOLD: Final = -3  # <malloc.h>
# What is at least so large gets pages of its own, which the system has back as soon as it is freed. By itself glibc raises this
# with every large block that is freed, up to 32 MiB: then one small block that lives on above some large ones keeps all of them.
LARGE_BYTES: Final = 256 * 1024


def give_large_blocks_back() -> bool:
    """Whether the platform has such a thing: glibc does."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
    except (OSError, AttributeError):
        return False
