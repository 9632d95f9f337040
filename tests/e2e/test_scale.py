"""scripts/scale, with a hundredth of the rows: that it still measures what docs/scale.md cites. What comes out means nothing here."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from programs import ROOT

pytestmark = pytest.mark.slow

SECONDS = 200  # on a machine that does nothing else it takes ten
SWEEP = {
    "trail",
    "calls",
    "trail, behind those",
    "calls, behind those",
    "the longest write",
    "a sweep that finds none to delete",
}
WRITER = {"refreshes", "commits", "together in one", "one job, of the writer's time"}
# The groups that begin quickest, and what each has to say.
GROUPS = {
    "sqlite": ("sweep,writer", SWEEP | WRITER),
    "postgres": ("sweep", SWEEP | {"trail, after VACUUM", "calls, after VACUUM"}),
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


@pytest.mark.parametrize("store", GROUPS)
def test_what_grows_is_measured_and_printed_as_one_table(store: str) -> None:
    groups, measured = GROUPS[store]
    done = scale("--store", store, "--only", groups, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert {what for _, what, *_ in rows} == measured
    for _, what, few, many, ratio in rows:
        assert float(re.split("[ /]", many)[0].replace(",", "")) > 0, (what, many)
        assert bool(few) == bool(ratio), (what, few, ratio)
    assert re.search(rf"(?m)^{store}, \d+ s; one-minute load ", done.stderr)


def test_what_it_does_not_know_it_says() -> None:
    done = scale("--only", "sweep,everything", "--quick")
    assert (done.returncode, "everything" in done.stderr) == (2, True), done.stderr
