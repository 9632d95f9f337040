"""A restored back-up brings nobody back who was shut out since it was made (server/store/restore_exclusions.py)."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from store_engines import NOW

from server.store import meta_rows
from server.store.backup import RestoredBackup, back_up, restore
from server.store.migrate import packaged_migrations
from server.store.sqlite_connect import connect_writer

KNOWN = len(packaged_migrations())
FINGERPRINT = "000102030405:abcdef"
PEOPLE = ("owner", "alice", "bob", "carol", "dave")


def open_it(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(open_it(path)) as connection:
        return connection.execute(sql).fetchall()


def states(path: Path, table: str) -> dict[str, str]:
    return dict(rows(path, f"SELECT id, state FROM {table}"))  # type: ignore[arg-type]


@pytest.fixture
def database(database: Path) -> Path:
    with closing(connect_writer(database)) as made:
        made.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (meta_rows.KEY_FINGERPRINT, FINGERPRINT))
        for name in PEOPLE:
            made.execute(
                "INSERT INTO users (id, name, role, state, passphrase_hash, scope, created_at)"
                " VALUES (?, ?, ?, 'enabled', 'phc', '*', 1)",
                (f"usr_{name}", name, "owner" if name == "owner" else "user"),
            )
            made.execute(
                "INSERT INTO passkeys (credential_id, user_id, rp_id, public_key, sign_count, name, created_at)"
                " VALUES (?, ?, 'agent.example', 'k', 0, 'Laptop', 1)",
                (f"cred-{name}", f"usr_{name}"),
            )
            made.execute(
                "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
                " VALUES (?, ?, ?, ?, 'abcd', 'mcp', 'local:0', 1)",
                (f"key_{name}", name, f"usr_{name}", f"hash-{name}"),
            )
        for client_id, kind in (
            ("ci", "registered"),
            ("old", "registered"),
            ("ok", "registered"),
            ("dcr", "dynamic"),
        ):
            made.execute(
                "INSERT INTO clients (id, kind, name, auth_method, grant_types, redirect_uris, scope, state, created_at)"
                " VALUES (?, ?, 'n', 'none', '', '', 'mcp', 'enabled', 1)",
                (client_id, kind),
            )
        made.execute(
            "INSERT INTO consents (user_id, client_id, redirect_host, server, scope, client_hash, created_at, expires_at)"
            " VALUES ('usr_alice', 'ok', 'https://x', 'main', 'mcp', 'h', 1, ?)",
            (NOW * 2,),
        )
        made.execute(
            "INSERT INTO signing_keys (kid, algorithm, public_jwk, sealed_private, created_at, signs_from)"
            " VALUES ('stolen', 'ES256', '{}', 'sealed', 1, 1)"
        )
        made.execute(
            "INSERT INTO refresh_keys (version, sealed_secret, created_at, accepted_until)"
            " VALUES (1, '', 1, 4), (2, 'sealed', 1, ?), (3, 'stolen', 1, NULL)",
            (2 * NOW,),
        )
    return database


def test_what_was_accepted_of_upstreams_and_logins_there_do_not_come_back(
    database: Path, directory: Path
) -> None:
    with closing(open_it(database)) as then:
        then.execute("INSERT INTO upstreams (server, agent, source, met_at) VALUES ('main', 'up', 's', 1)")
        then.execute(
            "INSERT INTO upstream_pins (server, agent, kind, name, digest, definition, accepted_at, accepted_by)"
            " VALUES ('main', 'up', 'tool', 'say', 'd', '{}', 1, 'local:0')"
        )
        then.execute(
            "INSERT INTO upstream_tokens (server, agent, person, user_id, sealed, login_id, version, obtained_at,"
            " obtained_by) VALUES ('main', 'up', 'usr_alice', 'usr_alice', 'box', 'ul_1', 1, 1, 'user:usr_alice')"
        )
    copy = directory / "copy.db"
    back_up(database, copy)
    put_back(copy, database)
    assert rows(database, "SELECT server, kind, digest FROM upstream_pins") == [("main", "kinds", "")]
    assert rows(database, "SELECT * FROM upstream_tokens") == []
    # It was met: what it offers now is not believed for being first.
    assert rows(database, "SELECT server FROM upstreams") == [("main",)]


def put_back(copy: Path, database: Path) -> RestoredBackup:
    return restore(
        copy,
        database,
        known_schema=KNOWN,
        key_fingerprint=FINGERPRINT,
        audit_key=b"audit key",
        ledger_key=b"ledger key",
        refresh_epoch="new",
        by="local:0",
        now=NOW,
    )


def test_who_was_shut_out_since_the_copy_stays_out_and_the_trail_names_them(
    database: Path, copy: Path
) -> None:
    with closing(open_it(database)) as now:
        now.execute("UPDATE users SET state = 'disabled' WHERE name = 'alice'")
        now.execute("UPDATE users SET state = 'locked', passphrase_hash = NULL WHERE name = 'bob'")
        now.execute("DELETE FROM users WHERE name = 'carol'")
        now.execute("UPDATE clients SET state = 'disabled' WHERE id = 'ci'")
        now.execute("DELETE FROM clients WHERE id IN ('old', 'dcr')")
    done = put_back(copy, database)
    assert (done.kept_out.users, done.kept_out.clients) == (("alice", "bob", "carol"), ("ci", "old"))
    assert states(database, "users") == {
        "usr_owner": "enabled",
        "usr_alice": "disabled",
        "usr_bob": "locked",
        "usr_carol": "disabled",
        "usr_dave": "enabled",
    }
    # One that registered itself was swept, not shut out.
    assert states(database, "clients") == {
        "ci": "disabled",
        "old": "disabled",
        "ok": "enabled",
        "dcr": "enabled",
    }
    assert rows(database, "SELECT passphrase_hash FROM users WHERE name = 'bob'") == [(None,)]
    assert rows(database, "SELECT 1 FROM passkeys WHERE user_id = 'usr_bob'") == []
    ((reason,),) = rows(database, "SELECT reason FROM audit WHERE event = 'store.restored'")
    assert reason == (
        "from a back-up; 5 API keys revoked; users kept out: alice bob carol; clients kept out: ci old"
    )


def test_what_a_killed_server_has_only_in_its_log_counts(database: Path, copy: Path, directory: Path) -> None:
    killed = directory / "killed.db"
    with closing(open_it(database)) as now:
        now.execute("UPDATE users SET state = 'disabled' WHERE name = 'alice'")
        for suffix in ("", "-wal"):
            shutil.copy(f"{database}{suffix}", f"{killed}{suffix}")
    assert put_back(copy, killed).kept_out.users == ("alice",)
    assert states(killed, "users")["usr_alice"] == "disabled"


def test_somebody_who_was_let_in_again_since_is_as_the_copy_has_them(database: Path, directory: Path) -> None:
    with closing(open_it(database)) as now:
        now.execute("UPDATE users SET state = 'disabled' WHERE name = 'alice'")
        now.execute("UPDATE users SET state = 'locked' WHERE name = 'bob'")
    back_up(database, directory / "later.db")
    with closing(open_it(database)) as now:
        now.execute("UPDATE users SET state = 'enabled' WHERE name IN ('alice', 'bob')")
    done = put_back(directory / "later.db", database)
    assert done.kept_out.users == ()
    assert (states(database, "users")["usr_alice"], states(database, "users")["usr_bob"]) == (
        "disabled",
        "locked",
    )


def test_no_key_of_any_kind_and_no_agreement_of_a_copy_lives_again(database: Path, copy: Path) -> None:
    with closing(open_it(database)) as now:
        now.execute("UPDATE api_keys SET revoked_at = 5 WHERE name = 'alice'")
        now.execute("DELETE FROM consents")
        now.execute("UPDATE signing_keys SET retires_at = 5, sealed_private = ''")
        now.execute("UPDATE refresh_keys SET accepted_until = 5, sealed_secret = ''")
    assert put_back(copy, database).kept_out.api_keys == len(PEOPLE)
    assert rows(database, "SELECT 1 FROM api_keys WHERE revoked_at IS NULL") == []
    assert rows(database, "SELECT 1 FROM consents") == []
    # What it signed can still be checked.
    assert (
        rows(database, "SELECT kid FROM signing_keys WHERE sealed_private <> '' OR retires_at IS NULL") == []
    )
    # A row stays for each version, so that the next one is called otherwise.
    assert rows(database, "SELECT version, sealed_secret, accepted_until FROM refresh_keys") == [
        (1, "", 4),
        (2, "", NOW),
        (3, "", NOW),
    ]


def rubbish(database: Path) -> None:
    database.write_bytes(b"rubbish" * 1_000)


def of_another_key(database: Path) -> None:
    with closing(open_it(database)) as other:
        other.execute("UPDATE meta SET value = 'other' WHERE key = ?", (meta_rows.KEY_FINGERPRINT,))


@pytest.mark.parametrize("spoil", [Path.unlink, rubbish, of_another_key])
def test_where_nothing_can_be_compared_it_is_said_and_keys_are_revoked_all_the_same(
    database: Path, copy: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(database)
    done = put_back(copy, database)
    assert not done.kept_out.compared
    assert done.kept_out.api_keys == len(PEOPLE)
    assert set(states(database, "users").values()) == {"enabled"}
