"""What all connections of one server share: the application, its bounds, the live set, the counts. Built by listen.py."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from .head import Heads
from .limits import Limits

Address = tuple[str, int]
Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]  # ASGI 3


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
    app: App
    limits: Limits
    log: FilteringBoundLogger
    draining: trio.Event
    # The reaper's clock, up to a tick (or a stall of the loop) behind: good enough for a deadline far away, and free.
    now: float
    counters: Counters = field(default_factory=Counters)
    heads: Heads = field(init=False)
    boot_id: str = field(default_factory=lambda: secrets.token_hex(4))
    sequence: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    def __post_init__(self) -> None:
        self.heads = Heads(self.limits)
