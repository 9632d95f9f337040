"""A connection to PostgreSQL while it is made and while it is used: who answers, and for how long that is waited for.

WireConnection   psycopg's, whose every wait has an end: a server that is there and says nothing must not hold up its callers for ever
connected        one that takes writes, of the hosts that the address names; within a time that holds for name servers as well
Outage           what all connections to one database know of each other: since nobody got through, only one tries at a time
"""

from __future__ import annotations

import ipaddress
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, Final, TypeVar

import psycopg
from psycopg import RawCursor, pq
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import make_conninfo
from psycopg.waiting import Ready

from server.cluster.postgres.network_watch import NetworkWatch
from server.cluster.postgres.postgres_refusals import all_said, hint_for
from server.store.jobs import CannotOpen, StoreError

T = TypeVar("T")

# What was asked of the server itself ends by the server's own clock before this.
GRACE_SECONDS: Final = 3.0
# Of one host; a slow name server has the same. All together take no longer than the other.
CONNECT_SECONDS: Final = 5
_LONGEST_CONNECT_SECONDS: Final = 20.0

# A peer that is gone is noticed within some six seconds where something was sent to it, and in half a minute else.
_KEEPALIVE: Final[Mapping[str, int]] = MappingProxyType(
    {
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 6_000,
    }
)
# Whatever the address says: a standby, a server that encrypts in another way than was checked, and other letters would all be taken for good.
_ALWAYS: Final[Mapping[str, str]] = MappingProxyType(
    {"target_session_attrs": "read-write", "gssencmode": "disable", "client_encoding": "UTF8"}
)
# Who somebody is may be said by the environment, but not where they go, nor how.
_FROM_ENVIRONMENT: Final = frozenset({"user", "password", "passfile", "dbname"})
# What is said for nothing, where an empty text is no value and libpq tells of no other.
_UNSAID: Final[Mapping[str, str]] = MappingProxyType(
    {"sslcertmode": "allow", "min_protocol_version": "3.0", "max_protocol_version": "3.0"}
)

_SHOWN: Final = frozenset({"host", "hostaddr", "port", "user", "dbname", "sslrootcert"})
# How somebody shows that they know a password without showing it.
PROVED: Final = "scram-sha-256"

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
# While what is remembered is still believed (`server/store/change_feed.py`), and a little longer: a database that was restarted is found soon enough for
# whatever others have ended there meanwhile.
_EAGER_SECONDS: Final = 6.0
_LONGEST_EAGER_PAUSE_SECONDS: Final = 0.3
# So many tries hang somewhere without an end, and no more are begun.
_MOST_HANGING: Final = 4

_WAKE_SECONDS: Final = 0.1
_PORT: Final = "5432"


class ServerSilent(psycopg.OperationalError):
    """It was waited for long enough. The connection is closed."""


class WireConnection(psycopg.Connection[Any]):
    patience: float | None = CONNECT_SECONDS  # in seconds; None: without an end
    network: NetworkWatch | None = None  # None: nobody looks

    def wait(self, gen: PQGen[T], interval: float = _WAKE_SECONDS, timeout: float | None = None) -> T:
        patience = self.patience if timeout is None else timeout
        began = time.monotonic()
        try:
            return super().wait(
                gen if self.network is None else self._watched(gen, self.network), interval, patience
            )
        except psycopg.OperationalError as error:
            if error.sqlstate is None and patience is not None and time.monotonic() - began >= patience:
                self.close()
                raise ServerSilent("the database server does not answer") from None
            raise

    def watch_network(self) -> None:
        """Whoever can ask again on another connection need not wait for what TCP will send anew some time."""
        address = self.pgconn.hostaddr.decode()
        # A socket in a folder has none, and one of a link says nothing without its interface, which libpq does not tell.
        if address and not ipaddress.ip_address(address).is_link_local:
            self.network = NetworkWatch((address, int(self.pgconn.port)))

    def _watched(self, gen: PQGen[T], network: NetworkWatch) -> PQGen[T]:
        network.begin()
        try:
            wants = next(gen)
            while True:
                ready = yield wants
                if ready == Ready.NONE and network.is_back():
                    self.close()
                    raise ServerSilent("the network to the database server was cut")
                wants = gen.send(ready)
        except StopIteration as done:
            return done.value
        finally:
            network.end()


@dataclass(frozen=True)
class Timeline:
    """How often a standby has taken the place of the primary, in what began as one database server."""

    system: int
    number: int


