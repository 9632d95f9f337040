"""`domain`, `accept_terms`, `http_port` and `[acme]`: what they come to, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.settings.changes import change
from server.settings.reading import ConfigInvalid, load
from server.settings.resolve import Resolved, resolve


def settled(tmp_path: Path, text: str, **environment: str) -> Resolved:
    file = tmp_path / "ostiary.toml"
    file.write_text(text, "utf-8")
    return resolve(load(file, environment))


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        settled(tmp_path, text)
    return [str(problem) for problem in caught.value.problems]


DOMAIN = 'domain = ["agent.example.org", "mcp.example.org"]\naccept_terms = true\n'


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('domain = ["agent.example.org"]', "accept_terms: is needed with domain"),
        ('accept_terms = true\ndomain = ["*.example.org"]', '"*.example.org" cannot be proved'),
        ('accept_terms = true\ndomain = ["Agent.example.org"]', '"Agent.example.org" is not a name'),
        ('accept_terms = true\ndomain = ["localhost"]', '"localhost" is not a name'),
        ('accept_terms = true\ndomain = ["192.0.2.1"]', '"192.0.2.1" is not a name'),
        ('accept_terms = true\ndomain = ["a.example.org:443"]', "is not a name"),
        ('accept_terms = true\ndomain = ["a.org", "a.org"]', '"a.org" is there twice'),
        (DOMAIN + 'issuer = "https://other.example.org"', "issuer: is at \"other.example.org\", which is none"),
        (DOMAIN + 'tls_certificate = "a"\ntls_key = "b"', "domain: gets a certificate by itself"),
        ("http_port = 80", "http_port: sends callers on to https, which is not served"),
        (DOMAIN + '[acme]\ndirectory = "http://ca.example.org/"', "acme.directory:"),
        (DOMAIN + '[acme]\neab_key_id = "one"', "acme.eab_key: and eab_key_id belong together"),
        (DOMAIN + '[acme]\neab_key_id = "one"\neab_key = "c2VjcmV0"', "acme.eab_key: is no reference"),
        (DOMAIN + '[acme]\ncontact = ["ann@example.org"]', "acme.contact"),
        (DOMAIN + "[acme]\ndirectori = 1", "acme.directori: is not a setting"),
        (DOMAIN + 'auth = "none"', "would let anybody in from the network"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_with_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    found = problems(tmp_path, text)
    assert any(said in problem for problem in found), found
    assert "c2VjcmV0" not in str(found)


def test_another_domain_or_authority_counts_from_the_next_start(tmp_path: Path) -> None:
    before = settled(tmp_path, DOMAIN)
    after = settled(tmp_path, DOMAIN.replace("mcp.", "new.") + '[acme]\nprofile = "shortlived"\n')
    serving = {server.name: server for server in before.servers}
    assert {"domain", "acme"} <= set(change(serving, before, after).waits)
