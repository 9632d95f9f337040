"""The unit as text: what systemd itself makes of it is asked where its tools are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from server.run.service.unit import ServiceUnit, command_line, is_as_written, unit_text

MACHINE = ServiceUnit(
    name="ostiary",
    system=True,
    command=("/usr/bin/true", "serve", "--data-dir", "/var/lib/ostiary"),
    user="daemon",
)
PERSON = replace(MACHINE, system=False, user="", command=("/usr/bin/true", "serve"))
ROOT = Path(__file__).parent.parent.parent.parent
UNITS = {
    "machine": MACHINE,
    "machine, one file": replace(MACHINE, one_file=True),
    "machine, programs": replace(MACHINE, starts_programs=True),
    "machine, programs of another user": replace(
        MACHINE,
        starts_programs=True,
        one_file=True,
        programs_user="ostiary-programs",
        programs_home=Path("/var/lib/ostiary-programs"),
    ),
    "machine, port 443": replace(MACHINE, low_port=True, writes=(Path("/srv/back ups"),)),
    "person": PERSON,
    "person, programs": replace(PERSON, starts_programs=True, one_file=True),
}
# Which row of docs/install.md promises for which.
PROMISED = {
    "machine": "agents elsewhere",
    "machine, one file": "agents elsewhere",
    "machine, port 443": "the same, on port 443",
    "machine, programs": "agents that are programs, as the server's user",
    "machine, programs of another user": "agents that are programs",
}

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")


def directives(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_systemd_reads_every_line(name: str, tmp_path: Path) -> None:
    unit = UNITS[name]
    file = tmp_path / "ostiary.service"
    file.write_text(unit_text(unit), "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *([] if unit.system else ["--user"]), str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "LC_ALL": "C.UTF-8"},
    )
    about_ours = [line for line in done.stderr.splitlines() if "ostiary.service" in line]
    assert about_ours == []


@needs_systemd
@pytest.mark.parametrize("name", PROMISED)
def test_systemd_finds_it_no_more_exposed_than_the_document_says(name: str, tmp_path: Path) -> None:
    file = tmp_path / "ostiary.service"
    file.write_text(unit_text(UNITS[name]), "utf-8")
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    ).stdout
    overall = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert overall, told
    document = (ROOT / "docs" / "install.md").read_text("utf-8")
    promised = re.search(rf"^\| {PROMISED[name]} \| ([\d.]+) \|$", document, re.MULTILINE)
    assert promised
    assert float(overall[1]) <= float(promised[1]), told


def test_a_unit_tells_whether_somebody_has_changed_it() -> None:
    text = unit_text(MACHINE)
    assert is_as_written(text)
    assert not is_as_written(text.replace("Restart=on-failure", "Restart=always"))
    assert not is_as_written(text + "\n")
    assert not is_as_written("[Service]\nExecStart=/usr/local/bin/ostiary serve\n")
    assert not is_as_written("")
    # Another version's, by its own sum.
    assert is_as_written(text.replace("version 0.", "version 9."))


def test_only_what_starts_programs_leaves_their_doors_open() -> None:
    shut, opened = (directives(unit_text(UNITS[name])) for name in ("machine", "machine, programs"))
    for key in ("MemoryDenyWriteExecute", "RestrictNamespaces", "ProcSubset"):
        assert key in shut
        assert key not in opened
    assert shut["ProtectHome"] == ["yes"]
    assert opened["ProtectHome"] == ["read-only"]
    reading = directives(unit_text(replace(MACHINE, reads_homes=True)))
    assert reading == shut | {"ProtectHome": ["read-only"]}


def test_the_executable_may_speak_through_its_second_process_and_unpacks_into_its_cache() -> None:
    one_file, other = (directives(unit_text(UNITS[name])) for name in ("machine, one file", "machine"))
    assert one_file["NotifyAccess"] == ["all"]
    assert one_file["Environment"] == ["TMPDIR=%C/ostiary"]
    assert other["NotifyAccess"] == ["main"]
    assert "Environment" not in other


def test_a_low_port_takes_one_capability_and_no_more() -> None:
    low, other = (directives(unit_text(UNITS[name])) for name in ("machine, port 443", "machine"))
    assert low["CapabilityBoundingSet"] == low["AmbientCapabilities"] == ["CAP_NET_BIND_SERVICE"]
    assert "PrivateUsers" not in low
    assert other["CapabilityBoundingSet"] == [""]
    assert other["PrivateUsers"] == ["yes"]
    assert low["ReadWritePaths"] == ['"/srv/back ups"']


def test_a_server_may_start_programs_as_another_user_and_end_them() -> None:
    unit = UNITS["machine, programs of another user"]
    found = directives(unit_text(unit))
    rights = "CAP_SETUID CAP_SETGID CAP_KILL"
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == [rights]
    assert found["SystemCallFilter"][-2:] == ["~@privileged", "@setuid"]
    assert "PrivateUsers" not in found  # there is no other user in a namespace of its own
    assert "OSTIARY_PROGRAMS_RUN_AS=ostiary-programs" in found["Environment"]
    assert found["ReadWritePaths"] == ["/var/lib/ostiary-programs"]
    low = directives(unit_text(replace(unit, low_port=True)))
    assert low["AmbientCapabilities"] == [f"CAP_NET_BIND_SERVICE {rights}"]


def test_a_users_unit_asks_for_nothing_that_takes_root() -> None:
    found = directives(unit_text(PERSON))
    rooted = {key for key in found if key.startswith(("Protect", "Private")) or "Capabilit" in key}
    assert rooted | {"User", "StateDirectory"} & found.keys() == set()
    assert found["WantedBy"] == ["default.target"]


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (("/usr/bin/ostiary", "serve"), "/usr/bin/ostiary serve"),
        (("/opt/my tools/ostiary", "serve"), '"/opt/my tools/ostiary" serve'),
        (("/o", "100%", "$HOME"), '/o "100%%" "$$HOME"'),
        (("/o", 'say "no"', "back\\slash", ""), '/o "say \\"no\\"" "back\\\\slash" ""'),
        (("/o", "a;b", "'c'", "two\nlines"), '/o "a;b" "\'c\'" "two\\nlines"'),
        (("/o", "one\rUser=root"), '/o "one\\rUser=root"'),
    ],
)
def test_words_reach_the_program_as_they_are(words: tuple[str, ...], written: str) -> None:
    assert command_line(words) == written
