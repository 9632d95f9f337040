"""`install` and `uninstall`: what becomes of other programs' files, to the byte, and what is left alone."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tomllib
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from shell import Done, Terminal

from server import cli
from server.cli.use import installing
from server.client.programs.config_file import BACKUPS_KEPT
from tests.client.fake_server import FakeServer

URL = "https://agent.example.org/mcp"
NAME = "agent-example-org"

# program → its file in a home, and what `install` makes of a file that is not there
FRESH: dict[str, tuple[str, Any]] = {
    "claude-code": (".claude.json", {"mcpServers": {NAME: {"type": "http", "url": URL}}}),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", None),
    "cursor": (".cursor/mcp.json", {"mcpServers": {NAME: {"url": URL}}}),
    "vscode": (".config/Code/User/mcp.json", {"servers": {NAME: {"type": "http", "url": URL}}}),
    "codex": (".codex/config.toml", {"mcp_servers": {NAME: {"url": URL}}}),
    "gemini": (".gemini/settings.json", {"mcpServers": {NAME: {"httpUrl": URL, "oauth": {"enabled": True}}}}),
    "windsurf": (".codeium/windsurf/mcp_config.json", {"mcpServers": {NAME: {"serverUrl": URL}}}),
    "hermes": (".hermes/config.yaml", f'mcp_servers:\n  {NAME}:\n    url: "{URL}"\n    auth: oauth\n'),
}

CODEX = """\
# mine
model = "gpt-5"   # the big one

[mcp_servers.docs]
url = "https://docs.example/mcp"

[mcp_servers.docs.tools.search]
approval_mode = "approve"
"""
HERMES = """\
# settings of Hermes
model:
  default: "x: y"
mcp_servers:
    # the first one
    docs:
        url: "https://docs.example/mcp"
        tools:
            include: [search]

    files:
        command: npx
        args:
            - "-y"
            - files
terminal:
  prompt: |
    mcp_servers:
      nothing: here
"""
# file → before; whatever is in it must be there to the byte after uninstall
BEFORE: list[tuple[str, str]] = [
    ("claude-code", '{\n  "numStartups": 3,\n  "mcpServers": {},\n  "tipsHistory": {"a": 1}\n}'),
    ("claude-code", '{"numStartups":3,"projects":{"/x":{"allowedTools":[]}}}'),
    ("claude-code", '{"mcpServers":{"a":{"command":"b"}}}\n'),
    ("claude-code", "{}"),
    ("claude-code", '{\n\t"mcpServers": {\n\t\t"a": {"command": "b"}\n\t}\n}\n'),
    ("claude-code", '{\r\n  "mcpServers": {\r\n    "a": {\r\n      "command": "b"\r\n    }\r\n  }\r\n}\r\n'),
    (
        "claude-desktop",
        '{\n    "mcpServers": {\n        "ä": {"command": "ü", "args": ["\\u00e9"]}\n    }\n}',
    ),
    ("claude-desktop", ""),
    ("cursor", '\ufeff{ "mcpServers": { } }'),
    (
        "vscode",
        '{\n\t// mine\n\t"servers": {\n\t\t"a": { "command": "b" }, // last\n\t},\n\t"inputs": [],\n}\n',
    ),
    ("vscode", '{\n  "servers": {\n    "a": {"command": "b"} // the last, and no comma\n  }\n}\n'),
    ("vscode", "// nothing but a word\n{\n  /* servers come here */\n}\n"),
    ("vscode", '{\n  "servers": {\n    // here\n  }\n}\n'),
    (
        "gemini",
        '{\n  "security": {"auth": {"selectedType": "oauth"}},\n  "mcpServers": {"b": {"httpUrl": "https://b/"}}\n}\n',
    ),
    ("windsurf", '{"mcpServers": {}}'),
    ("codex", CODEX),
    ("codex", 'model = "x"'),
    ("codex", "\n\n"),
    (
        "codex",
        '[mcp_servers]\n[mcp_servers."with space"]\nurl = "https://x/"\n[tui]\ntext = """\n[mcp_servers.agent-example-org]\n"""\n',
    ),
    ("hermes", HERMES),
    ("hermes", "model: x\n"),
    ("hermes", "model: x"),
    ("hermes", "mcp_servers: {}\nmodel: x\n"),
    ("hermes", "mcp_servers:   # none yet\nmodel: x\n"),
    ("hermes", "mcp_servers:\n  docs: {url: https://docs.example/mcp}\n"),
    ("hermes", "# mine\n---\nmodel: x\n"),
]


class Here:
    """A home of its own, and the commands in this very process: nothing of them goes over the network."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.config = home / "config"
        self._capsys = capsys

    def run(self, *arguments: str) -> Done:
        code = cli.run(arguments)
        said = self._capsys.readouterr()
        return Done(code, said.out, said.err)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    here = Here(tmp_path, capsys)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "HERMES_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OSTIARY_CONFIG_HOME", str(here.config))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    return here


