"""The result as Markdown: what was measured, on which machine, beside what we want of it."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from echo import CONNECTIONS
from targets import Broken

# Our own rows: those of the echo, and that of the refreshes.
WANTED = {
    "anonymous": "≤ 50 µs",
    "bearer": "≥ 0.85 × anonymous",
    "python": "≤ 170 µs, ≤ 1/6 of the Python SDK",
    "chat": "≤ 350 µs",
    "gateway": "≥ 1,500/s",
    "paid": "≥ 1,500/s, at most two writes",
    "ostiary": "≤ 500 µs; ≥ 2,000/s where echo does 11,000/s",
}
OURS = WANTED.keys()


def machine(toolchains: set[str]) -> dict[str, Any]:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "toolchains": sorted({f"CPython {platform.python_version()}", *toolchains}),
    }


def markdown(result: Mapping[str, Any]) -> str:
    m = result["machine"]
    left_out = [f"{name} ({reason})" for name, reason in result["left_out"].items()]
    how = f"Measured {m['date']} on {m['cpu']}, {m['cores']} cores, Linux {m['kernel']}; {', '.join(m['toolchains'])}."
    if "echo" in result or "refresh" in result:
        how += (
            f" Each server alone on one core, the load on another (wrk with {CONNECTIONS} kept-alive connections for the echo); "
            f"interleaved rounds: {result['rounds']} of {result['seconds']} s; medians. CPU is the server's for one request; MiB is "
            "resident after the load; × ours is beside Ostiary's anonymous echo, or its refreshes."
        )
    if left_out:
        how += f" Left out here: {', '.join(left_out)}."
    blocks = [
        how,
        *_echo(result.get("echo", {})),
        *_refresh(result),
    ]
    rows = [*_beside(result), *_memory(result), *_startup(result), *_logins(result)]
    if rows:
        blocks.append("\n".join(["| | measured | wanted |", "|---|---:|---:|", *rows]))
    return "\n\n".join(blocks)


def write_into(page: Path, text: str) -> None:
    """Replace what stands between the page's two bench marks."""
    start, end = "<!-- bench -->\n", "<!-- /bench -->"
    before, found, rest = page.read_text("utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise Broken(f"{page} has no {start.strip()} … {end}")
    page.write_text(f"{before}{start}{text}\n{end}{after}", "utf-8")


def _contest(title: str, unit: str, rows: Mapping[str, Any], ours: Collection[str], reference: str) -> str:
    """Everybody, the fastest first, beside the row called `reference` if that took part."""
    first = rows.get(reference)

    def times(row: Mapping[str, float], name: str) -> str:
        return f"{row[name] / first[name]:.2f}" if first else ""

    lines = [
        f"| {title} | {unit} | × ours | CPU µs | × ours | p50 ms | p99 ms | MiB | wanted |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["per_second"]):
        label = f"**{row['label']}**" if name in ours else row["label"]
        cpu, mib = f"{row['cpu_us']:,.0f}", f"{row['resident_mib']:.0f}"
        if row.get("child_resident_mib"):
            cpu += f" + {row['child_cpu_us']:,.0f} child"
            mib += f" + {row['child_resident_mib']:.0f}"
        lines.append(
            f"| {label} | {row['per_second']:,.0f} | {times(row, 'per_second')} | {cpu} | {times(row, 'cpu_us')} "
            f"| {row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {mib} | {WANTED.get(name, '')} |"
        )
    return "\n".join(lines)


def _echo(rows: Mapping[str, Any]) -> list[str]:
    if not rows:
        return []
    blocks = [_contest("echo `tools/call`, 2026-07-28", "requests/s", rows, OURS, "anonymous")]
    if "python" in rows and "python-sdk" in rows:
        own, child = rows["python"]["cpu_us"], rows["python"]["child_cpu_us"]
        whole = rows["python-sdk"]["cpu_us"]
        blocks.append(
            f"The tool of a Python file takes {own / whole:.2f} × the CPU of the Python SDK's whole request in the server, and "
            f"{(own + child) / whole:.2f} × with its child."
        )
    return blocks


def _refresh(result: Mapping[str, Any]) -> list[str]:
    if "refresh" not in result:
        return []
    r = result["refresh"]
    title = f"token refreshes with rotation, {r['connections']} connections"
    return [_contest(title, "refreshes/s", r["rows"], OURS, "ostiary")]


def _beside(result: Mapping[str, Any]) -> list[str]:
    if "refresh" not in result:
        return []
    r = result["refresh"]["beside"]
    alone, beside = r["alone_p99_ms"], r["beside_p99_ms"]
    return [
        f"| echo p99 alone → with {r['rate']:.0f} refreshes/s | {alone:.2f} → {beside:.2f} ms ({beside / alone:.1f} ×) | ≤ 2 × |"
    ]


def _memory(result: Mapping[str, Any]) -> list[str]:
    if "memory" not in result:
        return []
    m = result["memory"]
    return [
        f"| resident memory, idle | {m['idle_mib']:.0f} MiB | ≤ 56 MiB |",
        f"| each of {m['connections']:,} idle connections | {m['connection_kib']:.1f} KiB | |",
        f"| each of {m['streams']:,} idle event streams | {m['stream_kib']:.1f} KiB | ≤ 20 KiB |",
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
        f"| start to first 200, executable, warm / cold | {both('binary')} | ≤ 0.9 s cold |",
        f"| executable | {s['binary_mib']:.1f} MiB | ≤ 36 MB |",
    ]


def _logins(result: Mapping[str, Any]) -> list[str]:
    if "logins" not in result:
        return []
    found = result["logins"]
    title = f"with {found['few']:,} → {found['many']:,} logins"

    def both(name: str, form: str) -> str:
        return f"{found[f'few_{name}']:{form}} → {found[f'many_{name}']:{form}}"

    return [
        f"| start to first 200, source, warm, {title} | {both('start_ms', ',.0f')} ms | ≤ 500 ms |",
        f"| refreshes/s of {found['few']:,} of them, {title} | {both('per_second', ',.0f')} | ≥ 0.9 × |",
        f"| … p50, p99 | {both('p50_ms', '.2f')} ms, {both('p99_ms', '.2f')} ms | |",
        f"| … CPU of each, resident memory | {both('cpu_us', ',.0f')} µs, {both('resident_mib', ',.0f')} MiB | |",
    ]
