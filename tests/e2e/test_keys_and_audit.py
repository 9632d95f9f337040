"""Keys of tokens and the audit trail of a running program: changed under load, attacked, tampered with, backed up and restored."""

from __future__ import annotations

import json
import os
import pwd
import re
import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing
from typing import Any

import httpx2
import pytest
from programs import WAIT_SECONDS, Program, Server, until

from auth.grants import refresh_tokens
from auth.keys import refresh_token_keys as refresh_keys
from auth.keys import signing_keys as keys
from auth.keys.refresh_token_keys import RefreshKey
from auth.keys.signing_keys import SEAL_PURPOSE, SigningKey
from server.calls.servers.server_opening import subkeys
from server.store import keyfile
from tests.auth.token_corpus import Forge, corpus

pytestmark = pytest.mark.slow

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
CALLERS = 4


@pytest.fixture
def server(program: Program) -> Generator[Server]:
    with program.serving() as running:
        program.log_in(running)
        yield running


def taken(program: Program, sql: str, purpose: str) -> tuple[dict[str, Any], bytes]:
    """What somebody has who has both the database and the key file: a row, and what opens it."""
    master = keyfile.parse((program.data_dir / "master.key").read_text("utf-8"), "the key file")
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        connection.row_factory = sqlite3.Row
        row: Any = connection.execute(sql).fetchone()
    return dict(row), subkeys(master)(purpose)


def signing_key(program: Program) -> SigningKey:
    sql = "SELECT * FROM signing_keys WHERE sealed_private <> '' ORDER BY signs_from LIMIT 1"
    return keys.unseal(*taken(program, sql, SEAL_PURPOSE))


def refresh_key(program: Program) -> RefreshKey:
    sql = "SELECT * FROM refresh_keys WHERE sealed_secret <> '' ORDER BY version DESC LIMIT 1"
    return refresh_keys.unseal(*taken(program, sql, refresh_keys.SEAL_PURPOSE))


def states(program: Program, use: str = "access") -> list[str]:
    return [key["state"] for key in program.at_machine("keys", "list") if key["use"] == use]


def call(client: httpx2.Client, server: Server, token: str) -> httpx2.Response:
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    return client.post(server.endpoint, json=LIST, headers=headers)


def test_no_token_of_the_corpus_gets_past_the_listener(program: Program, server: Server) -> None:
    good = program.tokens()["access_token"]
    forge = Forge(signing_key(program), good)
    with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as client:
        assert call(client, server, good).status_code == 200
        for name, token in corpus(forge).items():
            try:
                token.encode("ascii")
            except UnicodeEncodeError:
                continue  # no client can put that into a header
            answer = call(client, server, token)
            assert answer.status_code == 401, name
            challenge = answer.headers["www-authenticate"]
            assert challenge.startswith(
                f'Bearer resource_metadata="{server.url}/.well-known/oauth-protected-resource/mcp"'
            ), name
            assert 'error="invalid_token"' in challenge, name
            assert good not in answer.text
        # RFC 6750 §2.2, §2.3: in the header alone.
        in_query = client.post(server.endpoint, params={"access_token": good})
        in_form = client.post(server.endpoint, data={"access_token": good})
        for elsewhere in (in_query, in_form):
            assert elsewhere.status_code == 401
            assert "error=" not in elsewhere.headers["www-authenticate"]
        assert call(client, server, good).status_code == 200


