"""What is done to a machine, on a machine of the test's own: a folder in the place of /, and a systemctl that writes down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from server.run.service.systemd import ServiceRefused, Systemd
from server.run.service.unit import ServiceUnit, unit_text

UNIT = ServiceUnit(name="ostiary", system=True, command=("/usr/local/bin/ostiary", "serve"), user="ostiary")


class Machine:
    def __init__(self, top: Path, *, system: bool = True, users: Sequence[str] = ()) -> None:
        self.ran: list[str] = []
        self.fails: dict[str, str] = {}
        self.says = ""
        self.systemd = Systemd(
            system=system,
            run=self._run,
            environ={"XDG_CONFIG_HOME": str(top / "config")},
            top=top,
            has_user=lambda name: name in users,
        )

    def _run(self, words: Sequence[str]) -> tuple[int, str]:
        line = " ".join(words)
        self.ran.append(line)
        return next(((1, said) for part, said in self.fails.items() if part in line), (0, self.says))

    def install(self, unit: ServiceUnit = UNIT, *, start: bool = True, replace: bool = False) -> list[str]:
        steps = self.systemd.install(unit, settings=None, start=start, replace=replace)
        for step in steps:
            step.do()
        return [step.says for step in steps]

    def uninstall(self, *, replace: bool = False) -> list[str]:
        steps = self.systemd.uninstall("ostiary", replace=replace)
        for step in steps:
            step.do()
        return [step.says for step in steps]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_service_of_the_machine_gets_a_user_a_unit_and_is_started(tmp_path: Path, machine: Machine) -> None:
    unit, user = tmp_path / "etc/systemd/system/ostiary.service", tmp_path / "etc/sysusers.d/ostiary.conf"
    assert machine.install() == [
        f"write {user}, with the user ostiary",
        f"systemd-sysusers {user}",
        f"write {unit}",
        "systemctl daemon-reload",
        "systemctl enable ostiary.service",
        "systemctl restart ostiary.service",
    ]
    assert machine.ran == [
        f"systemd-sysusers {user}",
        "systemctl daemon-reload",
        "systemctl enable ostiary.service",
        "systemctl restart ostiary.service",
    ]
    assert unit.read_text("utf-8") == unit_text(UNIT)
    assert unit.stat().st_mode & 0o777 == 0o644
    assert user.read_text("utf-8").startswith("u ostiary - ")
    assert [path.name for path in unit.parent.iterdir()] == ["ostiary.service"]


def test_what_a_service_starts_gets_a_user_and_a_home_of_its_own(tmp_path: Path) -> None:
    home = tmp_path / "var/lib/ostiary-programs"
    unit = replace(UNIT, starts_programs=True, programs_user="ostiary-programs", programs_home=home)
    user = tmp_path / "etc/sysusers.d/ostiary.conf"
    makes_home = f"install -d -m 700 -o ostiary-programs -g ostiary-programs {home}"
    machine = Machine(tmp_path)
    assert machine.install(unit)[:3] == [
        f"write {user}, with the user ostiary and ostiary-programs",
        f"systemd-sysusers {user}",
        makes_home,
    ]
    assert [line.split()[1] for line in user.read_text("utf-8").splitlines()] == [
        "ostiary",
        "ostiary-programs",
    ]
    again = Machine(tmp_path, users=["ostiary", "ostiary-programs"])
    assert again.install(unit)[0] == makes_home


def test_a_service_of_a_user_lies_in_their_configuration_and_needs_no_user(tmp_path: Path) -> None:
    machine = Machine(tmp_path, system=False)
    machine.install(replace(UNIT, system=False, user=""))
    assert (tmp_path / "config/systemd/user/ostiary.service").exists()
    assert machine.ran == [
        "systemctl --user daemon-reload",
        "systemctl --user enable ostiary.service",
        "systemctl --user restart ostiary.service",
    ]


def test_steps_that_are_only_shown_do_nothing(tmp_path: Path, machine: Machine) -> None:
    assert machine.systemd.install(UNIT, settings=None, start=True, replace=False)
    assert list(tmp_path.iterdir()) == []
    assert machine.ran == []


def test_again_with_other_options_the_unit_is_written_anew_and_the_server_started_again(
    tmp_path: Path, machine: Machine
) -> None:
    machine.install()
    newer = replace(UNIT, command=(*UNIT.command, "--port", "9000"))
    said = machine.install(newer)
    unit = tmp_path / "etc/systemd/system/ostiary.service"
    assert f"write {unit}" in said
    assert unit.read_text("utf-8") == unit_text(newer)
    # With the same ones it is only started again, as after an update of the program.
    assert machine.install(newer)[-3:] == [
        "systemctl daemon-reload",
        "systemctl enable ostiary.service",
        "systemctl restart ostiary.service",
    ]


@pytest.mark.parametrize("written", ["[Service]\nExecStart=/bin/ostiary serve\n", "edited"])
def test_a_unit_that_somebody_wrote_or_changed_is_left_alone_unless_it_may_be_replaced(
    written: str, tmp_path: Path, machine: Machine
) -> None:
    unit = tmp_path / "etc/systemd/system/ostiary.service"
    machine.install()
    text = unit_text(UNIT).replace("RestartSec=2", "RestartSec=9") if written == "edited" else written
    unit.write_text(text, "utf-8")
    machine.ran.clear()
    with pytest.raises(ServiceRefused, match="left alone") as refused:
        machine.install()
    assert any(line.startswith("+RestartSec=2") for line in refused.value.details)
    assert "systemctl edit ostiary" in refused.value.hint
    with pytest.raises(ServiceRefused, match="left alone"):
        machine.uninstall()
    assert unit.read_text("utf-8") == text
    assert machine.ran == []

    machine.install(replace=True)
    assert unit.read_text("utf-8") == unit_text(UNIT)
    assert unit.with_name("ostiary.service.before").read_text("utf-8") == text


def test_settings_that_only_root_may_read_are_shown_to_the_services_user(
    tmp_path: Path, machine: Machine
) -> None:
    settings = tmp_path / "etc/ostiary/ostiary.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("port = 8420\n", "utf-8")
    settings.chmod(0o600)
    steps = machine.systemd.install(UNIT, settings=settings, start=False, replace=False)
    assert [f"chgrp ostiary {settings}", f"chmod 640 {settings}"] == [step.says for step in steps][2:4]
    settings.chmod(0o644)
    steps = machine.systemd.install(UNIT, settings=settings, start=False, replace=False)
    assert not [step for step in steps if step.says.startswith("ch")]


def test_a_server_that_does_not_come_up_is_told_with_where_to_look(machine: Machine) -> None:
    machine.fails["restart"] = "Job for ostiary.service failed because the control process exited.\n"
    with pytest.raises(ServiceRefused, match=r"Job for ostiary\.service failed") as refused:
        machine.install()
    assert refused.value.hint == "journalctl -e -u ostiary"


def test_taking_it_out_stops_it_and_removes_what_was_written(tmp_path: Path, machine: Machine) -> None:
    machine.install()
    machine.ran.clear()
    said = machine.uninstall()
    assert machine.ran == ["systemctl disable --now ostiary.service", "systemctl daemon-reload"]
    assert f"remove {tmp_path}/etc/systemd/system/ostiary.service" in said
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(ServiceRefused, match="there is no"):
        machine.uninstall()


def test_a_unit_is_written_whole_or_not_at_all(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install()
    unit = tmp_path / "etc/systemd/system/ostiary.service"
    before = unit.read_text("utf-8")

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        machine.install(replace_command("--port", "9000"))
    assert unit.read_text("utf-8") == before
    assert [path.name for path in unit.parent.iterdir()] == ["ostiary.service"]


def replace_command(*words: str) -> ServiceUnit:
    return replace(UNIT, command=(*UNIT.command, *words))


def test_what_systemd_says_is_taken_by_name_and_nothing_else_of_it(machine: Machine) -> None:
    machine.says = "ActiveState=active\nStatusText=serving http://127.0.0.1:8420?a=b\nExecStart=secret\n\n"
    assert machine.systemd.look("ostiary") == {
        "ActiveState": "active",
        "StatusText": "serving http://127.0.0.1:8420?a=b",
    }
    machine.fails["show"] = "Failed to connect to bus: No medium found\n"
    with pytest.raises(ServiceRefused, match="Failed to connect to bus: No medium found"):
        machine.systemd.look("ostiary")
