from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from server.lib import landlock
from server.settings.private_paths import kept_out_paths, program_notices
from server.settings.resolved_settings import Resolved, resolve
from server.settings.settings_reader import load

AGENT = """
    [[server]]
    [[server.agent]]
    kind = "python"
    file = "{home}/agents/agent.py"
"""


def settings(home: Path, written: str) -> Resolved:
    file = home / "ostiary.toml"
    file.write_text(dedent(written).format(home=home), "utf-8")
    return resolve(load(file, {}, {"data_dir": str(home / "data")}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "agent.py").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path / "house"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 7)
    return tmp_path


def test_all_files_that_settings_name_as_secret_are_kept_out(home: Path) -> None:
    resolved = settings(
        home,
        """
        key_file = "file:{home}/door.key"
        backup_dir = "{home}/copies"
        registration_token = "file:{home}/registration"
        [[server]]
        [[server.agent]]
        kind = "mcp"
        id = "up"
        url = "https://up.example.com/mcp"
        headers = {{ authorization = "Bearer file:{home}/header" }}
        [[server.agent]]
        kind = "mcp"
        id = "child"
        command = ["up"]
        env = {{ KEY = "file:{home}/of-a-child" }}
        """,
    )
    names = {"data", "door.key", "copies", "registration", "header", "of-a-child", "ostiary.toml"}
    assert {home / name for name in names} <= kept_out_paths(resolved).closed


def test_the_file_of_another_program_that_names_the_servers_is_kept_out(home: Path) -> None:
    loaded = load(None, {}, {})
    resolved = resolve(msgspec.structs.replace(loaded, servers_file=home / ".mcp.json"))
    assert home / ".mcp.json" in kept_out_paths(resolved).closed


def test_what_runs_or_is_believed_for_the_owner_can_be_read_and_not_changed(home: Path) -> None:
    for name in ("look", "server.js", "notes.db"):
        (home / name).touch()
    resolved = settings(
        home,
        """
        [[server]]
        hooks.before = {{ file = "{home}/hooks.py", function = "before" }}
        hooks.after = {{ run = ["{home}/look"] }}
        tools.one = {{ mock = "{home}/one.json" }}
        [[server.agent]]
        kind = "python"
        file = "{home}/agents/agent.py"
        in_process = true
        [[server.agent]]
        kind = "mcp"
        id = "up"
        working_dir = "{home}"
        command = ["node", "server.js", "notes.db"]
        [[server.agent]]
        kind = "skills"
        path = "{home}/skills"
        """,
    )
    # Not the script of a program, which keeps its own files beside it.
    names = {"hooks.py", "look", "one.json", "agents/agent.py", "skills"}
    assert kept_out_paths(resolved).read_only == {home / name for name in names}


def test_nothing_is_said_where_what_is_kept_out_is_in_nobodys_way(home: Path) -> None:
    assert program_notices(settings(home, AGENT)) == []


def test_without_landlock_it_is_said_what_programs_can_open(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 0)
    (notice,) = program_notices(settings(home, AGENT))
    assert notice.grave
    assert "Landlock" in notice.words


def test_a_server_that_starts_no_program_has_nothing_to_say_of_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 0)
    assert program_notices(settings(home, '[[server]]\n[[server.agent]]\nkind = "demo"\n')) == []


def test_an_unconfined_program_is_named(home: Path) -> None:
    (notice,) = program_notices(settings(home, AGENT + "    unconfined = true\n"))
    assert notice.grave
    assert "agents/agent.py" in notice.words


SHARED = """
    [[server]]
    [[server.agent]]
    kind = "mcp"
    id = "lab"
    tcp = "127.0.0.1:9000"
    {agent}
"""


@pytest.mark.parametrize(
    ("agent", "alone", "said"),
    [("", False, False), ('share = "all"', False, True), ('share = "all"', True, False)],
)
def test_what_several_people_share_is_named(home: Path, agent: str, alone: bool, said: bool) -> None:
    """Nobody shares anything where one caller is all that there can be."""
    notices = program_notices(settings(home, SHARED.format(agent=agent)), alone=alone)
    assert ['share = "all"' in each.hint and "lab" in each.words for each in notices] == [True] * said


def test_a_folder_above_what_is_kept_out_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    (notice,) = program_notices(settings(home, AGENT))
    assert not notice.grave
    assert str(home) in notice.words


def test_an_agent_inside_the_data_directory_is_named(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "agent.py").touch()
    (notice,) = program_notices(settings(home, AGENT.replace("agents/", "data/")))
    assert notice.grave
    assert str(home / "data") in notice.words


def test_what_lies_in_the_data_directory_leads_into_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    forbidden = landlock.ForbiddenPaths([tmp_path / "data"], [tmp_path / "data" / "hooks" / "hooks.py"])
    assert str(tmp_path) in forbidden.folders
    assert not {str(tmp_path / "data"), str(tmp_path / "data" / "hooks")} & forbidden.folders
