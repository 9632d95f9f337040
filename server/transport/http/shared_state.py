"""What all connections of one server share: what answers, its bounds, the counts. Built by listen.py."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import msgspec
import trio

from server.lib.log.logger import Logger

from .connection_limits import HttpLimits
from .disconnect_watch import DisconnectWatch
from .handler import Resolve
from .request_head import Heads
from .response import date_line
from .unsent import Unsent


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
