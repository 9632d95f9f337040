"""scripts/scale, with a hundredth of the rows: that it still measures what docs/scale.md cites. What comes out means nothing here."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from programs import ROOT

pytestmark = pytest.mark.slow

SECONDS = 200  # ten times as long as it takes on a machine that does nothing else
# The groups that begin quickest, and what each store has of them.
GROUPS = "sweep,writer"
BOTH = {
    "trail",
    "calls",
    "trail, behind those",
    "calls, behind those",
    "the longest write",
    "a sweep that finds none to delete",
    "refreshes",
    "commits",
    "together in one",
    "one job, of the writer's time",
}
ONLY = {
    "sqlite": set[str](),
    "postgres": {
        "trail, after VACUUM",
        "calls, after VACUUM",
        "refreshes, the database 0.5 ms away",
        "refreshes, the database 1 ms away",
    },
}


def scale(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (ROOT / "scripts" / "scale", *arguments),
        env={name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize("store", ONLY)
def test_what_grows_is_measured_and_printed_as_one_table(store: str) -> None:
    done = scale("--store", store, "--only", GROUPS, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert {what for _, what, *_ in rows} == BOTH | ONLY[store]
    for _, what, few, many, ratio in rows:
        assert float(re.split("[ /]", many)[0].replace(",", "")) > 0, (what, many)
        assert bool(few) == bool(ratio), (what, few, ratio)
    assert re.search(rf"(?m)^{store}, \d+ s; one-minute load ", done.stderr)


def test_what_it_does_not_know_it_says() -> None:
    done = scale("--only", "sweep,everything", "--quick")
    assert (done.returncode, "everything" in done.stderr) == (2, True), done.stderr
