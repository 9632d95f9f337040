"""Echo `tools/call`: requests per second, latency and CPU of one server at a time, each alone on its core."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from targets import Broken, Running, Target, running
from wire import call_request, exchange, open_connection

CONNECTIONS = 32
WARM_SECONDS = 1  # just-in-time compilers and caches; not counted
LUA = Path(__file__).with_name("echo.lua")


@dataclass(frozen=True, kw_only=True)
class Sample:
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # of the server process, per request


def middle(samples: list[Sample]) -> Sample:
    return Sample(**{name: median(getattr(s, name) for s in samples) for name in Sample.__dataclass_fields__})


def measure(server: Running, target: Target, *, core: int, seconds: int, token: str = "") -> Sample:
    """One run of the load generator. Raises `Broken` if anything but the echo came back."""
    expected = probe(server, target, token)
    before = server.cpu_seconds()
    result = _wrk(server, target, core=core, seconds=seconds, token=token)
    spent = server.cpu_seconds() - before
    requests = result["requests"]
    if result["failed"] or not requests:
        raise Broken(f"{target.name}: {result['failed']} of {requests} requests failed")
    # wrk does not look into bodies; an error in a 200 would show in their size. Up to one answer per connection is read
    # and not counted when time is up.
    surplus = result["bytes"] - requests * expected
    slack = requests * expected * 0.02
    if not -slack <= surplus <= slack + CONNECTIONS * expected:
        raise Broken(f"{target.name}: answers were {result['bytes'] / requests:.0f} bytes, not {expected}")
    probe(server, target, token)
    return Sample(
        per_second=requests / result["seconds"],
        p50_ms=result["p50_ms"],
        p99_ms=result["p99_ms"],
        cpu_us=spent / requests * 1e6,
    )


def probe(server: Running, target: Target, token: str) -> int:
    """One call by hand: it must say the same again. The size of the answer on the wire."""
    params = {"name": target.tool, "arguments": {target.argument: "hello"}}
    message = call_request(server.host, server.port, "tools/call", params, name=target.tool, token=token)
    with open_connection(server.host, server.port) as connection:
        status, body, size = exchange(connection, message)
    answer = json.loads(body)
    if status != 200 or "hello" not in json.dumps(answer.get("result", {}).get("content")):
        raise Broken(f"{target.name} did not echo: {status} {body[:300]!r}")
    return size


def _wrk(server: Running, target: Target, *, core: int, seconds: int, token: str) -> dict[str, float]:
    environment = {**os.environ, **({"BENCH_TOKEN": token} if token else {})}
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
    return json.loads(found[1])


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A server with what must be done before it can be called: nothing, or a login that yields a token."""

    label: str
    target: Callable[[Path], Target]
    login: Callable[[Running, Path], str] | None = None


def contest(
    contenders: list[Contender],
    *,
    rounds: int,
    seconds: int,
    cores: tuple[int, int],
    fresh: Callable[[], AbstractContextManager[Path]],
    say: Callable[[str], None],
) -> tuple[dict[str, Sample], dict[str, float]]:
    """Interleaved rounds: medians per contender, and resident MiB of each after a call."""
    samples: dict[str, list[Sample]] = {c.label: [] for c in contenders}
    resident: dict[str, list[float]] = {c.label: [] for c in contenders}
    for number in range(1, rounds + 1):
        for contender in contenders:
            say(f"echo, round {number} of {rounds}: {contender.label}")
            with fresh() as folder:
                target = contender.target(folder)
                with running(target, core=cores[0]) as server:
                    token = contender.login(server, folder) if contender.login else ""
                    probe(server, target, token)
                    resident[contender.label].append(server.resident_kib() / 1024)
                    _wrk(server, target, core=cores[1], seconds=WARM_SECONDS, token=token)
                    samples[contender.label].append(
                        measure(server, target, core=cores[1], seconds=seconds, token=token)
                    )
    return {k: middle(v) for k, v in samples.items()}, {k: median(v) for k, v in resident.items()}
