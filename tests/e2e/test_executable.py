"""The finished file, and nothing else: what a newcomer does on the first day, and how it ends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from person import PASSPHRASE as THEIRS
from person import Person
from programs import (
    BINARY,
    ROOT,
    WAIT_SECONDS,
    House,
    Program,
    Server,
    claim_in_browser,
    expire_access_token,
    needed,
    until,
)

from server import __version__
from server.cli import COMMANDS
from tests.killed_child import alive

pytestmark = [pytest.mark.binary, pytest.mark.slow]

MARK = "OSTIARY"  # the first file that is unpacked
PASSPHRASE = "seven quiet herons cross the ford"
CLAUDE_CODE = {
    "response_type": "code",
    "client_id": "https://claude.ai/oauth/claude-code-client-metadata",
    "redirect_uri": "http://localhost:53682/callback",
    "state": "a state",
    "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "code_challenge_method": "S256",
    "scope": "mcp",
}


@pytest.fixture
def ostiary(home: Path) -> Program:
    needed(Path(BINARY[0]), "scripts/build")
    return Program(command=BINARY, home=home)


@pytest.fixture(scope="module")
def house(shared_home: Path) -> Generator[House]:
    """The file, serving to whoever leaves it as it is."""
    needed(Path(BINARY[0]), "scripts/build")
    program = Program(command=BINARY, home=shared_home)
    with program.serving() as server:
        yield House(program=program, server=server)


def test_the_file_is_the_one_that_the_checksum_names() -> None:
    binary = needed(Path(BINARY[0]), "scripts/build")
    lines = (ROOT / "dist" / "SHA256SUMS").read_text("ascii").splitlines()
    (digest,) = (digest for digest, name in map(str.split, lines) if name == binary.name)
    assert hashlib.sha256(binary.read_bytes()).hexdigest() == digest


def test_it_is_small_enough_to_be_downloaded_in_a_moment_with_both_stores_in_it() -> None:
    """docs/benchmarks.md has the figure, and what is wanted."""
    binary = needed(Path(BINARY[0]), "scripts/build")
    assert binary.stat().st_size <= 36_000_000


def test_it_names_its_version_and_explains_every_command(ostiary: Program) -> None:
    assert ostiary.run("--version").stdout == f"ostiary {__version__}\n"
    # Each command is its own module, imported by name: one left out of the file would show here.
    manual = ostiary.run("man").stdout.replace("\\-", "-")
    for command in COMMANDS:
        assert f"ostiary {command}" in manual, command
    assert ostiary.run("serve", "--help").stdout


def test_a_first_day_from_serve_to_sigterm_leaves_no_secret_in_any_log(ostiary: Program) -> None:
    secrets: dict[str, str] = {"passphrase": PASSPHRASE}
    with ostiary.serving() as server:
        link = ostiary.at_machine("claim")["url"]
        secrets["claim link"] = link.rpartition("/")[2]
        assert claim_in_browser(link, PASSPHRASE).status_code == 200
        assert (
            "owner already"
            in ostiary.run("claim", "--json", "--data-dir", str(ostiary.data_dir), code=1).stderr
        )

        secrets["device code"] = ask_for_device_code(server.url)
        user_code = ostiary.log_in(server)
        first = ostiary.tokens()
        secrets |= {"access token": first["access_token"], "refresh token": first["refresh_token"]}
        assert "hello" in ostiary.run("call", server.endpoint, "echo", "text=hello").stdout

        expire_access_token(ostiary)
        assert "again" in ostiary.run("call", server.endpoint, "echo", "text=again").stdout
        second = ostiary.tokens()
        assert second["access_token"] != first["access_token"]
        assert second["refresh_token"] != first["refresh_token"]
        secrets |= {"new access token": second["access_token"], "new refresh token": second["refresh_token"]}
        printed = ostiary.run("token", server.endpoint).stdout.strip()
        assert printed == second["access_token"]

        (session,) = ostiary.at_machine("sessions")
        ostiary.at_machine("revoke", session["id"])
        ostiary.run("call", server.endpoint, "echo", "text=late", code=1)

        assert server.end(signal.SIGTERM) == 0
        log = server.said()

    # A code is shown to the person who logs in, and nowhere else.
    assert user_code not in log
    for name, secret in secrets.items():
        assert secret not in log, f"the server's log holds the {name}"
        assert secret not in "".join(ostiary.said), f"a command's talk holds the {name}"
        # Tokens are dotted: neither is their telling part alone anywhere.
        assert secret.rpartition(".")[2] not in log, f"the server's log holds the end of the {name}"


def test_several_processes_of_it_serve_from_one_database_and_end_when_they_are_told(
    ostiary: Program, postgres_database: Mapping[str, str]
) -> None:
    where = postgres_database
    (ostiary.home / "address").write_text(
        f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}\n", "utf-8"
    )
    (ostiary.home / "ostiary.toml").write_text('store = "file:address"\nworkers = 2\n', "utf-8")
    with ostiary.serving() as server:
        server.await_words(r'"event":"server.started"')
        assert server.said().count('"event":"worker.ready"') == 2
        ostiary.log_in(server)
        for text in ("one", "two", "three", "four"):
            assert text in ostiary.run("call", server.endpoint, "echo", f"text={text}").stdout
        assert [each["worker"] for each in ostiary.at_machine("status")["server"]["workers"]] == [1, 2]
        assert ostiary.at_machine("verify")["broken"] is None
        assert server.end(signal.SIGTERM) == 0
    assert server.said().count('"event":"server.stopped"') == 1
    assert '"event":"worker.killed"' not in server.said()
    assert not unpacked(ostiary)


def test_the_pages_are_in_the_file(house: House) -> None:
    with httpx2.Client(follow_redirects=True, trust_env=False, timeout=WAIT_SECONDS) as browser:
        page = browser.get(f"{house.server.url}/device")
    assert page.status_code == 200
    # Without an owner it says how one becomes that.
    assert "ostiary claim" in page.text


def test_a_browser_a_key_an_invitation_and_new_signing_keys_work_and_the_audit_trail_is_sound(
    ostiary: Program,
) -> None:
    """What is read or imported only when it is used: documents of clients, pages of people, keys, the trail's check."""
    with (
        ostiary.serving("--client-documents", "pinned") as server,
        closing(Person()) as olivia,
        closing(Person()) as bob,
    ):
        olivia.claim(ostiary, server)

        with ostiary.starting("login", server.endpoint, "--browser", "--no-browser") as login:
            link = login.await_words(r"http://\S+/authorize\?\S+")[0]
            assert "You can close this page" in olivia.allow(link).text
            assert login.wait() == 0, login.said()
        assert ostiary.ask("whoami", server.endpoint)["account"]["credential"]["how"] == "code"
        assert "hello" in ostiary.run("call", server.endpoint, "echo", "text=hello").stdout

        made = ostiary.at_machine("api-keys", "create", "ci")
        assert call_echo(server.endpoint, {"X-API-Key": made["key"]}) == "hello"
        assert call_echo(server.endpoint, {"Authorization": f"Bearer {made['key']}"}) == "hello"

        invited = ostiary.at_machine("invite", "bob")
        page = bob.browser.get(invited["url"])
        bob.press(page, "Come in", {"passphrase": THEIRS, "passphrase_again": THEIRS})
        people = {user["name"]: user["state"] for user in ostiary.at_machine("users", "list")}
        assert people == {"olivia": "enabled", "bob": "enabled"}

        # A well-known client, known by the document that is in the file, is led to the sign-in page.
        known = bob.browser.get(f"{server.url}/authorize", params=CLAUDE_CODE | {"resource": server.endpoint})
        assert known.status_code == 200, known.text
        assert "Claude Code" in known.text

        old = ostiary.at_machine("keys", "list")[0]["kid"]
        assert ostiary.at_machine("keys", "rotate", "--now", "--yes")["dropped"] == [old]
        # The old token is refused, and nobody has to log in again for that.
        assert "again" in ostiary.run("call", server.endpoint, "echo", "text=again").stdout

        checked = ostiary.at_machine("verify")
        assert checked["sound"] and checked["checked"] > 5
        assert "key.dropped" in {row["event"] for row in ostiary.at_machine("audit")}
        assert server.end(signal.SIGTERM) == 0
        log = server.said()
    for name, secret in {"key": made["key"], "invitation": invited["url"].rpartition("/")[2]}.items():
        assert secret not in log, f"the server's log holds the {name}"


