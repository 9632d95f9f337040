"""Clients whose id is the address of their metadata: what is kept, for how long, and what happens when it cannot be had."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import trio
from msgspec.structs import replace

from auth.authorization import device_authorization as device
from auth.clients import client_registry as clients
from auth.clients import pinned
from auth.clients.client_identifier_urls import NO_DOCUMENTS, CannotFetch, Documents, FetchedDocument
from auth.clients.stored_client_documents import (
    ANOTHERS,
    FRESH_AT_LEAST,
    NOT_AT_THIS_HOST,
    NOT_PINNED,
    RETRY,
    RETRY_MEANWHILE,
    TOO_MANY,
    UNREACHABLE,
    ClientDocuments,
)
from auth.identity import Identity
from auth.values.database import Db, JobStore, Row
from auth.values.identity_model import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN
from auth.values.limits_and_lifetimes import RegistrationPolicy
from server.lib.http_client.single_flight import SingleFlight
from server.run.client_documents import open_documents
from tests.auth.identity_fakes import (
    DAY,
    MINUTE,
    POLICY,
    SECOND,
    Clock,
    get,
    header,
    logged_in,
    open_identity,
    post,
)
from tests.sealing import by_hand

T = TypeVar("T")

URL = "https://app.example/client.json"
CLAUDE = "https://claude.ai/oauth/claude-code-client-metadata"
GONE = CannotFetch("answered with status 404", definite=True)
DOWN = CannotFetch("answered with status 403")


def document(url: str = URL, **changes: Any) -> bytes:
    members: dict[str, Any] = {
        "client_id": url,
        "client_name": "An App",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "grant_types": [AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE],
        "token_endpoint_auth_method": "none",
    }
    return json.dumps({**members, **changes}).encode()


@dataclass
class Outside:
    """What is found at addresses; where nothing is said, a good document."""

    answers: dict[str, bytes | CannotFetch] = field(default_factory=dict)
    max_age_seconds: int | None = None
    asked: list[str] = field(default_factory=list)
    wait: trio.Event | None = None

    async def __call__(self, url: str) -> FetchedDocument:
        self.asked.append(url)
        await trio.lowlevel.checkpoint()
        if self.wait is not None:
            await self.wait.wait()
        found = self.answers.get(url, document(url))
        if isinstance(found, CannotFetch):
            raise found
        return FetchedDocument(body=found, max_age_seconds=self.max_age_seconds)


class Counting:
    """A store that counts what is written."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.writes = 0

    async def write(self, job: Callable[[Db], T]) -> T:
        self.writes += 1
        return await self._store.write(job)

    async def read(self, job: Callable[[Db], T]) -> T:
        return await self._store.read(job)

    def chain_audit(self, key: bytes) -> None:
        self._store.chain_audit(key)


@dataclass
class House:
    identity: Identity
    clock: Clock
    outside: Outside
    documents: Documents
    store: Counting

    async def ensure(
        self, url: str = URL, *, network: str = "192.0.2.1", signed_in: bool = False
    ) -> str | None:
        return await self.documents.ensure(url, network=network, signed_in=signed_in, now=self.clock())

    async def rows(self, sql: str, *values: object) -> list[Row]:
        return await self.identity.parts.store.read(lambda db: db.fetch_all(sql, *values))

    async def client(self, url: str = URL) -> Row | None:
        found = await self.rows("SELECT * FROM clients WHERE id = ?", url)
        return found[0] if found else None

    async def kept(self, url: str = URL) -> Row:
        (row,) = await self.rows("SELECT * FROM client_documents WHERE url = ?", url)
        return row

    async def audited(self) -> list[tuple[str, str]]:
        rows = await self.rows(
            "SELECT outcome, reason FROM audit WHERE event = 'client.document' ORDER BY seq"
        )
        return [(row["outcome"], row["reason"]) for row in rows]

    async def changes(self) -> list[str]:
        return [row["entity_id"] for row in await self.rows("SELECT * FROM changes WHERE kind = 'client'")]


