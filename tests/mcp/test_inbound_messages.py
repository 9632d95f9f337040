"""What is kept of a request's own words (server/mcp/inbound_messages.py)."""

from __future__ import annotations

from typing import Any

import pytest

from server.mcp.inbound_messages import Route, classify
from server.mcp.messages import RequestMessage, decode
from tests.pair import modern


def test_a_stream_keeps_of_what_its_client_declared_only_what_it_may_need() -> None:
    declared = {
        "extensions": {"io.modelcontextprotocol/tasks": {"much": []}, "com.example/other": {}},
        "roots": {"much": [[]]},
    }
    params = {
        "notifications": {},
        "_meta": {"io.modelcontextprotocol/clientCapabilities": declared},
    }
    for method, kept in (
        ("subscriptions/listen", {"extensions": {"io.modelcontextprotocol/tasks": {}}}),
        ("tools/list", declared),
    ):
        body, headers = modern(method, params)
        message = decode(body)
        assert isinstance(message, RequestMessage)
        verdict = classify(message, {name.encode(): value.encode() for name, value in headers.items()})
        assert isinstance(verdict, Route)
        assert verdict.params.meta.client_capabilities == kept


@pytest.mark.parametrize("declared", [None, 5, {"io.modelcontextprotocol/tasks": {}}])
def test_a_stream_of_a_client_that_declares_nonsense_can_be_opened(declared: Any) -> None:
    params = {
        "notifications": {},
        "_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": declared}},
    }
    body, headers = modern("subscriptions/listen", params)
    message = decode(body)
    assert isinstance(message, RequestMessage)
    verdict = classify(message, {name.encode(): value.encode() for name, value in headers.items()})
    assert isinstance(verdict, Route)
    assert ("extensions" in verdict.params.meta.client_capabilities) == isinstance(declared, dict)  # pyright: ignore[reportOperatorIssue]
