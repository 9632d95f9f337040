"""That a session was ended is remembered, within bounds."""

from __future__ import annotations

import pytest

from server.calls.sessions.ended_sessions import EndedSessions, topic_of
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StoreUnavailable


async def rows(store: InlineStore) -> list[int]:
    found = await store.read(lambda db: db.fetch_all("SELECT * FROM ended_sessions ORDER BY expires_at"))
    return [row["expires_at"] for row in found]


async def test_what_was_ended_is_still_ended_after_a_restart() -> None:
    async with open_inline_store(clock=lambda: 0) as store:
        ended = EndedSessions(store)
        await ended.add("one", 5)
        await ended.add("one", 5)
        assert "one" in ended and "two" not in ended
        later = EndedSessions(store)
        assert "one" not in later
        await later.load()
        assert "one" in later and "two" not in later
        assert await rows(store) == [5]


async def test_ids_are_not_written_down() -> None:
    async with open_inline_store(clock=lambda: 0) as store:
        await EndedSessions(store).add("the id of a session", 5)
        (row,) = await store.read(lambda db: db.fetch_all("SELECT * FROM ended_sessions"))
        assert "the id" not in str(dict(row))


async def test_no_more_are_remembered_than_so_many_and_those_that_expire_soonest_go_first() -> None:
    async with open_inline_store(clock=lambda: 0) as store:
        ended = EndedSessions(store, most=3)
        for expires_at in (40, 10, 30, 20, 50):
            await ended.add(f"session {expires_at}", expires_at)
            assert len(ended) <= 3
        later = EndedSessions(store, most=3)
        await later.load()
        assert await rows(store) == [30, 40, 50]
        for one in (ended, later):
            assert [expires_at for expires_at in range(10, 60, 10) if f"session {expires_at}" in one] == [
                30,
                40,
                50,
            ]
        fewer = EndedSessions(store, most=1)
        await fewer.load()
        assert len(fewer) == 1 and "session 50" in fewer


async def test_what_could_not_be_written_is_not_remembered() -> None:
    async with open_inline_store(clock=lambda: 0) as store:
        ended = EndedSessions(store)
    with pytest.raises(StoreUnavailable):
        await ended.add("one", 5)
    assert "one" not in ended


async def test_whoever_keeps_something_for_sessions_hears_of_their_end() -> None:
    ended, heard = EndedSessions(), list[str]()
    ended.listen(heard.append)
    await ended.add("here", 1)
    ended.know(topic_of("elsewhere"), 1)
    assert heard == [topic_of("here"), topic_of("elsewhere")]


async def test_without_a_store_it_is_remembered_here() -> None:
    ended = EndedSessions(most=2)
    await ended.load()
    for number in range(4):
        await ended.add(f"session {number}", number)
    assert [f"session {number}" in ended for number in range(4)] == [False, False, True, True]
