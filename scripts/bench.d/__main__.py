"""scripts/bench: everything is measured in one run, so that the ratios mean something; nothing here passes or fails."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import contenders
import echo
import many_logins
import memory
import refreshes
import startup
import table
from peers import OIDC_PROVIDER, PEERS, LeftOut, Peer, toolchain_of
from targets import ROOT, Broken, Cores, Target, ostiary, ostiary_source, running

OTHERS = ("refresh", "memory", "startup")
ASKED_FOR = "logins"  # takes minutes and a gigabyte, so only by name
ECHOES = (*(one.name for one in contenders.OURS), *(peer.name for peer in PEERS))
CONNECTIONS = 2000
STREAMS = 1000
BINARY = ROOT / "dist" / "ostiary"


@contextmanager
def fresh_folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="ostiary-bench-") as folder:
        yield Path(folder)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Foreign:
    """The peers of this run as they are asked for, those that cannot be had with the reason, and what they are made with."""

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}
        self.toolchains: set[str] = set()

    def get(self, peer: Peer) -> Target | None:
        try:
            target = peer.built()
            self.toolchains.add(toolchain_of(peer))
        except LeftOut as reason:
            self.left_out[peer.title] = str(reason)
            say(f"left out: {peer.label}: {reason}" + (f": {reason.detail}" if reason.detail else ""))
            return None
        return target


def bench_echo(
    names: set[str], foreign: Foreign, rounds: int, seconds: int, cores: Cores
) -> dict[str, object]:
    taking_part = [one for one in contenders.OURS if one.name in names]
    taking_part += [
        contenders.peer(peer.name, peer.label, target)
        for peer in PEERS
        if peer.name in names and (target := foreign.get(peer))
    ]
    samples = echo.contest(
        taking_part, rounds=rounds, seconds=seconds, cores=cores, fresh=fresh_folder, say=say
    )
    return {one.name: {"label": one.label, **vars(samples[one.name])} for one in taking_part}


def bench_refresh(foreign: Foreign, rounds: int, seconds: int, cores: Cores) -> dict[str, object]:
    target = foreign.get(OIDC_PROVIDER)
    labels = {
        "ostiary": "Ostiary (on disk, synced, ES256 token, audit row)",
        OIDC_PROVIDER.name: OIDC_PROVIDER.label,
    }
    found, beside = refreshes.contest(
        {OIDC_PROVIDER.name: target} if target else {},
        rounds=rounds, seconds=seconds, cores=cores, fresh=fresh_folder, say=say,
    )  # fmt: skip
    rows = {name: {"label": labels[name], **values} for name, values in found.items()}
    return {"rows": rows, "beside": beside, "connections": refreshes.LOGINS}


def bench_memory(cores: Cores) -> dict[str, object]:
    memory.allow_many_sockets(CONNECTIONS + 200)
    found: dict[str, object] = {"connections": CONNECTIONS, "streams": STREAMS}
    say("memory")
    with fresh_folder() as folder:
        target = ostiary(folder, auth="none")
        with running(target, core=cores.server) as server:
            echo.probe(server)
            found["idle_mib"] = memory.idle_mib(server)
            found["connection_kib"] = memory.idle_connections_kib(server, CONNECTIONS)
        with running(target, core=cores.server) as server:
            echo.probe(server)
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
    parser.add_argument(
        "--only",
        metavar="WHAT,…",
        default=",".join(("echo", *OTHERS)),
        help=f"some of echo, {', '.join(OTHERS)}, {ASKED_FOR}; or of the echo only {', '.join(ECHOES)}",
    )
    parser.add_argument(
        "--logins",
        type=int,
        default=1_000_000,
        metavar="N",
        help="how many the server has for `--only logins`",
    )
    parser.add_argument(
        "--write", metavar="PAGE", help="put the table between the bench marks of a Markdown page as well"
    )
    options = parser.parse_args()
    chosen = set(options.only.split(","))
    if "echo" in chosen:
        chosen = chosen - {"echo"} | set(ECHOES)
    if unknown := chosen - {*ECHOES, *OTHERS, ASKED_FOR}:
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise Broken("two cores are needed: one for the server, one for the load")
    if "startup" in chosen and not BINARY.exists():
        raise Broken("dist/ostiary is missing: run scripts/build first")
    cores = Cores(server=usable[0], load=usable[1])
    rounds, seconds = (1, 1) if options.quick else (3, 4)

    foreign = Foreign()
    result: dict[str, object] = {"rounds": rounds, "seconds": seconds}
    if names := chosen & set(ECHOES):
        result["echo"] = bench_echo(names, foreign, rounds, seconds, cores)
    if "refresh" in chosen:
        result["refresh"] = bench_refresh(foreign, rounds, seconds, cores)
    if "memory" in chosen:
        result["memory"] = bench_memory(cores)
    if "startup" in chosen:
        result["startup"] = bench_startup(1 if options.quick else 5)
    if ASKED_FOR in chosen:
        result["logins"] = many_logins.compare(
            options.logins, rounds=rounds, seconds=seconds, repeats=1 if options.quick else 3,
            cores=cores, fresh=fresh_folder, say=say,
        )  # fmt: skip
    result["machine"] = table.machine(foreign.toolchains)
    result["left_out"] = foreign.left_out
    print(json.dumps(result, indent=2) if options.json else table.markdown(result))
    if options.write:
        table.write_into(Path(options.write), table.markdown(result))


if __name__ == "__main__":
    try:
        main()
    except Broken as broken:
        sys.exit(f"error: {broken}")
