"""Two servers on one database: what one of them does counts at the other, and what one leaves the other takes over."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from nodes import Nodes, ServedNode
from programs import WAIT_SECONDS, until
from task_clients import Extension, Wire
from test_refresh_races import at_once

from server.store.change_feed import CONFIRMED_SECONDS
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

Two = tuple[ServedNode, ServedNode]


@pytest.fixture
def nodes(home: Path, postgres_database: dict[str, str]) -> Nodes:
    return Nodes(home=home, database=postgres_database)


@pytest.fixture
def own_two(nodes: Nodes) -> Iterator[Two]:
    """Two whose logs begin with the test."""
    with nodes.serving("a") as a, nodes.serving("b") as b:
        yield a, b


@pytest.fixture(scope="module")
def shared_nodes(shared_home: Path, postgres_server: PostgresServer) -> Iterator[Nodes]:
    with postgres_server.database() as database:
        yield Nodes(home=shared_home, database=database)


@pytest.fixture(scope="module")
def _shared_two(shared_nodes: Nodes) -> Iterator[Two]:
    with shared_nodes.serving("a") as a, shared_nodes.serving("b") as b:
        yield a, b


@pytest.fixture
def two(_shared_two: Two) -> Two:
    """Two that all tests share which leave them running, with nobody logged in."""
    _shared_two[0].program.at_machine("revoke", "--all", "--yes")
    return _shared_two


def logged_in(a: ServedNode) -> dict[str, Any]:
    """A login by code, approved at `a`'s machine and polled for there."""
    asked = a.client.ask_for_device()
    a.program.at_machine("approve", asked["user_code"], "--yes")
    answer = a.client.poll(asked["device_code"])
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_login_of_one_is_one_of_the_other_at_once_until_either_of_them_ends_it(two: Two) -> None:
    a, b = two
    for one, other in ((a, b), (b, a)):
        token = logged_in(one)["access_token"]
        assert other.client.works(token)
        assert one.client.works(token)
        (login,) = other.program.at_machine("sessions")
        other.program.at_machine("revoke", login["id"])
        assert not other.client.works(token)
        # Heard of as it was committed; nobody says when it was, so it is tried until it is.
        until("it to be refused", lambda: not one.client.works(token) or None)  # noqa: B023
        assert not other.client.works(token)


def test_one_refresh_token_at_both_at_once_logs_nobody_out(two: Two) -> None:
    a, b = two
    token = logged_in(a)["refresh_token"]
    for _ in range(10):
        answers: list[httpx2.Response] = at_once(
            lambda: a.client.refresh(token),  # noqa: B023
            lambda: b.client.refresh(token),  # noqa: B023
        )
        assert [answer.status_code for answer in answers] == [200, 200], [each.text for each in answers]
        first, second = (answer.json() for answer in answers)
        assert first["refresh_token"] == second["refresh_token"] != token
        assert a.client.works(second["access_token"])
        assert b.client.works(first["access_token"])
        token = first["refresh_token"]
    (login,) = b.program.at_machine("sessions")
    assert login["usable"] is True


def test_one_device_code_twenty_times_at_three_makes_one_login(shared_nodes: Nodes, two: Two) -> None:
    with shared_nodes.serving("c") as third:
        a, b = two
        three = (a, b, third)
        before = a.program.at_machine("audit", "--event", "device.redeemed")
        asked = a.client.ask_for_device()
        b.program.at_machine("approve", asked["user_code"], "--yes")
        polls = [lambda each=each: each.client.poll(asked["device_code"]) for each in three]
        answers: list[httpx2.Response] = at_once(*(polls * 7)[:20])
        assert sorted(answer.status_code for answer in answers) == [200] + [400] * 19
        redeemed = third.program.at_machine("audit", "--event", "device.redeemed")
        assert [row["outcome"] for row in redeemed if row not in before].count("ok") == 1
        # Whoever shows a used one may have stolen it: so the login that it made ends, as on one node.
        (token,) = [answer.json()["access_token"] for answer in answers if answer.status_code == 200]
        for one in three:
            until("it to be refused", lambda: not one.client.works(token) or None)  # noqa: B023
        assert a.program.at_machine("sessions") == []


