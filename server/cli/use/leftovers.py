"""What Ostiary has on this machine, and how it goes: for `ostiary uninstall` without a program's name.

Each kind is removed only where it is named. Only files of ours go, by their names; what else lies in a folder stays, and so does the
folder then. The keys of wallets, and the file of settings, are their owner's to remove.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Final, NamedTuple

from server.cli import terminal
from server.cli.form import Form, form_of_this
from server.cli.hints import meant_here

# Of the folder of the command line: logins, names of servers, what was installed where, and their locks.
OF_THE_CLIENT: Final = ("tokens.json", "servers.json", "installed.json")
# Of the data directory: the database, with what SQLite keeps beside it and what a restore put aside, and what data_directory.py names.
OF_THE_SERVER: Final = (
    "ostiary.db*", "ostiary*Z.db", "master.key*", "audit.head*", "ledger.head*", "ballast", "control", "control.path", "lock",
)  # fmt: skip
# Of folders in it: back-ups, certificates with their keys and accounts, and what wallets have signed.
OF_ITS_FOLDERS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "backups": ("*.db", "*.db-journal", "*.db-wal", "*.db-shm"),
        "acme": ("account.*", "certificate.*", "order.*", "revocation.*", "rest.*"),
        "paying": ("spending.*",),
    }
)

PROGRAM: Final[dict[Form, str]] = {
    "executable": "remove the executable",
    "package": "pipx uninstall ostiary, uv tool uninstall ostiary or pip uninstall ostiary, as it was installed",
    "checkout": "remove the checkout",
}


class Leftover(NamedTuple):
    kind: str
    what: str
    where: str
    remove: Callable[[], None] | None  # None: by hand


def leftovers() -> list[Leftover]:
    """All that is here. Raises `CliError` for settings that cannot be read."""
    found = [*_services(), *_clients(), *_logins(), *_data()]
    return [*found, *_settings(), Leftover("program", PROGRAM[form_of_this()], _program(), None)]


def _services() -> list[Leftover]:
    from server.run.service.systemd import Systemd

    found: list[Leftover] = []
    for system in (True, False):
        manager = Systemd(system=system, run=lambda _: (1, ""))
        for file in sorted(manager.unit_file("ostiary").parent.glob("*.service")):
            with suppress(OSError):
                if "`ostiary service install`" in file.read_text("utf-8", "replace")[:300]:
                    found.append(
                        Leftover("service", "a service", str(file), _service_gone(file.stem, system))
                    )
    return found


def _service_gone(name: str, system: bool) -> Callable[[], None]:
    def remove() -> None:
        from server.cli import run

        code = run(["service", "uninstall", "--system" if system else "--user", "--name", name])
        if code:
            raise terminal.CliError(f"the service {name} was not taken out", exit_code=code)

    return remove


def _clients() -> list[Leftover]:
    from server.cli.use import installing

    found: dict[tuple[str, str], list[str]] = {}
    for each in installing.ledger().all():
        found.setdefault((each.program, each.file), []).append(each.name)
    return [
        Leftover(
            "clients",
            f"{', '.join(sorted(names))} in the settings of {program}",
            file,
            _client_gone(program, file),
        )
        for (program, file), names in sorted(found.items())
    ]


def _client_gone(program: str, file: str) -> Callable[[], None]:
    def remove() -> None:
        from server.cli import run
        from server.cli.use import installing

        _, usual = installing.file_of(program, project=False)
        if Path(file) != usual.path:
            raise terminal.CliError(
                f"{file} belongs to a project", hint=f"there: ostiary uninstall {quote(program)} --project"
            )
        code = run(["uninstall", program, "--yes"])
        if code:
            raise terminal.CliError(f"{file} was left as it is", exit_code=code)

    return remove


def _logins() -> list[Leftover]:
    from server.cli.use.installing import BACKUPS
    from server.client.token_file import token_directory

    folder = token_directory(os.environ)
    files = _there(folder, [*OF_THE_CLIENT, *(f"{Path(name).stem}.lock" for name in OF_THE_CLIENT)])
    if not any(file.suffix == ".json" for file in files):
        return []
    backups = folder / BACKUPS
    if not backups.is_symlink():
        files += _there(backups, ["*.bak-*"])
    what = "logins from here, names of servers, records of `install`"
    return [Leftover("logins", what, str(folder), lambda: _remove(files, backups, folder))]


def _data() -> list[Leftover]:
    from server.cli import local
    from server.store.data_directory import DataDirectory

    home = DataDirectory(local.directory())
    files = _of_the_server(home.path)
    if not home.database.exists() and not home.key_file.exists():
        return []
    size = terminal.size(sum(file.lstat().st_size for file in files))
    copies = len(list(home.backups.glob("*.db"))) if home.backups.is_dir() else 0
    what = f"people, logins, records, keys ({size})"
    if copies:
        what += f", {copies} back-up{'' if copies == 1 else 's'}"
    return [Leftover("data", what, str(home.path), lambda: _data_gone(home.path))]


def _data_gone(folder: Path) -> None:
    from server.store.data_directory import open_home
    from server.store.jobs import CannotOpen

    try:
        # Held while it goes: no server is running on it, and none begins.
        with open_home(folder) as home:
            _remove(_of_the_server(home.path), *(home.path / name for name in OF_ITS_FOLDERS), home.path)
    except CannotOpen as refused:
        raise terminal.CliError(str(refused), hint=refused.hint or None) from None


def _settings() -> list[Leftover]:
    from server.lib import paths
    from server.settings.settings_reader import FILE_NAME

    places = [
        *(Path(given) for option, given in meant_here().items() if option == "--config"),
        paths.config_home() / FILE_NAME,
        Path("/etc/ostiary") / FILE_NAME,
    ]
    return [
        Leftover("settings", "settings", str(place), None)
        for place in dict.fromkeys(places)
        if place.is_file()
    ]


def _program() -> str:
    from server.cli.use import installing

    if form_of_this() == "checkout":
        return str(Path(__file__).parent.parent.parent.parent)
    return installing.this_program()[0]


def _there(folder: Path, names: Sequence[str]) -> list[Path]:
    return sorted(
        {file for name in names for file in folder.glob(name) if file.is_symlink() or not file.is_dir()}
    )


def _of_the_server(folder: Path) -> list[Path]:
    found = _there(folder, OF_THE_SERVER)
    for name, patterns in OF_ITS_FOLDERS.items():
        # What a link leads to is somebody else's.
        if not (folder / name).is_symlink():
            found += _there(folder / name, patterns)
    return found


def _remove(files: Sequence[Path], *folders: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)
    for folder in folders:
        # With something of somebody else's in it, it stays.
        with suppress(OSError):
            folder.rmdir()
