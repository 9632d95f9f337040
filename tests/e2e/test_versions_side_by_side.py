"""Nodes are replaced one by one by those of the next version, under traffic: both versions serve the same people from one database meanwhile.

Twice: the version before, out of the history of this repository, and this one; and this one and a next one, which is this one with a number of
its own and a migration more (other_version.py).
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from nodes import Nodes, ServedNode
from paid_shop import CENT, paying
from programs import ROOT, until
from psycopg.conninfo import make_conninfo
from taking_turns import TakingTurns
from task_clients import Extension, Wire
from test_nodes_cross import RED, Roamer
from test_nodes_on_overview import seen_at
from test_two_nodes import logged_in

from server import __version__
from server.store.change_feed import CONFIRMED_SECONDS
from server.store.migrate import packaged_migrations
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

AGENT = """
from pathlib import Path

from ostiary import Context, resource, tool, updated

NOTES = Path(__file__).parent.parent / "notes" / "said"
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


@tool
def echo(text: str) -> str:
    return text


@tool(price="$0.01")
def sold(name: str) -> str:
    with NOTES.open("a") as notes:
        notes.write(f"{name}\\n")
    return f"{name} was run {NOTES.read_text().splitlines().count(name)}"


@tool
async def asks(ctx: Context) -> str:
    answer = await ctx.elicit("Which colour?", FORM, key="colour")
    return answer.content["colour"] if answer.content else answer.action


@tool(task="required")
async def curious(name: str, ctx: Context) -> str:
    answer = await ctx.elicit("Which colour?", FORM, key="colour")
    return f"{name} is {answer.content['colour'] if answer.content else answer.action}"


@resource("house://door")
def door() -> str:
    return "open"


@tool
def toggle() -> str:
    updated("house://door")
    return "toggled"
"""
SETTINGS = """
[payments]
pay_to = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
networks = ["base-sepolia"]
[[payments.facilitator]]
url = "http://127.0.0.1:9"

[[server]]
name = "main"
[[server.agent]]
kind = "python"
file = "agent.py"
"""
NEXT = "99.0.0"
BEFORE = "0.0.1"
KNOWN = len(packaged_migrations())


@dataclass(frozen=True)
class Version:
    """A program, and by which number it goes."""

    number: str
    command: Sequence[str]


def other(number: str, steps: str = "none", code: Path = ROOT) -> Version:
    script = Path(__file__).with_name("other_version.py")
    command = ("env", f"PYTHONPATH={code}", sys.executable, "-P", str(script), number, steps)
    return Version(number, command)


def this() -> Version:
    return Version(__version__, (sys.executable, "-P", "-m", "server"))


def git(*words: str) -> bytes:
    return subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True).stdout


def version_before(folder: Path) -> Version:
    """The code as it was before the newest migration that came to be: whoever ran that replaces it by this one."""
    newest = f"server/store/migrations/{KNOWN:04}_{packaged_migrations()[-1].name}.sql"
    found = git("log", "--diff-filter=A", "--format=%H %P", "-1", "--", newest).split()
    if len(found) < 2:
        pytest.skip("the version before is not in the history that this checkout has")
    with tarfile.open(fileobj=io.BytesIO(git("archive", found[1].decode(), "auth", "server"))) as archive:
        archive.extractall(folder, filter="data")
    return other(BEFORE, code=folder)


Pair = tuple[Version, Version]


# Where the newest step more than adds, no node of the version before runs beside one of this.
ROLLED = ["the version before and this one"] if packaged_migrations()[-1].is_additive else []


@pytest.fixture(params=[*ROLLED, "this one and the next"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """The older and the newer one."""
    if request.param == "this one and the next":
        return this(), other(NEXT, "adds")
    return version_before(tmp_path), this()


@dataclass
class Row:
    """The nodes of one owner, each in its place, and whoever is in it now."""

    nodes: Nodes
    database: dict[str, str]
    _places: dict[str, tuple[ExitStack, ServedNode]] = field(
        default_factory=dict[str, tuple[ExitStack, ServedNode]]
    )
    _cut_off: set[str] = field(default_factory=set[str])

    def __getitem__(self, name: str) -> ServedNode:
        return self._places[name][1]

    def put(self, name: str, version: Version, *options: str) -> ServedNode:
        """In the place of whoever was there, which is told to end."""
        self.take_away(name)
        stack = ExitStack()
        node = stack.enter_context(self.nodes.serving(name, *options, command=version.command))
        self._places[name] = stack, node
        for each in self._places:
            if each != name and each not in self._cut_off:  # it says so as soon as it has heard of it
                self[each].server.await_words(rf'"boot":"{node.boot}"')
        return node

    def take_away(self, name: str) -> None:
        if name in self._places:
            stack, node = self._places.pop(name)
            assert node.server.end() == 0, node.server.said()
            stack.close()

    def refused(self, name: str, version: Version, *, code: int) -> list[str]:
        """What it says, as it ends, instead of serving."""
        program = self.nodes.program(name, version.command)
        where = (
            f"postgresql://{self.database['user']}@/{self.database['dbname']}?host={self.database['host']}\n"
        )
        (program.home / "address").write_text(where, "utf-8")
        port = str(self.nodes.ports.get(name, 0))
        done = program.run("serve", "--port", port, "--data-dir", str(program.data_dir), code=code)
        return [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]

    def cut_off(self, name: str) -> None:
        """Its way to the database is cut, and the database has noticed: nothing of that node's is there any more."""
        self[name].proxy.cut()
        self._cut_off.add(name)
        with psycopg.connect(make_conninfo("", **self.database), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'ostiary %'"
            )

    def close(self) -> None:
        for stack, _ in self._places.values():
            stack.close()

    def one(self, sql: str) -> Any:
        with psycopg.connect(make_conninfo("", **self.database)) as connection:
            found = connection.execute(sql.encode()).fetchone()
            return None if found is None else found[0]


