"""A back-up that is put back brings nobody in who was shut out since: keys, people and signing keys of the running program."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from programs import SOURCE, WAIT_SECONDS, Program, Server

pytestmark = pytest.mark.slow

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def status_with(server: Server, key: str) -> int:
    headers = {"X-API-Key": key, "Accept": "application/json, text/event-stream"}
    return httpx2.post(
        server.endpoint, json=LIST, headers=headers, trust_env=False, timeout=WAIT_SECONDS
    ).status_code


def kids(server: Server) -> set[str]:
    found = httpx2.get(f"{server.url}/.well-known/jwks.json", trust_env=False, timeout=WAIT_SECONDS)
    return {key["kid"] for key in found.json()["keys"]}


def test_who_was_shut_out_after_the_back_up_stays_out_and_a_new_login_works(tmp_path: Path) -> None:
    program = Program(command=SOURCE, home=tmp_path)
    where = ("--data-dir", str(program.data_dir))
    with program.serving() as server:
        revoked = program.at_machine("api-keys", "create", "revoked")
        kept = program.at_machine("api-keys", "create", "kept")
        program.at_machine("invite", "bob")
        program.run("backup", "copy.db", *where)
        assert [status_with(server, each["key"]) for each in (revoked, kept)] == [200, 200]
        program.at_machine("api-keys", "revoke", revoked["id"])
        program.run("users", "remove", "bob", "--yes", *where)
        before = kids(server)
    told = program.run("restore", "copy.db", *where)
    assert "API keys of the back-up are revoked (2)" in told.stderr
    assert re.search(r"bob was .* removed since and stays out", told.stderr)
    with program.serving() as server:
        assert [status_with(server, each["key"]) for each in (revoked, kept)] == [401, 401]
        assert program.at_machine("api-keys", "list") == []
        assert {each["name"]: each["state"] for each in program.at_machine("users", "list")} == {
            "owner": "unclaimed",
            "bob": "disabled",
        }
        assert len(kids(server)) == 1
        assert not kids(server) & before
        program.log_in(server)
        assert program.at_machine("verify")["sound"]
