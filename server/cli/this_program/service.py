"""`ostiary service install | uninstall | status`: have systemd run the server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from server.cli import terminal
from server.cli.terminal import clean, json_option, out, say

if TYPE_CHECKING:
    from server.run.service.systemd import ServiceStep, Systemd
    from server.run.service.unit import ServiceUnit
    from server.settings.resolved_settings import Resolved

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# `systemctl restart` comes back when the server is ready, which after an update may take as long as a large database does.
COMMAND_SECONDS: Final = 3600.0
# Where no other user may look, or what the unit hides from the server.
PRIVATE: Final = ("/root", "/home", "/run/user", "/tmp", "/var/tmp")
FIRST_FREE_PORT: Final = 1024
# A path in settings that leads into somebody's home.
IN_A_HOME: Final = re.compile(r"(?<![\w.])(/home/|/root/|~)")


@click.group("service")
def command() -> None:
    """Have systemd run the server: of this machine as root, of this user else."""


def _which(decorated: Decorated) -> Decorated:
    decorated = click.option("--name", default="ostiary", metavar="NAME", help="what the service is called")(
        decorated
    )
    return click.option(
        "--system/--user", "system", default=None, help="of the machine, or of this user (by who asks)"
    )(decorated)


_dry_run: Final = click.option("--dry-run", is_flag=True, help="say what would be done, and do nothing")
_replace: Final = click.option("--replace", is_flag=True, help="also a unit that was changed; a copy is kept")


@command.command("install")
@_which
@click.option("--config", metavar="FILE", help="the settings (as `ostiary serve` finds them)")
@click.option(
    "--run-as", metavar="USER", help="with --system: as whom it runs (a user called as the service)"
)
@click.option(
    "--programs-run-as",
    metavar="USER",
    help="with --system: as whom programs that it starts run (a user called as the service, and -programs)",
)
@click.option("--print", "only_print", is_flag=True, help="print the unit, and do nothing")
@_dry_run
@click.option("--no-start", is_flag=True, help="write the unit, and neither enable nor start it")
@_replace
@json_option
@click.argument("options", nargs=-1, metavar="[-- OPTIONS OF SERVE]")
def install(
    system: bool | None,
    name: str,
    config: str | None,
    run_as: str | None,
    programs_run_as: str | None,
    only_print: bool,
    dry_run: bool,
    no_start: bool,
    replace: bool,
    as_json: bool,
    options: tuple[str, ...],
) -> None:
    """Write the unit, enable it and start it; again after an update, or with other options.

    Each step is said, and done as it is said. As root it runs as a user of its own, with its data in /var/lib/NAME and its
    settings in /etc/NAME/ostiary.toml, and starts programs as a user NAME-programs.
    """
    from server.run.service.unit import unit_text

    manager = _manager(system, name)
    if (run_as or programs_run_as) is not None and not manager.system:
        flag = "--programs-run-as" if run_as is None else "--run-as"
        raise terminal.Misuse(f"{flag} is for --system: a user's own services run as that user")
    settings = _settings_file(manager, name, config)
    unit = _unit(manager, name, (run_as or name, programs_run_as), settings, options)
    if only_print:
        out(unit_text(unit).rstrip("\n"))
        return
    steps = _told(lambda: manager.install(unit, settings=settings, start=not no_start, replace=replace))
    _do(steps, dry_run=dry_run, quiet=as_json)
    if as_json:
        terminal.out_json(
            {
                "unit": str(manager.unit_file(name)),
                "text": unit_text(unit),
                "steps": [step.says for step in steps],
                "done": not dry_run,
            }
        )
    elif not dry_run:
        _say_next(manager, unit, settings, started=not no_start)


@command.command("uninstall")
@_which
@_dry_run
@_replace
@json_option
def uninstall(system: bool | None, name: str, dry_run: bool, replace: bool, as_json: bool) -> None:
    """Stop the service and take its unit out. Data, settings and the user that it ran as stay."""
    manager = _manager(system, name)
    steps = _told(lambda: manager.uninstall(name, replace=replace))
    _do(steps, dry_run=dry_run, quiet=as_json)
    if as_json:
        terminal.out_json({"steps": [step.says for step in steps], "done": not dry_run})
    elif not dry_run:
        say("the service is gone; data and settings are where they were")
        terminal.say_hint("ostiary uninstall says what is left")


@command.command("status")
@_which
@json_option
def status(system: bool | None, name: str, as_json: bool) -> int:
    """Show whether the service is installed and runs. Ends with 0 if it runs, with 1 if not."""
    from server.run.service.unit import is_as_written

    manager = _manager(system, name)
    file = manager.unit_file(name)
    text = file.read_text("utf-8", "replace") if file.exists() else None
    found = _told(lambda: manager.look(name))
    runs = found.get("ActiveState") in ("active", "reloading")
    if as_json:
        edited = None if text is None else not is_as_written(text)
        terminal.out_json(
            {"unit": str(file), "installed": text is not None, "edited": edited, "systemd": found}
        )
        return 0 if runs else terminal.EXIT_FAILED
    pairs = [
        ("unit", str(file) if text is not None else f"none at {file}"),
        ("state", _state(found)),
        ("at boot" if manager.system else "at login", found.get("UnitFileState") or "not enabled"),
    ]
    if found.get("StatusText"):
        pairs.append(("it says", found["StatusText"]))
    if found.get("MainPID", "0") != "0":
        pairs.append(("process", found["MainPID"]))
    if found.get("NRestarts", "0") != "0":
        pairs.append(("restarted", f"{found['NRestarts']} times, by systemd"))
    if found.get("DropInPaths"):
        pairs.append(("changed by", found["DropInPaths"]))
    if text is not None and not is_as_written(text):
        pairs.append(("edited", "yes: the unit is not as ostiary wrote it"))
    terminal.facts([(key, clean(value)) for key, value in pairs])
    if text is None:
        terminal.say_hint("ostiary service install")
    elif found.get("NeedDaemonReload") == "yes":
        terminal.say_hint("ostiary service install, for systemd has not read the unit as it is now")
    return 0 if runs else terminal.EXIT_FAILED


def _state(found: dict[str, str]) -> str:
    state = f"{found.get('ActiveState', 'unknown')} ({found.get('SubState', 'unknown')})"
    if found.get("ActiveState") == "active" and found.get("ActiveEnterTimestamp"):
        return f"{state} since {found['ActiveEnterTimestamp']}"
    return f"{state}, {found['Result']}" if found.get("Result", "success") != "success" else state


# ── what is meant ────────────────────────────────────────────────────────────────────────────────────────────────────


def _manager(system: bool | None, name: str) -> Systemd:
    from server.run.service.systemd import Systemd
    from server.run.service.unit import NAME

    if not NAME.fullmatch(name):
        raise terminal.Misuse(
            "a service's name has small letters, digits and dashes, and begins with a letter"
        )
    return Systemd(system=os.geteuid() == 0 if system is None else system, run=_run)


def _run(words: Sequence[str]) -> tuple[int, str]:
    from server.cli.browser import environment_of_others

    if shutil.which(words[0]) is None:
        raise terminal.CliError(
            f"there is no {words[0]} here, so systemd runs no services",
            hint="ostiary service install --print shows the unit, for another machine",
        )
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment_of_others() | {"LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": ""},
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"it took longer than {terminal.duration(COMMAND_SECONDS)}"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _settings_file(manager: Systemd, name: str, config: str | None) -> Path | None:
    from server.cli import local
    from server.settings.settings_reader import ConfigInvalid, find_file

    usual = manager.settings_folder(name) / "ostiary.toml"
    try:
        if config is None and manager.system:
            return usual if usual.is_file() else None
        found = find_file(config, os.environ)
    except ConfigInvalid as invalid:
        raise local.invalid_settings(invalid) from invalid
    return None if found is None else found.absolute()


def _unit(
    manager: Systemd,
    name: str,
    users: tuple[str, str | None],
    settings: Path | None,
    options: tuple[str, ...],
) -> ServiceUnit:
    from server.cli.form import is_one_file
    from server.cli.use import installing
    from server.run.service.unit import ServiceUnit

    program = installing.this_program()
    served = _serve_options(settings, options)
    resolved = _resolved(settings, served)
    words = [*program, "serve", *(["--config", str(settings)] if settings is not None else [])]
    writes: list[Path] = []
    if manager.system:
        _check_reachable(program, settings)
        if not resolved.config.data_dir:
            words += ["--data-dir", f"/var/lib/{name}"]
        else:
            writes.append(resolved.data_dir.absolute())
    if resolved.backup_dir is not None:
        writes.append(resolved.backup_dir.absolute())
    target = served["target"]
    words += [
        str(Path(word).absolute()) if word == target and Path(word).exists() else word for word in options
    ]
    starts = target is not None or "--" in options or _starts_programs(resolved)
    programs_user, programs_home = (
        _programs_user(name, users, resolved) if starts and manager.system else ("", None)
    )
    return ServiceUnit(
        name=name,
        system=manager.system,
        command=tuple(words),
        user=users[0] if manager.system else "",
        one_file=is_one_file(),
        starts_programs=starts,
        programs_user=programs_user,
        programs_home=programs_home,
        reads_homes=settings is not None and bool(IN_A_HOME.search(settings.read_text("utf-8", "replace"))),
        low_port=any(
            0 < port < FIRST_FREE_PORT for port in (resolved.config.port, resolved.config.http_port)
        ),
        writes=tuple(writes) if manager.system else (),
    )


def _serve_options(settings: Path | None, options: tuple[str, ...]) -> dict[str, Any]:
    """Read the options as `serve` will, and refuse what it would. Raises `click.UsageError`."""
    from server.cli import load

    read = load("serve").make_context("ostiary serve", list(options)).params
    if settings is not None and read["config"] is not None:
        raise terminal.Misuse("the settings are named twice", hint="ostiary service install --config FILE")
    if read["stdio"]:
        raise terminal.Misuse("--stdio serves the program that starts it; a service listens on a port")
    return read


def _resolved(settings: Path | None, served: dict[str, Any]) -> Resolved:
    from server.cli import local
    from server.settings.resolved_settings import resolve
    from server.settings.setting_shapes import Config
    from server.settings.settings_reader import ConfigInvalid, load

    flags = {name: served.get(name) for name in Config.__struct_fields__}
    try:
        # Of the environment here the service has nothing.
        return resolve(load(settings, {}, flags))
    except ConfigInvalid as invalid:
        raise local.invalid_settings(invalid) from invalid


def _starts_programs(resolved: Resolved) -> bool:
    from server.settings.started_programs import started_programs

    return any(True for server in resolved.servers for _ in started_programs(server))


def _programs_user(name: str, users: tuple[str, str | None], resolved: Resolved) -> tuple[str, Path | None]:
    """Return as whom its programs run, and the home of that user where it is one of the service's own; none where it is the server's own user."""
    own = f"{name}-programs"
    user = users[1] or resolved.config.programs_run_as or own
    return ("" if user == users[0] else user), (Path("/var/lib", own) if user == own else None)


def _check_reachable(program: Sequence[str], settings: Path | None) -> None:
    """Refuse files in homes: a service of the machine is another user, from whom homes are hidden."""
    where = Path(program[0])
    hidden = next(
        (path for path in (where, where.resolve()) if any(path.is_relative_to(each) for each in PRIVATE)),
        None,
    )
    if hidden is not None:
        raise terminal.CliError(
            f"{hidden} is out of reach of a service of the machine",
            hint="put the executable into /usr/local/bin, or install the package for all (pipx install --global), and start that one",
        )
    if settings is not None and any(settings.resolve().is_relative_to(each) for each in PRIVATE):
        raise terminal.CliError(
            f"{settings} is out of reach of a service of the machine",
            hint="put the settings at /etc/ostiary/ostiary.toml",
        )


# ── doing it ─────────────────────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")


def _told(look: Callable[[], T]) -> T:
    """Call `look`, and tell its refusal in our voice."""
    from server.run.service.systemd import ServiceRefused

    try:
        return look()
    except ServiceRefused as refused:
        for line in refused.details:
            say(f"  {clean(line)}")
        raise terminal.CliError(str(refused), hint=refused.hint or None) from None


def _do(steps: Sequence[ServiceStep], *, dry_run: bool, quiet: bool) -> None:
    for step in steps:
        if not quiet:
            words = f"run {step.says}" if step.is_command else step.says
            say(clean(f"would {words}" if dry_run else words))
        if not dry_run:
            _told(step.do)


def _say_next(manager: Systemd, unit: ServiceUnit, settings: Path | None, *, started: bool) -> None:
    scope = "" if manager.system else " --user"
    if not started:
        terminal.say_hint(f"systemctl{scope} enable --now {unit.name}")
        return
    if settings is None:
        where = manager.settings_folder(unit.name) / "ostiary.toml" if manager.system else None
        said = f"ostiary init {quote(str(where))}, then ostiary service install" if where else "ostiary init"
        say("it serves the demo, because there are no settings")
        terminal.say_hint(said)
    data = next(
        (
            f" --data-dir {quote(unit.command[at + 1])}"
            for at, word in enumerate(unit.command)
            if word == "--data-dir"
        ),
        "",
    )
    terminal.say_hint(f"ostiary claim{data} makes it yours, ostiary service status shows how it is")
    if not manager.system:
        terminal.say_hint("loginctl enable-linger lets it run while you are not logged in")
