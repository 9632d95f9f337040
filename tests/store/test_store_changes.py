"""Tailing what others changed (server/store/change_rows.py), and single values of the database (server/store/meta_rows.py)."""

from __future__ import annotations

from functools import partial

from store_engines import AnyStore

from server.store import meta_rows
from server.store.change_rows import newest_change, read_changes
from server.store.jobs import Change, StoreDb


def change(db: StoreDb, *names: str) -> None:
    for name in names:
        db.changed("grant", name)


async def test_a_tailer_reads_every_change_once_page_by_page(store: AnyStore) -> None:
    told: list[Change] = []
    store.on_changes(told.extend)
    start = await store.read(newest_change)
    await store.write(lambda db: change(db, "a", "b", "c"))
    await store.write(lambda db: change(db, "d"))

    seen: list[Change] = []
    while True:
        page = await store.read(partial(read_changes, after_seq=start, limit=3))
        assert page.complete
        if not page.changes:
            break
        seen.extend(page.changes)
        start = page.changes[-1].seq
    assert seen == told
    assert [each.entity_id for each in seen] == ["a", "b", "c", "d"]
    assert await store.read(newest_change) == start


async def test_a_tailer_that_fell_behind_what_was_swept_is_told_so(store: AnyStore) -> None:
    await store.write(lambda db: change(db, "a", "b", "c"))

    def drop(db: StoreDb) -> None:
        db.execute("DELETE FROM changes WHERE seq <= 2")
        meta_rows.put(db, meta_rows.CHANGES_DROPPED, "2")

    await store.write(drop)
    assert not (await store.read(partial(read_changes, after_seq=1))).complete
    page = await store.read(partial(read_changes, after_seq=2))
    assert page.complete
    assert [each.entity_id for each in page.changes] == ["c"]


async def test_a_new_process_begins_after_what_was_swept_even_if_nothing_is_left(store: AnyStore) -> None:
    assert await store.read(newest_change) == 0
    await store.write(lambda db: meta_rows.put(db, meta_rows.CHANGES_DROPPED, "7"))
    assert await store.read(newest_change) == 7


async def test_a_value_is_put_and_put_anew(store: AnyStore) -> None:
    assert await store.read(partial(meta_rows.get, key=meta_rows.REFRESH_EPOCH)) is None
    for value in ("first", "second"):
        await store.write(partial(meta_rows.put, key=meta_rows.REFRESH_EPOCH, value=value))
        assert await store.read(partial(meta_rows.get, key=meta_rows.REFRESH_EPOCH)) == value
