"""What is said to somebody whom a database server does not let in (server/cluster/postgres/postgres_refusals.py), by what the server and libpq say."""

from __future__ import annotations

import pytest

from server.cluster.postgres.postgres_refusals import all_said, hint_for
from server.store.jobs import StoreUnreachable

ASKED = {"user": "ostiary", "dbname": "rows", "host": "db.example.org"}
FATAL = 'connection to server at "192.0.2.1", port 5432 failed: FATAL:  '


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ('password authentication failed for user "ostiary"', "ALTER ROLE ostiary PASSWORD"),
        ('no pg_hba.conf entry for host "192.0.2.9", user "ostiary", database "rows", no encryption', "pg_hba.conf"),
        ('role "ostiary" is not permitted to log in', "ALTER ROLE ostiary LOGIN"),
        ('role "ostiary" does not exist', "CREATE ROLE ostiary"),
        ('too many connections for role "ostiary"', "CONNECTION LIMIT"),
        ('too many connections for database "rows"', "CONNECTION LIMIT"),
        ("sorry, too many clients already", "max_connections"),
        ("remaining connection slots are reserved for non-replication superuser connections", "max_connections"),
        ('permission denied for database "rows"', "ALTER DATABASE rows OWNER TO ostiary"),
        ('database "rows" does not exist', "CREATE DATABASE rows OWNER ostiary"),
        ("the database system is starting up", "wait a moment"),
        ("unsupported startup parameter: options", "pooler"),
        ("fe_sendauth: no password supplied", "postgresql://ostiary:PASSWORD@db.example.org/rows"),
    ],
)  # fmt: skip
def test_each_refusal_has_the_hint_that_fits(said: str, hint: str) -> None:
    assert hint in hint_for(FATAL + said, ASKED)


def test_words_of_a_server_in_another_language_are_shown_with_the_hint_for_most() -> None:
    said = FATAL + "Passwort-Authentifizierung für Benutzer »ostiary« fehlgeschlagen"
    assert hint_for(said, ASKED) == StoreUnreachable.hint


def test_whoever_named_no_user_is_told_that_and_not_to_make_one() -> None:
    hint = hint_for(FATAL + 'role "root" does not exist', {"dbname": "rows", "host": "/run/postgresql"})
    assert "the address names nobody" in hint


def test_names_that_are_no_plain_words_can_be_typed_as_they_are_shown() -> None:
    strange = {**ASKED, "user": 'my "$x`'}
    assert 'CREATE ROLE \\"my \\"\\"\\$x\\`\\" LOGIN' in hint_for(FATAL + 'role "x" does not exist', strange)


def test_what_each_host_said_is_told_once() -> None:
    def attempt(host: str, said: str) -> str:
        return f"- host: {host!r}, port: '5432', hostaddr: '192.0.2.1': connection failed: {said}"

    said = "\n".join(
        [
            "connection failed: the last",
            "Multiple connection attempts failed. All failures were:",
            attempt("a", FATAL + "the database system is starting up"),
            "\tIs the server running on that host?",
            attempt("b", "one thing"),
            attempt("c", "one thing"),
            "- host: 'd', port: None, hostaddr: None: connection timeout expired",
        ]
    )
    assert all_said(said, "") == (
        f"{FATAL.replace('  ', ' ')}the database system is starting up; one thing; d: connection timeout expired"
    )
    assert all_said("connection timeout expired", "db") == "db: connection timeout expired"
    assert all_said("", "db") == ""
