from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from server.client.client_errors import TokenFileError
from server.client.token_file import StoredLogin, StoredRegistration, TokenFile, token_directory
from server.lib.secret import Secret


def login(
    url: str = "https://a.example/mcp", access: str = "access-1", expires_at: int | None = 4_600_000
) -> StoredLogin:
    return StoredLogin(
        url=url,
        resource=url,
        issuer="https://a.example",
        token_endpoint="https://a.example/token",
        client_id="ostiary-cli",
        access_token=Secret(access),
        refresh_token=Secret("refresh-1"),
        scope="mcp",
        obtained_at=1_000_000,
        expires_at=expires_at,
    )


def test_what_was_put_is_found_again_and_nobody_else_may_read_it(file: TokenFile) -> None:
    file.put(login())
    file.put(login("https://b.example/mcp", "access-2"))
    assert file.get("https://a.example/mcp") == login()
    assert [found.url for found in file.all()] == ["https://a.example/mcp", "https://b.example/mcp"]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.directory.stat().st_mode) == 0o700
    file.drop("https://a.example/mcp")
    assert file.get("https://a.example/mcp") is None
    assert file.get("https://b.example/mcp") is not None
    assert not [name for name in os.listdir(file.directory) if name.endswith(".partial")]


def test_a_login_shows_no_secret_when_it_is_printed() -> None:
    assert "access-1" not in repr(login())
    assert "refresh-1" not in repr(login())


def test_reading_where_there_is_no_file_makes_none(file: TokenFile) -> None:
    assert file.all() == []
    assert not file.directory.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_open_to_others_is_refused_with_the_command_that_closes_it(file: TokenFile, mode: int) -> None:
    file.put(login())
    file.path.chmod(mode)
    with pytest.raises(TokenFileError, match="by others") as refused:
        file.get("https://a.example/mcp")
    assert refused.value.hint == f"chmod 600 {file.path}"
    with pytest.raises(TokenFileError):
        file.put(login(access="access-2"))


def test_a_directory_open_to_others_is_refused(file: TokenFile) -> None:
    file.directory.mkdir(mode=0o700)
    file.directory.chmod(0o750)
    with pytest.raises(TokenFileError, match="by others") as refused:
        file.put(login())
    assert refused.value.hint == f"chmod 700 {file.directory}"


def test_a_symbolic_link_is_not_followed(file: TokenFile, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"version": 1, "logins": {}}')
    elsewhere.chmod(0o600)
    file.directory.mkdir(mode=0o700)
    file.path.symlink_to(elsewhere)
    with pytest.raises(TokenFileError, match="symbolic link"):
        file.put(login())
    assert json.loads(elsewhere.read_text())["logins"] == {}


def test_a_directory_where_the_file_should_be_is_named(file: TokenFile) -> None:
    file.path.mkdir(parents=True, mode=0o700)
    file.directory.chmod(0o700)
    with pytest.raises(TokenFileError, match="no plain file"):
        file.all()


def test_a_directory_that_is_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(TokenFileError, match="symbolic link"):
        TokenFile(tmp_path / "link").put(login())
    assert not any((tmp_path / "real").iterdir())


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 1, "logins": {"x": 1}}', b"\xff\xfe"]
)
def test_a_damaged_file_is_kept_under_another_name_and_told(file: TokenFile, damaged: bytes) -> None:
    file.put(login())
    file.path.write_bytes(damaged)
    with pytest.raises(TokenFileError, match="damaged"):
        file.get("https://a.example/mcp")
    (kept,) = file.directory.glob("tokens.damaged-*.json")
    assert kept.read_bytes() == damaged
    assert file.all() == []
    file.put(login())
    assert file.get("https://a.example/mcp") == login()
    assert kept.exists()


def test_a_file_of_a_newer_version_is_left_alone(file: TokenFile) -> None:
    file.put(login())
    newer = b'{"version": 99, "secrets": "elsewhere"}'
    file.path.write_bytes(newer)
    with pytest.raises(TokenFileError, match="newer"):
        file.all()
    with pytest.raises(TokenFileError, match="newer"):
        file.put(login())
    assert file.path.read_bytes() == newer