def file_in(here: Here, client: str) -> Path:
    return here.home / FRESH[client][0]


def written(here: Here, client: str, text: str, mode: int = 0o644) -> Path:
    path = file_in(here, client)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(mode)
    return path


def content(client: str, data: bytes) -> Any:
    text = data.decode("utf-8-sig")
    return tomllib.loads(text) if client == "codex" else text if client == "hermes" else json.loads(text)


def install(here: Here, client: str, *more: str, code: int = 0, url: str = URL) -> str:
    done = here.run("install", client, url, "--yes", "--no-verify", *more)
    assert done.code == code, done.stderr
    return done.stderr


def uninstall(here: Here, client: str, *more: str, code: int = 0) -> str:
    done = here.run("uninstall", client, "--yes", *more)
    assert done.code == code, done.stderr
    return done.stderr


@pytest.mark.parametrize("client", FRESH)
def test_a_program_without_a_file_gets_one_and_loses_it_again(here: Here, client: str) -> None:
    said = install(here, client)
    path = file_in(here, client)
    found = content(client, path.read_bytes())
    expected = FRESH[client][1]
    if expected is None:
        (entry,) = found["mcpServers"].values()
        assert os.path.isabs(entry["command"])
        assert entry["args"][-3:] == ["connect", "--no-login", URL]
    else:
        assert found == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "hint: " in said
    assert install(here, client) == said_again(said, client)
    uninstall(here, client)
    assert not path.exists()


def said_again(said: str, client: str) -> str:
    title = said.splitlines()[0].partition(", for ")[2]
    hint = said.splitlines()[-1]
    assert client
    return f"{title} has {NAME} already, and nothing was written\n{hint}\n"


@pytest.mark.parametrize(("client", "before"), BEFORE, ids=[f"{c}-{n}" for n, (c, _) in enumerate(BEFORE)])
def test_what_else_is_in_the_file_stays_and_uninstalling_restores_it_to_the_byte(
    here: Here, client: str, before: str
) -> None:
    path = written(here, client, before, 0o640)
    install(here, client)
    after = path.read_bytes()
    assert after != before.encode()
    assert NAME.encode() in after
    for line in before.splitlines():
        words = line.strip("{} \t,").partition(" //")[0]
        if words and "{}" not in line and "{ }" not in line and "# none yet" not in line:
            assert words in after.decode("utf-8-sig").replace("\r\n", "\n"), line
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    (backup,) = path.parent.glob(f"{path.name}.bak-*")
    assert backup.read_bytes() == before.encode()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640
    uninstall(here, client)
    assert path.read_bytes() == before.encode()


@pytest.mark.parametrize(("client", "before"), BEFORE, ids=[f"{c}-{n}" for n, (c, _) in enumerate(BEFORE)])
def test_without_our_records_just_our_entry_is_taken_out(here: Here, client: str, before: str) -> None:
    path = written(here, client, before)
    install(here, client)
    (here.config / "installed.json").unlink()
    assert "nothing that ostiary installed" in uninstall(here, client, code=1)
    uninstall(here, client, NAME)
    left = path.read_bytes()
    assert left.count(NAME.encode()) == before.encode().count(NAME.encode())
    if client in ("claude-code", "claude-desktop", "windsurf", "gemini") and before:
        were, are = json.loads(before), json.loads(left)
        were.setdefault("mcpServers", {})
        are.setdefault("mcpServers", {})
        assert are == were
    if client == "hermes" and "docs" in before:
        assert left.decode() == before


