"""Words in which `doctor` and `status` say how the server of a machine is: whole, in tests/snapshots. What the server says is made up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pytest
from made_up import NOW, MadeUpMachine
from msgspec import to_builtins
from msgspec.structs import asdict, replace

from server.cli.doctor import doctor_agents, doctor_postgres
from server.client import server_checkup
from server.client.check_step import CheckStep
from server.cluster.postgres.postgres_look import DatabaseSeen, DatabaseServer, TablesSeen
from server.console.overview.nodes_seen import standings, with_note
from server.run.agent_dry_run import AgentDryRun, TriedAgent
from server.run.timed_backups import BackupOutcome
from server.store.node_rows import MemberNode, NodeSaid, NodeSeen
from tests.cli.test_doctor_money import ASSET, TOOL
from tests.snapshots import Snapshot

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR

STORE: Final = {
    "problem": None, "hint": None, "warning": "", "free_bytes": 5 << 30, "waiting": 0, "oldest_waits_seconds": 0.0, "refused": {},
    "wrote_seconds_ago": 3.0,
}  # fmt: skip
SERVER: Final[Mapping[str, Any]] = {
    "version": "1", "origin": "http://127.0.0.1:1", "paths": {"main": "/mcp"}, "data_dir": "/data", "started_at": NOW - 3 * DAY,
    "auth": "oauth", "store": STORE, "upstreams": [], "agents": [], "node": {"boot_id": "rowan0", "name": "rowan:1", "others": [], "lapsed": False},
}  # fmt: skip
HIT: Final = {"calls": 3, "people": ["vera"], "others": 2}
BROKEN_AGENT: Final = {
    "name": "main[2] (chat)",
    "words": "it cannot be reached",
    "since": NOW - 3 * HOUR,
    **HIT,
}
UPSTREAM: Final = {"name": "main/files", "trouble": None}
BROKEN_UPSTREAM: Final = {
    "name": "main/files", "trouble": {"words": "has ended (exit status 3)", "since": NOW - 2 * DAY}, **HIT,
}  # fmt: skip
SERVED: Final = {
    "names": ["a.example"],
    "issuer": "an authority",
    "not_before": NOW - DAY,
    "not_after": NOW + 40 * DAY,
}
CERTIFICATE: Final[Mapping[str, Any]] = {
    "kind": "acme",
    "names": ["a.example"],
    "serving": SERVED,
    "renews_at": NOW + 20 * DAY,
}
CERTIFICATES: Final[Mapping[str, Mapping[str, Any]]] = {
    "a certificate": CERTIFICATE,
    "one that is being got": {**CERTIFICATE, "serving": None, "doing": "getting"},
    "one that could not be had": {
        **CERTIFICATE, "trouble": {"words": "the authority does not reach this server", "hint": "open port 80"},
    },
    "one that ends soon": {**CERTIFICATE, "serving": {**SERVED, "not_after": NOW + DAY}},
    "one of the owner's that ends soon": {"kind": "files", "serving": {**SERVED, "not_after": NOW + DAY}},
    "one of the owner's that is over": {"kind": "files", "serving": {**SERVED, "not_after": NOW - DAY}},
    "one whose files are no good": {**CERTIFICATE, "kind": "files", "problem": "key.pem is no key"},
    "a clock that is slow": {**CERTIFICATE, "ahead_seconds": 7_200},
    "a clock that is fast": {**CERTIFICATE, "ahead_seconds": -7_200},
}  # fmt: skip
MONEY: Final[Mapping[str, Any]] = {"warnings": [], "assets": [ASSET], "facilitators": [], "tools": [TOOL]}
FACILITATOR: Final = {"url": "https://f.example", "problem": "", "networks": ["eip155:84532"]}
MONIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "no price": {**MONEY, "tools": []},
    "a price": MONEY,
    "prices, and facilitators": {
        **MONEY,
        "facilitators": [FACILITATOR, {**FACILITATOR, "networks": []}, {**FACILITATOR, "problem": "did not answer"}],
        "tools": [{**TOOL, "strangers": True}, {**TOOL, "fixed": False}, {**TOOL, "challenge": None}, TOOL],
    },
    "prices that nobody can pay": {**MONEY, "warnings": ["search can be paid by nobody", "nor can find"]},
    "no payee": {**MONEY, "assets": [{**ASSET, "pay_to": ""}]},
    "nobody who takes it": {**MONEY, "assets": [{**ASSET, "taken_by": []}]},
    "nobody of several who takes it": {**MONEY, "assets": [{**ASSET, "taken_by": []}], "facilitators": [FACILITATOR]},
    "money that is worth something": {**MONEY, "assets": [{**ASSET, "testnet": False}]},
}  # fmt: skip
DATABASE: Final = DatabaseServer(
    version="16.4 (Debian)", database="ours", role="ostiary", place="public", tls="TLSv1.3", durable=True, awaited="", standbys=0,
    standbys_awaited=0, standbys_told=0, may_create=True, may_create_schemas=True, owner="pg_database_owner", most=100, reserved=3,
    taken=5, role_most=-1, role_taken=0, database_most=-1, database_taken=0, writers=0,
)  # fmt: skip
SEEN: Final = DatabaseSeen(
    host="db.example", seconds=0.1, server=DATABASE, tables=TablesSeen(known=18, found=18), nodes=()
)


def node(
    name: str,
    *,
    worker: int = 0,
    quiet_ms: int = 800,
    said: str = "serving",
    trouble: str = "",
    version: str = "0.9.4",
    dead: bool = False,
) -> NodeSeen:
    of = MemberNode(
        boot_id=f"{name}{worker}", name=f"{name}:{4000 + worker}", home=f"{name}{worker}", address=f"{name}:8000", version=version,
        started_at=NOW - 3 * DAY, place=name, worker=worker,
    )  # fmt: skip
    return NodeSeen(node=of, said=NodeSaid(said, trouble), quiet_ms=quiet_ms, dead=dead)


NODES: Final = (
    node("rowan"),
    node("oak", quiet_ms=4 * HOUR, dead=True),
    node("ash", said="troubled", trouble="it has heard nothing for 7 s", version="0.9.5"),
    node("elm", worker=1),
    node("elm", worker=2),
    node("beech", said="starting", quiet_ms=1_500),
    node("pine", said="draining"),
)  # fmt: skip


def of_server(**changes: Any) -> DatabaseSeen:
    return replace(SEEN, server=replace(DATABASE, **changes))


def of_tables(found: int = 18, **changes: Any) -> DatabaseSeen:
    return replace(SEEN, tables=TablesSeen(known=18, found=found, **changes))


# As a start would find it, and as a server that runs sees it.
DATABASES: Final[Mapping[str, DatabaseSeen]] = {
    "one that is ready": SEEN,
    "one in a schema of its own, without TLS, far away": replace(of_server(place="theirs", tls=""), seconds=2.5),
    "one that does not wait for its disk": of_server(durable=False),
    "one with a standby": of_server(standbys=1, standbys_told=1),
    "one with standbys": of_server(standbys=2, standbys_told=2),
    "one with a standby that is waited for": of_server(standbys=1, standbys_told=1, standbys_awaited=1, awaited="a"),
    "one that waits for a standby in vain": of_server(awaited="a"),
    "one with few connections left": of_server(taken=95),
    "one with none left": of_server(taken=97),
    "one with few for the role": of_server(role_most=3),
    "one with few for the database": of_server(database_most=3),
    "an empty one": of_tables(0),
    "an empty one of somebody else": replace(of_tables(0), server=replace(DATABASE, may_create=False)),
    "an empty one with a schema of somebody else": replace(
        of_tables(0), server=replace(DATABASE, may_create=False, owner="theirs")
    ),
    "tables of another role": of_tables(writable=False, belongs_to="other"),
    "tables that are no good": of_tables(problem="what is in this store is a copy that was cut off", hint="copy it again"),
    "older tables": of_tables(17),
    "older tables that others use": replace(of_tables(17, additive=False), server=replace(DATABASE, writers=2)),
    "older tables of another role": of_tables(17, belongs_to="other"),
    "newer tables": of_tables(19),
    "tables of another key": of_tables(fingerprint="0123456789ab:00112233445566"),
    "nodes": replace(SEEN, nodes=NODES),
    "nodes that older tables do not tell": replace(of_server(writers=1), nodes=None),
}  # fmt: skip
ADDRESSES: Final = (
    "postgresql://u:hunt@er2@h/x",
    "postgresql://u:hunter2/x",
    "postgresql://u:hunter2@h/x?ssl_mode=1",
    "postgresql://u:hunter2@h/x?nothing=1",
    '"postgresql://u:hunter2@h/x"',
    "DATABASE_URL=postgresql://u:hunter2@h/x",
    "jdbc:postgresql://h/x?password=hunter2",
    "postgresql+psycopg://u:hunter2@h/x",
    "host=h password=hunter2",
    "postgresql://u:hunter2@h/x\nand more",
    "mysql://u:hunter2@h/x",
    "postgresql://u:hunter2@db.example.org/x?sslmode=require",
)  # fmt: skip
TRIED: Final = (
    TriedAgent(name="main[1] (chat)", upstream=False, outcome="fails", words="it cannot be reached"),
    TriedAgent(name="main/files", upstream=True, outcome="fails", words="has ended (exit status 3)"),
    TriedAgent(name="main/mine", upstream=True, outcome="unseen", words="it wants to know who asks"),
    TriedAgent(name="main[3] (a.py)", upstream=False, outcome="refused", words="main[3] (a.py): it cannot be loaded"),
)  # fmt: skip
RULES: Final = """
[[server]]
[[server.agent]]
kind = "demo"
[[server.policy]]
name = "mine"
tools = ["*"]
decision = "deny"
who = { program = ["Claude"] }
"""


def test_the_rows_of_doctor(
    made_up: MadeUpMachine, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    _without_server(made_up, monkeypatch)
    _agents_tried(made_up, monkeypatch)
    _databases(made_up, monkeypatch)
    _with_server(made_up)
    snapshot("doctor", made_up.told.text)


async def _nothing(*_: object, **__: object) -> AsyncGenerator[CheckStep]:
    for step in ():
        yield step


def _without_server(made_up: MadeUpMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    data, settings = made_up.home / "data", made_up.home / "ostiary.toml"
    made_up.note("nothing is there yet", "doctor")
    # What a client sees of it is told elsewhere.
    monkeypatch.setattr(server_checkup, "examine", _nothing)
    data.write_text("")
    made_up.note("the data directory is a file", "doctor")
    data.unlink()
    data.mkdir()
    data.chmod(0o755)
    made_up.note("the data directory is open to others", "doctor")
    data.chmod(0o700)
    made_up.note("no server runs", "doctor")
    settings.write_text('colour = "red"\n')
    made_up.note("settings that cannot be used", "doctor")
    settings.write_text('store = "env:NOPE"\n')
    made_up.note("settings of another machine", "doctor")
    settings.unlink()


def _agents_tried(made_up: MadeUpMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [AgentDryRun(agents=[each], problems=[]) for each in TRIED]
    well = replace(TRIED[0], outcome="well")
    found.append(AgentDryRun(agents=[well, well], problems=[], refused_names=["main: a b"]))
    found.append(AgentDryRun(agents=[well], problems=["two agents offer the tool a"]))
    for each in found:
        steps = partial(doctor_agents.rehearsed_steps, each, settings="ostiary.toml")
        monkeypatch.setattr(doctor_agents, "tried_steps", lambda _, steps=steps: steps())
        made_up.note("agents that are tried", "doctor")


def _databases(made_up: MadeUpMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTIARY_STORE", "file:address")
    monkeypatch.setattr(doctor_agents, "tried_steps", lambda _: [])
    file = made_up.home / "address"
    file.touch(mode=0o600)
    for address in ADDRESSES:
        file.write_text(address)
        made_up.note(address.replace("\n", " "), "doctor")
    file.write_text("postgresql://ostiary:CHANGE-ME@127.0.0.1/ours")
    for what, seen in DATABASES.items():
        monkeypatch.setattr(doctor_postgres, "look", lambda _, seen=seen: seen)
        made_up.note(f"a database: {what}", "doctor")
    monkeypatch.setattr(doctor_postgres, "look", lambda _: SEEN)
    monkeypatch.setenv("OSTIARY_WORKERS", "64")
    made_up.note("many workers", "doctor")
    for name in ("OSTIARY_WORKERS", "OSTIARY_STORE"):
        monkeypatch.delenv(name)


def _with_server(made_up: MadeUpMachine) -> None:
    def note(what: str, *, status: Mapping[str, Any] = MappingProxyType({}), **answers: Any) -> None:
        well = {"self_test": {"problems": []}, "database": None, "clients": [], "api_keys": []}
        made_up.note(what, "doctor", status={**SERVER, **status}, **{**well, **answers})

    note("a server that is well")
    note(
        "one whose documents are wrong",
        self_test={"problems": ["its key does not sign", "its issuer differs"]},
    )
    for store in (
        {"problem": "the disk is full", "hint": "free some space"},
        {"problem": "it is broken"},
        {"warning": "it does not wait for its disk"},
    ):
        note("a store", status={"store": {**STORE, **store}})
    for what, seen in DATABASES.items():
        note(f"a database: {what}", database={"seen": to_builtins(seen)})
    note("a database that went away", database={"problem": "it went away", "hint": "wait"})
    for what, certificate in CERTIFICATES.items():
        note(what, status={"certificate": certificate})
    note("tools with names that hosts refuse", status={"refused_names": {"main": ["a b", "c d"]}})
    used = {"a.b": {"now": "a__b", "program": "Claude"}, "a.c": {"now": "a__c", "program": ""}}
    for old in ({"used": {}}, {"used": used}, {"used": used, "until": "2027-01-31", "over": True}):
        note("old names of tools", status={"old_names": {"main": {"until": "", "over": False, **old}}})
    for unheard in ({"main": ["look"]}, {"main": ["a", "b"], "lab": ["c", "d"]}):
        note("prices that are not asked for", status={"unheard_prices": unheard})
    for upstreams in ([UPSTREAM], [UPSTREAM, UPSTREAM], [UPSTREAM, BROKEN_UPSTREAM]):
        note("upstreams", try_agents={"upstreams": upstreams, "agents": []})
    note("an agent that is out of order", try_agents={"upstreams": [UPSTREAM], "agents": [BROKEN_AGENT]})
    for what, money in MONIES.items():
        note(what, status={"money": {}}, money=money)
    note("money of which it says nothing", status={"money": {}})
    (made_up.home / "ostiary.toml").write_text(RULES)
    client = {"name": "Claude", "kind": "dynamic", "id": "cli_1"}
    note("a rule for what programs call themselves", clients=[client])


def test_what_status_says(made_up: MadeUpMachine, snapshot: Snapshot) -> None:
    def note(what: str, **status: Any) -> None:
        made_up.note(what, "status", status={**SERVER, **status})

    known = {"people": 2, "logins": 3, "waiting": 0, "key_created_at": NOW - DAY}
    note("a server that is well", **known)
    note("two servers, where nobody logs in", paths={"main": "/mcp", "lab": "/lab"}, auth="none")
    note("nobody has claimed it", **{**known, "people": 0, "unclaimed": True})
    note(
        "very many people, of whom some wait",
        **{**known, "more_people": True, "more_logins": True, "waiting": 2},
    )
    note("one person and one login", **{**known, "people": 1, "logins": 1, "waiting": 1})
    working = {
        "worker": 1,
        "state": "serving",
        "answers": True,
        "pid": 7,
        "since": NOW - DAY,
        "restarts": 0,
        "ended": "",
    }
    stuck = {**working, "worker": 2, "answers": False, "restarts": 1, "ended": "signal 9"}
    note("workers that serve", workers=[working, {**working, "worker": 2}])
    others = [
        {**working, "state": state, "since": None, "restarts": 2, "ended": "exit status 1"}
        for state in ("waiting", "starting")
    ]
    note("workers of which some do not", workers=[working, stuck, *others])
    day = {"calls": 0, "failed": 0, "slowest": None}
    note("no calls", day=day)
    note("a call", day={**day, "calls": 1})
    note("calls that failed", day={"calls": 300, "failed": 2, "slowest": {"tool": "ask", "p95": 1.25}})
    note(
        "agents that are out of order",
        agents=[{**BROKEN_AGENT, "workers": [2]}],
        upstreams=[UPSTREAM, BROKEN_UPSTREAM],
    )
    for what, certificate in CERTIFICATES.items():
        note(what, certificate=certificate)
    note("a clock that was set", clock={"ahead_ms": 2 * DAY, "waits_ms": DAY})
    note("rows that were altered", trail={"seq": 5}, ledger={"seq": 7})
    known = {"by": "local:start", "at": NOW, "note": "ticket 7", "up_to": 9}
    note("rows that were altered, which is known", trail_acknowledged=known, ledger_acknowledged=known)
    unsettled = {"count": 0, "unknown": 0, "oldest_at": None}
    for waiting in (
        unsettled,
        {**unsettled, "count": 2, "oldest_at": NOW - HOUR},
        {"count": 2, "unknown": 1, "oldest_at": NOW - HOUR},
    ):
        note("money", money={"today": 20_000, "month": 1_500_000, "unsettled": waiting})
    for changes in (
        {"problems": ["port: no number", "colour"], "waits": []},
        {"problems": [], "waits": ["port", "workers"]},
    ):
        note("settings that were changed", settings={"read_at": NOW - HOUR, **changes})
    slow = {"who": "usr_1", "name": "vera", "times": 3, "limit": "requests"}
    note("somebody held back", held_back=[slow])
    note("many held back", held_back=[slow, {**slow, "name": None}, slow, slow, slow])
    for store in (
        {"wrote_seconds_ago": None},
        {
            "problem": "the disk is full",
            "hint": "free some space",
            "refused": {"full": 2},
            "waiting": 3,
            "oldest_waits_seconds": 4.0,
        },
        {"refused": {"full": 1}, "confirmed_seconds_ago": 0.1},
        {"warning": "a write is confirmed after 400 ms: the disk is slow"},
    ):
        note("a store", store={**STORE, **store})
    failed = BackupOutcome(
        every_hours=24, failed_at=NOW - HOUR, reason="no space is left", hint="empty the folder"
    )
    for backups in (
        BackupOutcome(every_hours=24),
        BackupOutcome(every_hours=24, made_at=NOW - DAY),
        failed,
        replace(failed, made_at=NOW - DAY),
    ):
        note("back-ups", backups=asdict(backups))
    first, *found = standings(NODES, here="rowan0")
    note("nodes in order", nodes=[each.told() for each in standings(NODES[:1], here="rowan0")])
    note("nodes", nodes=[each.told() for each in (with_note(first, ["worker 2 was started again"]), *found)])
    alone: dict[str, Any] = {"name": "rowan:1", "others": [], "lapsed": True}
    for own in (alone, {**alone, "others": [{"name": "elm:1"}], "lapsed": False}):
        note("nodes of which nobody knows", nodes=None, node=own)
    for what, problem in {"ready": None, "not ready": "the disk is full"}.items():
        made_up.note(what, "status --ready", status={**SERVER, "store": {**STORE, "problem": problem}})
    snapshot("status", made_up.told.text)