@asynccontextmanager
async def house(*, no_network: bool = False, **registration: Any) -> AsyncGenerator[House]:
    outside, clock = Outside(), Clock()
    policy = replace(POLICY, registration=RegistrationPolicy(**registration))
    stores: list[Counting] = []
    made: list[Documents] = []

    def documents(store: JobStore) -> Documents:
        fetch = None if no_network else outside
        share = SingleFlight[str | None]()
        stores.append(Counting(store))
        made.append(ClientDocuments(stores[0], fetch=fetch, share=share, policy=policy.registration))
        return made[0]

    async with open_identity(policy=policy, clock=clock, documents=documents) as identity:
        yield House(identity, clock, outside, made[0], stores[0])


# ---------------------------------------------------------------- accepting


async def test_a_good_document_makes_a_client() -> None:
    async with house() as here:
        assert await here.ensure() is None
        client = await here.client()
        assert client is not None
        shown = {
            name: client[name] for name in ("kind", "name", "auth_method", "scope", "state", "redirect_uris")
        }
        assert shown == {
            "kind": "document",
            "name": "An App",
            "auth_method": "none",
            "scope": "*",
            "state": "enabled",
            "redirect_uris": "http://127.0.0.1/callback",
        }
        assert client["secret_hash"] is None
        kept = await here.kept()
        assert (kept["source"], kept["body"].encode(), kept["problem"]) == ("network", document(), "")
        assert await here.audited() == [("ok", "accepted, from its address")]


async def test_a_fresh_copy_is_used_without_asking_again_or_writing() -> None:
    async with house() as here:
        await here.ensure()
        here.clock.now += FRESH_AT_LEAST
        before = here.store.writes
        for _ in range(5):
            assert await here.ensure() is None
        assert (here.outside.asked, here.store.writes) == ([URL], before)


@pytest.mark.parametrize(
    ("said", "fresh"),
    [
        (None, 60 * MINUTE),
        (0, 5 * MINUTE),
        (1, 5 * MINUTE),
        (600, 10 * MINUTE),
        (86_400, DAY),
        (9_999_999_999, DAY),
    ],
)
async def test_how_long_a_copy_is_fresh_is_its_servers_word_within_bounds(
    said: int | None, fresh: int
) -> None:
    async with house() as here:
        here.outside.max_age_seconds = said
        await here.ensure()
        here.clock.now += fresh - 1
        await here.ensure()
        assert len(here.outside.asked) == 1
        here.clock.now += 1
        await here.ensure()
        assert len(here.outside.asked) == 2


async def test_a_changed_document_changes_the_client_and_tells_everybody() -> None:
    async with house() as here:
        await here.ensure()
        assert await here.changes() == []
        here.clock.now += DAY
        await here.ensure()
        assert await here.changes() == []  # the same again is no change
        here.outside.answers[URL] = document(
            client_name="Renamed", redirect_uris=["https://app.example/done"]
        )
        here.clock.now += DAY
        assert await here.ensure() is None
        client = await here.client()
        assert client is not None
        assert (client["name"], client["redirect_uris"]) == ("Renamed", "https://app.example/done")
        assert await here.changes() == [URL]
        assert await here.audited() == [("ok", "accepted, from its address"), ("ok", "changed")]


async def test_what_the_operator_switched_off_stays_off_whatever_the_document_says() -> None:
    async with house() as here:
        await here.ensure()
        off = clients.disable
        now = here.clock()
        assert await here.identity.parts.store.write(lambda db: off(db, URL, by="local:0", now=now))
        here.outside.answers[URL] = document(client_name="New")
        here.clock.now += DAY
        assert await here.ensure() is None  # the document is good; the client is off
        client = await here.client()
        assert client is not None
        assert (client["name"], client["state"]) == ("New", "disabled")
        reply = await here.identity.handle(post("/device_authorization", client_id=URL))
        assert reply is not None
        assert (reply.status, json.loads(reply.body)["error"]) == (401, "invalid_client")


async def test_redirect_addresses_elsewhere_are_left_out_and_the_operator_is_told() -> None:
    async with house() as here:
        here.outside.answers[URL] = document(
            redirect_uris=["http://127.0.0.1/cb", "https://other.example/cb"]
        )
        assert await here.ensure() is None
        assert await here.audited() == [
            ("ok", "accepted, from its address; 1 redirect addresses elsewhere left out")
        ]