def test_a_key_that_one_made_is_taken_by_the_other_and_so_is_what_it_signs(two: Two) -> None:
    a, b = two
    old = logged_in(a)
    a.program.at_machine("keys", "rotate", "--now", "--yes")
    until("tokens of the old key to be refused", lambda: not b.client.works(old["access_token"]) or None)
    # Made with the newest of both kinds of key, and shown to the other, which looks for a key that it does not know once a second.
    for one, other in ((a, b), (b, a)):
        one.program.at_machine("keys", "rotate", "--now", "--yes")
        fresh = one.client.refresh(old["refresh_token"])
        assert fresh.status_code == 200, fresh.text
        token = fresh.json()["access_token"]
        until("the newest key to be known there", lambda: other.client.works(token) or None)  # noqa: B023
        old = other.client.refresh(fresh.json()["refresh_token"]).json()
        until("the newest key to be known here", lambda: one.client.works(old["access_token"]) or None)  # noqa: B023
    known = [{key["kid"] for key in each.client.get("/.well-known/jwks.json").json()["keys"]} for each in two]
    assert known[0] == known[1]


def test_both_write_to_one_trail_which_can_be_walked_from_either(two: Two) -> None:
    a, b = two
    for one in (a, b, a, b):
        logged_in(one)
    for one in two:
        found = one.program.at_machine("verify")
        assert found["broken"] is None
        assert not one.program.at_machine("audit", "--event", "audit.altered")


def test_one_that_is_cut_off_from_the_database_lets_nobody_in_and_is_itself_again_afterwards(
    own_two: Two,
) -> None:
    a, b = own_two
    token, other = logged_in(a)["access_token"], logged_in(a)["access_token"]
    for each in own_two:
        assert each.client.works(token)
        assert each.client.works(other)
    b.proxy.cut()
    (login, _) = a.program.at_machine("sessions")
    a.program.at_machine("revoke", login["id"])

    def closed() -> bool | None:
        answers = [calls(b, each) for each in (token, other)]
        return True if [answer.status_code for answer in answers] == [503, 503] else None

    until("it to ask for every request, in vain", closed)
    # What a balancer is told, who is not at the machine.
    assert [each.client.get("/readyz").text for each in own_two] == ["ready\n", "not ready\n"]
    # The other one does not wait for it.
    assert logged_in(a)
    until("the others to find it dead", lambda: '"event":"node.gone"' in a.server.said() or None)
    b.proxy.mend()
    until("it to be there again", lambda: calls(b, token).status_code != 503 or None)
    assert sorted(calls(b, each).status_code for each in (token, other)) == [200, 401]
    assert '"event":"node.lapsed"' in b.server.said()
    until("a balancer to be told", lambda: b.client.get("/readyz").status_code == 200 or None)
    until("it to say so", lambda: '"event":"node.came"' in a.server.said() or None)


