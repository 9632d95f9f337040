"""The Overview in every state that it has, and the page of calls behind it: a tour for page_states.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace
from playwright.sync_api import Page

from auth.grants import last_calls
from auth.tokens import api_keys
from auth.values.identity_model import ANONYMOUS, Millis, Principal, PrincipalKind
from server.console.overview.nodes_seen import NodeStanding, standings, with_note
from server.console.overview.outage_effects import AgentHit
from server.console.overview.outages import AgentOutage
from server.console.overview.overview_values import RunningParts
from server.payments.seller.ledger import Books
from server.store.call_records import call_rows
from server.store.call_records.call_book import CallBook
from server.store.call_records.call_record import CallRecord
from server.store.node_rows import MemberNode, NodeSaid, NodeSeen
from tests.auth.browser_fakes import House
from tests.auth.people_fakes import invited, let_in
from tests.e2e.chromium import Server, fill_in
from tests.payments.seller.cashier_fakes import a_cashier

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
SERVES = NodeSaid("serving")
REFUSED = "it cannot be reached: connection refused"
LONG = "a_tool_whose_name_goes_on_and_on_for_as_long_as_a_name_may_be_64"


def record(
    at: Millis, who: Principal, tool: str, outcome: str = "ok", *, reason: str = "", ms: float = 4
) -> CallRecord:
    call_id = f"{at:032x}"[-32:]
    return CallRecord(
        at, "agent", tool, outcome, reason, ms / 1000, who, call_id, "2026-07-28", False, None, 40
    )


def keep(house: House, *records: CallRecord) -> None:
    book = CallBook()
    book.waiting.extend(records)
    while book.count(10_000):
        pass
    batch = book.take()
    if batch is None:
        return
    house.store.now(partial(call_rows.write, batch=batch, most_rows=1_000_000))  # pyright: ignore[reportArgumentType]


def caller(house: House, user_id: str, person: str, **more: Any) -> Principal:
    """With a login that lives."""
    grant_id = let_in(house, user_id, **more)
    return Principal(
        kind=PrincipalKind.USER,
        subject=user_id,
        client_id=house.builtin.id,
        grant_id=grant_id,
        person=person,
        program=house.builtin.name,
    )


def with_calls(house: House, *, why: str = "hers: it broke") -> None:
    """Let alice, bob and somebody have called on its second day, the first two in vain. `why`: hers failed."""
    house.time += DAY
    alice, bob = caller(house, house.owner_id, "alice"), caller(house, "usr_bob", "bob")
    keep(
        house,
        record(house.time - MINUTE, alice, "hers", "failed", reason=why),
        record(house.time - MINUTE, bob, "his", "timeout", reason="his took too long"),
        record(house.time, ANONYMOUS, "anybodys"),
    )


def chat_outage(house: House) -> AgentOutage:
    """Return an agent that is out of order and hits both of them."""
    return AgentOutage(
        name="agent[1] (chat)",
        server="agent",
        words=REFUSED,
        since=house.time - 3 * MINUTE,
        kind="fails",
        hit=AgentHit(calls=2, people=("alice", "bob")),
    )


def busy(house: House, *people: Principal) -> None:
    """Two days of calls, most of them in the afternoon."""
    begin = house.time - 2 * DAY
    for hour in range(48):
        count = (hour % 24) * (hour % 7) + hour % 3
        at = begin + hour * HOUR
        keep(
            house,
            *(record(at + place, people[place % len(people)], "ask_model", ms=900 + 60 * place) for place in range(count)),
            *(record(at + 5, each, LONG, ms=0.4) for each in people if hour % 5 == 0),
            *(record(at + 9, people[0], "refund", "timeout", reason="refund did not answer within 30 seconds, and was stopped.", ms=30_000) for _ in range(hour % 11 == 4)),
        )  # fmt: skip


def node_seen(
    house: House,
    name: str,
    *,
    worker: int = 0,
    quiet_ms: int = 800,
    said: NodeSaid = SERVES,
    **more: Any,
) -> NodeSeen:
    """One process; those of the same name are workers of one parent."""
    node = MemberNode(
        boot_id=f"{name}{worker}",
        name=f"{name}:{4000 + worker}",
        home=f"{name}{worker}",
        address=f"{name}:8000",
        version=more.pop("version", "0.9.4"),
        started_at=house.time - 3 * DAY,
        place=name,
        worker=worker,
    )
    return NodeSeen(node=node, said=said, quiet_ms=quiet_ms, **more)


def of_nodes(server: Server, page: Page) -> Iterator[str]:
    """Two nodes in order; and then nearly everything that can be wrong with some."""
    house, origin = server.house.owned(), server.origin
    house.time += 4 * DAY
    found = [node_seen(house, "rowan"), node_seen(house, "elm", worker=1), node_seen(house, "elm", worker=2)]
    notes: list[str] = []

    async def nodes() -> list[NodeStanding]:
        first, *others = standings(found, here="elm1")
        return [with_note(first, notes), *others]

    server.routed.running = RunningParts(nodes=nodes)
    page.goto(origin + "/signin")
    fill_in(page)
    yield "overview-nodes"
    found += [
        node_seen(house, "oak", quiet_ms=4 * HOUR, said=NodeSaid(""), dead=True),
        node_seen(house, "ash", said=NodeSaid("troubled", "what other processes changed has not been heard of for 7 s")),
        node_seen(house, "elm", worker=3, quiet_ms=7_000),
        node_seen(house, "node-of-a-cluster-that-names-them-at-length-" * 2 + "x7k2p", said=NodeSaid("draining"), version="0.9.3"),
        node_seen(house, "beech", said=NodeSaid("starting"), version="0.9.5"),
        node_seen(house, "fir", said=NodeSaid("serving", f"out of order: agent[1] (openai): {REFUSED} (for 3 minutes)")),
    ]  # fmt: skip
    notes.append("worker 2 was started again 3 times, last after signal SIGKILL")
    page.reload()
    yield "overview-nodes-silent"


def overview(server: Server, page: Page) -> Iterator[str]:
    """An empty server; a busy day; an agent that fails and all else that waits; the same for somebody who is not the owner."""
    house, origin = server.house.owned(), server.origin
    house.time += 3 * DAY + 17 * HOUR + 25 * MINUTE
    found: list[AgentOutage] = []
    said: list[tuple[str, str]] = []
    certificate: list[str] = []

    async def outages(_: Millis) -> list[AgentOutage]:
        return found

    server.routed.running = RunningParts(
        outages=outages,
        offered=lambda: [("agent", name) for name in ("ask_model", "refund", "never_used", LONG)],
        to_accept=lambda: said,
        certificate=lambda: "".join(certificate),
    )
    page.goto(origin + "/signin")
    fill_in(page)
    yield "overview-empty"
    page.goto(f"{origin}/account/calls")
    yield "calls-none"

    house.add_user("usr_bob", "bob")
    vera = caller(house, house.owner_id, "alice")
    bob = caller(house, "usr_bob", "bob", ip="2001:db8:1234:5678:9abc:def0:1234:5678")
    busy(house, vera, bob, ANONYMOUS)
    page.goto(origin + "/account")
    yield "overview-busy"

    since = house.time - 3 * MINUTE
    keep(
        house,
        *(record(since + place, who, "ask_model", "failed", reason=f"agent endpoint {REFUSED[3:]}", ms=2.4) for place, who in enumerate((vera, bob, bob))),
    )  # fmt: skip
    hit = AgentHit(calls=3, people=("bob", "alice"))
    found += [
        AgentOutage(name="agent[1] (openai)", server="agent", words=REFUSED, since=since, kind="fails", hit=hit),
        AgentOutage(name="agent[2] (mcp)", server="agent", words="is not connected yet", since=since, kind="begins", hit=AgentHit()),
    ]  # fmt: skip
    said.append(
        (
            "files",
            "the tool delete_all and 2 more wait to be looked at",
        )
    )
    certificate.append("certificate: ends in 4.2 days")
    house.ask(client_name="Claude Code", hostname="rowan.lan")
    house.ask(client_name="An assistant " * 8, hostname="")
    invited(house, "dora")
    for name, ends in (("home-assistant", 3 * DAY), ("a report " * 9, 9 * DAY)):
        order = api_keys.ApiKeyOrder(
            name=name.strip(), user_id="usr_bob", scope="mcp:tools", expires_at=house.time + ends
        )
        house.store.now(
            partial(api_keys.create, order=order, seed=house.entropy(32), by="local:0", now=house.time)
        )
    for ip in ("203.0.113.9", "203.0.113.8"):
        server.ip = ip
        page.context.new_page().goto(f"{origin}/device?user_code=BBBB-BBBB")
    server.ip = "127.0.0.1"
    page.goto(origin + "/account")
    yield "overview-failing"
    page.goto(f"{origin}/account/calls?outcome=failures")
    yield "calls-failed"
    page.goto(f"{origin}/account/calls?person=nobody&tool={LONG}")
    yield "calls-none-like-that"
    page.goto(f"{origin}/account")
    page.get_by_role("button", name="Deny").first.click()
    yield "overview-denied"

    house.parts = replace(house.parts, cashier=a_cashier(house.store, Books(b"k")))
    page.goto(f"{origin}/account")
    yield "overview-money"
    house.store.now(partial(last_calls.note, called={bob.grant_id or "": house.time - HOUR}))
    page.get_by_role("button", name="Sign out").click()
    fill_in(page, name="bob")
    yield "overview-not-owner"
    page.goto(f"{origin}/account/calls")
    yield "calls-own"