@pytest.fixture
def row(home: Path, postgres_server: PostgresServer) -> Iterator[Row]:
    with postgres_server.bare_database() as where:
        (home / "notes").mkdir()
        nodes = Nodes(home=home, database=dict(where), settings=SETTINGS, files={"agent.py": AGENT})
        with closing(Row(nodes, dict(where))) as row:
            yield row


class Traffic:
    """One login, refreshed and used without a pause, at whichever node is next. Where none answers it tries again, as clients do."""

    def __init__(self, port: int, login: dict[str, Any]) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._login = login
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rounds = 0
        self.faults: list[str] = []

    @contextmanager
    def running(self) -> Generator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def goes_on(self) -> None:
        """Some of it has begun since, and was answered."""
        until_then = self.rounds + 2
        until("the traffic to go on", lambda: self.rounds >= until_then or self.faults or None)
        assert not self.faults

    def _run(self) -> None:
        with httpx2.Client(trust_env=False, timeout=30.0) as web:
            while not self._over.is_set() and not self.faults:
                form = {"grant_type": "refresh_token", "client_id": "ostiary-cli"}
                form["refresh_token"] = self._login["refresh_token"]
                refreshed = self._answered(lambda: web.post(f"{self._url}/token", data=form))  # noqa: B023
                if refreshed is None:
                    return
                self._login = refreshed.json()
                headers = {
                    "Authorization": f"Bearer {self._login['access_token']}",
                    "Accept": "application/json, text/event-stream",
                }
                call = {"name": "echo", "arguments": {"text": "hello"}}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
                if self._answered(lambda: web.post(f"{self._url}/mcp", json=body, headers=headers)) is None:  # noqa: B023
                    return
                self.rounds += 1

    def _answered(self, ask: Callable[[], httpx2.Response]) -> httpx2.Response | None:
        while not self._over.is_set():
            try:
                answer = ask()
            except httpx2.TransportError:  # that node is being replaced
                continue
            if answer.status_code == 200:
                return answer
            if answer.status_code != 503:  # it has just begun to, or is about to end
                self.faults.append(f"{answer.status_code}: {answer.text}")
                return None
        return None


