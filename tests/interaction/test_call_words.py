"""Words in which a call of a tool is refused, as its client sees them over HTTP: each once, with what it was first said to; in tests/snapshots."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from textwrap import indent
from typing import Any, cast

import trio
import trio.testing
from msgspec.structs import replace
from trio.testing import MockClock

from auth.values.identity_model import PrincipalKind
from server.agents.base.backend import AnswerLost, Replaced, ToolCall, ToolCrashed, Unreached
from server.agents.base.catalog import Catalog, Source
from server.agents.mcp.trust.definition_guard import PinGuard
from server.agents.mcp.trust.definitions import seal_of
from server.calls.policy.hooks import HookFailed
from server.calls.shown_prices import Storefront
from server.mcp.call_failures import BackendError, Busy, CannotAsk
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from server.settings.policy_settings import ToolConfig
from server.store.inline_store import open_inline_store
from server.store.jobs import StoreUnavailable
from server.store.limits.daily_quotas import Quotas
from server.store.limits.tool_limits import BoundRules
from server.transport.admission.bearer_check import Admission
from server.transport.http.allowed_hosts import Guard
from server.transport.http.mcp_endpoint import McpEndpoint
from tests.agents.mcp.trust.trust_fakes import a_tool as a_file_tool
from tests.agents.mcp.trust.trust_fakes import lists, open_house
from tests.auth.identity_fakes import ORIGIN, logged_in, open_identity
from tests.calls.policy.governing import HookRunnerFake, governing, hooked
from tests.interaction.agents import USER, Agent, House, agent, house, says
from tests.interaction.everything import NUMBER, plain
from tests.interaction.test_era_tasks import task_tool
from tests.interaction.test_governed_calls import ABLE, WHERE, Shop, answered, ask, deny, server
from tests.interaction.test_limited_calls import NOON, limits_of
from tests.interaction.wires import client
from tests.pair import Answer, Pair, modern
from tests.payments.seller.open_till import open_till
from tests.payments.seller.till_fakes import Seller, a_tool, prices
from tests.served import asgi
from tests.snapshots import Snapshot, ToldOnce

BEARER: dict[str, Any] = {"authorization": "Bearer t"}
SHOWN = ("www-authenticate", "retry-after", "allow", "accept-encoding")


class RefusedCalls(ToldOnce):
    """Calls, and what their clients were told."""

    def answered(self, what: str, answer: Answer) -> None:
        headers = [f"{name}: {answer.headers[name]}" for name in SHOWN if name in answer.headers]
        self.told(what, answer.json, answer.status, *headers)

    def told(self, what: str, message: Mapping[str, Any], status: int | None, *headers: str) -> None:
        said = "\n".join([f"{status} {_in_words(message)}", *headers])
        said = re.sub(r'(preview_id: |"previewId": ")[\w-]+', r"\1ID", said)
        self.note(what, indent(said, "  "))


def _in_words(message: Mapping[str, Any]) -> str:
    """Return an error of either protocol, or a result that says that it is one."""
    error = message.get("error")
    if isinstance(error, str):
        return f"{error}: {message['error_description']}"
    if error is not None:
        data = f"\ndata {json.dumps(error['data'])}" if "data" in error else ""
        return f"error {error['code']}: {error['message']}{data}"
    result = message["result"]
    assert result["isError"] is True
    meta = {key: value for key, value in result.get("_meta", {}).items() if key.startswith("io.ostiary/")}
    texts = "\n".join(block["text"] for block in result["content"] if not block["text"].startswith("{"))
    return f"result: {texts}" + (f"\n_meta {json.dumps(meta)}" if meta else "")


async def called(made: House, name: str = "echo", arguments: object = None, **headers: Any) -> Answer:
    params = {"name": name, "arguments": {} if arguments is None else arguments}
    return await made.pair.modern("tools/call", params, **(BEARER | headers))


async def test_what_clients_are_told_whose_calls_are_refused(
    snapshot: Snapshot, autojump_clock: MockClock
) -> None:
    book = RefusedCalls()
    await _at_the_door(book)
    await _as_written(book)
    await _by_limits(book)
    await _by_rules(book)
    await _by_hooks(book)
    await _unconfirmed(book)
    await _withheld(book)
    await _by_agents(book)
    await _as_no_task(book)
    await _unpaid(book)
    snapshot("refused_calls", book.text)


async def _at_the_door(book: RefusedCalls) -> None:
    book.begin("at the door")
    async with open_identity() as identity:
        host = ORIGIN.removeprefix("http://")
        made = house(agent(terms=CallTerms(scopes=frozenset({"mcp:tools:read"})), echo=plain))
        threshold: Any = made.mcp.threshold
        threshold.guard, threshold.name = Guard(hosts=frozenset({host})).admit, "agent"
        threshold.doorkeeper = Admission(identity)

        async def note(what: str, **headers: str) -> None:
            body, usual = modern("tools/call", {"name": "echo", "arguments": {}})
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            book.answered(what, await made.pair.request(body=body, headers={**usual, "host": host, **named}))

        await note("no token")
        await note("a token that is none", authorization="Bearer none")
        await note("a key that is none", x_api_key="none")
        narrow = (await logged_in(identity, scope="mcp:resources"))["access_token"]
        await note("a login without what it needs", authorization=f"Bearer {narrow}")
        whole = (await logged_in(identity))["access_token"]
        await note("a token and a key", authorization=f"Bearer {whole}", x_api_key="none")
        await note("a token as one with a key of its own", authorization=f"DPoP {whole}")
        for tools in ("a b", "a;b;c;d;e"):
            await note(f"the selection {tools}", authorization=f"Bearer {whole}", x_ostiary_tools=tools)
        await note("under another name", host="evil.example")
        await note("by a page of another site", origin="https://evil.example")

        async def unavailable(_: object) -> Any:
            raise StoreUnavailable("the store cannot")

        identity.live._load = unavailable
        fresh = (await logged_in(identity))["access_token"]
        await note("when logins cannot be looked up", authorization=f"Bearer {fresh}")


async def _as_written(book: RefusedCalls) -> None:
    book.begin("as it is written")
    listed = {"echo": Tool(name="echo", input_schema=NUMBER)}
    made = house(agent(listed=listed, echo=plain), tokens={"t": USER}, max_body_bytes=2000)
    book.answered("a tool that is not there", await called(made, "ecko"))
    book.answered("no arguments", await called(made))
    book.answered("others", await called(made, arguments={"n": "x", "m": 1}))
    book.answered("arguments that are a list", await called(made, arguments=[1]))
    for params in ({}, {"name": 5}, []):
        book.answered(f"parameters {params}", await made.pair.modern("tools/call", params, **BEARER))
    book.answered("another name in its header", await called(made, mcp_name="other"))
    book.answered("another method in its header", await called(made, mcp_method="tools/list"))
    book.answered("another version in its header", await called(made, mcp_protocol_version="2025-11-25"))
    book.answered(
        "a version that nobody knows", await made.pair.legacy("tools/call", version="2099-01-01", **BEARER)
    )
    book.answered("a version that is none", await made.pair.legacy("tools/call", version="x", **BEARER))
    book.answered(
        "a session that is over", await made.pair.legacy("tools/call", mcp_session_id="gone", **BEARER)
    )
    book.answered("an answer that nobody can read", await called(made, accept="text/html"))
    book.answered("a body in another code", await called(made, content_encoding="gzip"))
    book.answered("a body of another kind", await called(made, content_type="text/plain"))
    _, headers = modern("tools/call", {"name": "echo"})
    for body in (
        b"{",
        b"[]",
        b"5",
        b'{"jsonrpc": "2.0", "id": 1}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}',
    ):
        book.answered(
            f"the body {body.decode()}", await made.pair.request(body=body, headers={**headers, **BEARER})
        )
    book.answered("a body that is too large", await called(made, arguments={"n": "x" * 3000}))
    book.answered("a GET", await made.pair.request("GET", headers=BEARER))
    strict = house(agent(listed=listed, echo=plain), tokens={"t": USER}, refuses_invalid=True)
    book.answered("no arguments, where that is an error", await called(strict))


async def _by_limits(book: RefusedCalls) -> None:
    book.begin("too often")
    for what, limits in {
        "by one": limits_of({"echo": BoundRules(limit="1/min")}),
        "by all": limits_of({"echo": BoundRules(limit_all="1/min")}),
        "by one caller": limits_of(caller=1),
    }.items():
        made = house(agent(echo=plain), tokens={"t": USER}, limits=limits)
        await called(made)
        book.answered(what, await called(made))
    made = house(agent(echo=plain), tokens={}, limits=limits_of(address=1))
    await called(made)
    book.answered("from one address", await called(made))
    async with open_inline_store(clock=lambda: NOON) as store:
        for what, limits in {
            "a day": limits_of({"echo": BoundRules(quota="1/day")}, quotas=Quotas(store, clock=lambda: NOON)),
            "a day, of all tools": limits_of(quota="1/day", quotas=Quotas(store, clock=lambda: NOON)),
        }.items():
            made = house(agent(echo=plain), tokens={"t": USER}, limits=limits)
            await called(made)
            book.answered(what, await called(made))
        full: Any = _Full()
        made = house(
            agent(echo=plain),
            tokens={"t": USER},
            limits=limits_of(quota="9/day", quotas=Quotas(full, clock=lambda: NOON)),
        )
        book.answered("when nothing can be counted", await called(made))

    async def stays(call: ToolCall, outlet: Outlet) -> ToolResult:
        await trio.sleep_forever()
        raise AssertionError

    made = house(agent(stays=stays), tokens={"t": USER}, limits=limits_of(at_once=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(called, made, "stays")
        await trio.testing.wait_all_tasks_blocked()
        book.answered("at once", await called(made, "stays"))
        nursery.cancel_scope.cancel()


class _Full:
    async def write(self, job: object) -> Any:
        raise StoreUnavailable("the disk is full")


async def _by_rules(book: RefusedCalls) -> None:
    book.begin("by rules")
    budget = {"tools": ["remove"], "decision": "allow", "max_calls": 1}

    async def note(
        what: str, *rules: dict[str, Any], where: Any = WHERE[0], able: Any = ABLE, **answer: Any
    ) -> None:
        async with (
            governing(server(*rules)) as made,
            client(where, Shop().source(), governing=made.policy, capabilities=able) as one,
        ):
            if "max_calls" in rules[0]:
                await answered(one, "remove", {"n": 10})
            reply, _ = await answered(one, "remove", {"n": 10}, *([answer] if answer else ()))
            book.told(what, reply.message, reply.status)

    await note("denied", deny(reason="ten at once are too many"))
    await note("denied without a reason", deny())
    await note("declined", ask(), action="decline")
    await note("a question that was closed", ask(), action="cancel")
    await note("nobody who could be asked", ask(), able={})
    await note("used up", budget)
    await note("used up, with a reason", {**budget, "reason": "Use `archive`."})
    await note("used up in a session", {**budget, "per": "session"}, where=WHERE[2])


async def _by_hooks(book: RefusedCalls) -> None:
    book.begin("by hooks")
    denies = b'{"decision": "deny"}'
    for place in ("before", "after"):
        for said in (
            denies,
            denies.replace(b"}", b', "reason": "three are unlucky"}'),
            HookFailed("its program failed"),
        ):
            runner = HookRunnerFake(lambda _, said=said: said)
            async with (
                governing(hooked(place), runners=[cast("Any", runner)]) as made,
                client(WHERE[0], Shop().source(), governing=made.policy) as one,
            ):
                reply = await one.call("remove", {"n": 3})
                book.told(f"{place}: {said!r}", reply.message, reply.status)

    async def tells(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), structured={"mail": "ann@example.org"})

    schema = {"type": "object", "properties": {"mail": {"type": "string", "pattern": "@"}}}
    listed = {"tells": Tool(name="tells", input_schema={"type": "object"}, output_schema=schema)}
    async with (
        governing(server(redact={"sets": ["emails"]})) as made,
        client(WHERE[0], agent(listed=listed, tells=tells), governing=made.policy) as one,
    ):
        reply = await one.call("tells")
        book.told("an answer of which nothing is left", reply.message, reply.status)


async def _unconfirmed(book: RefusedCalls) -> None:
    book.begin("not confirmed")
    machine = replace(USER, kind=PrincipalKind.CLIENT)
    shown = agent(listed={"send": Tool(name="send", input_schema=NUMBER)}, send=plain, quote=plain)
    async with governing({"name": "main", "tools": {"send": {"confirm": {"keys": False}}}}) as ruled:
        made = house(shown, tokens={"t": machine}, governing=ruled.policy)
        book.answered("by a machine, where none may", await called(made, "send", {"n": 1}))
    for confirm in ({}, {"preview": "quote"}):
        async with governing({"name": "main", "tools": {"send": {"confirm": confirm}}}) as ruled:
            made = house(shown, tokens={"t": USER}, governing=ruled.policy)
            if not confirm:
                book.answered("not shown yet", await called(made, "send", {"n": 1}))
            first = await called(made, "quote" if confirm else "send", {"n": 1})
            meta = first.json["result"]["_meta"]
            issued = {
                "confirm": True,
                "preview_id": next(each["previewId"] for each in meta.values() if "previewId" in each),
            }
            for what, arguments in {
                "not shown": {"n": 1},
                "by an id that is none": {"n": 1, "confirm": True, "preview_id": "none"},
                "without a yes": {"n": 1, **issued, "confirm": False},
                "another call": {"n": 2, **issued},
            }.items():
                book.answered(what, await called(made, "send", arguments))
            await called(made, "send", {"n": 1, **issued})
            book.answered("a second time", await called(made, "send", {"n": 1, **issued}))


class _OfOthers(Agent):
    """Tools of an upstream, of which some are withheld."""

    def __init__(self, guard: PinGuard) -> None:
        super().__init__({})
        self.withheld = lambda name: guard.withheld(lambda theirs: theirs == name)


async def _withheld(book: RefusedCalls) -> None:
    book.begin("an upstream's, not accepted")
    async with open_house() as owner:
        desk, known = await owner.desk()
        made = house(Source(name="files", backend=_OfOthers(known.guard)), tokens={"t": USER})
        known.guard.allowed(lists(a_file_tool()))
        book.answered("a new tool", await called(made, "read"))
        await desk.accept(known, None, seal=seal_of(desk.withheld(known, None)), by="local:7")
        known.guard.allowed(lists(a_file_tool(description="Another")))
        book.answered("a changed tool", await called(made, "read"))


async def _by_agents(book: RefusedCalls) -> None:
    book.begin("by the agent")
    for error in (
        BackendError("agent endpoint 502: bad gateway"),
        ToolCrashed("division by zero"),
        Unreached("the upstream files cannot be reached: connection refused"),
        AnswerLost("the upstream files has ended (exit status 1)"),
        Busy("it has its hands full"),
        Replaced("the agent was replaced by a newer version"),
        CannotAsk("nobody can be asked", {"elicitation": {}}),
        RuntimeError("a bug"),
    ):

        async def fails(call: ToolCall, outlet: Outlet, error: Exception = error) -> ToolResult:
            raise error

        made = house(agent(fails=fails), tokens={"t": USER}, limits=limits_of())
        book.answered(f"{type(error).__name__}: {error}", await called(made, "fails"))

    async def stays(call: ToolCall, outlet: Outlet) -> ToolResult:
        await trio.sleep_forever()
        raise AssertionError

    async def lies(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("no number")

    listed = {"lies": Tool(name="lies", input_schema={"type": "object"}, output_schema=NUMBER)}
    made = house(
        agent(listed=listed, stays=stays, lies=lies, terms=CallTerms(deadline_seconds=5)), tokens={"t": USER}
    )
    for tool in ("stays", "lies"):
        book.answered(f"one that {tool}", await called(made, tool))


async def _as_no_task(book: RefusedCalls) -> None:
    book.begin("a tool that runs as a task")
    source = agent(listed=task_tool("must", "required"), must=plain, plain=plain)
    async with client(WHERE[0], source, tasks=True) as one:
        for what, reply in {
            "by a client without tasks": await one.call("must"),
            "how a task stands": await one.ask("tasks/get", {"taskId": "none"}),
        }.items():
            book.told(what, reply.message, reply.status)
    async with client(WHERE[2], source, tasks=True) as one:
        for what, reply in {
            "in a session, without a task": await one.call("must"),
            "in a session, another with one": await one.call("plain", task={}),
        }.items():
            book.told(what, reply.message, reply.status)


async def _unpaid(book: RefusedCalls) -> None:
    book.begin("not paid for")
    source = Source(name="agent", backend=Seller(a_tool("search"), a_tool("look")))
    catalog = Catalog([source], None, prices(None, {"search": ToolConfig(price="$0.01")}))
    async with open_till() as at:
        made = house(source, tokens={"t": USER})
        endpoint = dataclasses.replace(made.endpoint, till=at.till, catalog=catalog)
        threshold: Any = made.mcp.threshold
        threshold.storefront = Storefront(
            endpoint, ordinary=("mcp",), address="https://shop.example/call/", prices="https://shop.example/prices", setup={}
        )  # fmt: skip
        made.pair = Pair(app=asgi(McpEndpoint(endpoint, threshold, made.mcp.crew).resolve))
        unpaid = await called(made, "search")
        book.answered("with nothing", unpaid)
        book.note(
            "with nothing, in the challenge", f"  {unpaid.json['result']['structuredContent']['error']}"
        )
        book.answered("with a payment that is none", await called(made, "search", payment_signature="x"))