async def test_the_address_of_a_client_of_another_kind_is_not_taken_over() -> None:
    async with house() as here:

        def other(db: Db) -> None:
            by_hand(
                "INSERT INTO clients (id, kind, name, auth_method, grant_types, redirect_uris, scope, state, created_at)"
                " VALUES (?, 'registered', 'Mine', 'none', '', '', '*', 'enabled', 0)",
                URL,
            )(db)

        await here.identity.parts.store.write(other)
        assert await here.ensure() == ANOTHERS
        client = await here.client()
        assert client is not None
        assert client["name"] == "Mine"


# ---------------------------------------------------------------- refusing


@pytest.mark.parametrize(
    "url",
    ["https://app.example/", "https://app.example:8443/c", "https://127.0.0.1/c", "https://a.example/../c"],
)
async def test_a_bad_address_is_refused_before_anything_is_asked_or_written(url: str) -> None:
    async with house() as here:
        told = await here.ensure(url)
        assert told is not None
        assert told.startswith("a client id that is an address must")
        assert (here.outside.asked, await here.audited()) == ([], [])
        assert await here.rows("SELECT * FROM client_documents") == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (GONE, "status 404"),
        (b"{}", "another client_id"),
        (DOWN, UNREACHABLE),
    ],
)
async def test_a_failure_is_remembered_for_a_minute(found: bytes | CannotFetch, told: str) -> None:
    async with house() as here:
        here.outside.answers[URL] = found
        first = await here.ensure()
        assert first is not None and told in first
        for _ in range(2):
            assert await here.ensure() == first
        here.clock.now += RETRY - 1
        assert await here.ensure() == first
        assert here.outside.asked == [URL]
        assert await here.client() is None
        here.clock.now += 1
        del here.outside.answers[URL]
        assert await here.ensure() is None
        assert [outcome for outcome, _ in await here.audited()] == ["refused", "ok"]


async def test_what_only_we_can_resolve_is_told_to_the_operator_and_to_nobody_else() -> None:
    async with house() as here:
        found = ("is at 10.0.0.7", "has a name that only we know")
        for number, reason in enumerate(found):
            here.outside.answers[f"{URL}?{number}"] = CannotFetch(reason)
            assert (await here.ensure(f"{URL}?{number}") or "").endswith(UNREACHABLE)
        assert await here.audited() == [("refused", reason) for reason in found]


async def test_only_listed_hosts_are_asked_where_there_is_a_list() -> None:
    async with house(document_hosts=frozenset({"app.example"})) as here:
        for other in ("https://other.example/c", "https://sub.app.example/c", CLAUDE):
            assert await here.ensure(other) == NOT_AT_THIS_HOST
        assert await here.ensure() is None
        assert here.outside.asked == [URL]


async def test_a_host_that_is_taken_off_the_list_counts_no_more() -> None:
    async with house() as here:
        await here.ensure()
        policy = RegistrationPolicy(document_hosts=frozenset({"other.example"}))
        listed = ClientDocuments(
            here.identity.parts.store, fetch=here.outside, share=SingleFlight[str | None](), policy=policy
        )
        told = await listed.ensure(URL, network="n", signed_in=True, now=here.clock())
        assert told == NOT_AT_THIS_HOST


# ---------------------------------------------------------------- out of reach


async def test_an_old_copy_goes_on_for_a_week_while_its_address_cannot_be_reached() -> None:
    async with house() as here:
        await here.ensure()
        here.outside.answers[URL] = DOWN
        here.clock.now += 60 * MINUTE
        stale_from = here.clock.now
        assert await here.ensure() is None
        assert len(here.outside.asked) == 2
        here.clock.now += RETRY_MEANWHILE - 1
        assert await here.ensure() is None
        assert len(here.outside.asked) == 2  # not again so soon
        here.clock.now = stale_from + 7 * DAY - 1
        assert await here.ensure() is None
        here.clock.now += RETRY_MEANWHILE
        assert (await here.ensure() or "").endswith(UNREACHABLE)
        assert await here.audited() == [
            ("ok", "accepted, from its address"),
            ("ok", "the copy we have, answered with status 403"),
            ("refused", "answered with status 403"),
        ]


