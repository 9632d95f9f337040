"""`ostiary backup` while a server runs, and `ostiary restore` while none does."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest


def ostiary(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (
        sys.executable,
        "-P",
        "-m",
        "server",
        *arguments,
        "--data-dir",
        str(tmp_path / "data"),
    )
    environment = {**os.environ, "OSTIARY_CONFIG_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def server(tmp_path: Path) -> subprocess.Popen[str]:
    command = (
        sys.executable,
        "-P",
        "-m",
        "server",
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(tmp_path / "data"),
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Listening on")
    return process


def stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    assert server.wait(60) == 0
    assert server.stdout is not None
    server.stdout.close()


def test_a_copy_made_while_serving_can_be_put_back_and_what_came_after_is_set_aside(
    tmp_path: Path, server: subprocess.Popen[str]
) -> None:
    try:
        assert (
            ostiary(
                tmp_path, "clients", "add", "before", "--id", "before", "--grant", "device_code"
            ).returncode
            == 0
        )
        made = ostiary(tmp_path, "backup", str(tmp_path / "copy.db"))
        assert (made.returncode, made.stdout) == (0, f"{tmp_path / 'copy.db'}\n")
        key_id = (tmp_path / "data" / "master.key").read_text("utf-8").split(":")[1]
        assert f"keep the key {key_id}" in made.stderr
        assert ostiary(tmp_path, "clients", "add", "after", "--id", "after").returncode == 0
        trial = ostiary(tmp_path, "restore", "--dry-run", "--json", str(tmp_path / "copy.db"))
        told = json.loads(trial.stdout)
        assert (trial.returncode, told["restored"], told["key"]) == (0, None, key_id)
        busy = ostiary(tmp_path, "restore", str(tmp_path / "copy.db"))
        assert busy.returncode == 1
        assert "in use by process" in busy.stderr
    finally:
        stop(server)
    back = ostiary(tmp_path, "restore", str(tmp_path / "copy.db"))
    assert back.returncode == 0, back.stderr
    (aside,) = (tmp_path / "data").glob("ostiary-before-restore-*.db")
    assert clients_in(tmp_path / "data" / "ostiary.db") == {"ostiary-cli", "before"}
    assert clients_in(aside) == {"ostiary-cli", "before", "after"}


def test_into_a_directory_copies_are_named_by_the_time_and_so_many_stay(
    tmp_path: Path, server: subprocess.Popen[str]
) -> None:
    stop(server)
    folder = tmp_path / "copies"
    folder.mkdir()
    made = [
        json.loads(ostiary(tmp_path, "backup", "--keep", "2", "--json", str(folder)).stdout) for _ in range(3)
    ]
    assert sorted(map(str, folder.iterdir())) == [each["path"] for each in made[1:]]
    assert made[0]["key"] == (tmp_path / "data" / "master.key").read_text("utf-8").split(":")[1]
    misused = ostiary(tmp_path, "backup", "--keep", "2", str(tmp_path / "file.db"))
    assert (misused.returncode, "no directory" in misused.stderr) == (2, True)


def test_what_cp_made_is_recognised(tmp_path: Path, server: subprocess.Popen[str]) -> None:
    stop(server)
    by_hand = str(shutil.copy(tmp_path / "data" / "ostiary.db", tmp_path / "cp.db"))
    refused = ostiary(tmp_path, "restore", by_hand)
    assert (refused.returncode, "may lack" in refused.stderr) == (1, True)
    assert "newest rows may be missing" in ostiary(tmp_path, "verify", "--file", by_hand).stderr
    assert ostiary(tmp_path, "restore", "--copied", by_hand).returncode == 0


def clients_in(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM clients")}


def test_what_is_no_back_up_or_belongs_to_another_key_is_left_alone(
    tmp_path: Path, server: subprocess.Popen[str]
) -> None:
    stop(server)
    (tmp_path / "junk").write_text("not a database")
    nowhere = ostiary(tmp_path, "backup", str(tmp_path / "absent" / "copy.db"))
    assert nowhere.returncode == 1 and f"the folder {tmp_path / 'absent'} first" in nowhere.stderr
    junk = ostiary(tmp_path, "restore", str(tmp_path / "junk")).stderr
    assert "no back-up of ostiary" in junk and "ostiary backup FILE" in junk
    assert "there is no file" in ostiary(tmp_path, "restore", str(tmp_path / "absent")).stderr
    assert ostiary(tmp_path, "backup", str(tmp_path / "copy.db")).returncode == 0
    (tmp_path / "data" / "master.key").unlink()
    refused = ostiary(tmp_path, "restore", str(tmp_path / "copy.db"))
    assert refused.returncode == 1
    assert "missing" in refused.stderr
    assert not (tmp_path / "data" / "master.key").exists()
    # A supervisor is told that trying again is of no use.
    assert ostiary(tmp_path, "serve", "--port", "0").returncode == 78
