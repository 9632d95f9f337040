"""The settings of `kind = "mcp"`: what is wrong with them, and that they show nothing secret."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from server.agents.mcp.mcp_settings import ADDRESS_CHARACTERS, McpConfig, problems
from server.agents.mcp.upstream_credentials import StaticCredential
from server.lib.secret import Secret
from server.lib.shortened import short_name
from server.settings.secret_reference import SecretUnreadable

AT = "https://a.example/mcp"
PAYS = {
    "key": "env:WALLET",
    "per_call": "$1",
    "per_day": "$2",
    "networks": ["base-sepolia"],
    "payees": ["any"],
}


def found(**settings: Any) -> list[tuple[str, str]]:
    return problems(msgspec.convert(settings, McpConfig))


@pytest.mark.parametrize(
    "settings",
    [
        {"command": ["npx", "-y", "x"], "env": {"KEY": "env:KEY"}, "working_dir": "/"},
        {"url": "https://mcp.example.com/mcp", "token": "env:TOKEN", "headers": {"X-Key": "file:/k"}},
        {"tcp": "[::1]:9000"},
        {"tcp": "host.example:65535"},
        {"command": ["x"], "share": "all", "unconfined": True},
        {"tcp": "a:1", "share": "all"},
        {"url": AT, "headers": {f"X-{number}": "x" * 8_192 for number in range(32)}},
        {"url": AT, "question_hosts": ["accounts.example.com", "::1"]},
        {"url": AT, "mark_up": "20%", "pay": PAYS},
        {"url": AT, "meta": ["a/*"]},
        {"tcp": "a:1", "tools": ["read_*", "!" + "x" * 128], "rename": {"a": "x" * 64}},
    ],
)
def test_each_way_to_a_server_is_fine_by_itself(settings: dict[str, Any]) -> None:
    assert found(**settings) == []


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "url"),
        ({"url": "https://a.example/mcp", "tcp": "a:1"}, "tcp"),
        ({"url": "ftp://a.example"}, "url"),
        ({"url": "https://user:secret@a.example"}, "url"),
        ({"tcp": "a:99999"}, "tcp"),
        ({"tcp": "9000"}, "tcp"),
        ({"command": ["x\0y"]}, "command"),
        ({"url": "https://a.example", "env": ["PATH"]}, "env"),
        ({"tcp": "a:1", "working_dir": "/"}, "working_dir"),
        ({"command": ["x"], "env": {"not a name": "1"}}, "env"),
        ({"url": "https://a.example", "headers": {"Mcp-Session-Id": "x"}}, "headers.Mcp-Session-Id"),
        ({"url": "https://a.example", "headers": {"Bad Name": "x"}}, "headers"),
        ({"url": "https://a.example", "headers": {"X": "two\nlines"}}, "headers.X"),
        (
            {"url": "https://a.example", "headers": {"Authorization": "env:A"}, "token": "env:B"},
            "headers.Authorization",
        ),
        ({"url": "https://a.example", "token": "swordfish"}, "token"),
        ({"tcp": "a:1", "tools": ["a b"]}, "tools"),
        ({"tcp": "a:1", "rename": {"a": "b c"}}, "rename.a"),
        ({"tcp": "a:1", "rename": {"a": "c", "b": "c"}}, "rename"),
        ({"tcp": "a:1", "rename": {"a": "x" * 65}}, "rename.a"),
        ({"tcp": "a:1", "tools": ["x" * 129]}, "tools"),
        ({"tcp": "a:65536"}, "tcp"),
        ({"tcp": "a:1", "ca_file": "/ca.pem"}, "ca_file"),
        ({"command": ["x"], "url": AT}, "url"),
        ({"url": AT, "identity": "person-key"}, "id"),
        ({"url": AT, "id": "a", "identity": "person-key", "key_header": "Host"}, "key_header"),
        ({"url": AT, "id": "a", "identity": "person-key", "key_header": "not a name"}, "key_header"),
        ({"url": "http://a.example/mcp", "id": "a", "identity": "person-key"}, "url"),
        ({"url": AT, "key_header": "X-Api-Key"}, "key_header"),
        ({"command": ["x"], "id": "a", "identity": "person-key"}, "identity"),
        ({"url": AT, "share": "all"}, "share"),
        ({"url": AT, "unconfined": True}, "unconfined"),
        ({"url": AT, "question_hosts": ["Accounts.example"]}, "question_hosts"),
        ({"url": AT, "mark_up": "20%"}, "mark_up"),
        ({"url": AT, "mark_up": "much", "pay": PAYS}, "mark_up"),
        ({"url": AT, "pay": {**PAYS, "key": ""}}, "pay.key"),
        ({"url": AT, "headers": {f"X-{number}": "x" for number in range(33)}}, "headers"),
        ({"url": AT, "headers": {"X": "x" * 8_193}}, "headers.X"),
        ({"url": AT, "headers": {"X-A": "x", "x-a": "x"}}, "headers.x-a"),
    ],
)
def test_what_cannot_be_meant_is_said_by_its_key(settings: dict[str, Any], key: str) -> None:
    assert [name for name, _ in found(**settings)] == [key]
    assert "swordfish" not in str(found(**settings))


@pytest.mark.parametrize("way", [{"command": ["x"]}, {"tcp": "a:1"}])
@pytest.mark.parametrize("credential", [{"token": "env:T"}, {"headers": {"authorization": "env:T"}}])
def test_nothing_but_a_url_is_sent_credentials(way: dict[str, Any], credential: dict[str, Any]) -> None:
    ((key, what),) = found(**way, **credential)
    assert key in credential
    assert "nothing else is sent credentials" in what


def test_settings_do_not_show_what_may_be_secret() -> None:
    config = msgspec.convert(
        {"url": "https://a.example/mcp?key=swordfish", "headers": {"X-Key": "swordfish"}}, McpConfig
    )
    assert "swordfish" not in repr(config) + config.what


@pytest.mark.parametrize("value", ["two\nlines", "", "ümlaut", " padded "])
def test_a_credential_that_cannot_be_sent_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(SecretUnreadable, match="X-Key is not plain ASCII text of one line"):
        StaticCredential({"X-Key": Secret(value)})


LONG = "x" * ADDRESS_CHARACTERS


@pytest.mark.parametrize(
    ("settings", "over", "what"),
    [
        ({"url": AT, "id": "mine"}, "http", "mine"),
        ({"url": f"{AT}?key=swordfish"}, "http", AT),
        ({"url": f"{AT}/{LONG}"}, "http", f"{AT}/{LONG}"[:ADDRESS_CHARACTERS]),
        ({"tcp": "a:1"}, "tcp", "a:1"),
        ({"command": ["/opt/x/server", "y"]}, "stdio", "server"),
        ({"command": [f"/opt/{LONG}"]}, "stdio", short_name(LONG)),
    ],
)
def test_its_owner_knows_it_by_its_name_or_by_how_it_is_reached(
    settings: dict[str, Any], over: str, what: str
) -> None:
    config = msgspec.convert(settings, McpConfig)
    assert (config.over, config.what) == (over, what)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"token": "env:T"}, True),
        ({"headers": {"AUTHORIZATION": "env:T"}}, True),
        ({"headers": {"X": "env:T"}}, False),
        ({}, False),
    ],
)
def test_it_is_known_whether_the_settings_say_as_whom_it_is_called(
    settings: dict[str, Any], says: bool
) -> None:
    assert msgspec.convert({"url": AT, **settings}, McpConfig).sends_authorization is says
