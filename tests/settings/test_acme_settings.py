"""`domain`, `accept_terms`, `http_port` and `[acme]`: what they come to, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

from server.settings.resolved_settings import resolve
from server.settings.setting_changes import change
from server.settings.settings_reader import load
from tests.settings.written import DOMAIN, settled


def test_a_domain_says_where_to_listen_and_what_the_address_is(tmp_path: Path) -> None:
    found = settled(tmp_path, DOMAIN)
    assert (found.config.host, found.config.port) == ("*", 443)
    assert found.canonical_issuer(443) == "https://agent.example.org"
    assert found.config.allowed_hosts == ("agent.example.org", "mcp.example.org")
    assert not found.loopback
    assert found.acme.directory.startswith("https://acme-v02.api.letsencrypt.org/")


def test_what_is_written_holds_also_where_it_is_the_default(tmp_path: Path) -> None:
    found = settled(tmp_path, DOMAIN + 'host = "127.0.0.1"\n', OSTIARY_PORT="8420")
    assert (found.config.host, found.config.port) == ("127.0.0.1", 8420)
    other = settled(tmp_path, DOMAIN + 'issuer = "https://mcp.example.org:8443"\n')
    assert other.issuer == "https://mcp.example.org:8443"
    assert other.config.allowed_hosts == ("agent.example.org:8443", "mcp.example.org:8443")


def test_a_flag_is_enough(tmp_path: Path) -> None:
    found = resolve(load(None, {}, {"domain": "agent.example.org", "accept_terms": "true"}))
    assert found.config.domain == ("agent.example.org",)


def test_another_domain_or_authority_counts_from_the_next_start(tmp_path: Path) -> None:
    before = settled(tmp_path, DOMAIN)
    after = settled(tmp_path, DOMAIN.replace("mcp.", "new.") + '[acme]\nprofile = "shortlived"\n')
    serving = {server.name: server for server in before.servers}
    assert {"domain", "acme"} <= set(change(serving, before, after).waits)
