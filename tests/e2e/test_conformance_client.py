"""The official suite's client scenarios about authorization: `ostiary login` and `ostiary call` against the suite's servers.

How the scenarios are lived through is in tests/conformance/client_driver.py. Here is which of them, in which revision.
"""

from __future__ import annotations

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from programs import NODE_BIN, ROOT, needed

from tests.conformance.client_driver import live

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SUITE = NODE_BIN.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
KNOCK = ROOT / "tests" / "conformance" / "client_knock.py"
NEWEST = "2026-07-28"
# Not on the time line of the specification.
EXTENSIONS = ("dpop", "dpop-nonce")
SCENARIOS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        NEWEST: (
            "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "metadata-issuer-mismatch",
            "basic-cimd", "pre-registration", "authorization-server-migration", "resource-mismatch",
            "scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined",
            "scope-step-up", "scope-retry-limit", "offline-access-scope", "offline-access-not-supported",
            "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none",
            "iss-supported", "iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected",
            "iss-normalized",
        ),
        # The same, spoken to with sessions: one of each kind.
        "2025-11-25": ("metadata-var2", "scope-step-up", "pre-registration"),
        "2025-06-18": ("token-endpoint-auth-basic",),
        "2025-03-26": ("2025-03-26-oauth-metadata-backcompat",),
        "": EXTENSIONS,
    }
)  # fmt: skip
# Where the suite wants something else than we do.
GUESSED = "2025-03-26-oauth-endpoint-fallback"
# `ostiary login` lets in a person; these are logins of machines, and of companies' identity providers.
NOT_FOR_PEOPLE = frozenset(
    {
        "client-credentials-jwt",
        "client-credentials-basic",
        "enterprise-managed-authorization",
        "wif-jwt-bearer",
    }
)
# Each waits for what it has started.
ABREAST = 2
# A bound on a suite that hangs: it gives the client 30 seconds.
SECONDS = 180.0


@dataclass(frozen=True, kw_only=True)
class Run:
    scenario: str
    revision: str

    @property
    def title(self) -> str:
        return f"{self.scenario} {self.revision}".strip()


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    said: str
    checks: list[dict[str, Any]]
    client_said: str


RUNS = tuple(Run(scenario=name, revision=revision) for revision, names in SCENARIOS.items() for name in names)


def command(*arguments: str) -> list[str]:
    node, suite = needed(NODE_BIN / "node", "scripts/peers"), needed(SUITE, "scripts/peers")
    return [str(node), str(suite), *arguments]


class Lives(socketserver.StreamRequestHandler):
    """A scenario, which this process lives through for a client that the suite has started."""

    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        self.wfile.write(json.dumps(live(**asked)).encode())


@pytest.fixture(scope="module")
def door(shared_home: Path) -> Iterator[Path]:
    """Open it to all scenarios; its address."""
    path = shared_home / "door"
    with socketserver.ThreadingUnixStreamServer(str(path), Lives) as door:
        door.daemon_threads = True
        beside = threading.Thread(target=door.serve_forever)
        beside.start()
        try:
            yield path
        finally:
            door.shutdown()
            beside.join()


def carry_out(run: Run, results: Path, door: Path) -> Ended:
    # The suite splits the command at blanks, and hands what it gets to a shell.
    client = f"{sys.executable} -I -S {KNOCK} {door}"
    arguments = ["client", "--command", client, "--scenario", f"auth/{run.scenario}", "-o", str(results)]
    revision = ["--spec-version", run.revision] if run.revision else []
    done = subprocess.run(
        command(*arguments, *revision),
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(results),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "NODE_COMPILE_CACHE": str(door.parent / "compiled"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    said = done.stdout + done.stderr
    (kept,) = results.rglob("checks.json")
    return Ended(
        code=done.returncode,
        said=said,
        checks=json.loads(kept.read_text("utf-8")),
        client_said=kept.with_name("stderr.txt").read_text("utf-8"),
    )


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, door: Path
) -> Iterator[Mapping[Run, Future[Ended]]]:
    """All that were selected, begun at once: most of a scenario is programs that start."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    wanted = [call.params["run"] for call in calls if call is not None]
    pool = ThreadPoolExecutor(ABREAST)
    try:
        yield {run: pool.submit(carry_out, run, tmp_path_factory.mktemp("suite"), door) for run in wanted}
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.title)
def test_the_suite_has_nothing_against_the_terminal(run: Run, runs: Mapping[Run, Future[Ended]]) -> None:
    ended = runs[run].result()
    assert [check for check in ended.checks if check["status"] in ("FAILURE", "WARNING")] == []
    assert [check for check in ended.checks if check["status"] == "SUCCESS"]
    assert ended.code == 0, ended.said


def test_where_nothing_says_how_to_log_in_nothing_is_guessed(tmp_path: Path, door: Path) -> None:
    # 2025-03-26 wanted /authorize, /token and /register to be tried. Since 2025-11-25 a client must see in metadata that
    # logins are protected with PKCE before it begins one, and must not begin where there is no metadata.
    ended = carry_out(Run(scenario=GUESSED, revision="2025-03-26"), tmp_path, door)
    assert {check["id"] for check in ended.checks if check["status"] == "FAILURE"} == {
        "client-registration",
        "authorization-request",
        "token-request",
    }
    assert "can be discovered" in ended.client_said


def test_every_scenario_of_the_suite_is_held_or_left_out_by_name() -> None:
    listed = subprocess.run(
        command("list", "--client"), capture_output=True, text=True, timeout=SECONDS, check=True
    ).stdout
    ours = {name for names in SCENARIOS.values() for name in names}
    assert set(re.findall(r"\bauth/([a-z0-9-]+)", listed)) == ours | {GUESSED} | NOT_FOR_PEOPLE