async def test_a_copy_that_went_on_is_renewed_when_its_address_is_back() -> None:
    async with house() as here:
        await here.ensure()
        here.outside.answers[URL] = DOWN
        here.clock.now += DAY
        await here.ensure()
        here.outside.answers[URL] = document(client_name="Back")
        here.clock.now += RETRY_MEANWHILE
        assert await here.ensure() is None
        kept = await here.kept()
        assert (kept["problem"], json.loads(kept["body"])["client_name"]) == ("", "Back")
        assert (await here.audited())[-1] == ("ok", "changed, from its address")


@pytest.mark.parametrize("found", [GONE, b"not json", document(client_id="https://app.example/other")])
async def test_a_good_document_that_is_gone_or_turned_bad_counts_no_more_at_once(
    found: bytes | CannotFetch,
) -> None:
    async with house() as here:
        await here.ensure()
        here.outside.answers[URL] = found
        here.clock.now += DAY
        assert await here.ensure() is not None
        # And it does not come back as an old copy when the address is out of reach afterwards.
        here.outside.answers[URL] = DOWN
        here.clock.now += RETRY
        assert (await here.ensure() or "").endswith(UNREACHABLE)


async def test_a_well_known_client_is_known_while_its_address_cannot_be_reached() -> None:
    async with house() as here:
        here.outside.answers[CLAUDE] = DOWN
        assert await here.ensure(CLAUDE) is None
        client = await here.client(CLAUDE)
        assert client is not None
        assert (client["name"], client["redirect_uris"].split()) == (
            "Claude Code",
            ["http://localhost/callback", "http://127.0.0.1/callback"],
        )
        assert (await here.kept(CLAUDE))["source"] == "pinned"
        here.clock.now += RETRY_MEANWHILE
        assert await here.ensure(CLAUDE) is None
        assert len(here.outside.asked) == 2
        # Told once, not every quarter of an hour.
        assert await here.audited() == [("ok", "accepted, the pinned copy, answered with status 403")]
        here.outside.answers[CLAUDE] = document(CLAUDE, client_name="Claude Code 9")
        here.clock.now += RETRY_MEANWHILE
        assert await here.ensure(CLAUDE) is None
        assert (await here.kept(CLAUDE))["source"] == "network"


@pytest.mark.parametrize("found", [GONE, b"<html>"])
async def test_a_pinned_copy_does_not_stand_in_for_what_its_owner_took_away(
    found: bytes | CannotFetch,
) -> None:
    async with house() as here:
        here.outside.answers[CLAUDE] = found
        assert await here.ensure(CLAUDE) is not None
        assert await here.client(CLAUDE) is None


async def test_a_copy_of_our_own_is_newer_than_the_pinned_one() -> None:
    async with house() as here:
        here.outside.answers[CLAUDE] = document(CLAUDE, client_name="Newer")
        await here.ensure(CLAUDE)
        here.outside.answers[CLAUDE] = DOWN
        here.clock.now += 2 * DAY
        assert await here.ensure(CLAUDE) is None
        client = await here.client(CLAUDE)
        assert client is not None
        assert client["name"] == "Newer"


@pytest.mark.parametrize("url", pinned.names())
async def test_where_only_pinned_documents_count_each_of_them_does(url: str) -> None:
    async with house(documents="pinned", no_network=True) as here:
        for _ in range(2):
            assert await here.ensure(url) is None
        here.clock.now += 30 * DAY
        assert await here.ensure(url) is None
        assert await here.client(url) is not None
        assert len(await here.audited()) == 1


async def test_where_only_pinned_documents_count_nothing_else_does() -> None:
    async with house() as online:
        await online.ensure()
        policy = RegistrationPolicy(documents="pinned")
        documents, fetch = open_documents(online.identity.parts.store, policy)  # type: ignore[arg-type]
        assert fetch is None
        told = await documents.ensure(URL, network="n", signed_in=True, now=online.clock())
        assert told == NOT_PINNED


async def test_a_server_that_may_fetch_again_does_not_stay_with_a_pinned_copy() -> None:
    async with house() as here:
        policy = RegistrationPolicy(documents="pinned")
        documents, _ = open_documents(here.identity.parts.store, policy)  # type: ignore[arg-type]
        assert await documents.ensure(CLAUDE, network="n", signed_in=False, now=here.clock()) is None
        assert await here.ensure(CLAUDE) is None
        assert here.outside.asked == [CLAUDE]


