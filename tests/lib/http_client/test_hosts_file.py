"""Names of hosts(5), as the system's resolver reads them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from auth.clients.client_identifier_urls import CannotFetch
from server.lib.http_client import hosts_file
from server.run import pinned_fetcher
from server.run.pinned_fetcher import Reach, make_fetch
from tests.stranger import HOST, PUBLIC

FILE = f"""
# 203.0.113.9 {HOST}
127.0.0.1\tlocalhost  # 203.0.113.8 {HOST}
{PUBLIC} other.example App.Example alias
2606:4700:4700::1111 app.example.
2606:4700:4700::1111 app.example
nonsense app.example
{PUBLIC} app.example
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (HOST, [PUBLIC, "2606:4700:4700::1111"]),
        ("ALIAS", [PUBLIC]),
        ("localhost", ["127.0.0.1"]),
        ("203.0.113.8", []),
        ("example", []),
        ("", []),
    ],
)
def test_every_address_of_a_name_is_found_and_comments_are_none(
    tmp_path: Path, name: str, found: list[str]
) -> None:
    file = tmp_path / "hosts"
    file.write_text(FILE)
    assert [str(address) for address in hosts_file.addresses_of(name, file)] == found


def test_a_file_that_is_not_there_or_no_text_names_nobody(tmp_path: Path) -> None:
    assert hosts_file.addresses_of(HOST, tmp_path / "absent") == []
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00" * 100)
    assert hosts_file.addresses_of(HOST, tmp_path / "bytes") == []


async def test_the_file_comes_before_any_name_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"{PUBLIC} {HOST}\n")
    monkeypatch.setattr(hosts_file, "HOSTS_FILE", file)
    asked: list[Any] = []

    def look_up(host: Any, port: Any, **named: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("198.18.0.1", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolve = Reach.system().resolve
    assert [str(address) for address in await resolve(HOST)] == [PUBLIC]
    assert asked == []
    assert [str(address) for address in await resolve("another.example")] == ["198.18.0.1"]
    assert asked == [b"another.example."]


@pytest.mark.parametrize(
    "line", [f"127.0.0.1 {HOST}", f"{PUBLIC} {HOST}\n10.0.0.7 {HOST}", f"0.0.0.0 {HOST}"]
)
async def test_a_name_that_the_file_leads_into_the_house_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    file = tmp_path / "hosts"
    file.write_text(line)
    monkeypatch.setattr(hosts_file, "HOSTS_FILE", file)

    async def never(*_: Any) -> Any:
        raise AssertionError("nobody may be called")

    monkeypatch.setattr(pinned_fetcher, "connect_to", never)
    with pytest.raises(CannotFetch, match="not on the public internet"):
        await make_fetch(Reach.system())(f"https://{HOST}/client.json")