class Outage:
    """From the first try to connect that failed until one that did not. Used by all threads of a store."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = 0.0  # 0: there is none
        self._began = 0.0  # if there is one
        self._tries_at = 0.0
        self._trying = False
        self._hanging: list[threading.Thread] = []
        # Why the last try failed, where the database itself can be reached.
        self.because: StoreError | None = None
        self.is_durable = True  # what the server keeps it keeps after a power cut as well
        self._timelines: dict[int, int] = {}  # the newest that were met, by system

    @property
    def refuses(self) -> bool:
        """Whoever has no connection need not ask now."""
        return self._pause > 0.0 and (self._trying or self._clock() < self._tries_at)

    def begin_try(self) -> bool:
        """Whether to try now. What comes of it is said by `succeeded` or `failed`."""
        with self._lock:
            self._hanging = [thread for thread in self._hanging if thread.is_alive()]
            if self.refuses or len(self._hanging) >= _MOST_HANGING:
                return False
            self._trying = self._pause > 0.0
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._pause, self._trying, self.because = 0.0, False, None

    def failed(self, because: StoreError | None = None) -> None:
        """The pauses grow, and are drawn by lot: others have lost their connections at the same moment."""
        with self._lock:
            self.because = because
            now = self._clock()
            if not self._pause:
                self._began = now
            eager = now < self._began + _EAGER_SECONDS
            longest = _LONGEST_EAGER_PAUSE_SECONDS if eager else _LONGEST_PAUSE_SECONDS
            self._trying = False
            self._pause = min(longest, max(_FIRST_PAUSE_SECONDS, 2 * self._pause))
            self._tries_at = now + self._pause * (0.5 + random.random() / 2)

    def meet(self, timeline: Timeline | None) -> bool:
        """False: a server that others have taken the place of."""
        if timeline is None:  # nobody knows
            return True
        with self._lock:
            if self.is_over(timeline):
                return False
            self._timelines[timeline.system] = timeline.number
            return True

    def is_over(self, timeline: Timeline) -> bool:
        """A later one was met."""
        return self._timelines.get(timeline.system, 0) > timeline.number

    def note_hanging(self, thread: threading.Thread) -> None:
        with self._lock:
            self._hanging.append(thread)


def without(parameters: Mapping[str, str], connection: WireConnection) -> Mapping[str, str] | None:
    """The other hosts of the address than the one that this leads to. None: there are none."""
    lists = {name: parameters[name].split(",") for name in ("host", "hostaddr", "port") if name in parameters}
    by_address = "hostaddr" in lists
    hosts = lists.get("hostaddr") or lists.get("host") or [""]
    ports = lists.get("port") or [""]
    at = connection.pgconn
    here = (at.hostaddr if by_address else at.host).decode(), at.port.decode()
    others = [place for place, host in enumerate(hosts) if (host, ports[place % len(ports)] or _PORT) != here]
    if not others:
        return None
    kept = {name: ",".join(each[place] for place in others) for name, each in lists.items() if len(each) > 1}
    return {**parameters, **kept}


def told(parameters: Mapping[str, str]) -> dict[str, Any]:
    """All that libpq is told, so that nothing of it is left to the environment."""
    asked: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, **_KEEPALIVE, **parameters, **_ALWAYS}
    for known in pq.Conninfo.get_defaults():
        name = known.keyword.decode()
        if known.envvar is None or name in asked or name in _FROM_ENVIRONMENT or name == "service":
            continue
        if known.envvar.decode() in os.environ:
            asked[name] = _UNSAID.get(name) or (known.compiled or b"").decode()
    return asked


def connected(
    parameters: Mapping[str, str], *, context: AdaptersMap | None, outage: Outage
) -> WireConnection:
    """Raises `CannotOpen`, in which no value of the address is but host, port, user and database."""
    asked = told(parameters)
    outcome: SimpleQueue[WireConnection | BaseException] = SimpleQueue()
    # Whoever takes the one thing in it has the connection to close.
    unclaimed: SimpleQueue[None] = SimpleQueue()
    unclaimed.put(None)

    def connect() -> None:
        try:
            made: WireConnection | BaseException = WireConnection.connect(
                make_conninfo("", **asked), autocommit=True, context=context, cursor_factory=RawCursor
            )
        except BaseException as error:
            made = error
        if _taken(unclaimed):
            outcome.put(made)
        elif isinstance(made, WireConnection):
            made.close()

    # In a thread of its own: a name server that does not answer is waited for within it, and by nothing that could be told to stop.
    thread = threading.Thread(target=connect, name="store-connect", daemon=True)
    thread.start()
    thread.join(_seconds_for(asked))
    if _taken(unclaimed):
        outage.note_hanging(thread)
        raise _unreachable("it does not answer, or a name server does not", asked)
    made = outcome.get()
    if isinstance(made, psycopg.Error):
        raise _unreachable(
            _hidden(all_said(str(made), str(asked.get("host", ""))), parameters), asked
        ) from None
    if isinstance(made, BaseException):
        raise made
    return made


def first_line(error: psycopg.Error, parameters: Mapping[str, str]) -> str:
    """Names a host, a user and a database, never a password, nor what was written in the place of something else."""
    return _hidden((str(error).strip().splitlines() or ["it does not answer"])[0], parameters)


def _hidden(said: str, parameters: Mapping[str, str]) -> str:
    for name, value in parameters.items():
        if name not in _SHOWN and value and value != PROVED:
            said = said.replace(f'"{value}"', '"…"').replace(f"'{value}'", "'…'")
    return said


def _taken(unclaimed: SimpleQueue[None]) -> bool:
    try:
        unclaimed.get_nowait()
    except Empty:
        return False
    return True


def _unreachable(why: str, asked: Mapping[str, Any]) -> CannotOpen:
    return CannotOpen(
        f"cannot connect to the database: {why or 'it does not answer'}", hint=hint_for(why, asked)
    )


def _seconds_for(asked: Mapping[str, Any]) -> float:
    hosts = max(str(asked.get("host", "")).count(","), str(asked.get("hostaddr", "")).count(",")) + 1
    return min(_LONGEST_CONNECT_SECONDS, (hosts + 1) * max(2.0, float(asked["connect_timeout"])))