@dataclass
class Somebody:
    """Who has a login, money, a session in which a resource is watched, and a task that waits."""

    row: Row
    roamer: Roamer
    paid: int = 0

    def wire(self, node: ServedNode) -> Wire:
        return Wire(url=f"{node.url}/mcp", token=self.roamer.token)

    def begins_task(self, node: ServedNode, name: str) -> str:
        with closing(self.wire(node)) as wire:
            tasks = Extension(wire)
            task = tasks.begin("curious", name)
            until("its question", lambda: tasks.look(task).questions or None)
            return task

    def ends_task(self, node: ServedNode, task: str, name: str) -> None:
        with closing(self.wire(node)) as wire:
            tasks = Extension(wire)
            asked = until("its question", lambda: tasks.look(task).questions or None)
            tasks.answer(task, {key: {"colour": "red"} for key in asked})
            ended = tasks.end(task)
            assert (ended.state, ended.text) == ("completed", f"{name} is red")

    def is_told(self, listens: ServedNode, changes: ServedNode) -> None:
        with self.roamer.listens(listens) as stream:
            self.roamer.ask(changes, "tools/call", name="toggle", arguments={})
            told = stream.until(method="notifications/resources/updated")
            assert told["params"]["uri"] == "house://door"

    def is_asked(self, asks: ServedNode, answers: ServedNode) -> None:
        with self.roamer.opens(asks, "tools/call", name="asks", arguments={}) as stream:
            self.roamer.reply(answers, stream.until(method="elicitation/create"), RED)
            answer = stream.until(id=self.roamer.number)
            assert answer["result"]["content"][0]["text"] == "red"

    def brings_answers(self, asks: ServedNode, answered: ServedNode) -> None:
        """What was asked and is known so far goes with the client, sealed, from one to the other."""
        session, self.roamer.session = self.roamer.session, {}
        call: dict[str, Any] = {"name": "asks", "arguments": {}}
        found = self.roamer.tells(asks, "tools/call", "asks", **call)
        assert found["resultType"] == "input_required"
        call |= {
            "requestState": found["requestState"],
            "inputResponses": dict.fromkeys(found["inputRequests"], RED),
        }
        found = self.roamer.tells(answered, "tools/call", "asks", **call)
        assert found["content"][0]["text"] == "red"
        self.roamer.session = session

    def pays(self, one: ServedNode, other: ServedNode, name: str) -> None:
        """Once, however often, and wherever it is asked for again."""
        self.paid += 1
        for node in (one, other, one):
            with closing(self.wire(node)) as wire:
                heard = wire.call("sold", name, _meta=paying(key=name))
                assert heard.result["content"][0]["text"] == f"{name} was run 1", heard


def everything_works(somebody: Somebody, one: ServedNode, other: ServedNode, name: str) -> None:
    """What either of them does counts at the other."""
    for number, (here, there) in enumerate(((one, other), (other, one))):
        login = logged_in(here)
        assert there.client.works(login["access_token"])
        refreshed = there.client.refresh(login["refresh_token"])
        assert refreshed.status_code == 200, refreshed.text
        login = refreshed.json()
        assert here.client.works(login["access_token"])
        given_back = {"token": login["refresh_token"], "client_id": "ostiary-cli"}
        assert there.client.post("/revoke", given_back).status_code == 200
        until("it to be refused", lambda: not here.client.works(login["access_token"]) or None)  # noqa: B023
        somebody.is_told(here, there)
        somebody.is_asked(here, there)
        somebody.brings_answers(here, there)
        task = somebody.begins_task(here, f"{name}-{number}")
        somebody.ends_task(there, task, f"{name}-{number}")
        somebody.pays(here, there, f"{name}-{number}")