def test_nothing_stays_unpacked_after_sigterm(ostiary: Program) -> None:
    with ostiary.serving() as server:
        assert unpacked(ostiary)
        assert server.end(signal.SIGTERM) == 0
    assert not unpacked(ostiary)


def test_the_server_ends_and_clears_up_when_its_launcher_is_killed(ostiary: Program) -> None:
    with ostiary.serving() as server:
        (child,) = children(server.process.pid)
        server.process.kill()
        server.process.wait()
        until("the orphan to end", lambda: True if not alive(child) else None)
        until("its folder to go", lambda: True if not unpacked(ostiary) else None)
        assert not (ostiary.data_dir / "control").exists()


def test_a_cleaner_of_temporary_files_finds_the_folder_of_a_running_server_locked(house: House) -> None:
    """systemd-tmpfiles passes over a folder, with all that is in it, which somebody holds a shared lock on."""
    (folder,) = unpacked(house.program)
    with opened(folder) as descriptor, pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_next_start_removes_what_killed_ones_left_and_nothing_else(ostiary: Program) -> None:
    with ostiary.serving() as server:
        kill_outright(server)
    (left,) = unpacked(ostiary)
    # Killed while it was unpacking: there is hardly more than its mark.
    begun = left.with_name(f"{left.name[:-6]}begun0")
    begun.mkdir(mode=0o700)
    shutil.copy(left / MARK, begun)
    # A program like this one that runs, or whose launcher has not come far yet; and what is no folder of ours.
    starting = left.with_name(f"_MEI{os.getpid():08x}strtng")
    foreign = left.with_name(f"{left.name[:-6]}others")
    shutil.copytree(begun, starting)
    foreign.mkdir()
    with ostiary.serving("--port", "0") as server:
        (running,) = set(unpacked(ostiary)) - {left, begun, starting, foreign}
        assert set(unpacked(ostiary)) == {running, starting, foreign}
        ostiary.run("--version")
        assert set(unpacked(ostiary)) == {running, starting, foreign}
        assert server.end(signal.SIGTERM) == 0


