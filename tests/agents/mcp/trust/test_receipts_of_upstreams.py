"""With whose account a call is made at an upstream: what is taken from the owner's is told to the books, and from a caller's own it is not."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import trio

from server.agents.base.backend import Announce, ToolCall
from server.agents.mcp.mcp_settings import McpConfig, problems
from server.agents.mcp.trust import upstream_opening
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.agents.mcp.trust.upstream_opening import NOBODY, STATIC
from server.agents.mcp.upstream_credentials import StaticCredential
from server.lib.secret import Secret
from server.mcp.terms import SIGNED_RECEIPT
from server.payments.buyer.outlays import GivenReceipt
from tests.agents.mcp.trust.trust_fakes import TOKEN_URL, FakeAuthorizationServer, call_of, open_house, tokens
from tests.agents.mcp.upstreams import PATIENCE, Caller, Double, Log, Turn, over_http, text, tool, words

AS = {"token_url": TOKEN_URL, "client_id": "us", "client_secret": "env:OUR_SECRET"}
ISSUER = {"authorization_server": "https://login.example"}


@pytest.mark.parametrize(
    ("settings", "shown", "fetched", "told"),
    [
        ({"identity": "login"}, "", 0, True),
        ({"identity": "client-credentials", "oauth": AS}, "Bearer fetched", 1, True),
        ({"token": "env:OUR_SECRET"}, "Bearer our-secret", 0, True),
        ({"headers": {"Authorization": "env:OUR_SECRET"}}, "Bearer ours", 0, True),
        ({"identity": "token", "id": "shop"}, "Bearer ey.+", 0, False),
        ({"identity": "exchange", "oauth": AS}, "Bearer fetched", 2, False),
        ({"identity": "id-jag", "oauth": AS | ISSUER}, "Bearer fetched", 2, False),
        ({"identity": "person", "id": "shop", "oauth": ISSUER}, "Bearer theirs", 0, False),
    ],
    ids=lambda found: "" if not isinstance(found, dict) else next(iter(found.values())),
)
async def test_an_upstream_is_shown_the_identity_of_the_settings_and_its_receipts_count_if_it_is_the_owners(
    settings: dict[str, Any], shown: str, fetched: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[GivenReceipt] = []

    async def tell(receipt: GivenReceipt) -> None:
        await trio.lowlevel.checkpoint()
        heard.append(receipt)

    async def say(turn: Turn) -> Any:
        return text("said", _meta={SIGNED_RECEIPT: "a.b.c"})

    monkeypatch.setenv("OUR_SECRET", "our-secret")
    # Whoever calls is connected there.
    monkeypatch.setattr(upstream_opening, "_personal", lambda *_: StaticCredential({}, Secret("theirs")))
    double, log = Double(handlers={"say": say}, lists={"tools": [tool("say")]}), Log()
    async with open_house() as house, over_http(double) as url:
        given = {"url": url, "trust": "always", "start_seconds": PATIENCE, **settings}
        config = msgspec.convert(given, McpConfig)
        assert problems(config) == []
        server = FakeAuthorizationServer(tokens("fetched"))
        desk = house.empty_desk(server=server)
        key = UpstreamKey("main", config.id)
        await desk.prepare({key: url})
        sent = {name: Secret("Bearer ours") for name in config.headers}
        backend = upstream_opening.open_upstream(
            config,
            desk,
            server="main",
            headers=sent,
            environment={},
            name="main[1]",
            log=log.logger,
            tell_receipt=tell,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(backend.run, Announce(lists=lambda: None, resource=lambda _: None))
            (offered,) = backend.tools()
            call = ToolCall(
                tool=offered.name, arguments={}, subject="usr_ann", call_id="c1", caller=call_of().caller
            )
            with trio.fail_after(PATIENCE):
                assert words(await backend.call(call, Caller())) == "said"
            nursery.cancel_scope.cancel()
    assert bool(heard) is told
    (head,) = [double.heads[at] for at, said in enumerate(double.heard) if said["method"] == "tools/call"]
    assert re.fullmatch(shown, head.get("authorization", ""))
    assert len(server.forms) == fetched  # for everybody, or for the server itself and for the caller
    called = next((name for name in ("token", "headers") if name in settings), "")
    assert desk.known[key].identity == (STATIC if called else settings["identity"])


@pytest.mark.parametrize("pays", [False, True])
async def test_an_owner_who_logs_in_comes_as_somebody_with_a_wallet_where_there_is_one(
    pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_wallet: list[Any] = []

    def take(own: Any) -> Any:
        with_wallet.append(own)
        return own

    monkeypatch.setattr(upstream_opening, "PayerCredential", take)
    given = {
        "url": "https://shop.example/mcp",
        "identity": "login",
        "pay": {"key": "env:WALLET"} if pays else {},
    }
    async with open_house() as house:
        desk = house.empty_desk()
        await desk.prepare({UpstreamKey("main", ""): "here"})
        upstream_opening.open_upstream(
            msgspec.convert(given, McpConfig),
            desk,
            server="main",
            headers={},
            environment={},
            name="main[1]",
            log=Log().logger,
        )
    assert bool(with_wallet) is pays


async def test_a_program_of_this_machine_is_called_as_nobody() -> None:
    config = msgspec.convert({"command": ["files"]}, McpConfig)
    async with open_house() as house:
        desk = house.empty_desk()
        await desk.prepare({UpstreamKey("main", ""): "here"})
        upstream_opening.open_upstream(
            config, desk, server="main", headers={}, environment={}, name="main[1]", log=Log().logger
        )
    assert desk.known[UpstreamKey("main", "")].identity == NOBODY