class Caller:
    """A program with a login: calls again and again, and refreshes when it is told to."""

    def __init__(self, server: Server, login: dict[str, Any]) -> None:
        self.server = server
        self.token: str = login["access_token"]
        self.refresh_token: str = login["refresh_token"]
        self.client_id: str = login["client_id"]
        self.refreshing = threading.Lock()
        self.stop = threading.Event()
        self.calls = self.refreshed = 0
        self.failures: list[str] = []

    def run(self) -> None:
        with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as client:
            while not self.stop.is_set():
                token = self.token
                answer = call(client, self.server, token)
                if answer.status_code == 401:
                    self.refresh(client, token)
                elif answer.status_code != 200:
                    self.failures.append(f"{answer.status_code} {answer.text}")
                    return
                self.calls += 1

    def refresh(self, client: httpx2.Client, stale: str) -> None:
        with self.refreshing:
            if self.token != stale:
                return
            form = {
                "grant_type": "refresh_token",
                "refresh_token": self.refresh_token,
                "client_id": self.client_id,
            }
            answer = client.post(f"{self.server.url}/token", data=form)
            if answer.status_code != 200:
                self.failures.append(f"refresh: {answer.status_code} {answer.text}")
                self.stop.set()
                return
            fresh = answer.json()
            self.token, self.refresh_token = fresh["access_token"], fresh["refresh_token"]
            self.refreshed += 1


