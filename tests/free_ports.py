"""Ports for programs that have to be told theirs before they start, or that come back to the one they had."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

# Below those that the system gives to whoever asks for any, and to every connection that goes out: they would be gone by the time
# somebody listens, now and then. Several runs of tests at once begin at places that are far from each other.
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MANY: Final = 12_000
_STRIDE: Final = 1009


def _places() -> Iterator[int]:
    given_away = int(_RANGE.read_text("ascii").split()[0]) if _RANGE.exists() else 0
    given_away = given_away if given_away > 2 * _MANY else 32_768
    begin = os.getpid() * _STRIDE
    while True:
        yield given_away - 1 - begin % _MANY
        begin += 1


_ports: Final = _places()


def free_port() -> int:
    """Free on every address just now, and not given to anybody else."""
    for port in islice(_ports, _MANY):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is taken")