def test_what_a_killed_process_left_behind_is_overwritten(file: TokenFile) -> None:
    file.put(login())
    left = file.directory / "tokens.json.partial"
    left.write_text("half a fi")
    file.put(login(access="access-2"))
    assert not left.exists()
    found = file.get("https://a.example/mcp")
    assert found is not None
    assert found.access_token == Secret("access-2")


def test_processes_that_write_at_once_lose_nothing(file: TokenFile) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[3])\n"
        "from pathlib import Path\n"
        "from test_token_file import login\n"
        "from server.client.token_file import TokenFile\n"
        "file = TokenFile(Path(sys.argv[1]))\n"
        "for n in range(5): file.put(login(f'https://{sys.argv[2]}.example/{n}'))\n"
    )
    arguments = [sys.executable, "-c", script, str(file.directory)]
    here = str(Path(__file__).parent)
    running = [subprocess.Popen([*arguments, f"p{number}", here]) for number in range(4)]
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]
    assert len(file.all()) == 20


@pytest.mark.parametrize(
    ("now", "expires_at", "fresh"),
    [
        (1_000_000, 4_600_000, True),
        (4_539_999, 4_600_000, True),
        (4_540_000, 4_600_000, False),
        (9_000_000, 4_600_000, False),
        (1_000_000, 1_030_000, True),  # thirty seconds of life: used for most of them
        (1_026_999, 1_030_000, True),
        (1_027_000, 1_030_000, False),
        (9_000_000, None, True),
        (900_000, 4_600_000, False),  # the clock was set back
        (990_000, 4_600_000, True),  # a little
    ],
)
def test_a_token_near_its_end_is_not_fresh(now: int, expires_at: int | None, fresh: bool) -> None:
    assert login(expires_at=expires_at).fresh(now) is fresh


def test_the_directory_is_the_platforms_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert token_directory({"OSTIARY_CONFIG_HOME": "/somewhere"}) == Path("/somewhere")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    monkeypatch.setattr(sys, "platform", "linux")
    assert token_directory({}) == Path("/xdg/ostiary")
    assert token_directory({"OSTIARY_CONFIG_HOME": "relative"}) == Path("/xdg/ostiary")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("HOME", "/somebody")
    assert token_directory({}) == Path("/somebody/Library/Application Support/ostiary")


def registration(issuer: str = "https://a.example", client_id: str = "client-1") -> StoredRegistration:
    return StoredRegistration(
        issuer=issuer,
        grant_type="authorization_code",
        client_id=client_id,
        client_secret=Secret("s3cret"),
        auth_method="client_secret_basic",
        redirect_uri="http://127.0.0.1:4242/callback",
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_of_an_older_format_is_read_and_written_as_the_newest(file: TokenFile, version: int) -> None:
    file.put(login())
    kept = json.loads(file.path.read_text())
    for old in kept["logins"].values():
        if version < 3:
            del old["proof_key"]
        if version == 1:
            del old["client_secret"], old["auth_method"]
    del kept["codes"]
    if version == 1:
        del kept["registrations"]
    file.path.write_text(json.dumps({**kept, "version": version}))
    assert file.get("https://a.example/mcp") == login()
    assert json.loads(file.path.read_text())["version"] == version  # reading writes nothing
    file.put_registration(registration())
    written = json.loads(file.path.read_text())
    assert written["version"] == 4
    assert file.get("https://a.example/mcp") == login()


def test_registrations_are_kept_by_issuer_and_way_and_forgotten_by_client(file: TokenFile) -> None:
    file.put(login())
    file.put_registration(registration())
    file.put_registration(registration("https://b.example", "client-1"))
    assert file.registration("https://a.example", "authorization_code") == registration()
    assert file.registration("https://a.example", "refresh_token") is None
    file.drop_registrations("https://a.example", "client-2")
    assert file.registration("https://a.example", "authorization_code") is not None
    file.drop_registrations("https://a.example", "client-1")
    assert file.registration("https://a.example", "authorization_code") is None
    assert file.registration("https://b.example", "authorization_code") is not None
    assert file.get("https://a.example/mcp") == login()


def test_a_registration_and_a_login_show_no_secret_of_the_client(file: TokenFile) -> None:
    assert "s3cret" not in repr(registration())
    assert "s3cret" not in repr(registration().identity)