async def test_where_documents_are_off_no_address_is_a_client() -> None:
    async with house() as here:
        documents, fetch = open_documents(here.identity.parts.store, RegistrationPolicy(documents="off"))  # type: ignore[arg-type]
        assert (documents, fetch) == (NO_DOCUMENTS, None)
        assert await documents.ensure(CLAUDE, network="n", signed_in=True, now=0) is not None


# ---------------------------------------------------------------- many, and strangers


async def test_fifty_at_once_cause_one_fetch_and_count_once() -> None:
    async with house() as here:
        here.outside.wait = trio.Event()
        told: list[str | None] = []

        async def one() -> None:
            told.append(await here.ensure())

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
            await trio.testing.wait_all_tasks_blocked()
            here.outside.wait.set()
        assert told == [None] * 50
        assert here.outside.asked == [URL]
        assert len(await here.rows("SELECT * FROM attempts WHERE bucket = 'document:network:192.0.2.1'")) == 1


async def test_fifty_at_once_hear_of_one_failure() -> None:
    async with house() as here:
        here.outside.answers[URL] = GONE
        told: list[str | None] = []

        async def one() -> None:
            told.append(await here.ensure())

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        assert len(set(told)) == 1
        assert None not in told
        assert here.outside.asked == [URL]
        assert len(await here.audited()) == 1


async def test_strangers_of_one_network_cause_so_many_fetches_and_no_more() -> None:
    async with house() as here:
        told = [await here.ensure(f"{URL}?{number}") for number in range(40)]
        assert [each is None for each in told] == [True] * 10 + [False] * 30
        assert told[-1] == TOO_MANY
        assert len(here.outside.asked) == 10
        # What is there already is free, for them too; another network has a count of its own; so has a person.
        assert await here.ensure(f"{URL}?0") is None
        assert await here.ensure(f"{URL}?20", network="192.0.2.2") is None
        assert await here.ensure(f"{URL}?21", signed_in=True) is None
        assert len(here.outside.asked) == 12
        here.clock.now += 10 * MINUTE
        assert await here.ensure(f"{URL}?22") is None


async def test_failures_count_as_well() -> None:
    async with house() as here:
        for number in range(40):
            here.outside.answers[f"{URL}?{number}"] = GONE
            await here.ensure(f"{URL}?{number}")
        assert len(here.outside.asked) == 10


async def test_strangers_of_all_networks_together_are_bounded() -> None:
    async with house(fetches=25) as here:
        for number in range(60):
            await here.ensure(f"{URL}?{number}", network=f"192.0.2.{number}")
        assert len(here.outside.asked) == 25
        assert await here.ensure(f"{URL}?99", network="198.51.100.1", signed_in=True) is None


async def test_the_count_outlives_the_process() -> None:
    async with house() as here:
        for number in range(10):
            await here.ensure(f"{URL}?{number}")
        again = ClientDocuments(
            here.identity.parts.store,
            fetch=here.outside,
            share=SingleFlight[str | None](),
            policy=RegistrationPolicy(),
        )
        told = await again.ensure(f"{URL}?10", network="192.0.2.1", signed_in=False, now=here.clock())
        assert told == TOO_MANY


async def test_who_may_not_cause_a_fetch_gets_the_old_copy_or_the_pinned_one() -> None:
    async with house() as here:
        await here.ensure()
        here.clock.now += 2 * DAY
        for number in range(10):
            await here.ensure(f"{URL}?{number}")
        assert await here.ensure() is None
        assert await here.ensure(CLAUDE) is None
        assert URL not in here.outside.asked[1:]
        assert CLAUDE not in here.outside.asked
        assert await here.ensure(CLAUDE, signed_in=True) is None
        assert here.outside.asked[-1] == CLAUDE  # the pinned one was not taken for fresh


# ---------------------------------------------------------------- from start to finish


async def approved(identity: Identity, codes: dict[str, Any]) -> None:
    code = device.normalise(codes["user_code"])
    assert code is not None
    mac, now = device.user_code_mac(identity.parts.subkey(device.MAC_PURPOSE), code), identity.parts.clock()

    def approve(db: Db) -> device.DeviceApproved | device.NotPending:
        request, owner = device.find(db, mac, now), db.fetch_one("SELECT id FROM users")
        assert request is not None
        assert owner is not None
        return device.approve(db, request.id, subject=owner["id"], by="local:0", scope=None, now=now)

    assert isinstance(await identity.parts.store.write(approve), device.DeviceApproved)


