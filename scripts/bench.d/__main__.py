"""scripts/bench: everything is measured in one run, so that the ratios mean something; nothing here passes or fails."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import echo
import logins
import memory
import startup
import table
from targets import ROOT, Broken, ostiary, ostiary_source, python_sdk, running, typescript_sdk

PARTS = ("echo", "refresh", "memory", "startup")
LOGINS = 16  # as many as one address may begin in a minute, nearly
REFRESH_RATE = 200
CONNECTIONS = 2000
STREAMS = 1000
BINARY = ROOT / "dist" / "ostiary"


@contextmanager
def fresh_directory() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="ostiary-bench-") as folder:
        yield Path(folder) / "data"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def bench_echo(rounds: int, seconds: int, cores: tuple[int, int]) -> dict[str, object]:
    contenders = [
        echo.Contender(label="anonymous", target=lambda folder: ostiary(auth="none", data_dir=folder)),
        echo.Contender(
            label="token",
            target=lambda folder: ostiary(auth="oauth", data_dir=folder),
            login=lambda server, folder: logins.log_in(server, folder).access_token,
        ),
        echo.Contender(label="python", target=lambda _: python_sdk()),
        echo.Contender(label="typescript", target=lambda _: typescript_sdk()),
    ]
    samples, resident = echo.contest(
        contenders, rounds=rounds, seconds=seconds, cores=cores, fresh=fresh_directory, say=say
    )
    return {name: {**vars(sample), "resident_mib": resident[name]} for name, sample in samples.items()}


def bench_refresh(rounds: int, seconds: int, cores: tuple[int, int]) -> dict[str, object]:
    full: list[dict[str, float]] = []
    alone: list[echo.Sample] = []
    beside: list[echo.Sample] = []
    with fresh_directory() as folder:
        target = ostiary(auth="oauth", data_dir=folder)
        with running(target, core=cores[0]) as server:
            say(f"refresh: {LOGINS} device logins")
            held = logins.log_in(server, folder, LOGINS)
            load = partial(
                echo.measure, server, target, core=cores[1], seconds=seconds, token=held.access_token
            )
            for number in range(1, rounds + 1):
                say(f"refresh, round {number} of {rounds}")
                before = server.cpu_seconds()
                with logins.refreshing(held, core=cores[1], seconds=seconds, rate=None) as result:
                    pass
                full.append({**result, "cpu_us": (server.cpu_seconds() - before) / result["refreshes"] * 1e6})
                alone.append(load())
                with logins.refreshing(held, core=cores[1], seconds=seconds + 1, rate=REFRESH_RATE) as result:
                    beside.append(load())
                if result["per_second"] < REFRESH_RATE * 0.9:
                    say(f"note: only {result['per_second']:.0f} refreshes/s ran beside the echo")
    return {
        **{name: median(one[name] for one in full) for name in ("per_second", "p50_ms", "p99_ms", "cpu_us")},
        "echo_alone": vars(echo.middle(alone)),
        "echo_beside": vars(echo.middle(beside)),
        "rate_beside": REFRESH_RATE,
    }


def bench_memory(cores: tuple[int, int]) -> dict[str, object]:
    memory.allow_many_sockets(CONNECTIONS + 200)
    found: dict[str, object] = {"connections": CONNECTIONS, "streams": STREAMS}
    say("memory")
    with fresh_directory() as folder:
        target = ostiary(auth="none", data_dir=folder)
        with running(target, core=cores[0]) as server:
            echo.probe(server, target, "")
            found["idle_mib"] = memory.idle_mib(server)
            found["connection_kib"] = memory.idle_connections_kib(server, CONNECTIONS)
        with running(target, core=cores[0]) as server:
            echo.probe(server, target, "")
            found["stream_kib"] = memory.idle_streams_kib(server, STREAMS)
    return found


def bench_startup(repeats: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, command in (("source", ostiary_source()), ("binary", (str(BINARY),))):
        for cold in (False, True):
            say(f"start-up: {name}, {'cold' if cold else 'warm'}")
            found[f"{name}_{'cold' if cold else 'warm'}_ms"] = startup.first_200_ms(
                command, repeats=repeats, cold=cold
            )
    found["binary_mib"] = BINARY.stat().st_size / 2**20
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round of one second each: a smoke test, not a result"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--write", metavar="PAGE", help="put the table between the bench marks of a Markdown page as well"
    )
    options = parser.parse_args()
    parts = options.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--only takes {','.join(PARTS)}")
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise Broken("two cores are needed: one for the server, one for the load")
    if "startup" in parts and not BINARY.exists():
        raise Broken("dist/ostiary is missing: run scripts/build first")
    cores = (usable[0], usable[1])
    rounds, seconds = (1, 1) if options.quick else (3, 4)

    result: dict[str, object] = {"machine": table.machine(), "rounds": rounds, "seconds": seconds}
    for part in parts:
        match part:
            case "echo":
                result[part] = bench_echo(rounds, seconds, cores)
            case "refresh":
                result[part] = bench_refresh(rounds, seconds, cores)
            case "memory":
                result[part] = bench_memory(cores)
            case _:
                result[part] = bench_startup(1 if options.quick else 5)
    print(json.dumps(result, indent=2) if options.json else table.markdown(result))
    if options.write:
        table.write_into(Path(options.write), table.markdown(result))


if __name__ == "__main__":
    try:
        main()
    except Broken as broken:
        sys.exit(f"error: {broken}")
