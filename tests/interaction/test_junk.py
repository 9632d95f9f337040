"""Whatever is sent, the answer is HTTP, it is never a fault of ours, and the next caller is served."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from server.mcp.inbound_messages import Acknowledged, Rejection, Route, classify
from server.mcp.messages import Batch, decode
from tests.interaction.agents import house
from tests.pair import ACCEPT_BOTH, META, MODERN

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
versions = st.sampled_from(
    [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2099-01-01", "x", ""]
)
methods = st.sampled_from(
    [
        "tools/call",
        "tools/list",
        "initialize",
        "ping",
        "server/discover",
        "prompts/list",
        "notifications/x",
        "nonsense",
    ]
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
metas = junk | st.fixed_dictionaries(
    {},
    optional={
        "io.modelcontextprotocol/protocolVersion": versions | junk,
        "io.modelcontextprotocol/clientCapabilities": st.just({}) | junk,
        "progressToken": text | st.integers() | junk,
    },
)
params = junk | st.fixed_dictionaries(
    {},
    optional={
        "_meta": st.just(META) | metas,
        "name": st.sampled_from(["echo", "clock", "other"]) | junk,
        "arguments": st.just({"text": "x"}) | junk,
        "protocolVersion": versions | junk,
        "cursor": junk,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"]),
        "id": text | st.integers() | junk,
        "method": methods | junk,
        "params": params,
        "result": junk,
        "error": junk,
    },
)
bodies = st.binary(max_size=100) | (messages | junk | st.lists(messages, max_size=3)).map(
    lambda v: json.dumps(v).encode()
)
visible = st.text(st.characters(min_codepoint=1, max_codepoint=255, exclude_characters="\r\n"), max_size=12)
headers = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(["application/json", "application/json", "text/plain"]) | visible,
        "accept": st.sampled_from([ACCEPT_BOTH, "*/*", "application/json", "text/event-stream"]) | visible,
        "mcp-protocol-version": versions | visible,
        "mcp-method": methods | visible,
        "mcp-name": st.sampled_from(["echo", "=?base64?ZWNobw==?="]) | visible,
        "mcp-session-id": visible,
        "authorization": visible,
        "access-control-request-headers": visible,
        "origin": st.just("http://127.0.0.1:8420") | visible,
    },
)
verbs = st.sampled_from(["POST"] * 8 + ["GET", "HEAD", "DELETE", "OPTIONS", "PUT"])


@pytest.mark.requirement("safety.nesting", era="modern", transport="http")
@pytest.mark.requirement("safety.nesting", era="legacy", transport="http")
def test_no_depth_of_nesting_is_too_much_for_one_step_and_not_for_the_one_before() -> None:
    for depth in range(1, 1200):
        nested = "[" * depth + "]" * depth
        body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"a":{nested}}}}}}}'
        message = decode(body.encode())
        assert not isinstance(message, Batch)
        assert isinstance(classify(message, {}), Route | Rejection)


@pytest.mark.requirement("safety.nesting", era="modern", transport="http")
@pytest.mark.requirement("safety.nesting", era="legacy", transport="http")
@settings(max_examples=400, deadline=None)
@given(verbs, bodies, headers)
def test_no_request_makes_the_server_fail(verb: str, body: bytes, sent: dict[str, str]) -> None:
    made = house()

    async def ask() -> None:
        answer = await made.pair.request(verb, body=body, headers=sent)
        assert 200 <= answer.status < 500
        assert "mcp-protocol-version" in answer.headers
        if answer.status >= 400:
            assert answer.json["error"]["message"]
        assert (await made.pair.modern("tools/list")).status == 200

    trio.run(ask)
    assert not [line for line in made.lines if line["level"] == "error"]


@settings(max_examples=400, deadline=None)
@given(messages, st.booleans(), headers)
def test_every_message_is_classified_and_its_id_is_kept(
    message: Any, modern: bool, sent: dict[str, str]
) -> None:
    if modern:
        message = message | {"jsonrpc": "2.0", "params": {"_meta": META}}
    body = json.dumps(message).encode()
    decoded = decode(body)
    assert not isinstance(decoded, Batch)
    verdict = classify(decoded, {name.encode(): value.encode("latin-1") for name, value in sent.items()})
    assert isinstance(verdict, Route | Acknowledged | Rejection)
    request_id = message.get("id")
    if isinstance(verdict, Route):
        assert verdict.id == request_id
        assert verdict.revision.era in verdict.method.eras
    if isinstance(verdict, Rejection) and verdict.id is not None:
        assert verdict.id == request_id