GOLDEN: list[tuple[str, str, str]] = [
    (
        "vscode",
        '{\n\t// mine\n\t"servers": {\n\t\t"a": { "command": "b" }, // last\n\t},\n}\n',
        '{\n\t// mine\n\t"servers": {\n\t\t"a": { "command": "b" },\n\t\t"agent-example-org": {\n\t\t\t"type": "http",\n'
        '\t\t\t"url": "https://agent.example.org/mcp"\n\t\t}, // last\n\t},\n}\n',
    ),
    (
        "claude-code",
        '{\n  "a": 1\n}\n',
        '{\n  "a": 1,\n  "mcpServers": {\n    "agent-example-org": {\n      "type": "http",\n'
        '      "url": "https://agent.example.org/mcp"\n    }\n  }\n}\n',
    ),
    (
        "claude-code",
        '{"mcpServers":{}}',
        '{"mcpServers":{"agent-example-org": {"type": "http", "url": "https://agent.example.org/mcp"}}}',
    ),
    ("codex", CODEX, CODEX + '\n[mcp_servers.agent-example-org]\nurl = "https://agent.example.org/mcp"\n'),
    (
        "hermes",
        HERMES,
        HERMES.replace(
            "mcp_servers:\n    # the",
            'mcp_servers:\n    agent-example-org:\n      url: "https://agent.example.org/mcp"\n      auth: oauth\n    # the',
        ),
    ),
]


@pytest.mark.parametrize(("client", "before", "after"), GOLDEN, ids=[client for client, _, _ in GOLDEN])
def test_the_entry_is_written_the_way_the_file_is(here: Here, client: str, before: str, after: str) -> None:
    path = written(here, client, before)
    install(here, client)
    assert path.read_text("utf-8") == after


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("claude-code", '{"mcpServers": {'),
        ("claude-code", '{"mcpServers": {}} // not here'),
        ("claude-code", '{"a": 1,}'),
        ("claude-code", '{"a": 1, "a": 2}'),
        ("claude-code", '{"mcpServers": []}'),
        ("claude-code", "[]"),
        ("claude-code", '{"a": 01}'),
        ("claude-code", "[" * 100_000),
        ("vscode", '{"servers": {,}}'),
        ("vscode", '{"servers": {} /* open'),
        ("codex", "model = "),
        ("codex", "mcp_servers = 5"),
        ("codex", "mcp_servers = {}\n"),
        ("codex", 'mcp_servers = { docs = { url = "https://x/" } }\n'),
        ("hermes", "mcp_servers: {docs: {url: x}}\n"),
        ("hermes", "mcp_servers: *shared\n"),
        ("hermes", "mcp_servers:\n- docs\n"),
        ("hermes", "mcp_servers:\n  - docs\n"),
        ("hermes", "mcp_servers:\n\tdocs:\n"),
        ("hermes", "---\nmodel: x\n---\nmodel: y\n"),
        ("hermes", "{mcp_servers: {}}\n"),
        ("hermes", "mcp_servers:\n  a:\n    url: x\nmcp_servers:\n  b:\n    url: x\n"),
        ("hermes", "? complex\n: key\n"),
        ("hermes", "a: [\n"),
        ("hermes", 'a: "unclosed\n'),
        ("hermes", "a: b: c\n"),
        ("hermes", "k: [1, 2\nb: {x\n"),
        ("hermes", "a: 1\n  b: 2\n"),
        ("hermes", "- a\n- b\n"),
    ],
)
def test_a_file_that_is_broken_or_too_clever_is_left_alone_and_the_lines_are_shown(
    here: Here, client: str, text: str
) -> None:
    path = written(here, client, text)
    said = install(here, client, code=1)
    assert path.read_text("utf-8") == text
    assert URL in said
    assert "error: " in said
    assert "was left as it is" in said
    assert [each.name for each in path.parent.iterdir() if ".bak-" in each.name] == []


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00", b'{"a": "\xe4"}'])
def test_a_file_that_is_no_text_is_left_alone(here: Here, data: bytes) -> None:
    path = written(here, "cursor", "")
    path.write_bytes(data)
    assert "no text in UTF-8" in install(here, "cursor", code=1)
    assert path.read_bytes() == data


def test_a_read_only_file_is_not_replaced(here: Here) -> None:
    path = written(here, "cursor", "{}", 0o444)
    assert "read-only" in install(here, "cursor", code=1)
    assert path.read_text() == "{}"


def test_a_directory_in_the_files_place_is_told(here: Here) -> None:
    file_in(here, "cursor").mkdir(parents=True)
    assert "no plain file" in install(here, "cursor", code=1)


def test_a_symbolic_link_stays_one_and_what_it_points_to_is_changed(here: Here) -> None:
    real = here.home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text('{"mcpServers": {}}\n')
    path = file_in(here, "cursor")
    path.parent.mkdir()
    path.symlink_to(real)
    install(here, "cursor")
    assert path.is_symlink()
    assert NAME in json.loads(real.read_text())["mcpServers"]
    uninstall(here, "cursor")
    assert path.is_symlink()
    assert real.read_text() == '{"mcpServers": {}}\n'


