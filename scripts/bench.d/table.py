"""The result as Markdown: what was measured, on which machine, beside what we want of it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from targets import ROOT, Broken

LABELS = {
    "anonymous": "Ostiary, anonymous",
    "token": "Ostiary, Bearer token",
    "python": "Python SDK",
    "typescript": "TypeScript SDK",
}


def machine() -> dict[str, str]:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    node = subprocess.run(
        (str(ROOT / "tests/peers/node_modules/.bin/node"), "--version"),
        capture_output=True,
        text=True,
        check=True,
    )
    sdk = json.loads(
        (ROOT / "tests/peers/node_modules/@modelcontextprotocol/server/package.json").read_text("utf-8")
    )
    python_sdk = re.search(r"^mcp==(\S+)", (ROOT / "build/locks/peers.txt").read_text("utf-8"), re.MULTILINE)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "node": node.stdout.strip().lstrip("v"),
        "python_sdk": python_sdk[1] if python_sdk else "?",
        "typescript_sdk": sdk["version"],
    }


def markdown(result: Mapping[str, Any]) -> str:
    m = result["machine"]
    lines = [
        f"Measured {m['date']} on {m['cpu']}, {m['cores']} cores, Linux {m['kernel']}, CPython {m['python']}, "
        f"node {m['node']}. Each server alone on one core, wrk with 32 kept-alive connections on another; "
        f"interleaved rounds: {result['rounds']} of {result['seconds']} s; medians.",
        "",
    ]
    if "echo" in result:
        lines += _echo(result["echo"], m)
    rows = [*_refresh(result), *_memory(result), *_startup(result)]
    if rows:
        lines += ["| | measured | wanted |", "|---|---:|---:|", *rows]
    return "\n".join(lines)


def write_into(page: Path, text: str) -> None:
    """Replace what stands between the page's two bench marks."""
    start, end = "<!-- bench -->\n", "<!-- /bench -->"
    before, found, rest = page.read_text("utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise Broken(f"{page} has no {start.strip()} … {end}")
    page.write_text(f"{before}{start}{text}\n{end}{after}", "utf-8")


def _echo(samples: Mapping[str, Any], machine: Mapping[str, str]) -> list[str]:
    lines = [
        "| echo `tools/call`, 2026-07-28 | requests/s | p50 ms | p99 ms | CPU µs/request | × Python SDK | × TypeScript SDK | resident MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    versions = {
        "python": f" {machine['python_sdk']} (uvicorn)",
        "typescript": f" {machine['typescript_sdk']} (node:http)",
    }
    for name, s in samples.items():
        ratios = [s["per_second"] / samples[peer]["per_second"] for peer in ("python", "typescript")]
        lines.append(
            f"| {LABELS[name]}{versions.get(name, '')} | {s['per_second']:,.0f} | {s['p50_ms']:.2f} | {s['p99_ms']:.2f} "
            f"| {s['cpu_us']:.0f} | {ratios[0]:.1f} | {ratios[1]:.1f} | {s['resident_mib']:.0f} |"
        )
    token = samples["token"]["per_second"] / samples["anonymous"]["per_second"]
    return [
        *lines,
        "",
        f"Wanted: anonymous ≥ 15 × the Python SDK and ≥ 10 × TypeScript; with a token ≥ 80 % of anonymous (here {token:.0%}).",
        "",
    ]


def _refresh(result: Mapping[str, Any]) -> list[str]:
    if "refresh" not in result:
        return []
    r = result["refresh"]
    alone, beside = r["echo_alone"]["p99_ms"], r["echo_beside"]["p99_ms"]
    return [
        f"| token refreshes over HTTP, one core | {r['per_second']:,.0f}/s, p99 {r['p99_ms']:.1f} ms, {r['cpu_us']:.0f} µs CPU | ≥ 2 000/s |",
        f"| echo p99 alone → with {r['rate_beside']} refreshes/s | {alone:.2f} → {beside:.2f} ms ({beside / alone:.1f} ×) | ≤ 2 × |",
    ]


def _memory(result: Mapping[str, Any]) -> list[str]:
    if "memory" not in result:
        return []
    m = result["memory"]
    return [
        f"| resident memory, idle | {m['idle_mib']:.0f} MiB | ≤ 60 MB |",
        f"| each of {m['connections']:,} idle connections | {m['connection_kib']:.1f} KiB | |",
        f"| each of {m['streams']:,} idle event streams | {m['stream_kib']:.1f} KiB | ≤ 24 KiB |",
    ]


def _startup(result: Mapping[str, Any]) -> list[str]:
    if "startup" not in result:
        return []
    s = result["startup"]

    def both(name: str) -> str:
        warm, cold = s[f"{name}_warm_ms"], s[f"{name}_cold_ms"]
        return f"{warm / 1000:.2f} s / " + (
            "not measured (needs root)" if cold is None else f"{cold / 1000:.2f} s"
        )

    return [
        f"| start to first 200, source, warm / cold | {both('source')} | |",
        f"| start to first 200, executable, warm / cold | {both('binary')} | ≤ 0.8 s cold |",
        f"| executable | {s['binary_mib']:.1f} MiB | ≤ 36 MB |",
    ]
