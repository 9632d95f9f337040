"""The handshake era's states: what may be said in each, and what is made of a client's refusal."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from server.mcp.errors import InvalidRequest, SessionNotFound
from server.mcp.handshake_era import ClientHello, State, encode_request, heard, may_send, step, why_refused
from server.mcp.messages import decode_one


def said(text: str) -> ClientHello:
    message = decode_one(text.encode())
    assert not hasattr(message, "error") or message.error is None  # type: ignore[union-attr]
    return heard(message)  # type: ignore[arg-type]


def test_a_conversation_goes_from_the_handshake_to_its_end() -> None:
    state: object = State.NEW
    for text, then in (
        ('{"jsonrpc":"2.0","id":1,"method":"ping"}', State.NEW),
        ('{"jsonrpc":"2.0","id":2,"method":"initialize"}', State.INITIALIZING),
        ('{"jsonrpc":"2.0","id":3,"method":"ping"}', State.INITIALIZING),
        ('{"jsonrpc":"2.0","id":4,"method":"tools/list"}', State.INITIALIZING),
        ('{"jsonrpc":"2.0","method":"notifications/initialized"}', State.READY),
        ('{"jsonrpc":"2.0","method":"notifications/initialized"}', State.READY),
        ('{"jsonrpc":"2.0","id":5,"method":"tools/list"}', State.READY),
        ('{"jsonrpc":"2.0","id":"server-1","result":{}}', State.READY),
    ):
        assert isinstance(state, State)
        state = step(state, said(text))
        assert state is then, text
    assert step(State.READY, ClientHello.GOODBYE) is State.CLOSED


def test_nothing_but_a_ping_is_asked_before_the_handshake() -> None:
    assert isinstance(step(State.NEW, ClientHello.REQUEST), InvalidRequest)


@pytest.mark.parametrize("state", [State.INITIALIZING, State.READY])
def test_there_is_one_handshake(state: State) -> None:
    assert isinstance(step(state, ClientHello.INITIALIZE), InvalidRequest)


@pytest.mark.parametrize("what", set(ClientHello) - {ClientHello.GOODBYE})
def test_nothing_is_said_in_a_conversation_that_is_over(what: ClientHello) -> None:
    assert isinstance(step(State.CLOSED, what), SessionNotFound)


def test_every_refusal_is_a_new_one() -> None:
    assert step(State.NEW, ClientHello.REQUEST) is not step(State.NEW, ClientHello.REQUEST)


@pytest.mark.requirement("legacy.before-ready")
def test_before_the_client_is_ready_it_is_sent_pings_and_log_messages_only() -> None:
    for method in ("ping", "notifications/message"):
        assert may_send(State.INITIALIZING, method)
        assert not may_send(State.NEW, method)
    for method in ("elicitation/create", "notifications/tools/list_changed"):
        assert not may_send(State.INITIALIZING, method)
        assert may_send(State.READY, method)
        assert not may_send(State.CLOSED, method)


def test_a_request_of_ours_is_json_rpc() -> None:
    encoded = encode_request("server-1", "elicitation/create", {"message": "who?"})
    assert json.loads(encoded) == {
        "jsonrpc": "2.0",
        "id": "server-1",
        "method": "elicitation/create",
        "params": {"message": "who?"},
    }


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (b'{"code":-1,"message":"User rejected sampling request"}', "the user rejected the request"),
        (b'{"code":-32603,"message":" no model "}', "the client refused: no model"),
        (b'{"code":-32603,"message":"' + b"x" * 5000 + b'"}', "the client refused: " + "x" * 200),
        (b'{"code":-32603}', "the client refused"),
        (b'{"message":7}', "the client refused"),
        (b'"what"', "the client refused"),
        (b"[" * 5000 + b"]" * 5000, "the client refused"),
    ],
)
def test_a_refusal_is_told_in_a_sentence(error: bytes, told: str) -> None:
    assert why_refused(Raw(error)) == told