def test_links_in_a_circle_are_told(here: Here) -> None:
    path = file_in(here, "cursor")
    path.parent.mkdir()
    path.symlink_to(path)
    assert "cannot read" in install(here, "cursor", code=1)


@pytest.mark.parametrize("client", ["cursor", "codex", "hermes"])
def test_a_server_of_somebody_else_under_that_name_is_not_overwritten(here: Here, client: str) -> None:
    theirs = {
        "cursor": f'{{"mcpServers": {{"{NAME}": {{"command": "npx"}}}}}}',
        "codex": f'[mcp_servers.{NAME}]\ncommand = "npx"\n',
        "hermes": f"mcp_servers:\n  {NAME}:\n    command: npx\n",
    }[client]
    path = written(here, client, theirs)
    assert "--name" in install(here, client, "--name", NAME, code=1)
    assert path.read_text() == theirs
    assert "not put there by ostiary" in uninstall(here, client, NAME, code=1)
    assert f"{NAME}-2 now" in install(here, client)
    uninstall(here, client)
    assert path.read_text() == theirs


LOOPBACK = ("http://127.0.0.1:8420/mcp", "http://127.0.0.1:8430/mcp", "http://127.0.0.1:8440/mcp")


@pytest.mark.parametrize("client", FRESH)
def test_a_second_server_on_this_machine_stands_beside_the_first(here: Here, client: str) -> None:
    path = written(here, client, "")
    for url in LOOPBACK[:2] * 2:
        install(here, client, url=url)
    text = path.read_text()
    assert [text.count(url) for url in LOOPBACK] == [1, 1, 0]
    assert "ostiary-8430" in text


@pytest.mark.parametrize("more", [(), ("--bridge",)])
def test_an_entry_that_a_person_wrote_over_ours_is_theirs(here: Here, more: tuple[str, ...]) -> None:
    install(here, "cursor", "--name", "ostiary", *more)
    theirs = '{"mcpServers": {"ostiary": {"url": "https://mine.example/mcp", "headers": {"Authorization": "Bearer x"}}}}'
    path = written(here, "cursor", theirs)
    install(here, "cursor", "--name", "ostiary", code=1)
    uninstall(here, "cursor", code=1)
    uninstall(here, "cursor", "ostiary", code=1)
    assert path.read_text() == theirs
    install(here, "cursor", url=LOOPBACK[0])
    assert json.loads(path.read_text())["mcpServers"]["ostiary"]["url"] == "https://mine.example/mcp"