def test_what_a_killed_one_left_is_removed_by_one_that_has_its_number(ostiary: Program) -> None:
    """In a container a server has the same number each time."""
    with ostiary.serving() as server:
        kill_outright(server)
    (left,) = unpacked(ostiary)
    # A shell becomes the program, so it knows the number beforehand.
    script = 'mv "$1" "${1%/*}/_MEI$(printf %08x $$)earlier" && shift && exec "$@"'
    with ostiary.starting(
        str(left), *ostiary.command, "--version", command=("/bin/sh", "-c", script, "sh")
    ) as started:
        assert started.wait() == 0, started.said()
    assert not unpacked(ostiary)


def test_the_smoke_test_that_it_carries_passes(ostiary: Program) -> None:
    ostiary.run("--smoke-test")


def ask_for_device_code(site: str) -> str:
    """A login begun with nothing but HTTP, and left to run out."""
    with httpx2.Client(trust_env=False, timeout=60) as client:
        metadata = client.get(f"{site}/.well-known/oauth-authorization-server").json()
        answer = client.post(
            metadata["device_authorization_endpoint"], data={"client_id": "ostiary-cli"}
        ).json()
        refused = client.post(
            metadata["token_endpoint"],
            data={
                "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
                "device_code": answer["device_code"],
                "client_id": "ostiary-cli",
            },
        )
        assert refused.json()["error"] == "authorization_pending"
        return answer["device_code"]


def call_echo(endpoint: str, headers: dict[str, str]) -> str:
    body: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "hello"}},
    }
    accepts = {"Accept": "application/json, text/event-stream"}
    answer = httpx2.post(
        endpoint, json=body, headers=accepts | headers, trust_env=False, timeout=WAIT_SECONDS
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["content"][0]["text"]


def unpacked(program: Program) -> list[Path]:
    return list((program.home / "tmp").glob("_MEI*"))


@contextmanager
def opened(folder: Path) -> Generator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def kill_outright(server: Server) -> None:
    """As the kernel does when memory is short: launcher and server in one moment."""
    (child,) = children(server.process.pid)
    for pid in (server.process.pid, child):
        os.kill(pid, signal.SIGSTOP)
    for pid in (server.process.pid, child):
        os.kill(pid, signal.SIGKILL)
    server.process.wait()
    until("the server to end", lambda: True if not alive(child) else None)


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(each) for thread in threads for each in (thread / "children").read_text("ascii").split()]
