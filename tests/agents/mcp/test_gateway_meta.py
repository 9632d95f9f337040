"""What a caller's `_meta` brings goes on where the settings say so, and what is between the caller and us never does; what an upstream
says of its use is told to our own clients."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from upstreams import Double, Turn, gate, over_http, over_tcp, text

from server.agents.mcp.forwarded_meta import CarriedMeta
from server.agents.mcp.mcp_settings import McpConfig, problems
from server.mcp.messages import Implementation
from server.mcp.result_encoding import ServerIdentity

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    "progressToken": "mine",
    "traceparent": TRACE,
    "tracestate": "vendor=1",
    "baggage": "user=ada",
    "x402/payment": {"a": "cheque"},
    "x402/idempotency-key": "once",
    "io.ostiary/anything": 1,
    "example.com/seat": {"row": 3},
    "other.example/seat": 4,
}


def came(meta: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"name": "say", "arguments": {}, "_meta": meta}))


async def heard(era: str, brought: object, **settings: Any) -> dict[str, Any]:
    double = Double(era=era)
    async with over_http(double) as url, gate(url=url, **settings) as door:
        await door.say("hello", came=came(brought))
    return double.of("tools/call")[0]["params"].get("_meta", {})


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_the_trace_context_goes_on_and_nothing_else_does(era: str) -> None:
    found = await heard(era, META)
    ours = {key for key in found if key.startswith("io.modelcontextprotocol/")}
    assert {key: found[key] for key in found.keys() - ours} == {
        "traceparent": TRACE,
        "tracestate": "vendor=1",
    }
    assert (
        found.get("io.modelcontextprotocol/clientCapabilities", {}) == {}
    )  # what can be asked is ours to say


async def test_a_call_that_is_traced_here_goes_on_with_its_own_place_in_the_trace() -> None:
    ours = f"{TRACE[:36]}aaaaaaaaaaaaaaaa-01"
    carried = CarriedMeta(("traceparent", "tracestate", "example.com/*"))
    assert msgspec.json.decode(msgspec.json.encode(carried.of(came(META), ours))) == {
        "traceparent": ours,
        "tracestate": "vendor=1",
        "example.com/seat": {"row": 3},
    }
    # What its caller said besides belongs to a trace that nobody goes on with.
    other = f"00-{'1' * 32}-{'2' * 16}-01"
    assert carried.of(came({"traceparent": "nonsense", "tracestate": "vendor=1"}), other) == {
        "traceparent": other
    }
    assert carried.of(None, other) == {"traceparent": other} and carried.of(None) is None
    assert CarriedMeta(()).of(None, other) is None


async def test_keys_that_the_settings_name_go_on_and_with_a_prefix_all_of_a_house() -> None:
    found = await heard("handshake", META, meta=["baggage", "example.com/*"])
    assert found == {"baggage": "user=ada", "example.com/seat": {"row": 3}}
    assert await heard("handshake", META, meta=[]) == {}


@pytest.mark.parametrize("word", ["x402/payment", "io.ostiary/*", "progressToken", "*", "a*b", "/*"])
def test_what_is_between_a_caller_and_us_cannot_be_named(word: str) -> None:
    config = msgspec.convert({"url": "http://127.0.0.1/mcp", "meta": [word]}, McpConfig)
    assert [key for key, _ in problems(config)] == ["meta"]


async def test_a_progress_token_is_ours_and_more_than_a_context_does_not_go_on() -> None:
    double = Double(era="stateless")
    async with over_http(double) as url, gate(url=url, meta=["a", "b", "c"]) as door:
        for meta in ({"a": "x" * 9_000, "b": 1}, {"a": "x" * 8_000, "b": "x" * 8_000, "c": "x" * 1_000}, 7):
            await door.say("hello", came=came(meta), wants_progress=True)
    first, second, third = (each["params"]["_meta"] for each in double.of("tools/call"))
    assert first["b"] == 1 and "a" not in first
    assert not {"a", "b", "c"} & (second.keys() | third.keys())
    assert all(isinstance(each["progressToken"], int) for each in (first, second, third))


async def test_a_prompt_and_a_resource_are_asked_for_with_the_same() -> None:
    async def read(turn: Turn) -> Any:
        return {"contents": [{"uri": "note://1", "text": "hello"}]}

    async def prompt(turn: Turn) -> Any:
        return {"messages": []}

    double = Double(
        capabilities={"tools": {}, "resources": {}, "prompts": {}},
        lists={"tools": [], "prompts": [{"name": "greet"}]},
        handlers={"resources/read": read, "prompts/get": prompt},
    )
    from server.agents.base.backend import PromptGet, ResourceRead
    from server.mcp.call_outlet import NullOutlet

    who: dict[str, Any] = {"subject": "ada", "call_id": "c", "came": came(META)}
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        await door.backend.read(ResourceRead(uri="note://1", **who), NullOutlet("x"))
        await door.backend.get_prompt(PromptGet(prompt="greet", arguments={}, **who), NullOutlet("x"))
    for method in ("resources/read", "prompts/get"):
        assert double.of(method)[0]["params"]["_meta"] == {"traceparent": TRACE, "tracestate": "vendor=1"}


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_what_an_upstream_says_of_its_use_is_read_and_bounded(era: str) -> None:
    said = "Look\x1b[31m before you leap. " * 1_000

    async def begin(turn: Turn) -> Any:
        return {
            "protocolVersion": "2025-11-25",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
            "instructions": said,
        }

    method = "server/discover" if era == "stateless" else "initialize"
    async with (
        over_http(Double(era=era, handlers={method: begin, "say": _say})) as url,
        gate(url=url) as door,
    ):
        found = door.backend.instructions()
        assert found.startswith("Look [31m before you leap.")
        assert len(found) <= 8_000


async def _say(turn: Turn) -> Any:
    return text("hello")


def test_it_comes_behind_what_our_own_settings_say() -> None:
    info = Implementation(name="x", version="1")
    further = ["Look first."]
    both = ServerIdentity(info, instructions="Be kind.", further=lambda: further[0])
    assert both.instructions == "Be kind.\n\nLook first."
    further[0] = ""
    assert both.instructions == "Be kind."
    alone = ServerIdentity(info, further=lambda: "Look first.")
    assert alone.instructions == "Look first."
    both.take(alone)
    assert both.instructions == "Look first."
    assert ServerIdentity(info).instructions is None
