"""A server that pretends to be older: what it makes of messages that it knows better than it says."""

from __future__ import annotations

import pytest

from server.mcp.errors import InvalidRequest
from server.mcp.inbound_messages import Acknowledged, Rejection, Route, Verdict, classify, classify_line
from server.mcp.messages import Batch, decode
from server.mcp.older_versions import as_older
from server.mcp.versions import REVISIONS
from tests.pair import modern

OLD = REVISIONS["2025-03-26"]


def made_of(method: str, *, version: str | None = None, newest: str = OLD.version) -> Verdict:
    """A request of the handshake era with this version header, or a modern one."""
    if version is None:
        body, headers = modern(method, {})
    else:
        params = f'{{"protocolVersion": "{version}", "capabilities": {{}}, "clientInfo": {{"name": "c", "version": "1"}}}}'
        body = f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": {params}}}'.encode()
        headers = {} if method == "initialize" else {"mcp-protocol-version": version}
    message = decode(body)
    assert not isinstance(message, Batch)
    verdict = classify(message, {name.encode(): value.encode() for name, value in headers.items()})
    return as_older(verdict, REVISIONS[newest])


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "no/such"])
def test_a_modern_request_is_refused_as_by_one_that_knows_no_such_version(method: str) -> None:
    verdict = made_of(method)
    assert isinstance(verdict, Rejection)
    assert isinstance(verdict.error, InvalidRequest)
    assert verdict.error.data is None
    assert (verdict.revision, verdict.id) == (OLD, 1)


@pytest.mark.parametrize(
    ("asked", "newest", "agreed"),
    [
        ("2025-11-25", "2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-03-26", "2024-11-05"),
        ("2026-07-28", "2025-06-18", "2025-06-18"),
        ("2025-06-18", "2025-06-18", "2025-06-18"),
    ],
)
def test_a_handshake_agrees_on_nothing_newer(asked: str, newest: str, agreed: str) -> None:
    verdict = made_of("initialize", version=asked, newest=newest)
    assert isinstance(verdict, Route)
    assert verdict.revision.version == agreed


def test_a_request_without_a_session_is_answered_in_no_newer_revision() -> None:
    assert made_of("tools/list", version="2025-11-25").revision == OLD
    assert made_of("tools/list", version="2025-11-25", newest="2024-11-05").revision.version == "2024-11-05"


def test_a_notification_is_taken_whatever_it_names() -> None:
    message = decode(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    assert not isinstance(message, Batch)
    verdict = as_older(classify_line(message, None), OLD)
    assert isinstance(verdict, Acknowledged)
    assert verdict.revision == OLD
