"""Files of the server's own that the settings name: programs that the server starts may not open them, or not change them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from server.lib import paths
from server.settings.resolved_settings import Resolved
from server.settings.rule_settings import programs_of
from server.settings.settings_reader import kind_of
from server.settings.started_programs import is_program, started_programs

_FILE: Final = "file:"
_SCRIPTS: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl", ".php", ".jar"})
# Of whoever uses the terminal as this user: logins, names of servers, a wallet; and what a unit of systemd passes on.
_OF_THE_TERMINAL: Final = ("tokens.json", "servers.json", "wallet.json", "wallet.key", "environment")


class KeptPaths(msgspec.Struct, frozen=True):
    """The paths that programs may not open, and those that they may only read. More may come; some may not exist."""

    closed: set[Path] = msgspec.field(default_factory=set[Path])
    read_only: set[Path] = msgspec.field(default_factory=set[Path])

    def update(self, newer: KeptPaths) -> None:
        self.closed.update(newer.closed)
        self.read_only.update(newer.read_only)


def kept_out_paths(resolved: Resolved) -> KeptPaths:
    """Return the paths of data, keys, settings, secrets and the admin socket, and those of what the server runs and reads for its owner."""
    return KeptPaths(_closed_paths(resolved), _read_only_paths(resolved))


def _closed_paths(resolved: Resolved) -> set[Path]:
    config = resolved.config
    found = {resolved.data_dir, paths.control_folder(resolved.data_dir)}
    found |= {each for each in (resolved.backup_dir, resolved.source, resolved.servers_file) if each}
    if config.tls_key:
        found.add(Path(config.tls_key).expanduser())
    if config.key_file and not config.key_file.startswith(("env:", _FILE)):
        found.add(Path(config.key_file).expanduser())
    found |= {home / name for home in _terminal_homes() for name in _OF_THE_TERMINAL}
    written = [
        config,
        resolved.servers,
        resolved.upstreams,
        resolved.payments,
        resolved.acme,
        resolved.telemetry,
    ]
    found |= {Path(name).expanduser() for name in _references(msgspec.to_builtins(written, enc_hook=str))}
    return {each.absolute() for each in found}


def _read_only_paths(resolved: Resolved) -> set[Path]:
    """Return the files by which somebody else would decide, or act in the server: hooks, agents that run inside, mocks, skills, APIs.

    Agents that are programs keep their own files in their folders, and may.
    """
    found = {
        Path(each).expanduser()
        for each in (resolved.config.tls_certificate, resolved.config.store_ca)
        if each
    }
    for server in resolved.servers:
        found |= {Path(tool.mock).expanduser() for tool in server.tools.values() if tool.mock}
        inside = [agent for agent in server.agents if not is_program(agent)]
        for agent in (*inside, *programs_of(server.hooks)):
            names = [getattr(agent, name, "") for name in ("file", "path", "document")]
            found |= {Path(name).expanduser() for name in names if name and "://" not in name}
            folder = _runs_in(agent)
            found |= {folder / name for name in _code_of(getattr(agent, "run", ()), folder)}
    return {each.absolute() for each in found}


def _code_of(words: Sequence[str], folder: Path) -> Iterator[Path]:
    """Yield the program, if it is named by a path, and a script that an interpreter is given. Installed programs are the system's."""
    for place, word in enumerate(words):
        path = Path(word).expanduser()
        code = "/" in word if place == 0 else path.suffix in _SCRIPTS
        if (
            code
            and "{" not in word
            and not (folder / path).is_relative_to("/usr")
            and (folder / path).is_file()
        ):
            yield path


def _terminal_homes() -> set[Path]:
    chosen = os.environ.get("OSTIARY_CONFIG_HOME", "")
    return {paths.config_home(), *([Path(chosen)] if os.path.isabs(chosen) else [])}


