"""Whom to tell of a weakness (server/transport/http/security_txt.py, RFC 9116): the file, and that it is there by its setting alone."""

from __future__ import annotations

import pytest

from auth.values.http_messages import WireReply, WireRequest
from server.transport.http.security_txt import PATH, SecurityTxt

# 2027-01-15, eight in the morning.
NOW = 1_800_000_000_000
CONTACTS = ("mailto:security@example.org", "https://example.org/report")


def asked(*, issuer: str = "https://agent.example.org", method: str = "GET", now: int = NOW) -> WireReply:
    request = WireRequest(method=method, path=PATH, origin=issuer, ip="192.0.2.1")
    return SecurityTxt(CONTACTS, issuer, lambda: now).answer(request)


def test_it_names_each_contact_when_it_expires_and_where_it_is() -> None:
    reply = asked()
    assert reply.status == 200
    assert dict(reply.headers)["Content-Type"] == "text/plain; charset=utf-8"
    assert reply.body.decode().splitlines() == [
        "Contact: mailto:security@example.org",
        "Contact: https://example.org/report",
        "Expires: 2027-02-14T00:00:00Z",
        "Canonical: https://agent.example.org/.well-known/security.txt",
    ]


def test_it_is_another_one_each_day_so_that_it_never_expires_while_the_server_lives() -> None:
    assert asked(now=NOW + 3_600_000).body == asked().body
    assert b"Expires: 2027-02-15T" in asked(now=NOW + 24 * 3_600_000).body


def test_an_address_without_https_is_not_named() -> None:
    assert b"Canonical" not in asked(issuer="http://127.0.0.1:8420").body


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("OPTIONS", 204), ("POST", 405)])
def test_it_is_only_read(method: str, status: int) -> None:
    assert asked(method=method).status == status