async def asked(identity: Identity, path: str, **form: str) -> tuple[int, dict[str, Any]]:
    reply = await identity.handle(post(path, **form))
    assert reply is not None
    return reply.status, json.loads(reply.body)


async def test_a_client_with_a_document_logs_in_through_the_device_grant_and_refreshes() -> None:
    async with house() as here:
        status, codes = await asked(here.identity, "/device_authorization", client_id=URL)
        assert status == 200
        await approved(here.identity, codes)
        form = {"client_id": URL, "grant_type": DEVICE_CODE, "device_code": codes["device_code"]}
        status, tokens = await asked(here.identity, "/token", **form)
        assert status == 200
        here.clock.now += 2 * DAY
        here.outside.answers[URL] = DOWN  # it worked yesterday
        form = {"client_id": URL, "grant_type": REFRESH_TOKEN, "refresh_token": tokens["refresh_token"]}
        status, again = await asked(here.identity, "/token", **form)
        assert (status, again["token_type"]) == (200, "Bearer")


async def test_a_client_whose_document_is_gone_refreshes_no_more() -> None:
    async with house() as here:
        _, codes = await asked(here.identity, "/device_authorization", client_id=URL)
        await approved(here.identity, codes)
        form = {"client_id": URL, "grant_type": DEVICE_CODE, "device_code": codes["device_code"]}
        _, tokens = await asked(here.identity, "/token", **form)
        here.outside.answers[URL] = GONE
        here.clock.now += DAY
        form = {"client_id": URL, "grant_type": REFRESH_TOKEN, "refresh_token": tokens["refresh_token"]}
        status, refused = await asked(here.identity, "/token", **form)
        assert (status, refused["error"]) == (401, "invalid_client")
        assert "404" in refused["error_description"]


async def test_a_client_that_may_not_use_the_device_grant_is_told_so() -> None:
    async with house() as here:
        here.outside.answers[URL] = document(grant_types=[AUTHORIZATION_CODE])
        status, refused = await asked(here.identity, "/device_authorization", client_id=URL)
        assert (status, refused["error"]) == (400, "unauthorized_client")


async def test_a_client_that_promises_to_sign_does_not_pass_without() -> None:
    async with house() as here:
        here.outside.answers[URL] = document(
            token_endpoint_auth_method="private_key_jwt", jwks_uri="https://app.example/jwks"
        )
        status, refused = await asked(here.identity, "/device_authorization", client_id=URL)
        assert (status, refused["error"]) == (401, "invalid_client")


async def test_an_address_without_a_client_is_told_apart_from_an_unknown_client() -> None:
    async with house() as here:
        here.outside.answers[URL] = b"{}"
        status, refused = await asked(
            here.identity, "/token", client_id=URL, grant_type=DEVICE_CODE, device_code="x"
        )
        assert (status, refused["error"]) == (401, "invalid_client")
        assert "document" in refused["error_description"]
        _, unknown = await asked(
            here.identity, "/token", client_id="nobody", grant_type=DEVICE_CODE, device_code="x"
        )
        assert unknown["error"] == "invalid_client"
        assert "document" not in unknown["error_description"]


async def test_other_clients_cause_no_fetch() -> None:
    async with house() as here:
        await logged_in(here.identity)
        assert here.outside.asked == []


@pytest.mark.parametrize(("mode", "announced"), [("on", True), ("pinned", True), ("off", False)])
async def test_metadata_says_whether_addresses_are_taken_for_client_ids(mode: str, announced: bool) -> None:
    async with house(documents=mode) as here:
        reply = await here.identity.handle(get("/.well-known/oauth-authorization-server"))
        assert reply is not None
        assert header(reply, "content-type") == "application/json"
        published = json.loads(reply.body)
        assert published["client_id_metadata_document_supported"] is announced
        assert "none" in published["token_endpoint_auth_methods_supported"]


def test_the_bounds_are_what_is_told() -> None:
    assert (FRESH_AT_LEAST, RETRY, RETRY_MEANWHILE) == (5 * MINUTE, 60 * SECOND, 15 * MINUTE)
