"""A primary and its standby, both real PostgreSQL: an answer waits until the standby has it as well, so that a promotion loses nothing."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
from network_faults import PORT, Cables
from psycopg.conninfo import make_conninfo
from targets import Broken

from tests.made_certificates import Authority
from tests.postgres_server import PostgresServer, programs

DATABASE = "chaos"
FOLLOWED_SECONDS = 60.0


class Databases:
    """`authority`: the file of whoever signed the certificate of both."""

    def __init__(self, home: Path, cables: Cables) -> None:
        found = programs()
        if found is None:
            raise Broken("PostgreSQL is not installed: apt-get install postgresql")
        self.primary, self.standby = (PostgresServer(found, durable=True) for _ in range(2))
        # In the order in which the address of the database names them.
        self.folders = [self.primary.folder, self.standby.folder]
        self.authority = home / "authority.pem"
        self._home, self._cables = home, cables

    def make(self) -> None:
        self.primary.make()
        authority = Authority(self._home)
        if self._cables.database_hosts:
            # Its files are copied to the standby with everything else.
            certificate = authority.issue("*.database.test")
            self.primary.listen(self._cables.database_hosts[0], PORT, tls=certificate)
            self.standby.settings = {
                **self.primary.settings, "listen_addresses": self._cables.database_hosts[1]
            }  # fmt: skip
        # As soon as possible, not five seconds after it was lost.
        for server in (self.primary, self.standby):
            server.settings["wal_retrieve_retry_interval"] = "200ms"
        self.primary.stop()
        self.primary.start()
        self.primary.said("CREATE ROLE ostiary LOGIN")
        self.primary.said(f"CREATE DATABASE {DATABASE} OWNER ostiary TEMPLATE template0")
        self.have_followed()

    def have_followed(self) -> None:
        """A standby of what is the primary now."""
        self.standby.follow(self.primary)
        self.primary.said("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.said("SELECT pg_reload_conf()")
        until = time.monotonic() + FOLLOWED_SECONDS
        with psycopg.connect(
            make_conninfo("", **self.primary.parameters("postgres")), autocommit=True
        ) as asking:
            following = b"SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"
            while asking.execute(following).fetchone() is None:
                if time.monotonic() > until:
                    raise Broken("the standby does not follow")
                time.sleep(0.05)

    def restart(self, how: Literal["fast", "immediate"]) -> None:
        self.primary.stop(how=how)
        self.primary.start()

    def promote(self) -> None:
        """The primary is gone in the middle of everything; the standby goes on, alone for now."""
        self.primary.stop(how="immediate")
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        self.primary.said("ALTER SYSTEM RESET synchronous_standby_names")
        self.primary.said("SELECT pg_reload_conf()")

    @contextmanager
    def looked_at(self) -> Generator[psycopg.Connection[Any]]:
        """All that is read in it is of one moment."""
        with psycopg.connect(make_conninfo("", **self.primary.parameters(DATABASE))) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            yield connection

    def close(self) -> None:
        self.standby.remove()
        self.primary.remove()
