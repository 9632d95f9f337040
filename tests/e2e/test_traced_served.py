"""Traces and counts, sent to OpenTelemetry's own reader of them: one trace from a caller through two servers and what a Python agent does
with its own server. What callers send and what lets servers in is in none of it."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from collector import Collector, collecting
from mcp_calls import call_tool
from programs import SOURCE, Program, Server, until

from tests.free_ports import free_port

pytestmark = pytest.mark.slow

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACED = f"00-{TRACE}-{CALLER}-01"
NOT_TRACED = f"00-{TRACE[::-1]}-{CALLER}-00"
SECRET = "s3cret-of-the-collector"
ARGUMENT = "an argument that nobody else may read"
AGENT = '''
from ostiary import Context, tool


@tool
def price_of(item: str) -> str:
    """What something costs."""
    if item == "nothing":
        raise ValueError("there is no such thing")
    return "3"


@tool
async def compare(item: str, ctx: Context) -> str:
    """Ask the other tool."""
    return (await ctx.call_tool("price_of", {"item": item})).text
'''
SETTINGS = """
auth = "none"
[telemetry]
otlp = "{collector}"
headers = {{ authorization = "Bearer file:{key}" }}
service = "{name}"
traces = {share}
metrics_seconds = 5
[[server]]
name = "{name}"
[[server.agent]]
{agent}
"""


@pytest.fixture
def collector() -> Generator[Collector]:
    with collecting() as found:
        yield found


def serving(
    home: Path,
    name: str,
    collector: str,
    agent: str,
    share: float = 1e-9,
) -> tuple[Program, str]:
    folder = home / name
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "key").write_text(SECRET)
    settings = folder / "ostiary.toml"
    settings.write_text(
        SETTINGS.format(collector=collector, name=name, agent=agent, share=share, key=folder / "key")
    )
    return Program(command=SOURCE, home=folder), str(settings)


def called(server: Server, tool: str, item: str, traceparent: str) -> dict[str, object]:
    return call_tool(server.endpoint, tool, {"item": item}, {"traceparent": traceparent, "tracestate": "v=1"})


def test_one_trace_goes_through_two_servers_and_what_an_agent_does(home: Path, collector: Collector) -> None:
    shop, its_settings = serving(home, "shop", collector.url, 'kind = "python"\nfile = "agent.py"')
    with shop.serving("--config", its_settings) as far:
        door, its_settings = serving(
            home, "door", collector.url, f'kind = "mcp"\nurl = "{far.endpoint}"\ntrust = "always"'
        )
        with door.serving("--config", its_settings) as near:
            until("the tools", lambda: "compare" in door.run("tools", near.endpoint).stdout or None)
            called(near, "compare", ARGUMENT, NOT_TRACED)
            called(near, "compare", ARGUMENT, TRACED)
            failed = called(near, "price_of", "nothing", TRACED)
            assert failed["isError"], failed
            points = until(
                "the counts",
                lambda: [p for p in collector.points("ostiary_tool_calls") if p["value"]] or None,
            )
        near_log, far_log = near.said(), far.said()

    # What had not been sent went out when they stopped.
    spans = collector.spans()
    assert {each["trace"] for each in spans} == {TRACE}
    by_id = {each["span"]: each for each in spans}

    def way_to(span: dict[str, object]) -> list[str]:
        way = [f"{span['resource']['service.name']}: {span['name']}"]  # type: ignore[index]
        while span["parent"] in by_id:
            span = by_id[span["parent"]]
            way.append(f"{span['resource']['service.name']}: {span['name']}")  # type: ignore[index]
        assert span["parent"] == CALLER
        return way[::-1]

    compared = [
        "door: tools/call compare",
        "door: agent compare",
        "shop: tools/call compare",
        "shop: agent compare",
    ]
    asked = [
        "door: tools/call price_of",
        "door: agent price_of",
        "shop: tools/call price_of",
        "shop: agent price_of",
    ]
    longest = [compared[:n] for n in range(1, 5)] + [[*compared, "shop: agent price_of"]]
    assert sorted(map(way_to, spans)) == sorted(longest + [asked[:n] for n in range(1, 5)])
    outer = next(each for each in spans if way_to(each) == compared[:1])
    assert outer["kind"] == "Server" and outer["state"] == "v=1" and outer["nanoseconds"] > 0
    facts = outer["attributes"]
    assert facts["gen_ai.tool.name"] == "compare" and facts["mcp.method.name"] == "tools/call"
    assert facts["mcp.protocol.version"] == "2026-07-28" and facts["ostiary.outcome"] == "ok"
    wrong = [each for each in spans if each["status"] == "Error"]
    assert sorted(map(way_to, wrong)) == sorted(asked[:n] for n in range(1, 5))
    assert {each["attributes"]["error.type"] for each in wrong} == {"error"}
    # The log leads to them, and they lead to the log.
    told = [json.loads(line) for line in near_log.splitlines() if '"tool.called"' in line]
    assert facts["ostiary.request"] in {each["request"] for each in told}
    assert all(each["key"] == f"Bearer {SECRET}" for each in spans)
    assert ARGUMENT not in json.dumps(spans) and SECRET not in near_log + far_log
    assert {each["attributes"]["outcome"] for each in points} <= {"ok", "error"}
    assert {p["type"] for p in collector.points("ostiary_tool_call_seconds")} == {"Histogram"}


def test_what_a_collector_does_not_take_waits_for_it(home: Path) -> None:
    port = free_port()
    shop, settings = serving(
        home, "shop", f"http://127.0.0.1:{port}", 'kind = "python"\nfile = "agent.py"', share=1
    )
    with shop.serving("--config", settings) as server:
        for _ in range(3):
            call_tool(server.endpoint, "price_of", {"item": "a cup"})
        server.await_words(r'connection refused.*"telemetry.not_sent"')
        with collecting(port) as collector:
            server.await_words('"telemetry.sent_again"')
            roots = [each for each in collector.spans() if each["name"] == "tools/call price_of"]
            assert len(roots) == 3 and all(each["parent"] == "" for each in roots)
            assert len([each for each in collector.spans() if each["name"] == "agent price_of"]) == 3
            assert server.said().count("telemetry.not_sent") == 1