def test_nodes_are_replaced_one_by_one_while_both_versions_serve(row: Row, pair: Pair) -> None:
    older, newer = pair
    a, b = row.put("a", older), row.put("b", older)
    somebody = Somebody(row, Roamer(logged_in(a)["access_token"]))
    a.program.at_machine("ledger", "grant", "owner", "$1")
    somebody.roamer.begin(a)
    somebody.roamer.note(b, "notifications/initialized")
    assert "result" in somebody.roamer.ask(b, "resources/subscribe", uri="house://door")
    first = somebody.begins_task(b, "first")
    schema = "SELECT max(version) FROM schema_version"
    before = row.one(schema)
    balancer = TakingTurns([row.nodes.ports["a"], row.nodes.ports["b"]])
    balancer.start()
    traffic = Traffic(balancer.port, logged_in(a))
    with closing(balancer), closing(somebody.roamer.web), traffic.running():
        # The first one goes, and what waited there goes on.
        b = row.put("b", newer)
        assert row.one(schema) == before + 1
        traffic.goes_on()
        assert {version for each in seen_at(a) for version in each["versions"]} == {
            older.number,
            newer.number,
        }
        assert {node["versions"][0]: node["here"] for node in seen_at(b)} == {
            older.number: False,
            newer.number: True,
        }
        somebody.ends_task(a, first, "first")
        somebody.is_told(a, b)
        # The older one is started again beside what the newer one has made of the schema.
        a = row.put("a", older)
        traffic.goes_on()
        everything_works(somebody, a, b, "beside")
        for node in (a, b):
            assert node.program.at_machine("verify")["broken"] is None
            assert node.program.at_machine("ledger", "check")["sound"]
        # The newer one is taken away: the older one goes on with what it began.
        second = somebody.begins_task(b, "second")
        row.take_away("b")
        somebody.ends_task(a, second, "second")
        b = row.put("b", newer)
        third = somebody.begins_task(a, "third")
        a = row.put("a", newer)
        traffic.goes_on()
        somebody.ends_task(b, third, "third")
        somebody.is_told(b, a)
        somebody.pays(a, b, "after")
        assert [each["versions"] for each in seen_at(a)] == [[newer.number], [newer.number]]
        assert a.program.at_machine("verify")["broken"] is None
    assert row.one("SELECT sum(balance) FROM wallets") == 100 * CENT - somebody.paid * CENT
    assert row.one("SELECT sum(held) FROM wallets") == 0


def test_a_step_that_more_than_adds_waits_for_the_others_and_then_refuses_them_with_words(row: Row) -> None:
    a = row.put("a", this(), "--admin-port", "0")
    token = logged_in(a)["access_token"]
    adds, takes = other("98.0.0", "adds"), other(NEXT, "adds,takes")
    # Beside a node that has another schema in hand the database stays as it is. Trying again may help.
    assert row.refused("c", takes, code=1) == [
        "error: the database has an older schema, and other processes are using it",
        "hint: stop them first: they do not know the schema of this version",
    ]
    assert row.one("SELECT max(version) FROM schema_version") == KNOWN
    assert a.client.works(token)
    # As one that its network is cut off from, while the others are brought to the next version.
    row.cut_off("a")
    row.put("c", takes)
    assert row.one("SELECT max(version) FROM schema_version") == KNOWN + 2
    rows = row.one("SELECT count(*) FROM grants"), row.one("SELECT count(*) FROM audit")
    a.proxy.mend()
    admin = a.server.await_words(r'"admin":"(http://[^"]+)"')[1]

    def says_why() -> bool:
        said = httpx2.get(f"{admin}/readyz", trust_env=False).text
        return said.startswith("not ready: ") and "another version" in said

    until("it to say so", lambda: says_why() or None)
    for _ in range(10):  # whether it has just tried again or not
        assert says_why()
    store = a.program.at_machine("status")["server"]["store"]
    assert "another version" in store["problem"] and "with that version" in store["hint"]
    form = {"client_id": "ostiary-cli"}
    assert a.client.post("/device_authorization", form).status_code == 503
    # What it remembers of a login it believes until nothing was confirmed for five seconds.
    until(
        "it to believe nothing",
        lambda: a.client.mcp("tools/list", token=token).status_code == 503 or None,
        seconds=CONFIRMED_SECONDS + 3,
    )
    assert row["c"].client.works(token)
    row.take_away("a")
    assert rows == (row.one("SELECT count(*) FROM grants"), row.one("SELECT count(*) FROM audit"))
    # And there is no way back for those of before, however much they know of.
    for number, version in enumerate((this(), adds)):
        assert row.refused("a", version, code=78) == [
            f"error: the database was written by a newer version (schema {KNOWN + 2}; this one knows {KNOWN + number})",
            "hint: run the newer version; to go back for good, restore a back-up that was made before the upgrade",
        ]
    assert row["c"].client.works(token)
