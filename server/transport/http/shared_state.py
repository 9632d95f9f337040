"""What all connections of one server share: what answers, its bounds, the counts. Built by listen.py."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import msgspec
import trio

from server.lib.log.logger import Logger

from .connection_limits import HttpLimits
from .disconnect_watch import DisconnectWatch
from .handler import Resolve
from .request_head import Heads
from .response import date_line


class SlowPeer(Protocol):
    def give_up(self) -> None:
        """It does not read what it is sent, and is cut."""
        ...


class Unsent:
    """What is written to peers that do not take it at once, over all connections of a server: one budget of bytes.

    Each peer has its time to read (connection_limits.py); this bounds what all of them may have waiting meanwhile.
    """

    def __init__(self, limit: int) -> None:
        self.bytes = 0
        self._limit = limit
        self._waiting: dict[SlowPeer, int] = {}  # whoever has waited for longest comes first

    def add(self, peer: SlowPeer, size: int) -> None:
        """This peer, which waits for nothing else, is being sent so much. Others may have to give way, who have had the longest
        time to take theirs."""
        self._waiting[peer] = size
        self.bytes += size
        while self.bytes > self._limit and len(self._waiting) > 1:
            longest = next(iter(self._waiting))
            self.remove(longest)
            longest.give_up()

    def remove(self, peer: SlowPeer) -> None:
        self.bytes -= self._waiting.pop(peer, 0)


class Counters(msgspec.Struct):
    """Since the start. For metrics: what happens below the application never reaches its access log."""

    accepted: int = 0
    over_cap: int = 0
    over_ip_cap: int = 0
    accept_errors: int = 0
    requests: int = 0
    refused: int = 0  # answered here: malformed, too large, too late
    late: int = 0  # a deadline passed: head, body, idle, handshake
    stalled: int = 0  # cut by the write rule
    crashed: int = 0  # an application or a connection raised


@dataclass(kw_only=True, slots=True)
class Serving:
    resolve: Resolve
    limits: HttpLimits
    log: Logger
    draining: trio.Event
    # Answered also where there is no room for anything else, on places of their own.
    vital_paths: frozenset[str] = frozenset()
    # The reaper's clock, up to a tick (or a stall of the loop) behind: good enough for a deadline far away, and free.
    now: float
    closing: bool = False  # the drain has begun: no further requests on a connection
    owed_by: float = math.inf  # when, in a drain, peers must have done what they owe
    # The Date line of responses, renewed with `now`.
    date: bytes = field(default_factory=date_line)
    counters: Counters = field(default_factory=Counters)
    heads: Heads = field(init=False)
    unsent: Unsent = field(init=False)
    # Of requests that wait for what answers them. The reaper starts one when its request has lasted for a tick.
    companions: set[DisconnectWatch] = field(default_factory=set[DisconnectWatch])
    boot_id: str = field(default_factory=lambda: secrets.token_hex(4))
    sequence: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    def __post_init__(self) -> None:
        self.heads = Heads(self.limits)
        self.unsent = Unsent(self.limits.unsent_bytes)

    def begin_drain(self) -> None:
        self.closing = True
        self.limits = self.limits.while_draining()
        self.owed_by = trio.current_time() + self.limits.drain_owed_seconds
