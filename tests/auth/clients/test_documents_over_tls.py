"""Clients with metadata documents from start to finish: a login at our endpoints, a document on somebody else's server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from auth.clients.client_identifier_urls import Documents, FetchDocument
from auth.identity import Identity
from auth.values.database import JobStore
from auth.values.identity_model import DEVICE_CODE
from auth.values.limits_and_lifetimes import RegistrationPolicy
from server.run.client_documents import open_documents
from server.run.pinned_fetcher import EXCHANGES
from tests.auth.identity_fakes import DAY, Clock, open_identity, post
from tests.stranger import HOST, PUBLIC, Stranger, a_stranger, answer, says

URL = f"https://{HOST}/client.json"
DOCUMENT = json.dumps(
    {
        "client_id": URL,
        "client_name": "An App",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "grant_types": ["authorization_code", DEVICE_CODE],
    }
).encode()


@asynccontextmanager
async def home(
    stranger: Stranger, clock: Clock | None = None
) -> AsyncGenerator[tuple[Identity, FetchDocument]]:
    fetches: list[FetchDocument] = []

    def documents(store: JobStore) -> Documents:
        made, fetch = open_documents(store, RegistrationPolicy(), reach=stranger.reach())  # type: ignore[arg-type]
        assert fetch is not None
        fetches.append(fetch)
        return made

    async with open_identity(documents=documents, clock=clock) as identity:
        yield identity, fetches[0]


async def asked(identity: Identity, url: str = URL, ip: str = "192.0.2.1") -> tuple[int, dict[str, Any]]:
    reply = await identity.handle(post("/device_authorization", client_id=url, ip=ip))
    assert reply is not None
    return reply.status, json.loads(reply.body)


async def test_a_client_that_was_never_seen_asks_for_a_code(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger, home(stranger) as (identity, _):
        stranger.publishes({"/client.json": DOCUMENT})
        status, codes = await asked(identity)
        assert (status, "user_code" in codes) == (200, True)
        assert len(stranger.requests) == 1
        status, _ = await asked(identity)
        assert (status, len(stranger.requests)) == (200, 1)


async def test_fifty_logins_of_a_new_client_at_once_fetch_its_document_once(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger, home(stranger) as (identity, _):
        stranger.publishes({"/client.json": DOCUMENT})
        statuses: list[int] = []

        async def one(number: int) -> None:
            statuses.append((await asked(identity, ip=f"192.0.2.{number}"))[0])

        async with trio.open_nursery() as nursery:
            for number in range(1, 51):
                nursery.start_soon(one, number)
        assert statuses == [200] * 50
        assert len(stranger.requests) == 1


async def test_a_client_id_that_leads_into_the_house_is_refused_and_nothing_is_called(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger, home(stranger) as (identity, _):
        stranger.publishes({"/client.json": DOCUMENT})
        stranger.names[HOST] = [["10.0.0.7"]]
        status, refused = await asked(identity)
        assert (status, refused["error"]) == (401, "invalid_client")
        assert refused["error_description"] == "the document at this client id's address cannot be reached"
        assert stranger.connected == []


async def test_a_name_that_moves_into_the_house_keeps_its_copy_and_is_not_called(tmp_path: Path) -> None:
    clock = Clock()
    async with a_stranger(tmp_path) as stranger, home(stranger, clock) as (identity, _):
        stranger.publishes({"/client.json": DOCUMENT})
        stranger.names[HOST] = [[PUBLIC], ["127.0.0.1"]]
        assert (await asked(identity))[0] == 200
        clock.now += DAY
        assert (await asked(identity))[0] == 200
        assert (len(stranger.resolved), len(stranger.connected)) == (2, 1)


async def test_a_document_that_its_server_no_longer_has_ends_its_client(tmp_path: Path) -> None:
    clock = Clock()
    async with a_stranger(tmp_path) as stranger, home(stranger, clock) as (identity, _):
        stranger.publishes({"/client.json": DOCUMENT})
        assert (await asked(identity))[0] == 200
        stranger.publishes({})
        clock.now += DAY
        status, refused = await asked(identity)
        assert (status, refused["error"]) == (401, "invalid_client")
        assert refused["error_description"].endswith("answered with status 404")


async def test_a_wall_in_front_of_a_server_is_not_its_word(tmp_path: Path) -> None:
    """As some answer data centres: 403 and a page."""
    clock = Clock()
    async with a_stranger(tmp_path) as stranger, home(stranger, clock) as (identity, _):
        stranger.publishes({"/client.json": DOCUMENT})
        assert (await asked(identity))[0] == 200
        stranger.handler = says(answer(b"<title>Just a moment...</title>", status=403, headers=()))
        clock.now += DAY
        assert (await asked(identity))[0] == 200
        assert len(stranger.requests) == 2


async def test_a_well_known_client_logs_in_where_there_is_no_way_out(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger, home(stranger) as (identity, _):
        stranger.names.clear()
        status, codes = await asked(identity, "https://vscode.dev/oauth/client-metadata.json")
        assert (status, "user_code" in codes) == (200, True)
        assert stranger.resolved == ["vscode.dev"]


async def test_key_sets_may_be_larger_than_documents(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger, home(stranger) as (identity, fetch):
        large = b'{"keys":[]}'.ljust(60_000)
        stranger.publishes({"/keys": large, "/client.json": DOCUMENT.ljust(6_000)})
        assert (await fetch(f"https://{HOST}/keys")).body == large
        status, refused = await asked(identity)
        assert status == 401
        assert refused["error_description"].endswith("answered with more than 5 KiB")


async def test_strangers_who_let_every_exchange_wait_keep_nobody_who_is_signed_in_waiting(
    tmp_path: Path,
) -> None:
    async with a_stranger(tmp_path) as stranger, home(stranger) as (identity, _):
        stranger.publishes({"/client.json": DOCUMENT})
        deaf = "93.184.216.99"
        stranger.deaf.add(deaf)
        slow = [f"https://slow{number}.example/client.json" for number in range(2 * EXCHANGES)]
        stranger.names |= {url.split("/")[2]: [[deaf]] for url in slow}
        now, documents = identity.parts.clock(), identity.parts.documents

        async def look(url: str, network: str) -> None:
            await documents.ensure(url, network=network, signed_in=False, now=now)

        async with trio.open_nursery() as nursery:
            for number, url in enumerate(slow):
                nursery.start_soon(look, url, f"192.0.2.{number}")
            while len(stranger.connected) < EXCHANGES:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(look, URL, "192.0.2.199")
            await trio.testing.wait_all_tasks_blocked()
            assert stranger.requests == []  # the stranger's own look at this one waits behind the others
            assert await documents.ensure(URL, network="192.0.2.200", signed_in=True, now=now) is None
            assert len(stranger.requests) == 1
            assert {address for address, _ in stranger.connected} == {deaf, PUBLIC}
            nursery.cancel_scope.cancel()
