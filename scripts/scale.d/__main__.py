"""scripts/scale: what grows is measured at little and at much in one run, so that the ratios mean something; nothing here passes or fails."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import balances
import calls
import nodes
import people
import streams
import sweep
import tools
import trail
import writer
import writes
from house import database_server
from pair import Ground
from sheet import Sheet, say
from targets import Broken, Cores

GROUPS: Final[Mapping[str, Callable[[Ground], None]]] = {
    "tools": tools.measure,
    "logins": people.measure,
    "trail": trail.measure,
    "balances": balances.measure,
    "calls": calls.measure,
    "streams": streams.measure,
    "writes": writes.measure,
    "writer": writer.measure,
    "sweep": sweep.measure,
    "nodes": nodes.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/scale", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument(
        "--only", metavar="WHAT,…", default=",".join(GROUPS), help=f"some of {', '.join(GROUPS)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a hundredth of the rows, once over: a smoke test, not a result"
    )
    parser.add_argument(
        "--large", action="store_true", help="what grows with the years has ten million rows (sweep)"
    )
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - GROUPS.keys():
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    usable = sorted(os.sched_getaffinity(0))
    cores = Cores(server=usable[0], load=usable[-1])
    sheet, begun, load = Sheet(), time.monotonic(), os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="ostiary-scale-") as folder,
        database_server(options.store) as postgres,
    ):
        os.sched_setaffinity(0, {cores.load})  # the database goes where there is room
        ground = Ground(
            folder=Path(folder),
            postgres=postgres,
            cores=cores,
            sheet=sheet,
            quick=options.quick,
            large=options.large,
        )
        for name, measure in GROUPS.items():
            if name in chosen:
                measure(ground)
                sheet.end()
    print(sheet.table())
    say(
        f"{options.store}, {time.monotonic() - begun:.0f} s; one-minute load {load:.1f} before, {os.getloadavg()[0]:.1f} after, "
        f"on {len(usable)} cores"
    )


if __name__ == "__main__":
    try:
        main()
    except Broken as broken:
        sys.exit(f"error: {broken}")
