"""Sweeping clients that anybody can make by naming an address (server/store/client_sweep.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

from store_engines import NOW, AnyStore

from server.store import client_sweep
from server.store.jobs import StoreDb
from server.store.maintenance import sweep
from server.store.retention import Retention

KEEP = 3


def url(number: int) -> str:
    return f"https://app.example/{number}"


def add(
    db: StoreDb, number: int, *, document: bool = True, state: str = "enabled", kind: str = "document"
) -> None:
    db.execute(
        "INSERT INTO clients (id, kind, name, auth_method, grant_types, redirect_uris, scope, state, created_at)"
        " VALUES (?, ?, 'x', 'none', '', '', '*', ?, 0)",
        url(number),
        kind,
        state,
    )
    if document:
        db.execute(
            "INSERT INTO client_documents (url, body, source, fetched_at, fresh_until, stale_until)"
            " VALUES (?, '{}', 'network', ?, ?, ?)",
            url(number),
            NOW + number,
            NOW * 2,
            NOW * 2,
        )


def log_in(db: StoreDb, number: int) -> None:
    db.execute(
        "INSERT INTO grants (id, principal_kind, subject, client_id, client_name, hostname, server, origin, scope, ip,"
        " user_agent, approved_by, auth_time, created_at, counter, epoch, rotated_at, last_used_at, idle_until, expires_at)"
        " VALUES (?, 'user', 'u', ?, '', '', '', '', '', '', '', '', 0, 0, 1, '', 0, 0, ?, ?)",
        f"g{number}",
        url(number),
        NOW * 2,
        NOW * 2,
    )


def left(db: StoreDb) -> tuple[list[int], list[int]]:
    """Documents and clients."""
    documents = [row["url"] for row in db.fetch_all("SELECT url FROM client_documents ORDER BY fetched_at")]
    known = [row["id"] for row in db.fetch_all("SELECT id FROM clients WHERE id LIKE 'https:%' ORDER BY id")]
    number = [[int(each.rpartition("/")[2]) for each in found] for found in (documents, known)]
    return number[0], sorted(number[1])


def swept(db: StoreDb, *, before: int = NOW * 2) -> int:
    return client_sweep.delete(db, ids=client_sweep.find(db, kept=KEEP), before=before)


async def test_beyond_the_newest_the_longest_unseen_go(store: AnyStore) -> None:
    def job(db: StoreDb) -> Any:
        for number in range(8):
            add(db, number)
        return swept(db), left(db)

    assert await store.write(job) == (5, ([5, 6, 7], [5, 6, 7]))


async def test_nothing_goes_while_there_are_few(store: AnyStore) -> None:
    def job(db: StoreDb) -> Any:
        for number in range(KEEP):
            add(db, number)
        return swept(db), left(db)

    assert await store.write(job) == (0, ([0, 1, 2], [0, 1, 2]))


async def test_a_client_that_a_login_refers_to_stays(store: AnyStore) -> None:
    def job(db: StoreDb) -> Any:
        for number in range(8):
            add(db, number)
        log_in(db, 1)
        return swept(db), left(db)

    assert await store.write(job) == (4, ([1, 5, 6, 7], [1, 5, 6, 7]))


async def test_a_client_that_somebody_said_yes_to_stays(store: AnyStore) -> None:
    def job(db: StoreDb) -> Any:
        for number in range(8):
            add(db, number)
        db.execute(
            "INSERT INTO users (id, name, role, state, scope, created_at) VALUES ('u', 'u', '', '', '', 0)"
        )
        db.execute(
            "INSERT INTO consents (user_id, client_id, redirect_host, server, scope, client_hash, created_at, expires_at)"
            " VALUES ('u', ?, '', '', '', '', 0, ?)",
            url(0),
            NOW * 2,
        )
        return swept(db), left(db)

    assert await store.write(job) == (4, ([0, 5, 6, 7], [0, 5, 6, 7]))


async def test_a_client_that_was_switched_off_is_never_forgotten(store: AnyStore) -> None:
    """It would come back switched on."""

    def job(db: StoreDb) -> Any:
        for number in range(8):
            add(db, number, state="disabled" if number == 2 else "enabled")
        return swept(db), left(db), swept(db)

    assert await store.write(job) == (5, ([5, 6, 7], [2, 5, 6, 7]), 0)


async def test_a_client_whose_document_was_swept_goes_and_others_do_not(store: AnyStore) -> None:
    def job(db: StoreDb) -> Any:
        add(db, 1, document=False)
        add(db, 2, document=False, state="disabled")
        add(db, 3, document=False, kind="dynamic")
        add(db, 4, document=False)
        log_in(db, 4)
        return swept(db), left(db)

    assert await store.write(job) == (1, ([], [2, 3, 4]))


async def test_a_client_that_was_asked_for_again_meanwhile_stays(store: AnyStore) -> None:
    def job(db: StoreDb) -> Any:
        for number in range(8):
            add(db, number)
        found = client_sweep.find(db, kept=KEEP)
        db.execute("UPDATE client_documents SET fetched_at = ? WHERE url = ?", NOW + 100, url(0))
        log_in(db, 1)
        return client_sweep.delete(db, ids=found, before=NOW + 50), left(db)

    assert await store.write(job) == (3, ([1, 5, 6, 7, 0], [0, 1, 5, 6, 7]))


async def test_maintenance_does_it_in_pieces_until_none_is_left(store: AnyStore) -> None:
    many = client_sweep.KEPT + 2 * client_sweep.PIECE + 5

    def fill(db: StoreDb, start: int) -> None:
        for number in range(start, min(start + 200, many)):
            add(db, number)

    for start in range(0, many, 200):
        await store.write(partial(fill, start=start))
    done = await sweep(store, owner="boot-1", clock=lambda: NOW * 2 - 1, retention=Retention())
    assert done is not None
    assert done["document_clients"] == 2 * client_sweep.PIECE + 5
    documents, known = await store.read(left)
    assert len(documents) == len(known) == client_sweep.KEPT
