"""Who may come in (server/admission.py), with a real identity behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from auth import scopes
from auth.model import Principal, PrincipalKind
from server.admission import Admission, Refusal, anybody
from server.store.jobs import StoreClosed
from tests.auth.identity_fakes import ORIGIN, logged_in, open_identity

T = TypeVar("T")


async def admitted(admission: Admission, token: str | None, path: str = "/mcp") -> Principal | Refusal:
    authorization = None if token is None else f"Bearer {token}"
    return await admission.authenticate(authorization, origin=ORIGIN, server="agent", path=path)


@pytest.mark.parametrize("typed", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("token", [None, "wrong"])
async def test_a_challenge_leads_to_metadata_whose_resource_is_what_was_typed(
    typed: str, token: str | None
) -> None:
    async with open_identity() as identity:
        refused = await admitted(Admission(identity), token, typed)
        assert isinstance(refused, Refusal)
        assert refused.status == 401
        assert f'resource_metadata="{ORIGIN}/.well-known/oauth-protected-resource{typed}"' in (
            refused.www_authenticate
        )


async def test_a_tool_that_the_login_does_not_cover_is_refused_with_all_that_it_needs() -> None:
    async with open_identity() as identity:
        refused = Admission(identity).forbid(
            frozenset({"mcp:tools", "mcp"}), origin=ORIGIN, server="agent", path="/mcp/"
        )
        assert refused.status == 403
        assert 'scope="mcp mcp:tools", error="insufficient_scope"' in refused.www_authenticate
        assert "oauth-protected-resource/mcp/" in refused.www_authenticate


async def test_a_login_that_cannot_be_looked_up_is_not_let_in_and_not_called_invalid() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]

        class Closed:
            async def read(self, job: Callable[[Any], T]) -> T:
                raise StoreClosed("the store is closed")

        async def load(_: str) -> Any:
            return await Closed().read(lambda db: db)

        identity.live._load = load
        busy = await admitted(Admission(identity), token)
        assert isinstance(busy, Refusal)
        assert (busy.status, busy.www_authenticate) == (503, "")


async def test_only_where_the_owner_said_so_is_everybody_let_in() -> None:
    async with open_identity() as identity:
        assert isinstance(await admitted(Admission(identity), None), Refusal)
        vocabulary = scopes.Vocabulary()
        who = await admitted(Admission(identity, anybody(vocabulary)), None)
        assert isinstance(who, Principal)
        assert who.kind is PrincipalKind.ANONYMOUS
        # Everything but what moves money: for that somebody must have said who they are.
        assert scopes.missing(who.scopes, vocabulary.names) == ("financial",)
