"""Headers that settings write: which may be, and their values, with references read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Final

from server.lib.http_client.fetch import url_problem
from server.lib.oauth_client.addresses import is_fit
from server.lib.secret import Secret
from server.lib.shortened import short_name
from server.settings.secret_reference import read_secret

HEADERS: Final = 32
HEADER_CHARACTERS: Final = 8 * 1024  # what common servers accept in one line
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
REFERENCE: Final = re.compile(r"(?:env|file):.+")
# Set by us, or about the connection itself (RFC 9110 §7.6.1): a setting here would break the exchange.
OWN_HEADERS: Final = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
        "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "x-request-id",
    }
)  # fmt: skip


def header_problems(
    headers: Mapping[str, str], own: Set[str] = OWN_HEADERS, taken: Set[str] = frozenset()
) -> list[tuple[str, str]]:
    """Return what is wrong with them, as `read_headers` reads them: (key, what is wrong and what to write). Holds no value.

    `own`: those that the server sets itself; `taken`: those that another setting says. In small letters, both."""
    found: list[tuple[str, str]] = []
    if len(headers) > HEADERS:
        found.append(("headers", f"has more than {HEADERS} entries"))
    seen = set(taken)
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            found.append(("headers", f"{short_name(name)!r} is not a header name"))
        elif name.lower() in own:
            found.append((f"headers.{name}", "is set by the server itself; leave it out"))
        elif name.lower() in seen:
            found.append((f"headers.{name}", "is there twice"))
        elif not is_sendable(value):
            found.append((f"headers.{name}", "must be plain ASCII text, env:NAME or file:/path"))
        seen.add(name.lower())
    return found


def address_problem(key: str, url: str) -> list[tuple[str, str]]:
    problem = url_problem(url)
    return [(key, f"{problem}; write e.g. https://agent.example.org/chat")] if problem else []


def secret_address_problem(url: str) -> str | None:
    """Say what keeps `url`, which an owner wrote, from being sent a secret of ours, and what to write; else return None."""
    problem = url_problem(url) or (None if is_fit(url) else "would be sent secrets in the open")
    return problem and f"{problem}; write an https address"


def read_headers(written: Mapping[str, str]) -> dict[str, Secret]:
    """Return header values with references read: `env:NAME`, `file:/path`, and "Bearer env:NAME".

    Raises `SecretUnreadable`. A value that is written out is kept secret all the same."""
    found: dict[str, Secret] = {}
    for name, value in written.items():
        scheme, space, last = value.rpartition(" ")
        if REFERENCE.fullmatch(value):
            found[name] = read_secret(value)
        elif space and REFERENCE.fullmatch(last):
            found[name] = Secret(f"{scheme} {read_secret(last).reveal()}")
        else:
            found[name] = Secret(value)
    return found


def is_sendable(value: str) -> bool:
    return (
        value.isascii()
        and value.isprintable()
        and value == value.strip()
        and 0 < len(value) <= HEADER_CHARACTERS
    )
