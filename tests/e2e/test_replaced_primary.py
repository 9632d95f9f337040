"""A node that still asks the old primary while the others have gone on with its heir: it cannot hear what is ended there, and lets nobody in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from nodes import Nodes, ServedNode
from programs import until

from server.store.remote_changes import IF_REPLACED, MAY_BE_REPLACED
from tests.postgres_server import PostgresServer, primary_and_standby

pytestmark = pytest.mark.slow

Pair = tuple[PostgresServer, PostgresServer]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary whose commits wait for its standby."""
    with primary_and_standby() as (primary, standby):
        primary.said("CREATE DATABASE ostiary TEMPLATE template0")
        primary.said("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.said("SELECT pg_reload_conf()")
        yield primary, standby


def logged_in(a: ServedNode) -> dict[str, Any]:
    asked = a.client.ask_for_device()
    a.program.at_machine("approve", asked["user_code"], "--yes")
    return a.client.poll(asked["device_code"]).json()


def test_who_was_put_out_at_the_heir_is_let_in_by_no_node_that_still_asks_the_old_primary(
    home: Path, pair: Pair
) -> None:
    primary, standby = pair
    nodes = Nodes(home=home, database=primary.parameters("ostiary"))
    with nodes.serving("a", "--admin-port", "0") as a:
        tokens = [logged_in(a)["access_token"] for _ in range(2)]
        assert all(a.client.works(token) for token in tokens)
        admin = a.server.await_words(r'"admin":"(http://[^"]+)"')[1]
        standby.promote()
        with replace(nodes, database=standby.parameters("ostiary")).serving("b") as b:
            (login, _) = b.program.at_machine("sessions")
            b.program.at_machine("revoke", login["id"])
            assert sorted(b.client.works(token) for token in tokens) == [False, True]

            def answers() -> list[int]:
                return [a.client.mcp("tools/list", token=token).status_code for token in tokens]

            until("it to let nobody in", lambda: answers() == [503, 503] or None)
            for _ in range(20):
                assert answers() == [503, 503]
            assert httpx2.get(f"{admin}/readyz", trust_env=False).text == f"not ready: {MAY_BE_REPLACED}\n"
            assert a.client.get("/readyz").status_code == 503
            store = a.program.at_machine("status")["server"]["store"]
            assert (store["problem"], store["hint"]) == (MAY_BE_REPLACED, IF_REPLACED)
            assert sorted(b.client.works(token) for token in tokens) == [False, True]
            primary.stop(how="immediate")  # it would be waited for
