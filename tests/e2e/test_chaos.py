"""scripts/chaos, with few kills: that nothing which was acknowledged is missing or doubled, and that it would notice."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT

pytestmark = pytest.mark.slow

THREE_FAULTS = "786"  # the seed of: the standby promoted, a node killed, a worker killed
CUT_OFF = "11"  # and of one in which the nodes stay as they are: one is cut off from its clients
SECONDS = "120"  # a bound for a machine that is busy with other things


def unreliable(home: Path, *ways: str) -> Path:
    """A program that does not keep its word in these ways."""
    program = home / "unreliable"
    server = Path(__file__).with_name("unreliable_server.py")
    words = (sys.executable, "-P", str(server), ",".join(ways))
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', "utf-8")
    program.chmod(0o700)
    return program


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
    program = unreliable(tmp_path, way)
    done = chaos("--kills", "1", "--seed", "1", "--executable", str(program))
    assert done.returncode == 1, done.stdout + done.stderr
    assert noticed in done.stdout


LATE = re.compile(r"(?m)^VIOLATED .* was let in at .*, (\d+\.\d+) s later than allowed.*\n")
# How late somebody hears depends on what else the machine does, but not by more than this. What is missing or doubled depends on nothing.
BUSY_SECONDS = 3.0


def but_for_a_busy_machine(said: str) -> str:
    return LATE.sub(lambda found: "" if float(found[1]) <= BUSY_SECONDS else found[0], said)


def test_several_nodes_lose_and_double_nothing() -> None:
    done = chaos("--nodes", "2", "--faults", "3", "--seed", THREE_FAULTS)
    assert "VIOLATED" not in but_for_a_busy_machine(done.stdout), done.stdout + done.stderr
    assert "\nverdict: " in done.stdout, done.stdout + done.stderr
    for kind in ("node killed", "worker killed", "standby promoted"):
        assert f", {kind} … " in done.stdout
    said = dict(re.findall(r"(?m)^([A-Za-z ]+?) +(\d+) +\d+ +\d+ +\d+$", done.stdout))
    for noun in ("logins", "refreshes", "revocations", "tasks", "paid calls", "bought calls", "questions"):
        assert int(said[noun]) > 0, done.stdout


def test_what_several_nodes_do_wrong_is_noticed(tmp_path: Path) -> None:
    """They write down twice what happened, and tell nobody whose login has ended."""
    program = unreliable(tmp_path, "repeats", "keeps-to-itself")
    done = chaos("--nodes", "2", "--faults", "1", "--seed", CUT_OFF, "--executable", str(program))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DOUBLED device.redeemed" in done.stdout, done.stdout + done.stderr
    assert LATE.search(done.stdout) or " is let in (after the end)" in done.stdout, done.stdout + done.stderr
