"""A unit put in its place, taken out again and looked at, by way of `systemctl`. The steps to be done are a list first, so that it
can be shown instead."""

from __future__ import annotations

import difflib
import os
import pwd
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Final, NamedTuple, TypeAlias

from server.run.service.unit import ServiceUnit, is_as_written, unit_text

# Runs a command to its end: its exit code, and what it printed.
RunCommand: TypeAlias = Callable[[Sequence[str]], tuple[int, str]]

SHOWN: Final = (
    "LoadState", "ActiveState", "SubState", "StatusText", "UnitFileState", "MainPID", "NRestarts", "Result",
    "ActiveEnterTimestamp", "NeedDaemonReload", "DropInPaths",
)  # fmt: skip


class ServiceRefused(Exception):
    """The refusal of a step that cannot be done, or not without being asked for once more."""

    def __init__(self, message: str, *, hint: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.details = tuple(details)


class ServiceStep(NamedTuple):
    says: str
    do: Callable[[], None]
    is_command: bool = False  # then that is what it says


class Systemd:
    """The machine's manager of services, or this user's."""

    def __init__(
        self,
        *,
        system: bool,
        run: RunCommand,
        environ: Mapping[str, str] = os.environ,
        top: Path = Path("/"),
        has_user: Callable[[str], bool] | None = None,
    ) -> None:
        self.system = system
        self.top = top
        self._run = run
        self._has_user = has_user or _has_user
        self._systemctl = ("systemctl",) if system else ("systemctl", "--user")
        self._journalctl = "journalctl -e -u" if system else "journalctl --user -e -u"
        written = environ.get("XDG_CONFIG_HOME", "")
        home = Path(written) if os.path.isabs(written) else Path.home() / ".config"
        self._units = top / "etc/systemd/system" if system else home / "systemd/user"

    def unit_file(self, name: str) -> Path:
        return self._units / f"{name}.service"

    def settings_folder(self, name: str) -> Path:
        return self.top / "etc" / name

    def _user_file(self, name: str) -> Path:
        return self.top / "etc/sysusers.d" / f"{name}.conf"

    # ── putting in ───────────────────────────────────────────────────────────────────────────────────────────────────

    def install(
        self, unit: ServiceUnit, *, settings: Path | None, start: bool, replace: bool
    ) -> list[ServiceStep]:
        """Return the steps that put it in. Raises `ServiceRefused` where somebody has changed the unit that is there, unless it may be replaced."""
        file, text = self.unit_file(unit.name), unit_text(unit)
        before = _read(file)
        edited = before is not None and before != text and not is_as_written(before)
        if edited and not replace:
            raise ServiceRefused(
                f"{file} was not written by ostiary as it is now, and is left alone",
                hint=f"keep changes beside it, with {join([*self._systemctl, 'edit', unit.name])}; --replace keeps a copy and writes it anew",
                details=_differences(before or "", text, file),
            )
        steps: list[ServiceStep] = []
        if self.system:
            steps += self._user(unit)
            steps += self._readable(unit, settings)
        if edited:
            kept = file.with_name(f"{file.name}.before")
            steps.append(
                ServiceStep(f"keep the unit that is there as {kept}", lambda: _put(kept, before or ""))
            )
        if before != text:
            steps.append(ServiceStep(f"write {file}", lambda: _put(file, text)))
        service = f"{unit.name}.service"
        steps.append(self._systemctl_step("daemon-reload"))
        if start:
            steps += [self._systemctl_step("enable", service), self._start(service)]
        return steps

    def _user(self, unit: ServiceUnit) -> list[ServiceStep]:
        """Return what makes the users of the unit that there are not, and the home of the one that programs run as."""
        homes = {unit.user: self.top / "var/lib" / unit.name}
        if unit.programs_user and unit.programs_home:
            homes[unit.programs_user] = unit.programs_home
        missing = [user for user in homes if not self._has_user(user)]
        steps: list[ServiceStep] = []
        if missing:
            file = self._user_file(unit.name)
            lines = "".join(f'u {user} - "Ostiary" {home} -\n' for user, home in homes.items())
            steps = [
                ServiceStep(
                    f"write {file}, with the user {' and '.join(missing)}", lambda: _put(file, lines)
                ),
                self._step(("systemd-sysusers", str(file))),
            ]
        if unit.programs_user and unit.programs_home:
            owner = ("-o", unit.programs_user, "-g", unit.programs_user)
            steps.append(self._step(("install", "-d", "-m", "700", *owner, str(unit.programs_home))))
        return steps

    def _readable(self, unit: ServiceUnit, settings: Path | None) -> list[ServiceStep]:
        """Return what lets its user read the settings: `ostiary init` writes them for its own user alone, who is root here."""
        if settings is None or settings.stat().st_mode & stat.S_IROTH:
            return []
        if self._has_user(unit.user) and settings.stat().st_gid == pwd.getpwnam(unit.user).pw_gid:
            return []
        return [
            self._step(("chgrp", unit.user, str(settings))),
            self._step(("chmod", "640", str(settings))),
        ]

    # ── taking out ───────────────────────────────────────────────────────────────────────────────────────────────────

    def uninstall(self, name: str, *, replace: bool) -> list[ServiceStep]:
        """Return the steps that take it out. Raises `ServiceRefused` where there is none, or somebody has changed it."""
        file, service = self.unit_file(name), f"{name}.service"
        before = _read(file)
        if before is None:
            raise ServiceRefused(f"there is no {file}")
        if not is_as_written(before) and not replace:
            raise ServiceRefused(
                f"{file} was not written by ostiary as it is now, and is left alone",
                hint="--replace takes it out, and keeps a copy",
            )
        steps = [self._systemctl_step("disable", "--now", service)]
        if not is_as_written(before):
            kept = file.with_name(f"{file.name}.before")
            steps.append(ServiceStep(f"keep it as {kept}", lambda: _put(kept, before)))
        steps.append(ServiceStep(f"remove {file}", file.unlink))
        if self.system and (user := self._user_file(name)).exists():
            steps.append(ServiceStep(f"remove {user}", user.unlink))
        return [*steps, self._systemctl_step("daemon-reload")]

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, name: str) -> dict[str, str]:
        """Return what systemd says of it, by its own names. Raises `ServiceRefused` where nobody answers."""
        command = [*self._systemctl, "show", f"{name}.service", f"--property={','.join(SHOWN)}"]
        code, said = self._run(command)
        if code != 0:
            raise ServiceRefused(
                f"systemd does not answer: {_last_line(said) or f'exit status {code}'}",
                hint="`ostiary status` looks at the server itself, whoever started it",
            )
        pairs = (line.partition("=") for line in said.splitlines())
        return {key: value for key, _, value in pairs if key in SHOWN}

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _systemctl_step(self, *words: str) -> ServiceStep:
        return self._step((*self._systemctl, *words))

    def _start(self, service: str) -> ServiceStep:
        """Start it; the step comes back when the server says that it is ready, or has ended."""
        return self._step(
            (*self._systemctl, "restart", service),
            hint=f"{self._journalctl} {service.removesuffix('.service')}",
        )

    def _step(self, command: Sequence[str], *, hint: str = "") -> ServiceStep:
        def do() -> None:
            code, said = self._run(command)
            if code != 0:
                raise ServiceRefused(
                    f"{join(command)} failed: {_last_line(said) or f'exit status {code}'}", hint=hint
                )

        return ServiceStep(join(command), do, is_command=True)


def _put(file: Path, text: str) -> None:
    """Write it whole or not at all."""
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with unfinished.open("x", encoding="utf-8") as out:
            out.write(text)
            os.fchmod(out.fileno(), 0o644)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return None


def _differences(before: str, after: str, file: Path) -> list[str]:
    names = (str(file), "what would be written")
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, n=0, lineterm="")
    return list(found)


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
