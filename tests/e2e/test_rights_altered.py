"""A server whose database somebody writes to without the key file: what they give themselves opens nothing, and is named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import httpx2
from programs import WAIT_SECONDS, Program, Server

from auth.tokens import api_keys


def write(program: Program, sql: str, *params: object) -> None:
    with closing(sqlite3.connect(program.data_dir / "ostiary.db", isolation_level=None)) as connection:
        assert connection.execute(sql, params).rowcount > 0


def status(server: Server, key: str) -> int:
    """Of a call with this key."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    answer = httpx2.post(
        server.endpoint, json=message, headers=headers, trust_env=False, timeout=WAIT_SECONDS
    )
    return answer.status_code


def named(program: Program) -> Sequence[str]:
    found = program.run("verify", "--json", "--data-dir", str(program.data_dir), code=1)
    return [f"{row['table']} {row['name']}" for row in json.loads(found.stdout)["rights"]["rows"]]


def test_a_key_that_was_put_in_and_an_account_that_was_raised_open_nothing_and_are_named(
    program: Program,
) -> None:
    mine, key_id = api_keys.draw(bytes(32))
    with program.serving() as server:
        program.at_machine("invite", "bob")
        good = program.at_machine("api-keys", "create", "good")["key"]
        assert status(server, good) != 401
        assert program.at_machine("verify")["rights"]["sound"]
        write(program, "UPDATE users SET role = 'owner', state = 'enabled', scope = '*' WHERE name = 'bob'")
        write(
            program,
            "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
            " SELECT ?, 'mine', id, ?, 'abcd', '*', 'local:0', created_at FROM users WHERE name = 'owner'",
            key_id,
            api_keys.hash_of(mine),
        )
        assert named(program) == ["users bob", "api_keys mine"]
        server.await_words('"identity.rights.altered"')
    with program.serving() as server:
        assert status(server, mine) == 401
        assert status(server, good) != 401
    where = ("--data-dir", str(program.data_dir))
    offline = program.run("verify", "--file", str(program.data_dir / "ostiary.db"), *where, code=1)
    assert key_id in offline.stderr
    assert "mine" in program.run("store", "seal", *where).stderr
    with program.serving() as server:
        assert status(server, mine) == 401
    program.run("store", "seal", "--yes", *where)
    with program.serving() as server:
        assert status(server, mine) != 401  # whoever is at the machine with the key says what counts
