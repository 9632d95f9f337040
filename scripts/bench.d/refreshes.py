"""Token refreshes with rotation: ours beside a peer's, each alone on its core, and what ours do to an echo beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

import echo
import logins
from logins import Issuer, Logins
from targets import Cores, Running, Target, idle_seconds, ostiary, running

LOGINS = 16  # one connection each; as many as one address may begin in a minute, nearly
WARM_SECONDS = 1
RATE_BESIDE = 200


def contest(
    peers: dict[str, Target],
    *,
    rounds: int,
    seconds: int,
    cores: Cores,
    fresh: Callable[[], AbstractContextManager[Path]],
    say: Callable[[str], None],
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Interleaved rounds. The medians of everybody's refreshes by name, and the p99 of our echo without and with them.

    `peers` are served as `logins.oidc_provider` describes."""
    found: dict[str, list[dict[str, float]]] = {"ostiary": [], **{name: [] for name in peers}}
    beside: list[dict[str, float]] = []
    for number in range(1, rounds + 1):
        say(f"refresh, round {number} of {rounds}: ostiary, {LOGINS} device logins")
        with fresh() as folder, running(ostiary(folder, auth="oauth"), core=cores.server) as server:
            held = _log_in(server, logins.ours(folder), cores)
            found["ostiary"].append(_measure(held, cores, seconds))
            beside.append(_beside(held, cores, seconds, say))
        for name, target in peers.items():
            say(f"refresh, round {number} of {rounds}: {name}")
            with running(target, core=cores.server) as server:
                held = _log_in(server, logins.oidc_provider(), cores)
                found[name].append(_measure(held, cores, seconds))
    medians = {name: _middle(all_of) for name, all_of in found.items()}
    echo.tell_hurried({name: one["spare"] for name, one in medians.items()}, say)
    return medians, _middle(beside)


def _log_in(server: Running, issuer: Issuer, cores: Cores) -> Logins:
    """Logged in, and warm."""
    held = logins.log_in(server, issuer, LOGINS)
    with logins.refreshing(held, core=cores.load, seconds=WARM_SECONDS, rate=None):
        pass
    return held


def _measure(held: Logins, cores: Cores, seconds: int) -> dict[str, float]:
    before, idle = held.server.cpu_seconds(), idle_seconds(cores.load)
    with logins.refreshing(held, core=cores.load, seconds=seconds, rate=None) as result:
        pass
    spent = held.server.cpu_seconds() - before
    return {
        **{name: result[name] for name in ("per_second", "p50_ms", "p99_ms")},
        "cpu_us": spent / result["refreshes"] * 1e6,
        "resident_mib": held.server.resident_kib() / 1024,
        "spare": (idle_seconds(cores.load) - idle) / seconds,
    }


def _beside(held: Logins, cores: Cores, seconds: int, say: Callable[[str], None]) -> dict[str, float]:
    def load() -> float:
        return echo.measure(held.server, core=cores.load, seconds=seconds, token=held.access_token).p99_ms

    alone = load()
    with logins.refreshing(held, core=cores.load, seconds=seconds + 1, rate=RATE_BESIDE) as result:
        with_refreshes = load()
    if result["per_second"] < RATE_BESIDE * 0.9:
        say(f"note: only {result['per_second']:.0f} refreshes/s ran beside the echo")
    return {"alone_p99_ms": alone, "beside_p99_ms": with_refreshes, "rate": RATE_BESIDE}


def _middle(found: list[dict[str, float]]) -> dict[str, Any]:
    return {name: median(one[name] for one in found) for name in found[0]}