def test_one_that_is_cut_off_says_within_five_seconds_that_it_is_not_ready_and_soon_that_it_is_again(
    nodes: Nodes,
) -> None:
    """A balancer's look at it has a second; one that is not answered says nothing here."""
    with nodes.serving("a"), nodes.serving("b", "--admin-port", "0") as b, ExitStack() as stack:
        admin = b.server.await_words(r'"admin":"(http://[^"]+)"')[1]
        balancer = stack.enter_context(httpx2.Client(base_url=admin, trust_env=False, timeout=1.0))

        def ready() -> httpx2.Response | None:
            with suppress(httpx2.TimeoutException):
                return balancer.get("/readyz")
            return None

        def not_ready() -> httpx2.Response | None:
            overdue = unconfirmed_seconds() >= CONFIRMED_SECONDS
            found = ready()
            if found is None or found.status_code == 503:
                return found
            assert not overdue, found.text
            return None

        def unconfirmed_seconds() -> float:
            metrics = balancer.get("/metrics", timeout=WAIT_SECONDS).text
            found = re.search(r"^ostiary_store_confirmed_seconds (\S+)$", metrics, re.MULTILINE)
            assert found is not None
            return float(found[1])

        def ready_again() -> bool | None:
            found = ready()
            return True if found is not None and found.status_code == 200 else None

        until("it to be ready", ready_again)
        assert unconfirmed_seconds() < CONFIRMED_SECONDS
        b.proxy.cut()
        found = until("it to say so", not_ready)
        assert re.match(
            r"not ready: (what other processes changed|a write has been waiting|the database)", found.text
        ), found.text
        assert unconfirmed_seconds() >= CONFIRMED_SECONDS - 0.5
        for _ in range(3):
            told = ready()
            assert told is None or told.status_code == 503, "and so it is from then on"
        b.proxy.mend()
        until("it to be ready again", ready_again)
        assert unconfirmed_seconds() < CONFIRMED_SECONDS


def calls(node: ServedNode, token: str) -> httpx2.Response:
    return node.client.mcp("tools/call", {"name": "echo", "arguments": {"text": "x"}}, token=token)


WORK = """
import asyncio
from pathlib import Path

from ostiary import Context, tool

NOTES = Path(__file__).parent.parent / "notes" / "said"


@tool(task="required")
async def work(name: str, ctx: Context) -> str:
    done = ctx.resumed["done"] if ctx.resumed else 0
    for step in range(done, 3):
        with NOTES.open("a") as notes:
            notes.write(f"step {step}\\n")
        await ctx.checkpoint({"done": step + 1})
        if step == 1:
            with NOTES.open("a") as notes:
                notes.write("kept\\n")
            await asyncio.sleep(3600)
    return f"{name} was resumed at {done}"
"""


def test_what_a_node_that_is_killed_ran_is_finished_by_the_other_which_tells_of_it(
    home: Path, postgres_database: dict[str, str]
) -> None:
    settings = """
        [[server]]
        name = "main"
        [[server.agent]]
        kind = "python"
        file = "agent.py"
    """
    (home / "notes").mkdir()
    nodes = Nodes(home=home, database=postgres_database, settings=settings, files={"agent.py": WORK})
    with ExitStack() as stack:
        a, b = (stack.enter_context(nodes.serving(name, "--admin-port", "0")) for name in ("a", "b"))
        wire = Wire(url=f"{a.url}/mcp", token=logged_in(a)["access_token"])
        stack.callback(wire.close)
        task_id = Extension(wire).begin("work", "it")
        notes = home / "notes" / "said"
        until("its second step", lambda: (notes.exists() and "kept" in notes.read_text()) or None)
        assert "2 ready" in a.program.run("status", "--data-dir", str(a.program.data_dir)).stdout
        admin = b.server.await_words(r'"admin":"(http://[^"]+)"')[1]
        ready = httpx2.get(f"{admin}/readyz", trust_env=False).text
        assert re.fullmatch(r"ready\nnode \S+:\d+, 1 other alive\n", ready), ready
        a.server.process.send_signal(signal.SIGKILL)
        a.server.wait()
        again = Wire(url=f"{b.url}/mcp", token=wire.token)
        stack.callback(again.close)
        until("the other to find it dead", lambda: f'"boot":"{a.boot}"' in b.server.said() or None)
        ended = Extension(again).end(task_id)
        assert (ended.state, ended.text) == ("completed", "it was resumed at 2")
        assert notes.read_text().splitlines() == ["step 0", "step 1", "kept", "step 2"]
        assert "ostiary_processes_alive 1" in httpx2.get(f"{admin}/metrics", trust_env=False).text
        assert b.program.at_machine("verify")["broken"] is None
