"""A connection to PostgreSQL that is told when others have committed something that this process should hear of."""

from __future__ import annotations

import select
from contextlib import suppress
from socket import socketpair
from typing import Final

import psycopg

from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_errors import PostgresRefused
from server.cluster.postgres.postgres_wire import WireConnection

LISTEN: Final = b"LISTEN ostiary_changes"


class ListeningConnection(PostgresConnection):
    """It only reads. A word says no more than that there is something to read, so one that is lost costs a wait and nothing else."""

    role = "listener"

    def __init__(self, access: PostgresAccess) -> None:
        self._noticed = False
        self._woken, self._waker = socketpair()
        super().__init__(access, writes=False)

    def wait_for_notice(self, seconds: float) -> None:
        """Until others say something, or `wake` is called, or so long; also where there is no connection."""
        with suppress(PostgresRefused):  # then there is none, and the next who asks makes another
            self._settle()
        wire = self._connection.pgconn
        waiting = select.poll()
        woken = self._woken.fileno()
        waiting.register(woken, select.POLLIN)
        if not self._connection.closed:
            if self._noticed or wire.notifies() is not None:
                self._noticed = False
                return
            waiting.register(wire.socket, select.POLLIN)
        if all(descriptor == woken for descriptor, _ in waiting.poll(seconds * 1000)):
            return
        try:
            wire.consume_input()
            while wire.notifies() is not None:
                pass
        except psycopg.Error:
            self._connection.close()

    def wake(self) -> None:
        with suppress(OSError):  # it was closed
            self._waker.send(b"x")

    def close(self) -> None:
        super().close()
        self._woken.close()
        self._waker.close()

    def _note(self, said: psycopg.Notify) -> None:
        del said
        self._noticed = True

    def _set_up(self, connection: WireConnection) -> None:
        super()._set_up(connection)
        connection.add_notify_handler(self._note)  # what comes beside the answer to a statement
        connection.execute(LISTEN)