def _references(written: object) -> Iterator[str]:
    """Yield the files that are referred to. A header may name its scheme before the reference."""
    if isinstance(written, str):
        reference = written if written.startswith(_FILE) else written.rpartition(" ")[2]
        if reference.startswith(_FILE) and len(reference) > len(_FILE):
            yield reference.removeprefix(_FILE)
    elif isinstance(written, Mapping):
        for each in cast("Mapping[str, Any]", written).values():
            yield from _references(each)
    elif isinstance(written, list | tuple):
        for each in cast("list[Any]", written):
            yield from _references(each)


class ProgramNotice(msgspec.Struct, frozen=True):
    """A sentence for an owner about the programs that the settings start, and what to do."""

    words: str
    hint: str
    grave: bool = False  # programs can open what they should not


def program_notices(resolved: Resolved, *, alone: bool = False) -> list[ProgramNotice]:
    """Return what cannot be kept from programs here, and what they cannot do because of what is kept from them. `alone`: one caller
    is all that there can be."""
    return [*(() if alone else _shared_notices(resolved)), *_confinement_notices(resolved)]


def _confinement_notices(resolved: Resolved) -> Iterator[ProgramNotice]:
    started = [agent for server in resolved.servers for agent in started_programs(server)]
    if not started:
        return
    from server.lib.landlock import ForbiddenPaths, landlock_abi

    same_user = [agent for agent in started if not agent.run_as]
    if not landlock_abi():
        if same_user:
            yield ProgramNotice(
                "this system has no Landlock: programs that the server starts can open its data directory, keys and settings",
                "start only programs that you trust, or run them as another user: run_as",
                grave=True,
            )
        return
    confined = [agent for agent in started if not getattr(agent, "unconfined", False)]
    if loose := sorted({_named(agent) for agent in same_user if getattr(agent, "unconfined", False)}):
        yield ProgramNotice(
            f"unconfined programs can open the server's data directory, keys and settings: {', '.join(loose)}",
            "leave out unconfined for what is not your own",
            grave=True,
        )
    kept = kept_out_paths(resolved)
    forbidden = ForbiddenPaths(kept.closed, kept.read_only)
    folders = {folder for agent in confined for folder in _folders(agent)}
    working = {os.path.realpath(_runs_in(agent)) for agent in confined}
    closed = forbidden.folders
    in_our_home = [agent for agent in confined if not agent.run_as and not agent.confines_files]
    if in_our_home and forbidden.holds(home := os.path.realpath(Path.home())):
        yield ProgramNotice(
            f"programs may not open their home {home}, which the server keeps for itself",
            "give them another: HOME in the environment that their settings name",
            grave=True,
        )
    for folder in sorted(folders):
        if forbidden.holds(folder):
            yield ProgramNotice(
                f"programs may not open {folder}, which the server keeps for itself, and one is meant to run there",
                "move the agent, or the data directory, to a folder of its own",
                grave=True,
            )
        elif folder in working and folder in closed and folder != "/":
            yield ProgramNotice(
                f"programs can make nothing new in {folder} itself, where there is something that the server keeps for itself or lets nobody change; in folders below they can",
                "let the agent write in a folder below",
            )


def _shared_notices(resolved: Resolved) -> Iterator[ProgramNotice]:
    """Name the upstreams in whose one process or connection all who call meet."""
    shared = {
        str(getattr(agent, "what", ""))
        for server in resolved.servers
        for agent in server.agents
        if kind_of(agent) == "mcp" and getattr(agent, "share", "") == "all"
    }
    if shared:
        yield ProgramNotice(
            f"all who call share what {', '.join(sorted(shared))} keeps in memory, and may meet each other's there",
            'without share = "all" each of them has a process or connection of their own',
        )


def _named(agent: msgspec.Struct) -> str:
    names = (getattr(agent, name, "") for name in ("file", "module", "id"))
    return next((name for name in names if name), kind_of(agent))


def _folders(agent: msgspec.Struct) -> Iterator[str]:
    """Yield where its program runs, and where its file lies."""
    if file := getattr(agent, "file", ""):
        yield os.path.realpath(Path(file).expanduser().parent)
    yield os.path.realpath(_runs_in(agent))


def _runs_in(agent: msgspec.Struct) -> Path:
    return Path(getattr(agent, "cwd", "") or getattr(agent, "working_dir", "") or ".").expanduser()