@pytest.mark.parametrize("client", FRESH)
def test_another_address_under_a_name_of_ours_is_replaced_only_by_a_person_who_was_asked(
    here: Here, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(here, client, dict(BEFORE)[client])
    before = path.read_bytes()
    install(here, client, "--name", "door")
    between = path.read_bytes()
    said = install(here, client, "--name", "door", code=1, url="https://other.example/mcp")
    assert f"replaces door, which is {URL}" in said
    assert path.read_bytes() == between
    monkeypatch.setattr(installing, "agreed", lambda question, *, yes: True)
    done = here.run("install", client, "https://other.example/mcp", "--no-verify", "--name", "door")
    data = path.read_bytes()
    assert (done.code, URL.encode() in data, data.count(b"https://other.example/mcp")) == (0, False, 1)
    uninstall(here, client)
    assert path.read_bytes() == before


ABSENT = [(client, None) for client in FRESH]


@pytest.mark.parametrize(
    ("client", "before"),
    [*ABSENT, *BEFORE],
    ids=[f"{c}-{n}" for n, (c, _) in enumerate([*ABSENT, *BEFORE])],
)
def test_several_entries_go_in_any_order_and_leave_the_file_as_it_was(
    here: Here, client: str, before: str | None
) -> None:
    names = ("one", "two", "three")
    path = file_in(here, client)
    for order in permutations(names):
        path.unlink(missing_ok=True)
        if before is not None:
            written(here, client, before)
        for name, url in zip(names, LOOPBACK, strict=True):
            install(here, client, "--name", name, url=url)
        for gone, name in enumerate(order, 1):
            uninstall(here, client, name)
            left = {url for each, url in zip(names, LOOPBACK, strict=True) if each in order[gone:]}
            text = path.read_text("utf-8") if path.exists() else ""
            assert {url for url in LOOPBACK if url in text} == left
        assert (path.read_bytes().decode() if path.exists() else None) == before


def test_records_of_the_version_before_are_undone_as_well(here: Here) -> None:
    """Its rows named the file's maker in the first one alone, and had the same fields."""
    path = file_in(here, "cursor")
    install(here, "cursor", "--name", "one")
    install(here, "cursor", "--name", "two", url=LOOPBACK[0])
    kept = json.loads((here.config / "installed.json").read_text())
    rows = list(kept["installed"].values())
    assert [row["made_file"] for row in rows] == [True, False]
    assert set(rows[0]) == {"program", "file", "name", "url", "put", "replaced", "made_file"}
    uninstall(here, "cursor")
    assert not path.exists()


def test_an_entry_that_somebody_wrote_in_stays_where_it_is_when_an_earlier_one_goes(here: Here) -> None:
    install(here, "cursor", "--name", "one")
    install(here, "cursor", "--name", "two", url=LOOPBACK[0])
    path = file_in(here, "cursor")
    text = path.read_text().replace('"two": {', '"two": { // mine')
    path.write_text(text)
    uninstall(here, "cursor", "one")
    assert '"two": { // mine' in path.read_text()
    assert "one" not in path.read_text()


@pytest.mark.parametrize("client", ["cursor", "codex", "hermes", "vscode"])
def test_what_others_wrote_around_ours_since_then_stays(here: Here, client: str) -> None:
    path = written(here, client, "")
    install(here, client, "--name", "one")
    install(here, client, "--name", "two", url="https://two.example/mcp")
    uninstall(here, client, "one")
    left = path.read_text()
    assert ("one" in left.replace("none", ""), "https://two.example/mcp" in left) == (False, True)
    uninstall(here, client)
    assert "two.example" not in (path.read_text() if path.exists() else "")


def test_fields_that_a_program_added_to_our_entry_are_no_difference(here: Here) -> None:
    path = written(
        here, "cursor", json.dumps({"mcpServers": {NAME: {"url": URL, "disabled": True}}}, indent=2)
    )
    assert "already" in install(here, "cursor")
    assert json.loads(path.read_text())["mcpServers"][NAME]["disabled"] is True


def test_a_bridge_is_started_by_the_absolute_path_of_this_program(here: Here) -> None:
    install(here, "vscode", "--bridge")
    (entry,) = json.loads(file_in(here, "vscode").read_text())["servers"].values()
    assert entry["type"] == "stdio"
    assert os.path.isabs(entry["command"])
    assert entry["args"][-3:] == ["connect", "--no-login", URL]
    install(here, "codex", "--bridge")
    (table,) = tomllib.loads(file_in(here, "codex").read_text())["mcp_servers"].values()
    assert table["args"][-3:] == ["connect", "--no-login", URL]
    install(here, "hermes", "--bridge")
    assert f'"connect", "--no-login", "{URL}"]' in file_in(here, "hermes").read_text()


@pytest.mark.parametrize("client", ["claude-code", "codex", "hermes"])
@pytest.mark.parametrize(
    ("variable", "where"),
    [("OSTIARY_CONFIG_HOME", "mine"), ("XDG_CONFIG_HOME", "mine/ostiary")],
)
def test_a_bridge_that_is_started_without_this_environment_finds_the_logins_of_this_one(
    here: Here, monkeypatch: pytest.MonkeyPatch, client: str, variable: str, where: str
) -> None:
    monkeypatch.delenv("OSTIARY_CONFIG_HOME")
    monkeypatch.setenv(variable, str(here.home / "mine"))
    install(here, client, "--bridge")
    wanted = {"OSTIARY_CONFIG_HOME": str(here.home / where)}
    text = file_in(here, client).read_text()
    if client == "codex":
        assert tomllib.loads(text)["mcp_servers"][NAME]["env"] == wanted
    elif client == "hermes":
        assert f"    env: {json.dumps(wanted)}\n" in text
    else:
        assert json.loads(text)["mcpServers"][NAME]["env"] == wanted
    assert "already" in install(here, client, "--bridge")
    uninstall(here, client)
    assert "OSTIARY_CONFIG_HOME" not in (
        file_in(here, client).read_text() if file_in(here, client).exists() else ""
    )


def test_where_logins_are_in_their_usual_place_nothing_is_set_for_a_bridge(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OSTIARY_CONFIG_HOME")
    install(here, "cursor", "--bridge")
    (entry,) = json.loads(file_in(here, "cursor").read_text())["mcpServers"].values()
    assert "env" not in entry
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here.home / ".config"))
    assert "already" in install(here, "cursor", "--bridge")


