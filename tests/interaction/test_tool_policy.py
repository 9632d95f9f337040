"""Who may know of what, who may be granted it, and what a selection leaves out: by era, credential and tier."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from trio.testing import MockClock

from auth.tokens.presented_credentials import Presentation, PresentedCredential
from auth.values import scopes
from auth.values.identity_model import ANONYMOUS, STRANGER, Principal, PrincipalKind
from server.agents.base.catalog import Catalog, Source
from server.calls.rights.standing import selecting
from server.calls.rights.tiers import SCOPES
from server.calls.servers.me_resource import ABOUT_ME, ME
from server.mcp.call_failures import BackendError
from server.mcp.messages import ResourceContents
from server.mcp.terms import CallTerms, Tier
from server.settings.tool_selection import Selections
from tests.interaction.agents import Refused, agent, house
from tests.interaction.everything import everything, plain
from tests.interaction.test_era_http import post
from tests.interaction.wires import client
from tests.pair import modern
from tests.requirements import Cell

TIERS: dict[str, Tier] = {"look": "read", "edit": "write", "pay": "financial"}
TERMS = {name: CallTerms(scopes=frozenset({SCOPES[tier]}), tier=tier) for name, tier in TIERS.items()}
SHOP: Source = msgspec.structs.replace(agent(look=plain, edit=plain, pay=plain), tool_terms=TERMS)
GROUPS = {"safe": ["look"]}


def somebody(kind: PrincipalKind, has: str, **more: Any) -> Principal:
    return Principal(
        kind=kind, subject="s", client_id="c", grant_id="g", scopes=frozenset(has.split()), **more
    )


def user(has: str, reach: str = "*", **more: Any) -> Principal:
    return somebody(PrincipalKind.USER, has, reach=frozenset(reach.split()), **more)


def key(has: str, **more: Any) -> Principal:
    return somebody(PrincipalKind.API_KEY, has, reach=frozenset(), **more)


def machine(has: str) -> Principal:
    return somebody(PrincipalKind.CLIENT, has, reach=frozenset())


MATRIX: list[tuple[str, Principal, str]] = [
    # what look, edit and pay are: ok, grantable (asked for), hidden (-)
    ("a login with everything", user("mcp"), "ok ok ask"),
    ("a login with tools", user("mcp:tools"), "ok ok ask"),
    ("a login with money", user("mcp financial"), "ok ok ok"),
    ("a login that reads", user("mcp:tools:read"), "ok ask ask"),
    ("a login for resources", user("mcp:resources"), "ask ask ask"),
    ("a login of somebody without money", user("mcp:tools:read", "mcp"), "ok ask -"),
    ("a login of somebody who only reads", user("mcp:tools:read", "mcp:tools:read"), "ok - -"),
    ("a login for nothing of somebody who may nothing", user("", ""), "- - -"),
    ("a key for tools", key("mcp:tools"), "ok ok -"),
    ("a key that reads", key("mcp:tools:read"), "ok - -"),
    ("a key with money", key("mcp:tools financial"), "ok ok ok"),
    ("a machine that reads", machine("mcp:tools:read"), "ok - -"),
    ("nobody", ANONYMOUS, "- - -"),
    ("anybody at an open server", replace(ANONYMOUS, scopes=frozenset({"mcp"})), "ok ok -"),
    ("a login with a selection", user("mcp financial", tools="readonly"), "ok - -"),
    ("a login with a group", user("mcp", tools="safe,pay"), "ok - ask"),
    ("a key with a selection", key("mcp", tools="-look"), "- ok -"),
    ("a request that narrows", user("mcp", tools=";edit"), "- ok -"),
    ("a request that asks for more", user("mcp", tools="look;all"), "ok - -"),
]


@pytest.mark.requirement("tools.scope")
@pytest.mark.parametrize(
    ("who", "stands"), [row[1:] for row in MATRIX], ids=[row[0].replace(" ", "-") for row in MATRIX]
)
async def test_what_each_caller_sees_and_may_call(who: Principal, stands: str, cell: Cell) -> None:
    how: dict[str, Any] = {"tokens": {"t": who}, "policy": selecting(Selections(groups=GROUPS))}
    async with client(cell, SHOP, **how) as one:
        listed = {tool["name"] for tool in (await one.ask("tools/list")).result["tools"]}
        for name, expected in zip(TIERS, stands.split(), strict=True):
            assert (name in listed) == (expected != "-")
            answer = await post(one, "tools/call", {"name": name})
            if expected == "ok":
                assert answer.status == 200 and "result" in answer.json
            elif expected == "-":
                assert answer.json["error"]["code"] == -32602  # as of a tool that there is not
                assert "nknown" in answer.json["error"]["message"]
            else:
                # Everything in one challenge: who asks for exactly that loses nothing.
                assert answer.status == 403
                challenge = answer.headers["www-authenticate"]
                needed = who.scopes | {SCOPES[TIERS[name]]}
                assert f'scope="{" ".join(sorted(needed))}"' in challenge


@pytest.mark.requirement("auth.hierarchy")
async def test_a_scope_of_the_settings_is_needed_besides_the_tiers(cell: Cell) -> None:
    terms = CallTerms(scopes=frozenset({"mcp:tools:read", "billing:read"}), tier="read")
    source = agent(terms=terms, bills=plain)
    async with client(cell, source, tokens={"t": user("mcp")}) as one:
        answer = await post(one, "tools/call", {"name": "bills"})
        assert (answer.status, 'scope="billing:read mcp"' in answer.headers["www-authenticate"]) == (
            403,
            True,
        )
        assert one.made.tokens is not None
        one.made.tokens["t"] = user("mcp billing")
        assert (await post(one, "tools/call", {"name": "bills"})).status == 200


@pytest.mark.requirement("tools.scope")
async def test_what_a_tool_needs_says_nothing_of_resources_and_prompts(cell: Cell) -> None:
    reading = CallTerms(scopes=frozenset({scopes.RESOURCES.name}))
    source = msgspec.structs.replace(everything(), library_terms=reading)
    for who, status in ((user("mcp:tools"), 403), (user("mcp:resources"), 200), (key("mcp:tools"), 200)):
        hidden = who.kind is PrincipalKind.API_KEY
        async with client(cell, source, tokens={"t": who}) as one:
            for method, params in (
                ("resources/read", {"uri": "test://one"}),
                ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
            ):
                answer = await post(one, method, params)
                assert answer.status == status, method
                assert ("error" in answer.json) == (hidden or status == 403)
            for method, kind in (("resources/list", "resources"), ("prompts/list", "prompts")):
                assert bool((await one.ask(method)).result[kind]) is not hidden


@pytest.mark.requirement("tools.scope")
async def test_a_selection_that_came_with_the_request_is_for_that_request(cell: Cell) -> None:
    how: dict[str, Any] = {"tokens": {"t": user("mcp")}, "policy": selecting(Selections(default="-pay"))}
    async with client(cell, SHOP, **how) as one:

        async def seen(**headers: str) -> set[str]:
            answer = await post(one, "tools/list", **headers)
            return {tool["name"] for tool in answer.json["result"]["tools"]}

        assert await seen() == {"look", "edit"}
        assert await seen(x_ostiary_tools="readonly") == {"look"}
        assert await seen(x_ostiary_tools="all") == {"look", "edit"}
        assert await seen(x_ostiary_tools="all;edit") == {"edit"}
        assert await seen(x_ostiary_tools=" ") == {"look", "edit"}


def test_somebody_at_the_machine_sees_all_that_is_offered() -> None:
    may_know = selecting(Selections(default="none"))
    local = Principal(kind=PrincipalKind.LOCAL, subject="local:0")
    catalog = Catalog([SHOP])
    for entry in catalog.entries():
        assert may_know(local, entry)
        assert not may_know(user("mcp"), entry)


# ── ostiary://me ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Mirror:
    """Tells who asks, as far as it was told."""

    def __init__(self) -> None:
        self.broken = False
        self.listed = (ABOUT_ME,)

    def has(self, uri: str) -> bool:
        return uri == ME

    async def read(self, uri: str, principal: Principal) -> ResourceContents:
        if self.broken:
            raise BackendError("logins cannot be looked up")
        return ResourceContents(uri=ME, mime_type="application/json", text=principal.subject)


@pytest.mark.requirement("tools.scope")
async def test_whoever_has_a_login_or_a_key_can_read_who_they_are_and_nobody_else_knows_of_it(
    cell: Cell,
) -> None:
    mirror = Mirror()
    buyer = Principal(
        kind=PrincipalKind.PAYER, subject="payer:eip155:1:0xab", grant_id="grt_p", reach=frozenset()
    )
    for who, known in (
        (user(""), True),
        (key(""), True),
        (machine(""), True),
        (buyer, True),
        (STRANGER, False),
        (ANONYMOUS, False),
    ):
        async with client(cell, SHOP, tokens={"t": who}, me=mirror) as one:
            listed = [each["uri"] for each in (await one.ask("resources/list")).result["resources"]]
            assert listed == ([ME] if known else [])
            answer = await post(one, "resources/read", {"uri": ME})
            if not known:
                assert answer.json["error"]["code"] in (-32602, -32002)
                continue
            (contents,) = answer.json["result"]["contents"]
            assert (contents["uri"], contents["text"]) == (ME, who.subject)
            mirror.broken = True
            answer = await post(one, "resources/read", {"uri": ME})
            assert "cannot be looked up" in answer.json["error"]["message"]
            mirror.broken = False


@pytest.mark.requirement("tools.scope")
@pytest.mark.parametrize("me", [None, Mirror()])
async def test_resources_are_declared_where_there_is_one_and_nothing_else_with_them(
    me: Mirror | None, cell: Cell
) -> None:
    async with client(cell, SHOP, tokens={"t": user("mcp")}, me=me, handshake=False) as one:
        method = "server/discover" if cell.modern else "initialize"
        hello = {
            "protocolVersion": cell.version,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        answer = await post(one, method, {} if cell.modern else hello)
        declared = answer.json["result"]["capabilities"]
        assert ("resources" in declared) == (me is not None)
        assert not {"prompts", "completions", "logging"} & declared.keys()


@pytest.mark.parametrize("header", [{"x-api-key": "key-1"}, {"authorization": "Bearer key-1"}])
async def test_an_open_subscription_is_asked_about_the_very_credential_that_opened_it(
    header: dict[str, str], autojump_clock: MockClock
) -> None:
    made = house(tokens={})
    valid = {"key-1"}

    async def known(shown: Presentation) -> Principal | Refused:
        assert shown.address == "127.0.0.1"
        assert isinstance(shown.credential, PresentedCredential)
        return key("mcp") if shown.credential.secret in valid else Refused()

    made.mcp.threshold.doorkeeper.authenticate = known  # type: ignore[attr-defined]
    body, headers = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with made.pair.open(body=body, headers={**headers, **header}) as stream:
        await stream.event()
        made.subscriptions.publish("tools")
        assert (await stream.event())["method"] == "notifications/tools/list_changed"
        valid.clear()
        assert "result" in await stream.event()
