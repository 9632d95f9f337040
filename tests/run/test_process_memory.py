"""Memory that was needed for a moment goes back to the system."""

import platform

from server.run.process_memory import give_large_blocks_back


def test_glibc_is_told_so_and_whatever_else_there_is_does_not_mind() -> None:
    assert give_large_blocks_back() == (platform.libc_ver()[0] == "glibc")