def test_a_bridge_of_an_earlier_version_that_asked_for_a_login_is_replaced(here: Here) -> None:
    entry = {"command": "/usr/bin/ostiary", "args": ["connect", URL]}
    path = written(here, "cursor", json.dumps({"mcpServers": {NAME: entry}}, indent=2))
    install(here, "cursor", "--bridge")
    (entry,) = json.loads(path.read_text())["mcpServers"].values()
    assert entry["args"][-3:] == ["connect", "--no-login", URL]


def test_a_projects_file_is_meant_by_project_and_some_have_none(here: Here) -> None:
    install(here, "claude-code", "--project")
    assert json.loads((here.home / ".mcp.json").read_text())["mcpServers"][NAME]["url"] == URL
    assert not file_in(here, "claude-code").exists()
    assert "no file for a project" in install(here, "windsurf", "--project", code=2)


def test_nothing_of_an_install_is_left_in_a_project(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = here.config / "backups"
    for name in ("one", "other"):
        project = here.home / name
        project.mkdir()
        monkeypatch.chdir(project)
        install(here, "claude-code", "--project")
        (project / ".mcp.json").write_text(before := (project / ".mcp.json").read_text() + "\n" * len(name))
        said = uninstall(here, "claude-code", "--project")
        assert [each.name for each in project.iterdir() if each.name != ".mcp.json"] == []
        (backup,) = (each for each in kept.iterdir() if str(each) in said)
        assert backup.read_text() == before
    assert len(list(kept.iterdir())) == 2
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_the_newest_back_ups_are_kept_and_no_other_file_goes(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(here, "cursor", "{}")
    others = [
        path.with_name(name)
        for name in ("mcp.json.bak-mine", "mcp.json.bak-20200101T000000.gz", "a.mcp.json.bak-20200101T000000")
    ]
    old = [path.with_name(f"mcp.json.bak-20200101T000000{number}") for number in ("", "-1", "-2", "-10")]
    for each in (*others, *old):
        each.write_text("")
    said = install(here, "cursor")
    assert [each for each in old if each.exists()] == old[-2:]
    for _ in range(BACKUPS_KEPT):
        uninstall(here, "cursor")
        said = install(here, "cursor")
    assert all(each.exists() for each in others)
    kept = set(path.parent.iterdir()) - {path, *others}
    assert len(kept) == BACKUPS_KEPT
    assert any(str(each) in said for each in kept)


def test_programs_that_were_moved_are_found_where_they_say(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(here.home / "elsewhere"))
    install(here, "codex")
    assert (here.home / "elsewhere" / "config.toml").exists()


def test_printing_writes_nothing_and_asking_needs_somebody(here: Here) -> None:
    done = here.run("install", "cursor", URL, "--print")
    assert json.loads(done.stdout) == FRESH["cursor"][1]
    asked = here.run("install", "cursor", URL)
    assert asked.code == 2
    assert "--yes" in asked.stderr
    assert not file_in(here, "cursor").exists()


async def test_the_server_is_asked_for_its_tools_with_the_login_from_here(
    logged_in: Terminal, fake: FakeServer
) -> None:
    done = await logged_in.run("install", "cursor", "--yes")  # the only server that is known here
    assert done.code == 0
    assert "the server answers, with 4 tools" in done.stderr
    path = logged_in.home / FRESH["cursor"][0]
    assert list(json.loads(path.read_text())["mcpServers"]) == ["ostiary"]
    told = await logged_in.run("install", "cursor", fake.url, "--yes", "--json")
    found = json.loads(told.stdout)
    assert (found["changed"], found["tools"], found["name"]) == (False, 4, "ostiary")


async def test_a_server_that_wants_a_login_or_is_away_is_no_failure(
    shell: Terminal, fake: FakeServer
) -> None:
    said = (await shell.run("install", "cursor", fake.url, "--yes")).stderr
    assert "wants a login first" in said
    away = (await shell.run("install", "vscode", "127.0.0.1:9", "--yes")).stderr
    assert "could not be asked" in away


async def test_no_secret_is_written(logged_in: Terminal, fake: FakeServer, here: Here) -> None:
    kept = json.loads((logged_in.config / "tokens.json").read_text())["logins"][fake.url]
    for client in FRESH:
        for more in ((), ("--bridge", "--name", "bridge")):
            install(here, client, *more, url=fake.url)
        text = file_in(here, client).read_text() + (here.config / "installed.json").read_text()
        assert kept["access_token"] not in text
        assert kept["refresh_token"] not in text
