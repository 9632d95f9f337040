"""Decisions with the names of whom they concern (server/run/named_decisions.py)."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.database import AuditEntry
from server.calls.servers.server_opening import now_millis
from server.lib.log.structured_log import make_logger
from server.run.named_decisions import MOST_WAITING, NAMES_SECONDS, NamedDecisions
from server.store.data_directory import open_home
from server.store.inline_store import open_inline_store
from server.store.jobs import StoreUnavailable

USER = "INSERT INTO users (id, name, role, state, scope, created_at) VALUES ('usr_1', 'vera', 'owner', 'enabled', '*', 1)"
REQUEST = (
    "INSERT INTO device_codes (id, device_code_hash, user_code_mac, client_id, client_name, hostname, server, origin, scope, ip, network,"
    " user_agent, state, interval_seconds, created_at, expires_at)"
    " VALUES ('dev_1', 'h', 'm', 'cli', 'lamp', 'rowan', 'main', 'o', 's', 'i', 'n', 'u', 'pending', 1, 1, 2)"
)
CLIENT = (
    "INSERT INTO clients (id, kind, name, auth_method, grant_types, redirect_uris, scope, state, created_at)"
    " VALUES ('cli', 'registered', 'Lamp maker', 'none', '', '', '', 'enabled', 1)"
)


def entry(event: str = "device.approved", **changes: Any) -> AuditEntry:
    given = AuditEntry(7, event, "user:usr_1", "cli", None, "192.0.2.7", None, "ok", "dev_1")
    return given._replace(**changes)


@asynccontextmanager
async def deciding(directory: Path) -> AsyncGenerator[tuple[NamedDecisions, Any, io.StringIO]]:
    text = io.StringIO()
    with open_home(directory) as home:
        async with open_inline_store(home.database, clock=now_millis, backups=home.backups) as store:
            await store.write(lambda db: [db.execute(sql) for sql in (USER, CLIENT, REQUEST)])
            yield NamedDecisions(store, make_logger(level="info", style="console", stream=text)), store, text


def said(text: io.StringIO) -> list[str]:
    return [line[10:] for line in text.getvalue().splitlines()]


async def test_names_are_those_of_the_person_and_of_what_was_asked_for(tmp_path: Path) -> None:
    async with deciding(tmp_path / "data") as (decisions, _, text):
        decisions.hear(
            [
                entry(),
                entry("client.changed", reason=""),
                entry("device.denied", actor="user:usr_gone", client_id="gone", reason="dev_gone"),
                entry("policy.denied"),  # which says so itself
            ]
        )
        await decisions.tell()
    assert said(text) == [
        "● vera let in lamp on rowan, which asked from 192.0.2.7",
        "● client changed: vera, Lamp maker, from 192.0.2.7",
        "● usr_gone turned gone away, which asked from 192.0.2.7",
    ]


async def test_where_the_store_cannot_say_names_what_was_decided_is_told_all_the_same(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with deciding(tmp_path / "data") as (decisions, store, text):

        async def fails(_: object) -> None:
            raise StoreUnavailable("the disk is full")

        store.read = fails
        decisions.hear([entry()])
        await decisions.tell()

        async def hangs(_: object) -> None:
            await trio.sleep_forever()

        store.read = hangs
        decisions.hear([entry("device.denied")])
        with trio.CancelScope() as scope:
            scope.cancel()
            await decisions.tell()
        assert len(said(text)) == 1  # it still waits
        before = trio.current_time()
        await decisions.tell()
        assert trio.current_time() - before == pytest.approx(NAMES_SECONDS)
    assert said(text) == [
        "● usr_1 let in cli, which asked from 192.0.2.7",
        "● usr_1 turned cli away, which asked from 192.0.2.7",
    ]


async def test_a_flood_of_decisions_waits_within_bounds_and_none_is_lost(tmp_path: Path) -> None:
    async with deciding(tmp_path / "data") as (decisions, _, text):
        decisions.hear([entry()] * (MOST_WAITING + 5))
        assert len(said(text)) == 5
        await decisions.tell()
    assert len(said(text)) == MOST_WAITING + 5
