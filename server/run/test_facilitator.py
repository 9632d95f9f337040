"""The test facilitator as a program: put together, listening, and answering as slowly, as little or as late as its switches say.

    serve_facilitator > reaper > connections > listeners

The connection layer is the server's own (server/transport/http). Unless it is told to listen elsewhere it answers this machine alone, and `/test/…`
never anybody else: pages that a browser shows are kept out by the same guard as the server's.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final, cast

import msgspec
import trio

from server.lib.evm.payment_networks import Asset, Network
from server.lib.log.logger import Logger
from server.lib.money.amounts import Micros
from server.payments.test_facilitator.cheques import MOST_BYTES
from server.payments.test_facilitator.coins import Coins, CoinState
from server.payments.test_facilitator.endpoints import EndpointReply, FacilitatorEndpoints, in_json
from server.payments.test_facilitator.routes import FOR_TESTS, FacilitatorFront
from server.payments.test_facilitator.state_file import StateFile, StateUnusable
from server.payments.test_facilitator.switches import Switch, Switches
from server.transport.http.allowed_hosts import ForeignRequest, Guard
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.handler import Address, Cycle, Pairs, Resolve, Scope
from server.transport.http.listen import ListenSettings, serve
from server.transport.http.sockets import ListenError, PortInUse

# Whoever tests with more at once tests something else.
_CONNECTIONS: Final = 512
_DRAIN_SECONDS: Final = 1.0
# It has no other name than the machine's for itself.
_GUARD: Final = Guard()


class FacilitatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    networks: Sequence[tuple[Network, Asset]]
    each: Micros  # what every address has until it spends it
    state: Path | None = None
    verify: Switch = Switch()
    settle: Switch = Switch()

    @property
    def on_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


class StartedFacilitator(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    listens: Sequence[str]


class FacilitatorHandler:
    """Implements `Handler`."""

    __slots__ = ("_foreign", "_front", "_method", "_path", "client")

    def __init__(self, front: FacilitatorFront, scope: Scope, *, for_all: bool) -> None:
        self._front = front
        self._method: Final[str] = scope["method"]
        self._path: Final[str] = scope["path"]
        self.client: Final[Address | None] = None
        self._foreign = ""
        if not for_all or self._path.startswith(FOR_TESTS):
            admitted = _GUARD.admit(scope, dict(scope["headers"]))
            if isinstance(admitted, ForeignRequest):
                self._foreign = admitted.reason

    async def answer(self, cycle: Cycle) -> None:
        if self._foreign:
            return await _tell(cycle, in_json({"error": self._foreign}, 403))
        body = cycle.arrived()
        if body is None:
            body = await _read(cycle)
            if body is None:
                return None
        reply = await self._front.answer(self._method, self._path, body)
        del body
        cycle.at_drain(cycle.abandon)  # nobody waits for one that is slow, or never answers
        if reply.waits:
            await cycle.wait_gone()
        if not reply.told:
            cycle.abandon()
            await trio.sleep_forever()  # until that takes effect
        await trio.sleep(reply.after_seconds)
        if reply.afterwards is None:
            return await _tell(cycle, reply)
        with contextlib.suppress(OSError):  # whoever was told, or was not, does not matter to what comes
            await _tell(cycle, reply, (b"connection", b"close"))
        await trio.sleep(reply.afterwards_seconds)
        await reply.afterwards()
        return None

    def done(self, cycle: Cycle, seconds: float) -> None:
        """What there is to tell, the desk has told."""


class CannotFacilitate(Exception):
    """It cannot be started; what to say, and perhaps what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def run_facilitator(
    settings: FacilitatorSettings, log: Logger, *, announce: Callable[[StartedFacilitator], None]
) -> None:
    """Until SIGTERM or Ctrl-C. Raises `CannotFacilitate`."""
    try:
        trio.run(partial(serve_facilitator, settings, log, announce=announce))
    except* (ListenError, StateUnusable, OSError) as group:
        problem: BaseException = group
        while isinstance(problem, BaseExceptionGroup):
            problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
        if isinstance(problem, PortInUse):
            hint = f"ostiary facilitator --test --port {quote(str(problem.port + 1))}"
        else:
            hint = getattr(problem, "hint", "")
        if isinstance(problem, OSError):
            raise CannotFacilitate(f"cannot write {settings.state}: {problem.strerror}") from problem
        raise CannotFacilitate(str(problem), hint) from problem


async def serve_facilitator(
    settings: FacilitatorSettings,
    log: Logger,
    *,
    announce: Callable[[StartedFacilitator], None],
    clock: Callable[[], int] = lambda: int(time.time()),
) -> None:
    """The same under trio. Raises `ListenError`, `StateUnusable`, and `OSError` where that file cannot be written."""
    draining = trio.Event()
    file = StateFile(settings.state) if settings.state else None
    with contextlib.ExitStack() as held:
        state = held.enter_context(file.held()) if file else CoinState()
        coins = Coins(settings.networks, settings.each, state)
        desk = FacilitatorEndpoints(
            coins, Switches(settings.verify, settings.settle), clock=clock, log=log, file=file
        )
        await desk.save()  # or it would be found out at the first payment that there cannot be such a file
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        listen = ListenSettings(
            binds=[f"{host}:{settings.port}"],
            log=log,
            limits=HttpLimits(
                body_bytes=MOST_BYTES,
                connections=_CONNECTIONS,
                connections_per_ip=_CONNECTIONS,
                drain_seconds=_DRAIN_SECONDS,
            ),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(_stop_on_signals, draining)
            listens: list[str] = await nursery.start(
                partial(serve, resolver(desk, settings), listen, draining=draining)
            )
            announce(StartedFacilitator(origin=listens[0], listens=listens))
            await draining.wait()
        await desk.save()


def resolver(desk: FacilitatorEndpoints, settings: FacilitatorSettings) -> Resolve:
    front = FacilitatorFront(desk)

    def resolve(scope: Scope) -> FacilitatorHandler:
        return FacilitatorHandler(front, scope, for_all=not settings.on_loopback)

    return resolve


async def _stop_on_signals(draining: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            draining.set()
            return


async def _tell(cycle: Cycle, reply: EndpointReply, *more: tuple[bytes, bytes]) -> None:
    headers: Pairs = ((b"content-type", reply.content_type), (b"cache-control", b"no-store"), *more)
    if reply.allow:
        headers = (*headers, (b"allow", ", ".join(reply.allow).encode()))
    await cycle.answer(reply.status, headers, reply.body)


async def _read(cycle: Cycle) -> bytes | None:
    """The body, which the connection layer bounds; None when the client left first."""
    body = bytearray()
    while True:
        message = await cycle.receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)
