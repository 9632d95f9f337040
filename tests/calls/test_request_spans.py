"""Which trace a request belongs to: what its caller says in `_meta`, or else in its headers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from server.calls.request import Request
from server.calls.request_spans import _context
from server.calls.tools_call import TOOL_CALL
from server.mcp.inbound_messages import Route
from server.mcp.method_params import CallToolParams
from server.mcp.versions import LATEST
from tests.interaction.agents import USER, house

IN_META, IN_HEADER = (f"00-{letter * 32}-{letter * 16}-01" for letter in "ab")
HEADERS = {b"traceparent": IN_HEADER.encode(), b"tracestate": b"h=1"}


def asked(params: bytes | None, headers: dict[bytes, bytes] | None) -> tuple[str, str] | None:
    """The trace and the state that a request with these belongs to."""
    came = None if params is None else msgspec.Raw(params)
    route = Route(TOOL_CALL, 1, CallToolParams(name="x"), LATEST, came=came)
    fields: dict[str, Any] = {
        "endpoint": house().endpoint,
        "principal": USER,
        "call_id": "call_1",
        "route": route,
    }
    found = _context(Request(**fields, headers=headers))
    return None if found is None else (found.trace_id[0], found.state)


@pytest.mark.parametrize(
    ("params", "headers", "found"),
    [
        (None, None, None),
        (None, {}, None),
        (None, HEADERS, ("b", "h=1")),
        (None, {b"traceparent": IN_HEADER.encode()}, ("b", "")),
        (f'{{"_meta":{{"traceparent":"{IN_META}","tracestate":"m=1"}}}}'.encode(), HEADERS, ("a", "m=1")),
        (f'{{"_meta":{{"traceparent":"{IN_META}","tracestate":5}}}}'.encode(), HEADERS, ("a", "")),
        (f'{{"_meta":{{"traceparent":"{IN_META}"}}}}'.encode(), None, ("a", "")),
        (b'{"_meta":{"traceparent":5}}', HEADERS, ("b", "h=1")),
        (b'{"_meta":{"traceparent":"no trace"}}', HEADERS, None),
        (b'{"_meta":5}', HEADERS, ("b", "h=1")),
        (b'{"_meta":{}}', None, None),
    ],
)
def test_meta_comes_before_headers(
    params: bytes | None, headers: dict[bytes, bytes] | None, found: tuple[str, str] | None
) -> None:
    assert asked(params, headers) == found
