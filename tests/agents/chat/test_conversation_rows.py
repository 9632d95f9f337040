"""Conversations that several processes take part in (server/agents/chat/conversation_rows.py), on every engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from server.agents.chat import conversation_rows
from server.agents.chat.conversation_rows import ConversationRow, KeptConversation
from tests.store.store_engines import ENGINES, NOW, AnyStore, opener


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[AnyStore]:
    (tmp_path / "backups").mkdir(mode=0o700)
    database = partial(request.getfixturevalue, "postgres_database")
    async with opener(request.param, tmp_path, database)() as opened:
        yield opened


async def keep(store: AnyStore, name: str, text: bytes, *, known: int = 0, **changed: Any) -> Any:
    usual: dict[str, Any] = {
        "agent": "one agent", "owner": "ann", "expires_at": NOW + 1000, "owner_most": 3, "agent_most": 5,
    }  # fmt: skip
    now = changed.pop("now", NOW)
    row = ConversationRow(id_hash=name, sealed=text, **usual | changed)
    return await store.write(partial(conversation_rows.keep, row=row, known=known, now=now))


async def found(store: AnyStore, name: str, *, known: int = 0, now: int = NOW) -> KeptConversation | None:
    return await store.read(partial(conversation_rows.look_up, id_hash=name, known=known, now=now))


async def test_each_exchange_is_a_version_and_what_is_known_is_not_sent_again(store: AnyStore) -> None:
    assert await found(store, "talk") is None
    first = (await keep(store, "talk", b"one")).version
    assert await found(store, "talk") == KeptConversation(first, b"one")
    assert await keep(store, "talk", b"two", known=first) == KeptConversation(first + 1, None)
    assert await found(store, "talk", known=first) == KeptConversation(first + 1, b"two")
    assert await found(store, "talk", known=first + 1) == KeptConversation(first + 1, None)


@pytest.mark.parametrize("knows", ["nothing", "the first"])
async def test_whoever_knows_an_older_version_is_told_the_newer_one_and_changes_nothing(
    store: AnyStore, knows: str
) -> None:
    first = (await keep(store, "talk", b"one")).version
    newer = (await keep(store, "talk", b"two", known=first)).version
    known = 0 if knows == "nothing" else first
    assert await keep(store, "talk", b"mine", known=known) == KeptConversation(newer, b"two")
    assert await found(store, "talk") == KeptConversation(newer, b"two")


async def test_one_that_is_over_is_not_found_and_whoever_knows_it_has_none_of_its_successors_versions(
    store: AnyStore,
) -> None:
    first = (await keep(store, "talk", b"one")).version
    later = NOW + 1000
    assert await found(store, "talk", now=later) is None
    anew = (await keep(store, "talk", b"anew", now=later, expires_at=later + 1000)).version
    assert anew > first
    assert await found(store, "talk", known=first, now=later) == KeptConversation(anew, b"anew")


async def test_one_that_was_forgotten_while_somebody_answered_is_kept_again(store: AnyStore) -> None:
    known = NOW + 5
    assert await keep(store, "talk", b"three", known=known) == KeptConversation(known + 1, None)
    assert await found(store, "talk") == KeptConversation(known + 1, b"three")


async def test_a_caller_who_begins_too_many_loses_their_own_that_were_used_least_lately(
    store: AnyStore,
) -> None:
    await keep(store, "bens", b"x", owner="ben", now=NOW - 100)
    for number in range(3):
        await keep(store, f"talk {number}", b"x", now=NOW + number)
    zero = await found(store, "talk 0")
    assert zero is not None
    await keep(store, "talk 0", b"y", known=zero.version, now=NOW + 10)
    await keep(store, "talk 3", b"x", now=NOW + 11)
    there = [
        name for name in ("bens", *(f"talk {number}" for number in range(4))) if await found(store, name)
    ]
    assert there == ["bens", "talk 0", "talk 2", "talk 3"]


async def test_an_agent_has_so_many_and_another_one_its_own(store: AnyStore) -> None:
    await keep(store, "elsewhere", b"x", agent="another agent", owner="eve", now=NOW - 100)
    for number in range(6):
        await keep(store, f"talk {number}", b"x", owner=f"somebody {number}", now=NOW + number)
    assert await found(store, "elsewhere") is not None
    assert await found(store, "talk 0") is None
    assert await found(store, "talk 1") is not None
