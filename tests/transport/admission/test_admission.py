"""Who may come in (server/transport/admission/bearer_check.py), with a real identity behind it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKeyOrder, NewApiKey
from auth.tokens.presented_credentials import present
from auth.values import scopes
from auth.values.database import Db
from auth.values.identity_model import STRANGER, Principal, PrincipalKind
from server.store.jobs import Change, StatementRefused, StoreClosed, StoreError
from server.transport.admission.bearer_check import Admission, EntryRefusal, anybody
from tests.auth.identity_fakes import ORIGIN, logged_in, open_identity

T = TypeVar("T")


def owner_id(db: Db) -> str:
    row = db.fetch_one("SELECT id FROM users WHERE role = 'owner'")
    assert row is not None
    return row["id"]


async def admitted(admission: Admission, token: str | None, path: str = "/mcp") -> Principal | EntryRefusal:
    authorization = None if token is None else f"Bearer {token}"
    return await admission.authenticate(present(authorization, origin=ORIGIN, server="agent", path=path))


@pytest.mark.parametrize("typed", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("token", [None, "wrong"])
async def test_a_challenge_leads_to_metadata_whose_resource_is_what_was_typed(
    typed: str, token: str | None
) -> None:
    async with open_identity() as identity:
        refused = await admitted(Admission(identity), token, typed)
        assert isinstance(refused, EntryRefusal)
        assert refused.status == 401
        assert f'resource_metadata="{ORIGIN}/.well-known/oauth-protected-resource{typed}"' in (
            refused.www_authenticate
        )


async def test_a_tool_that_the_login_does_not_cover_is_refused_with_all_that_it_needs() -> None:
    async with open_identity() as identity:
        refused = Admission(identity).forbid(
            frozenset({"mcp:tools", "mcp"}),
            frozenset({"mcp:tools"}),
            present(None, origin=ORIGIN, server="agent", path="/mcp/"),
        )
        assert refused.status == 403
        assert 'scope="mcp mcp:tools", error="insufficient_scope"' in refused.www_authenticate
        # Some programs show their person nothing but this.
        told = "the login lacks the scope mcp:tools, which this needs"
        assert f'error_description="{told}"' in refused.www_authenticate
        assert json.loads(refused.body)["error_description"] == told
        assert "oauth-protected-resource/mcp/" in refused.www_authenticate


@pytest.mark.parametrize("trouble", [StoreClosed, StatementRefused])
async def test_a_login_that_cannot_be_looked_up_is_not_let_in_and_not_called_invalid(
    trouble: type[StoreError],
) -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]

        class Closed:
            async def read(self, job: Callable[[Any], T]) -> T:
                raise trouble("the store cannot")

        async def load(_: str) -> Any:
            return await Closed().read(lambda db: db)

        identity.live._load = load
        busy = await admitted(Admission(identity), token)
        assert isinstance(busy, EntryRefusal)
        assert (busy.status, busy.www_authenticate) == (503, "")
        assert identity.credentials.usage.take_undecided() == (1, "the store cannot")


@pytest.mark.parametrize("what", ["login", "key"])
async def test_what_changes_each_time_it_is_read_is_503_and_never_invalid(what: str) -> None:
    async with open_identity() as identity:
        store = identity.parts.store
        user_id = await store.read(owner_id)
        if what == "login":
            token = (await logged_in(identity))["access_token"]
            row = await store.read(lambda db: db.fetch_one("SELECT id FROM grants"))
            assert row is not None
            change = Change(1, "grant", row["id"])
        else:
            order = ApiKeyOrder(name="ci", user_id=user_id, scope="mcp")
            made = await store.write(
                lambda db: api_keys.create(
                    db, order, seed=bytes(32), by="local:0", now=identity.parts.clock()
                )
            )
            assert isinstance(made, NewApiKey)
            token, change = made.secret.reveal(), Change(1, "api_key", made.key.id)
        assert isinstance(await admitted(Admission(identity), token), Principal)
        identity.apply_changes([change])
        read = store.read

        async def overtaken(job: Callable[[Db], T]) -> T:
            found = await read(job)
            identity.apply_changes([change])
            return found

        store.read = overtaken  # type: ignore[method-assign]
        refused = await admitted(Admission(identity), token)
        assert isinstance(refused, EntryRefusal)
        assert (refused.status, refused.www_authenticate) == (503, "")
        assert identity.credentials.usage.take_undecided()[0] == 1
        store.read = read  # type: ignore[method-assign]
        assert isinstance(await admitted(Admission(identity), token), Principal)


async def test_only_where_the_owner_said_so_is_everybody_let_in() -> None:
    async with open_identity() as identity:
        assert isinstance(await admitted(Admission(identity), None), EntryRefusal)
        vocabulary = scopes.Vocabulary()
        who = await admitted(Admission(identity, anybody(vocabulary)), None)
        assert isinstance(who, Principal)
        assert who.kind is PrincipalKind.ANONYMOUS
        # Everything but what moves money: for that somebody must have said who they are.
        assert scopes.missing(who.scopes, vocabulary.names) == ("financial",)


def calls_of(job: Callable[[], object]) -> list[str]:
    """The Python functions that `job` calls, in order."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
    return called[1:]  # the first is the job


