"""What of new settings a running server takes (settings/setting_changes.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.settings.resolved_settings import Resolved, resolve
from server.settings.setting_changes import SettingsChange, change
from server.settings.settings_reader import load

PLAIN = '[[server]]\nname = "main"\n[[server.agent]]\nkind = "demo"\n'


def compared(tmp_path: Path, before: str, after: str) -> SettingsChange:
    def read(text: str) -> Resolved:
        file = tmp_path / "ostiary.toml"
        file.write_text(text, "utf-8")
        return resolve(load(file, {}))

    started = read(before)
    return change({server.name: server for server in started.servers}, started, read(after))


def test_the_same_settings_change_nothing(tmp_path: Path) -> None:
    assert compared(tmp_path, PLAIN, PLAIN + "\n# a remark\n") == SettingsChange()


@pytest.mark.parametrize(
    "line",
    [
        'title = "New"',
        'instructions = "Be kind."',
        'default_tools = "readonly"',
        "tools = { echo = { enabled = false } }",
        'groups = { some = ["echo"] }',
        'unclassified = "financial"',
        'old_names = { "demo.*" = "*" }\nold_names_until = 2027-01-31',
    ],
)
def test_what_a_server_offers_is_taken(tmp_path: Path, line: str) -> None:
    found = compared(tmp_path, PLAIN, PLAIN.replace('name = "main"', f'name = "main"\n{line}'))
    assert [server.name for server in found.servers] == ["main"] and not found.waits


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ("", "port = 9000", ("port",)),
        ("", 'log_level = "debug"', ("log_level",)),
        ('title = "a"', "page_size = 3", ("server main: page_size",)),
        ("", 'auth = "none"\n', ("auth",)),
    ],
)
def test_what_is_settled_at_the_start_waits_and_is_named(
    tmp_path: Path, before: str, after: str, waits: tuple[str, ...]
) -> None:
    if waits[0].startswith("server"):
        texts = [PLAIN.replace('name = "main"', f'name = "main"\n{line}') for line in (before, after)]
    else:
        texts = [f"{line}\n{PLAIN}" for line in (before, after)]
    assert compared(tmp_path, *texts).waits == waits


def test_servers_that_come_and_go_wait_and_the_others_do_not(tmp_path: Path) -> None:
    second = PLAIN.replace("main", "second")
    after = PLAIN.replace('name = "main"', 'name = "main"\ntitle = "New"') + PLAIN.replace("main", "third")
    found = compared(tmp_path, PLAIN + second, after)
    assert found.waits == ("server third (new)", "server second (gone)")
    assert [(server.name, server.title) for server in found.servers] == [("main", "New")]
    assert compared(tmp_path, PLAIN + second, second + PLAIN).waits == ("the order of the servers",)


@pytest.mark.parametrize(
    ("more", "shared"),
    [
        ('\n[[scope]]\nname = "notes"\ndescription = "Read notes"\n', "scope"),
        ('\n[[plan]]\nname = "gold"\nunlimited = true\n', "plan"),
    ],
)
def test_servers_wait_for_what_they_may_refer_to(tmp_path: Path, more: str, shared: str) -> None:
    """A tool that needs a scope which nobody can be granted yet would be lost; one whose plan is not there yet would be free."""
    found = compared(tmp_path, PLAIN, PLAIN.replace('name = "main"', 'name = "main"\ntitle = "New"') + more)
    assert not found.servers and found.waits == (shared, "server main")


def test_bounds_of_tools_and_all_else_that_is_said_of_them_are_taken(tmp_path: Path) -> None:
    tools = '\n[server.tools.echo]\nlimit = "1/min"\nquota = "5/day"\n'
    found = compared(tmp_path, PLAIN + tools, PLAIN + '\n[server.tools.echo]\ntier = "read"\n')
    echo = found.servers[0].tools["echo"]
    assert (found.waits, echo.limit, echo.quota, echo.tier) == ((), "", "", "read")
    assert compared(tmp_path, PLAIN, PLAIN + tools).servers[0].tools["echo"].limit == "1/min"


UPSTREAM = '[[server.agent]]\nkind = "mcp"\nid = "x"\nurl = "https://x.example/mcp"\n'
PERSONAL = 'identity = "person"\noauth = { authorization_server = "https://login.example" }\n'


def test_upstreams_are_taken_but_for_those_at_which_people_have_accounts(tmp_path: Path) -> None:
    found = compared(tmp_path, PLAIN, PLAIN + UPSTREAM)
    assert [len(server.agents) for server in found.servers] == [2] and not found.waits
    assert compared(tmp_path, PLAIN + UPSTREAM, PLAIN + UPSTREAM + "banner = true\n").servers
    assert compared(tmp_path, PLAIN + UPSTREAM, PLAIN).servers
    personal = compared(tmp_path, PLAIN + UPSTREAM, PLAIN + UPSTREAM + PERSONAL)
    assert not personal.servers
    assert personal.waits == (
        'server main: its upstreams with identity = "person", and the agents beside them',
    )


def test_the_first_price_waits(tmp_path: Path) -> None:
    priced = PLAIN.replace('name = "main"', 'name = "main"\nprice = "$0.01"')
    found = compared(tmp_path, PLAIN, priced)
    assert not found.servers and found.waits == ("price", "server main")
    dearer = compared(tmp_path, priced, priced.replace("0.01", "0.02"))
    assert [server.price for server in dearer.servers] == ["$0.02"] and not dearer.waits
