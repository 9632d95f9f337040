"""A disk without room: what was stolen can be ended all the same, and the server starts. On a small disk in memory, where the
system lets this user mount one; what needs none is in tests/store.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress

import httpx2
import pytest
from person import NAME, PASSPHRASE, Person
from programs import USER_CODE, Program, Server, until

from tests.free_ports import free_port
from tests.sealing import write_to_file

DISK_BYTES = 8 * 1024 * 1024


@pytest.fixture
def program(program: Program) -> Iterator[Program]:
    program.data_dir.mkdir(mode=0o700)
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("this system has no mount(8)")
    options = f"size={DISK_BYTES},mode=0700"
    command = (mount, "-t", "tmpfs", "-o", options, "none", str(program.data_dir))
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may mount nothing")
    try:
        yield program
    finally:
        subprocess.run((unmount, str(program.data_dir)), check=True)


def fill(program: Program) -> None:
    with (program.data_dir / "filler").open("ab", buffering=0) as file, suppress(OSError):
        for size in (65_536, 4_096, 1):
            with suppress(OSError):
                while file.write(b"x" * size):
                    pass


def status_of(server: Server, token: str) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    return httpx2.post(server.endpoint, json=body, headers=headers, trust_env=False, timeout=60).status_code


def log_in(program: Program, server: Server) -> tuple[str, str]:
    """The new login's token, and its id."""
    before = {row["id"] for row in program.at_machine("sessions")}
    program.log_in(server)
    (new,) = {row["id"] for row in program.at_machine("sessions")} - before
    token = program.tokens()["access_token"]
    program.token_file.unlink()  # as on another device: a second login from one would end the first
    return token, new


def test_on_a_full_disk_logins_can_be_ended_and_the_server_starts(program: Program) -> None:
    port = str(free_port())
    ballast = program.data_dir / "ballast"
    with program.serving("--port", port) as server:
        logins = [log_in(program, server) for _ in range(3)]
        until(
            "the ballast is there", lambda: (ballast.exists() and ballast.stat().st_size == 1_048_576) or None
        )
        fill(program)
        with program.starting("login", server.endpoint) as login:
            assert login.wait() != 0
            assert not USER_CODE.search(login.said())
        stolen, name = logins.pop()
        assert status_of(server, stolen) not in (401, 403)
        program.at_machine("revoke", name)
        assert status_of(server, stolen) == 401
        lent = ballast.stat().st_size
        assert 0 < lent < 1_048_576
    fill(program)  # what the stop gave back, the log of the database above all

    with program.serving("--port", port) as server:
        assert status_of(server, stolen) == 401
        kept, name = logins.pop()
        assert status_of(server, kept) not in (401, 403)
        fill(program)
        program.at_machine("revoke", name)
        assert status_of(server, kept) == 401
        (program.data_dir / "filler").unlink()
        assert program.at_machine("status")["server"]["store"]["problem"] == ""
        program.at_machine("verify")  # ends with 1 if the trail is not whole


def sign_in(person: Person, server: Server) -> None:
    page = person.browser.get(f"{server.url}/signin")
    page = person.press(page, "Sign in", {"name": NAME, "passphrase": PASSPHRASE})
    assert page.status_code == 200 and "Sign out" in page.text, page.text


def add_consent_and_passkey(program: Program) -> None:
    """As the owner's browser would leave them."""
    owner = "(SELECT id FROM users WHERE role = 'owner')"
    write_to_file(
        program.data_dir,
        "INSERT INTO consents (user_id, client_id, redirect_host, server, scope, client_hash, created_at, expires_at)"
        f" VALUES ({owner}, 'ostiary-cli', 'http://127.0.0.1', 'main', 'mcp:tools', 'h', 1, 99999999999999)",
    )
    write_to_file(
        program.data_dir,
        "INSERT INTO passkeys (credential_id, user_id, rp_id, public_key, sign_count, name, created_at)"
        f" VALUES ('abc', {owner}, 'localhost', 'key', 0, 'Blue key', 1)",
    )


def left(program: Program) -> dict[str, int]:
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as database:
        tables = ("browser_sessions", "consents", "passkeys")
        return {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}


def test_on_a_full_disk_a_person_takes_rights_away_in_a_browser(program: Program) -> None:
    with closing(Person()) as owner, program.serving() as server:
        owner.claim(program, server)
    add_consent_and_passkey(program)
    with (
        program.serving() as server,
        closing(Person()) as here,
        closing(Person()) as there,
        closing(Person()) as late,
    ):
        for person in (here, there):
            sign_in(person, server)
        fill(program)
        with pytest.raises(AssertionError, match="Not right now"):
            sign_in(late, server)

        here.press(here.browser.get(f"{server.url}/account/you"), "Remove")
        account = here.press(here.browser.get(f"{server.url}/account/access"), "Forget")
        account = here.press(account, "Sign out all others")
        assert there.browser.get(f"{server.url}/account/access").url.path == "/signin"
        assert here.press(account, "Sign out").url.path == "/signin"
        (program.data_dir / "filler").unlink()
        assert left(program) == {"browser_sessions": 0, "consents": 0, "passkeys": 0}
        program.at_machine("verify")