def test_keys_change_under_load_and_an_emergency_costs_each_login_one_refresh(
    program: Program, server: Server
) -> None:
    caller = Caller(server, program.tokens())
    threads = [threading.Thread(target=caller.run) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()

    def more(count: int) -> None:
        wanted = caller.calls + count
        until("calls", lambda: True if caller.calls >= wanted or caller.failures else None)

    try:
        more(20)
        published = program.at_machine("keys", "rotate")
        assert published["made"]
        more(20)
        assert caller.refreshed == 0  # a planned change is nothing that anybody notices
        assert states(program) == ["next", "signing"]
        assert states(program, "refresh") == ["writing", "old"]
        dropped = program.at_machine("keys", "rotate", "--now", "--yes")
        more(20)
        assert caller.refreshed == 1
        program.at_machine("keys", "rotate", "--now", "--yes")
        more(20)
        assert caller.refreshed == 2
    finally:
        caller.stop.set()
        for thread in threads:
            thread.join()
    assert caller.failures == []
    assert states(program) == ["signing", "retired", "retired", "retired"]
    # The login that began with the first key has gone over to those that came after it.
    assert states(program, "refresh") == ["writing", "old", "old", "old"]
    assert caller.refresh_token.startswith("rt4.")
    shown = httpx2.get(f"{server.url}/.well-known/jwks.json", trust_env=False, timeout=WAIT_SECONDS).json()[
        "keys"
    ]
    assert [set(key) for key in shown] == [{"kty", "crv", "x", "y", "kid", "alg", "use"}]
    assert shown[0]["kid"] not in dropped["dropped"]
    events = [row["event"] for row in program.at_machine("audit", "--event", "key")]
    assert events.count("key.dropped") == 3
    assert program.at_machine("verify")["sound"]
    server.await_words('"identity.key.dropped"')


def test_an_emergency_can_end_every_login_and_says_what_it_does_before(
    program: Program, server: Server
) -> None:
    where = ("--data-dir", str(program.data_dir))
    refused = program.run("keys", "rotate", "--revoke-logins", *where, code=2)
    assert "--now" in refused.stderr
    asked = program.run("keys", "rotate", "--now", *where, code=2)  # nobody there who could say yes
    assert "every access token" in asked.stderr
    assert (states(program), states(program, "refresh")) == (["signing"], ["writing"])
    done = program.run("keys", "rotate", "--now", "--revoke-logins", "--yes", *where)
    assert "everybody signs in again" in done.stderr
    assert "ended:     1 login" in done.stdout
    assert "dropped:   rt1" in done.stdout
    assert states(program, "refresh") == ["writing", "retired"]
    assert program.at_machine("sessions") == []
    assert program.run("tools", server.endpoint, code=1).stderr


def test_who_took_every_key_goes_on_after_an_emergency_and_not_after_one_that_ends_logins(
    program: Program, server: Server
) -> None:
    where = ("--data-dir", str(program.data_dir))

    def forged(key: RefreshKey) -> httpx2.Response:
        """A refresh token for the login that there is, at its place."""
        with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
            sql = "SELECT id, counter, client_id FROM grants WHERE revoked_at IS NULL"
            ((grant_id, counter, client_id),) = connection.execute(sql).fetchall()
        text = refresh_tokens.write(key, refresh_tokens.ChainLink(grant_id=grant_id, counter=counter))
        form = {"grant_type": "refresh_token", "refresh_token": text, "client_id": client_id}
        return httpx2.post(f"{server.url}/token", data=form, trust_env=False, timeout=WAIT_SECONDS)

    stolen = refresh_key(program)
    warned = program.run("keys", "rotate", "--now", "--yes", *where)
    assert "--revoke-logins" in warned.stderr
    assert forged(stolen).status_code == 200  # as the command said
    answer = program.at_machine("keys", "rotate", "--now", "--revoke-logins", "--yes")
    assert (answer["logins_ended"], answer["refresh_key"]) == (1, "rt3")
    assert answer["dropped"][-2:] == ["rt1", "rt2"]
    program.log_in(server)
    for version in (1, 2, 3):
        named = RefreshKey(version=version, secret=stolen.secret)
        assert forged(named).json()["error"] == "invalid_grant"
    # Making them up ended no login, and the new one is refreshed by the new key.
    assert program.tokens()["refresh_token"].startswith("rt3.")
    assert forged(refresh_key(program)).status_code == 200
    rows = program.at_machine("audit", "--event", "key.dropped")
    assert {"rt1", "rt2"} < {row["reason"] for row in rows}
    assert program.at_machine("verify")["sound"]


def test_the_trail_tells_who_came_in_and_can_be_filtered_and_exported_whole(
    program: Program, server: Server
) -> None:
    where = ("--data-dir", str(program.data_dir))
    table = program.run("audit", *where).stdout.splitlines()
    assert table[0].split() == ["when", "what", "outcome", "who", "program", "from", "why"]
    here = pwd.getpwuid(os.getuid()).pw_name
    assert any("device.approved" in line and here in line.split() for line in table), table
    rows = program.at_machine("audit")
    assert [row["seq"] for row in rows] == list(range(len(rows), 0, -1))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", rows[0]["time"])
    assert program.at_machine("audit", "--limit", "2") == rows[:2]
    devices = program.at_machine("audit", "--event", "device", "--outcome", "ok", "--since", "1h")
    assert {row["event"].partition(".")[0] for row in devices} == {"device"}
    assert program.at_machine("audit", "--until", "2020-01-01") == []
    assert program.at_machine("audit", "--actor", "nobody") == []
    assert "no time" in program.run("audit", "--since", "soon", *where, code=2).stderr

    program.run("audit", "--export", "trail.jsonl", *where)
    target = program.home / "trail.jsonl"
    exported = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
    assert exported == rows[::-1]
    assert target.stat().st_mode & 0o077 == 0
    assert "exists already" in program.run("audit", "--export", "trail.jsonl", *where, code=1).stderr
    printed = program.run("audit", "--export", "-", "--event", "device.approved", *where).stdout
    assert [json.loads(line)["event"] for line in printed.splitlines()] == ["device.approved"]
    secrets = (program.tokens()["access_token"], program.tokens()["refresh_token"])
    assert not any(secret in target.read_text("utf-8") for secret in secrets)

    with program.starting("audit", "--follow", "--limit", "1", *where) as following:
        following.await_words(r"\d\d:\d\d:\d\d  \S+")
        program.at_machine("keys", "rotate")
        following.await_words(r"key\.published")


@pytest.mark.parametrize(
    ("tampering", "found", "words"),
    [
        (
            "UPDATE audit SET reason = 'nothing to see' WHERE seq = 3",
            {"seq": 3, "what": "altered"},
            "not as it was",
        ),
        ("DELETE FROM audit WHERE seq = 2", {"seq": 2, "what": "missing"}, "row 2 is missing"),
        (
            "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)",
            {"what": "missing"},
            "is missing",
        ),
        ("DELETE FROM meta WHERE key = 'audit_chain'", {"what": "no record"}, "was removed"),
    ],
)
def test_whoever_writes_into_the_database_is_found_out_while_serving_and_in_the_file(
    program: Program, tampering: str, found: dict[str, Any], words: str
) -> None:
    where = ("--data-dir", str(program.data_dir))
    database = str(program.data_dir / "ostiary.db")
    with program.serving() as server:
        program.log_in(server)
        sound = program.at_machine("verify")
        assert (sound["sound"], sound["swept"]) == (True, 0)
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute(tampering)
        told = program.run("verify", *where, code=1)
        assert words in told.stderr
        assert told.stdout == ""
        answer = json.loads(program.run("verify", "--json", *where, code=1).stdout)
        assert answer["broken"].items() >= found.items()
    offline = program.run("verify", "--file", database, *where, code=1)
    assert words in offline.stderr


def test_what_was_found_is_acknowledged_at_the_machine_and_told_as_that(program: Program) -> None:
    where = ("--data-dir", str(program.data_dir))
    database, why = program.data_dir / "ostiary.db", "ticket 7"
    acknowledging = ("verify", "--acknowledge", why, *where)
    with program.serving() as server:
        program.log_in(server)
        assert "sound" in program.run(*acknowledging, "--yes").stdout  # nothing is wrong
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("DELETE FROM meta WHERE key = 'audit_chain'")
            connection.execute("UPDATE audit SET reason = 'x' WHERE seq = 3")
        program.at_machine("keys", "rotate")
        assert program.run("verify", *where, code=1).stdout == ""
        assert "--yes" in program.run(*acknowledging, code=2).stderr  # nobody is here to be asked
        assert not json.loads(program.run("verify", "--json", *where, code=1).stdout)["sound"]
        assert why in program.run(*acknowledging, "--yes").stdout
        known = program.at_machine("verify")["acknowledged"]
        assert (known["by"], known["note"]) == (f"local:{os.getuid()}", why)
        assert why in program.run("status", *where).stdout
        assert "audit.acknowledged" in program.run("audit", *where).stdout
    assert why in program.run("verify", "--file", str(database), *where).stdout
    assert "--acknowledge" in program.run(*acknowledging, "--file", str(database), code=2).stderr
    with program.serving():
        assert program.at_machine("verify")["sound"]
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("UPDATE audit SET reason = 'y' WHERE seq = 3")
        program.run("verify", *where, code=1)


@pytest.mark.parametrize("way", ["wiped", "written anew", "cut with an older record"])
@pytest.mark.parametrize("stopped", [False, True])
def test_who_may_write_the_database_and_has_no_key_leaves_no_sound_trail(
    program: Program, way: str, stopped: bool
) -> None:
    """The trail is checked after the next decision, which is when a chain that was begun anew would pass for a sound one."""
    where = ("--data-dir", str(program.data_dir))
    database = program.data_dir / "ostiary.db"

    def tamper(older: tuple[int, str]) -> None:
        statements = {
            "wiped": ["DELETE FROM audit", "DELETE FROM meta WHERE key = 'audit_chain'"],
            "written anew": [
                "UPDATE audit SET actor = 'user:nobody', mac = ''",
                "DELETE FROM meta WHERE key = 'audit_chain'",
            ],
            "cut with an older record": [
                f"DELETE FROM audit WHERE seq > {older[0]}",
                f"UPDATE meta SET value = '{older[1]}' WHERE key = 'audit_chain'",
            ],
        }
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            for sql in statements[way]:
                connection.execute(sql)

    def record() -> tuple[int, str]:
        with closing(sqlite3.connect(database)) as connection:
            ((text,),) = connection.execute("SELECT value FROM meta WHERE key = 'audit_chain'").fetchall()
            ((seq,),) = connection.execute("SELECT max(seq) FROM audit").fetchall()
        return seq, text

    with program.serving() as server:
        older = record()
        program.log_in(server)
        if not stopped:
            tamper(older)
            found_first = program.run("verify", *where, code=1)  # before any decision: what is gone is gone
            assert found_first.stdout == ""
            program.at_machine("keys", "rotate")
            _is_found_out(program, server)
    if stopped:
        tamper(older)
        program.run("verify", "--file", str(database), *where, code=1)
        with program.serving() as server:
            _is_found_out(program, server)
    offline = program.run("verify", "--file", str(database), *where, code=1)
    assert offline.stdout == ""


def _is_found_out(program: Program, server: Server) -> None:
    where = ("--data-dir", str(program.data_dir))
    assert program.run("verify", *where, code=1).stdout == ""
    assert not json.loads(program.run("verify", "--json", *where, code=1).stdout)["sound"]
    server.await_words('"identity.audit.altered"')
    lines = [line for line in server.said().splitlines() if '"identity.audit.altered"' in line]
    assert len(lines) == 1
    assert '"level":"error"' in lines[0]
    assert "audit.altered" in program.run("audit", "--outcome", "refused", *where).stdout
    assert "ostiary verify" in program.run("status", *where).stdout
    assert json.loads(program.run("status", "--json", *where).stdout)["server"]["trail"]["seq"] > 0


def test_a_killed_server_and_a_restored_back_up_raise_no_alarm(program: Program) -> None:
    where = ("--data-dir", str(program.data_dir))
    with program.serving() as server:
        program.log_in(server)
        program.run("backup", "copy.db", *where)
        program.log_in(server)
        server.process.kill()
        server.process.wait()
    with program.serving() as server:
        assert program.at_machine("verify")["sound"]
        assert "audit.altered" not in server.said()
    program.run("restore", "copy.db", *where)
    with program.serving() as server:
        assert program.at_machine("verify")["sound"]
        assert "audit.altered" not in server.said()
        assert "head_lost" not in server.said()
    (program.data_dir / "audit.head").unlink()
    with program.serving() as server:
        assert '"identity.audit.head_lost"' in server.said()
        assert program.at_machine("verify")["sound"]


def test_a_back_up_verifies_and_a_restored_one_does_and_an_older_copy_lacks_the_head_that_was_noted(
    program: Program,
) -> None:
    where = ("--data-dir", str(program.data_dir))
    with program.serving() as server:
        program.run("backup", "copy.db", *where)
        program.log_in(server)
        head = re.search(r"head:  (\S+)", program.run("verify", *where).stdout)
        assert head is not None
        assert "sound" in program.run("verify", "--expect", head[1], *where).stdout
        other = head[1][:-1] + ("0" if head[1][-1] != "0" else "1")
        assert "another than" in program.run("verify", "--expect", other, *where, code=1).stderr
        assert "no head" in program.run("verify", "--expect", "7", *where, code=2).stderr
    assert "sound" in program.run("verify", "--file", "copy.db", *where).stdout
    lacking = program.run("verify", "--file", "copy.db", "--expect", head[1], *where, code=1)
    assert "was written once" in lacking.stderr
    program.run("restore", "copy.db", *where)
    with program.serving():
        newest = program.at_machine("audit", "--event", "store.restored")
        assert [row["actor"].partition(":")[0] for row in newest] == ["local"]
        assert program.at_machine("verify")["sound"]
    (program.data_dir / "master.key").rename(program.home / "master.key")
    assert "missing" in program.run("verify", "--file", "copy.db", *where, code=1).stderr
    assert not (program.data_dir / "master.key").exists()


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        ("UPDATE signing_keys SET sealed_private = ''", "no key that signs"),
        ("UPDATE refresh_keys SET sealed_secret = ''", "refresh tokens"),
    ],
)
def test_a_store_whose_keys_are_broken_does_not_start_and_says_so(
    program: Program, breaking: str, words: str
) -> None:
    with program.serving():
        pass
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        connection.execute(breaking)
        connection.commit()
    told = program.run("serve", "--port", "0", "--data-dir", str(program.data_dir), code=1)
    assert "self-test" in told.stderr
    assert words in told.stderr
