"""scripts/chaos, with few kills: that nothing which was acknowledged is missing or doubled, and that it would notice."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT

pytestmark = pytest.mark.slow

SECONDS = "120"  # a bound for a machine that is busy with other things


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (ROOT / "scripts" / "chaos", *arguments, "--seconds", SECONDS),
        env={name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=5 * float(SECONDS),
        check=False,
    )


def test_nothing_that_was_acknowledged_is_missing_or_doubled_after_kills() -> None:
    done = chaos("--kills", "4", "--seed", "1")  # one of them while it starts
    assert done.returncode == 0, done.stdout + done.stderr
    assert "missing 0, doubled 0" in done.stdout
    assert "ostiary verify: sound" in done.stdout
    assert "kill   4, " in done.stdout


@pytest.mark.parametrize(
    ("way", "noticed"), [("forgets", "MISSING grt_"), ("repeats", "DOUBLED device.redeemed")]
)
def test_a_server_that_does_not_keep_its_word_is_noticed(tmp_path: Path, way: str, noticed: str) -> None:
    program = tmp_path / "unreliable"
    server = Path(__file__).with_name("unreliable_server.py")
    program.write_text(
        f'#!/bin/sh\nexec {shlex.join((sys.executable, "-P", str(server), way))} "$@"\n', "utf-8"
    )
    program.chmod(0o700)
    done = chaos("--kills", "1", "--seed", "1", "--executable", str(program))
    assert done.returncode == 1, done.stdout + done.stderr
    assert noticed in done.stdout
