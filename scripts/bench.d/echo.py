"""Echo `tools/call`: requests per second, latency, CPU and memory of one server at a time, each alone on its core."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from targets import Broken, Cores, Running, idle_seconds
from wire import call_request, exchange, open_connection

CONNECTIONS = 32
WARM_SECONDS = 1  # just-in-time compilers and caches; not counted
BUSY_SHARE = 0.03  # of the load's core: with less to spare, it may be the load that is measured
LUA = Path(__file__).with_name("echo.lua")


@dataclass(frozen=True, kw_only=True)
class Sample:
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # of the server process, per request
    child_cpu_us: float  # of the processes that it has started, on the same core
    resident_mib: float  # after the load
    child_resident_mib: float
    spare: float  # the share of its time for which the load's core had nothing to do


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A server with what must be done before it can be called: nothing, or a login that yields a token.

    `serve` takes an empty folder and the cores, and yields the server listening on its own."""

    name: str
    label: str
    serve: Callable[[Path, Cores], AbstractContextManager[Running]]
    login: Callable[[Running, Path], str] | None = None
    varies: bool = False  # no call is like another


def contest(
    contenders: list[Contender],
    *,
    rounds: int,
    seconds: int,
    cores: Cores,
    fresh: Callable[[], AbstractContextManager[Path]],
    say: Callable[[str], None],
) -> dict[str, Sample]:
    """Interleaved rounds: the medians of each contender."""
    samples: dict[str, list[Sample]] = {c.name: [] for c in contenders}
    for number in range(1, rounds + 1):
        for contender in contenders:
            say(f"echo, round {number} of {rounds}: {contender.name}")
            with fresh() as folder, contender.serve(folder, cores) as server:
                token = contender.login(server, folder) if contender.login else ""
                load = partial(measure, server, core=cores.load, token=token, varies=contender.varies)
                load(seconds=WARM_SECONDS)
                samples[contender.name].append(load(seconds=seconds))
    medians = {name: middle(found) for name, found in samples.items()}
    tell_hurried({name: sample.spare for name, sample in medians.items()}, say)
    return medians


def tell_hurried(spare: dict[str, float], say: Callable[[str], None]) -> None:
    if names := [name for name, share in spare.items() if share < BUSY_SHARE]:
        say(
            f"note: the load's core had no time to spare (its own work, or somebody else's); these may be faster: {', '.join(names)}"
        )


def middle(samples: list[Sample]) -> Sample:
    return Sample(**{name: median(getattr(s, name) for s in samples) for name in Sample.__dataclass_fields__})


def measure(server: Running, *, core: int, seconds: int, token: str = "", varies: bool = False) -> Sample:
    """One run of the load generator. Raises `Broken` if anything but the echo came back."""
    probe(server, token)
    began, idle = time.monotonic(), idle_seconds(core)
    before, children_before = server.cpu_seconds(), server.children_cpu_seconds()
    result = _wrk(server, core=core, seconds=seconds, token=token, varies=varies)
    spent, children_spent = server.cpu_seconds() - before, server.children_cpu_seconds() - children_before
    spare = (idle_seconds(core) - idle) / (time.monotonic() - began)
    requests = result["requests"]
    return Sample(
        per_second=requests / result["seconds"],
        p50_ms=result["p50_ms"],
        p99_ms=result["p99_ms"],
        cpu_us=spent / requests * 1e6,
        child_cpu_us=children_spent / requests * 1e6,
        resident_mib=server.resident_kib() / 1024,
        child_resident_mib=server.children_resident_kib() / 1024,
        spare=spare,
    )


def probe(server: Running, token: str = "") -> None:
    """One call by hand: it must say the same again, and nothing else."""
    target = server.target
    params = {"name": target.tool, "arguments": {target.argument: "hello"}}
    message = call_request(server.host, server.port, "tools/call", params, name=target.tool, token=token)
    with open_connection(server.host, server.port) as connection:
        status, body, _ = exchange(connection, message)
    answer: Any = json.loads(body)
    result: dict[str, Any] = answer.get("result", {})
    texts = [block.get("text") for block in result.get("content", ())]
    if status != 200 or texts != ["hello"] or result.get("isError"):
        raise Broken(f"{target.name} did not echo: {status} {body[:300]!r}")


def _wrk(server: Running, *, core: int, seconds: int, token: str, varies: bool) -> dict[str, float]:
    """What the load generator found. Raises `Broken` unless every answer was the echo."""
    target = server.target
    environment = {**os.environ, **({"BENCH_TOKEN": token} if token else {})}
    if varies:
        environment["BENCH_VARIES"] = "yes"
    command = (
        "taskset", "-c", str(core), "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(LUA),
        f"{server.url}/mcp", "--", target.tool, target.argument,
    )  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=seconds + 30, check=False
    )
    found = re.search(r"^RESULT (\{.*\})$", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise Broken(f"wrk failed on {target.name}: {done.stderr or done.stdout}")
    result: dict[str, float] = json.loads(found[1])
    if result["failed"] or not result["requests"]:
        raise Broken(
            f"{target.name}: {result['failed']} of {result['requests']} failed: {done.stderr.strip()}"
        )
    return result