async def test_a_token_and_a_login_that_are_known_cost_few_calls_and_no_await() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        admission = Admission(identity)
        shown = present(f"Bearer {token}", origin=ORIGIN, server="agent", path="/mcp")
        assert admission.who_nowait(shown) is None
        first = await admission.authenticate(shown)
        assert isinstance(first, Principal)
        assert admission.who_nowait(shown) is first
        called = calls_of(lambda: admission.who_nowait(shown))
        assert called[0] == "Admission.who_nowait"
        assert len(called) <= 6, called


async def test_a_key_that_is_known_costs_few_calls_and_no_await() -> None:
    async with open_identity() as identity:
        user_id = await identity.parts.store.read(owner_id)
        order = ApiKeyOrder(name="ci", user_id=user_id, scope="mcp")
        made = await identity.parts.store.write(
            lambda db: api_keys.create(db, order, seed=bytes(32), by="local:0", now=identity.parts.clock())
        )
        assert isinstance(made, NewApiKey)
        admission = Admission(identity)
        shown = present(None, made.secret.reveal(), origin=ORIGIN, server="agent", path="/mcp")
        assert await admission.authenticate(shown) == made.key.principal
        called = calls_of(lambda: admission.who_nowait(shown))
        assert len(called) <= 10, called


async def test_a_selection_of_tools_narrows_whoever_is_known() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        admission = Admission(identity)
        shown = present(f"Bearer {token}", origin=ORIGIN, server="agent", path="/mcp", tools="readonly")
        first = await admission.authenticate(shown)
        again = admission.who_nowait(shown)
        assert isinstance(first, Principal)
        assert isinstance(again, Principal)
        assert first == again
        assert "readonly" in again.tools
        bad = admission.who_nowait(replace(shown, tools="a;" * 40))
        assert isinstance(bad, EntryRefusal)
        assert bad.status == 400


@pytest.mark.parametrize(
    ("sells", "pays", "comes_in"), [(True, True, True), (True, False, False), (False, True, False)]
)
async def test_whoever_pays_comes_in_where_the_server_sells_to_all(
    sells: bool, pays: bool, comes_in: bool
) -> None:
    async with open_identity() as identity:
        shown = present(None, origin=ORIGIN, server="agent", path="/mcp", pays=pays)
        found = await Admission(identity, sells_to_all=sells).authenticate(shown)
        assert (found == STRANGER) == comes_in
        assert comes_in or (isinstance(found, EntryRefusal) and found.status == 401)


async def test_where_nobody_logs_in_a_payment_makes_nobody_less_than_they_are() -> None:
    async with open_identity() as identity:
        everybody = anybody(identity.parts.site.scopes)
        shown = present(None, origin=ORIGIN, server="agent", path="/mcp", pays=True)
        assert await Admission(identity, everybody, sells_to_all=True).authenticate(shown) == everybody


async def test_a_selection_of_tools_bounds_whoever_pays_too() -> None:
    async with open_identity() as identity:
        shown = present(None, origin=ORIGIN, server="agent", path="/mcp", pays=True, tools="readonly")
        found = await Admission(identity, sells_to_all=True).authenticate(shown)
        assert isinstance(found, Principal) and found.tools == ";readonly"
