"""server/transport/http/proxy.py: what a reverse proxy says is believed only from a listed address, hop by hop from the right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import networks_of

from server.transport.http.proxy import Proxies

TRUSTED = networks_of(["10.0.0.0/8", "127.0.0.1", "fd00::/8"])
XFF = Proxies(networks=TRUSTED)
RFC7239 = Proxies(networks=TRUSTED, headers="forwarded")


def scope_of(peer: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    pairs = [
        (name.encode(), value.encode("latin-1")) for name, value in (("host", "typed.example"), *headers)
    ]
    client = None if peer is None else (peer, 40000)
    return {"client": client, "scheme": "http", "headers": pairs, "state": {"request_id": "r"}}


def seen(proxies: Proxies, scope: dict[str, Any]) -> tuple[str | None, str, str, bool]:
    resolved = proxies.resolve(scope)
    host = dict(resolved["headers"])[b"host"].decode()
    client = resolved["client"]
    return client and client[0], resolved["scheme"], host, resolved["state"].get("proxied", False)


FULL = (
    ("x-forwarded-for", "198.51.100.7"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "agent.example:8443"),
)


def test_a_listed_proxy_is_believed() -> None:
    assert seen(XFF, scope_of("10.0.0.1", *FULL)) == ("198.51.100.7", "https", "agent.example:8443", True)
    assert seen(XFF, scope_of("::ffff:10.0.0.1", *FULL))[0] == "198.51.100.7"


def test_anybody_else_is_not() -> None:
    scope = scope_of("203.0.113.9", *FULL)
    assert XFF.resolve(scope) is scope


def test_the_scope_of_the_connection_is_left_as_it_was() -> None:
    scope = scope_of("10.0.0.1", *FULL)
    before = {**scope, "headers": list(scope["headers"]), "state": dict(scope["state"])}
    XFF.resolve(scope)
    assert scope == before


@pytest.mark.parametrize(
    ("value", "ip"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("1.1.1.1, 198.51.100.7", "198.51.100.7"),  # the left one was written by the caller
        ("1.1.1.1, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("198.51.100.7,10.0.0.2,10.0.0.3", "198.51.100.7"),
        ("10.0.0.2, 10.0.0.3", "10.0.0.2"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("unknown", "10.0.0.1"),
        ("198.51.100.7, unknown", "10.0.0.1"),
        ("198.51.100.7, unknown, 10.0.0.2", "10.0.0.2"),
        ("", "10.0.0.1"),
        ("1.2.3.4.5", "10.0.0.1"),
    ],
)
def test_the_caller_is_the_first_address_from_the_right_that_is_not_ours(value: str, ip: str) -> None:
    assert seen(XFF, scope_of("10.0.0.1", ("x-forwarded-for", value)))[0] == ip


def test_several_header_lines_are_one_list() -> None:
    scope = scope_of(
        "10.0.0.1", ("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "198.51.100.7, 10.0.0.9")
    )
    assert seen(XFF, scope)[0] == "198.51.100.7"


def test_scheme_and_host_are_those_that_the_outermost_own_proxy_saw() -> None:
    scope = scope_of(
        "10.0.0.1",
        ("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.0.0.2"),
        ("x-forwarded-proto", "gopher, https, http"),
        ("x-forwarded-host", "evil.example, agent.example, inner.example"),
    )
    assert seen(XFF, scope) == ("198.51.100.7", "https", "agent.example", True)


@pytest.mark.parametrize("host", ["a b", "a/b", "a@b", "ä", "", "a,", "a:b"])
def test_a_forwarded_host_that_is_none_is_not_taken_over(host: str) -> None:
    assert seen(XFF, scope_of("10.0.0.1", ("x-forwarded-host", host)))[2] == "typed.example"


def test_a_forwarded_scheme_that_is_none_is_not_taken_over() -> None:
    assert seen(XFF, scope_of("10.0.0.1", ("x-forwarded-proto", "javascript")))[1] == "http"


def test_the_other_family_of_headers_is_ignored() -> None:
    forwarded = ("forwarded", "for=6.6.6.6;proto=https;host=evil.example")
    assert seen(XFF, scope_of("10.0.0.1", forwarded)) == ("10.0.0.1", "http", "typed.example", False)
    assert seen(RFC7239, scope_of("10.0.0.1", *FULL)) == ("10.0.0.1", "http", "typed.example", False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("for=198.51.100.7;proto=https;host=agent.example", ("198.51.100.7", "https", "agent.example", True)),
        ('For="[2001:db8::1]:4711"; Proto=HTTPS', ("2001:db8::1", "https", "typed.example", True)),
        (
            "for=1.1.1.1, for=198.51.100.7;proto=https, for=10.0.0.2",
            ("198.51.100.7", "https", "typed.example", True),
        ),
        ('for=_hidden, for="unknown"', ("10.0.0.1", "http", "typed.example", True)),
        (
            'for="quoted, comma";host="a.example", for=198.51.100.7',
            ("198.51.100.7", "http", "typed.example", True),
        ),
        # The caller opened a quotation that never closes, to swallow what the proxy appends.
        ('for="x, for=198.51.100.7', ("198.51.100.7", "http", "typed.example", True)),
        ("&&&", ("10.0.0.1", "http", "typed.example", True)),
        ("", ("10.0.0.1", "http", "typed.example", False)),
    ],
)
def test_forwarded_of_rfc_7239_is_understood(value: str, expected: tuple[str, str, str, bool]) -> None:
    assert seen(RFC7239, scope_of("10.0.0.1", ("forwarded", value))) == expected


def test_a_unix_socket_is_trusted_only_when_configured() -> None:
    scope = scope_of(None, *FULL)
    assert XFF.resolve(scope) is scope
    assert seen(Proxies(networks=(), unix_socket=True), scope)[0] == "198.51.100.7"


@given(
    st.sampled_from(["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"]),
    st.text(st.characters(max_codepoint=255)),
)
def test_whatever_a_caller_writes_in_front_the_address_is_what_our_proxy_saw(name: str, noise: str) -> None:
    xff = scope_of(
        "10.0.0.1",
        (name, noise + ("," if name == "x-forwarded-for" else "")),
        ("x-forwarded-for", "198.51.100.7"),
    )
    assert seen(XFF, xff)[0] == "198.51.100.7"
    rfc = scope_of("10.0.0.1", ("forwarded", f"{noise}, for=198.51.100.7"))
    assert seen(RFC7239, rfc)[::3] == ("198.51.100.7", True)
