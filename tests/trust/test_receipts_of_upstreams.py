"""With whose account a call is made at an upstream: what is taken from the owner's is told to the books, and from a caller's own it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from server.backends.base import Announce, ToolCall
from server.backends.terms import SIGNED_RECEIPT
from server.backends.wallet import GivenReceipt
from server.gateway.credentials import StaticCredential
from server.gateway.settings import McpConfig, problems
from server.settings.secret import Secret
from server.trust import opening
from server.trust.pins import UpstreamKey
from tests.gateway.upstreams import PATIENCE, Caller, Double, Log, Turn, over_http, text, tool, words
from tests.trust.trust_fakes import TOKEN_URL, FakeAuthorizationServer, call_of, open_house, tokens

AS = {"token_url": TOKEN_URL, "client_id": "us", "client_secret": "env:OUR_SECRET"}
ISSUER = {"authorization_server": "https://login.example"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"identity": "login"}, True),
        ({"identity": "client-credentials", "oauth": AS}, True),
        ({"token": "env:OUR_SECRET"}, True),
        ({"headers": {"Authorization": "env:OUR_SECRET"}}, True),
        ({"identity": "token", "id": "shop"}, False),
        ({"identity": "exchange", "oauth": AS}, False),
        ({"identity": "id-jag", "oauth": AS | ISSUER}, False),
        ({"identity": "person", "id": "shop", "oauth": ISSUER}, False),
    ],
    ids=lambda found: found if isinstance(found, bool) else next(iter(found.values())),
)
async def test_what_an_upstream_took_is_told_to_the_books_where_it_took_it_from_the_owner(
    settings: dict[str, Any], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[GivenReceipt] = []

    async def tell(receipt: GivenReceipt) -> None:
        await trio.lowlevel.checkpoint()
        heard.append(receipt)

    async def say(turn: Turn) -> Any:
        return text("said", _meta={SIGNED_RECEIPT: "a.b.c"})

    monkeypatch.setenv("OUR_SECRET", "our-secret")
    # Whoever calls is connected there.
    monkeypatch.setattr(opening, "_personal", lambda *_: StaticCredential({}, Secret("theirs")))
    double, log = Double(handlers={"say": say}, lists={"tools": [tool("say")]}), Log()
    async with open_house() as house, over_http(double) as url:
        given = {"url": url, "trust": "always", "start_seconds": PATIENCE, **settings}
        config = msgspec.convert(given, McpConfig)
        assert problems(config) == []
        desk = house.empty_desk(server=FakeAuthorizationServer(tokens("theirs")))
        await desk.prepare({UpstreamKey("main", config.id): url})
        sent = {name: Secret("Bearer ours") for name in config.headers}
        backend = opening.open_upstream(
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
