"""Programs that share one stored refresh token, and a thief who has an old one: against the running server."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest
from handmade import Handmade
from programs import Program, Server, expire_access_token

pytestmark = pytest.mark.slow

ROUNDS = 10


@pytest.fixture
def server(program: Program) -> Iterator[Server]:
    with program.serving() as server:
        program.log_in(server)
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Handmade]:
    client = Handmade(server.url)
    yield client
    client.close()


def at_once(*steps: Callable[[], Any]) -> list[Any]:
    start, found = threading.Barrier(len(steps)), list[Any]()

    def run(step: Callable[[], Any]) -> None:
        start.wait()
        found.append(step())

    threads = [threading.Thread(target=run, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(steps)
    return found


def test_two_refreshes_at_once_ten_times_over_log_nobody_out(program: Program, client: Handmade) -> None:
    shared = program.tokens()["refresh_token"]
    for _ in range(ROUNDS):
        token = shared
        answers: list[httpx2.Response] = at_once(*[lambda: client.refresh(token)] * 2)  # noqa: B023
        assert [answer.status_code for answer in answers] == [200, 200]
        first, second = (answer.json() for answer in answers)
        assert first["refresh_token"] == second["refresh_token"] != token
        assert client.works(first["access_token"])
        assert client.works(second["access_token"])
        shared = first["refresh_token"]
    (login,) = program.at_machine("sessions")
    assert login["usable"] is True
    outcomes = [row["event"] for row in program.at_machine("audit", "--event", "refresh")]
    assert sorted(outcomes) == ["refresh.replayed"] * ROUNDS + ["refresh.rotated"] * ROUNDS


def test_two_terminals_at_once_with_one_stored_token_both_get_their_answer(
    program: Program, server: Server
) -> None:
    for _ in range(2):
        expire_access_token(program)
        call = ("call", server.endpoint, "echo", "text=hello")
        with program.starting(*call) as one, program.starting(*call) as other:
            assert (one.wait(), other.wait()) == (0, 0), one.said() + other.said()
    (login,) = program.at_machine("sessions")
    assert login["usable"] is True


@pytest.mark.parametrize("how", ["two steps behind", "one step behind, a minute later"])
def test_a_replay_outside_the_window_ends_the_login_for_both_and_shows_in_the_audit(
    program: Program, server: Server, client: Handmade, how: str
) -> None:
    stolen = program.tokens()["refresh_token"]
    newest = client.refresh(stolen).json()
    if how == "two steps behind":
        newest = client.refresh(newest["refresh_token"]).json()
    else:
        # As if a minute had passed since.
        with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
            connection.execute("UPDATE grants SET rotated_at = rotated_at - 60001")
            connection.commit()
    assert client.works(newest["access_token"])
    refused = client.refresh(stolen)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    assert not client.works(newest["access_token"])
    late = client.refresh(newest["refresh_token"])
    assert (late.status_code, late.json()["error"]) == (400, "invalid_grant")
    assert program.at_machine("sessions") == []
    (reuse,) = program.at_machine("audit", "--event", "refresh.reuse")
    assert (reuse["outcome"], reuse["client_id"], reuse["ip"]) == ("refused", "ostiary-cli", "127.0.0.1")
    (ended,) = program.at_machine("audit", "--event", "grant.revoked")
    assert ended["grant_id"] == reuse["grant_id"]
    assert ended["reason"] == "refresh token used again"
    server.await_words('"identity.refresh.reuse"')
    told = [line for line in server.said().splitlines() if '"identity.refresh.reuse"' in line]
    assert ['"level":"warning"' in line for line in told] == [True]  # whoever watches the log is woken
    assert stolen not in server.said()
