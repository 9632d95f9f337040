"""What settings name and this machine must have before anybody is served: secrets behind references, files of agents, folders.

The same is looked for when an agent is opened; here all of it is said at once, and before. Nothing is opened for good, nothing is run
but an agent's own interpreter, which is asked whether it can read a file that ours cannot.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from server.settings.money_settings import PaymentsConfig
from server.settings.private_paths import KeptPaths
from server.settings.provider_settings import UpstreamConfig
from server.settings.secret_reference import SecretUnreadable, read_secret
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import LoadedSettings, SettingsProblem
from server.settings.store_reference import store_fault

# Fields in which a reference is one. Elsewhere `env:` is a text like any other.
_OF_SECRETS: Final = frozenset(
    {"api_key", "credentials", "env", "environment", "headers", "oauth", "pay", "token"}
)
_SCHEMES: Final = ("env:", "file:")
# More is no program that somebody wrote.
_SOURCE_BYTES: Final = 4 * 1024 * 1024
_CHECK_SECONDS: Final = 10
_CHECK: Final = "import sys; compile(open(sys.argv[1], 'rb').read(), sys.argv[1], 'exec', dont_inherit=True)"


def absences(
    loaded: LoadedSettings,
    *,
    servers: Sequence[ServerConfig],
    upstreams: Sequence[UpstreamConfig],
    agents: Sequence[tuple[str, msgspec.Struct]],
    kept_paths: KeptPaths,
) -> list[SettingsProblem]:
    """`kept_paths`: what programs may not open; `servers` and `upstreams` as they are written, one after the other; `agents`: where each is written, and what it says."""
    found: list[SettingsProblem] = []
    if store_fault(loaded.config.store, os.environ) is None:  # else nothing of it is to be shown
        found += _unreadable("store", loaded.config.store)
    found += _unreadable("registration_token", loaded.config.registration_token)
    for where, agent in agents:
        fields = {field.name: getattr(agent, field.name) for field in msgspec.structs.fields(agent)}
        for name in _OF_SECRETS.intersection(fields):
            found += _unreadable(f"{where}.{name}", fields[name])
        found += _files(where, agent, fields, kept_paths)
    for place, server in enumerate(servers, 1):
        for at, each in enumerate(server.tokens, 1):
            found += _unreadable(f"server[{place}].tokens[{at}].token", each.token)
    for place, upstream in enumerate(upstreams, 1):
        found += _unreadable(f"upstream[{place}].client_secret", upstream.client_secret)
    if loaded.payments is not None:
        found += _of_payments(loaded.payments)
    if loaded.telemetry is not None:
        found += _unreadable("telemetry.headers", loaded.telemetry.headers)
    return [*found, *_unreadable("acme.eab_key", loaded.acme.eab_key)]


def _of_payments(payments: PaymentsConfig) -> Iterator[SettingsProblem]:
    for place, facilitator in enumerate(payments.facilitator, 1):
        where = f"payments.facilitator[{place}]"
        yield from _unreadable(f"{where}.headers", facilitator.headers)
        yield from _unreadable(f"{where}.key_id", facilitator.key_id)
        yield from _unreadable(f"{where}.key_secret", facilitator.key_secret)


def _unreadable(key: str, value: object) -> Iterator[SettingsProblem]:
    if isinstance(value, str):
        # A header may name its scheme before it: "Bearer env:NAME".
        reference = value if value.startswith(_SCHEMES) else value.rpartition(" ")[2]
        if reference.startswith(_SCHEMES):
            try:
                read_secret(reference)
            except SecretUnreadable as error:
                yield SettingsProblem(key=key, what=str(error))
    elif isinstance(value, Mapping):
        for name, each in cast("Mapping[str, object]", value).items():
            yield from _unreadable(f"{key}.{name}", each)
    elif isinstance(value, msgspec.Struct):
        for name in ("client_secret", "key"):
            yield from _unreadable(f"{key}.{name}", getattr(value, name, ""))


def _files(
    where: str, agent: msgspec.Struct, fields: Mapping[str, Any], kept_paths: KeptPaths
) -> Iterable[SettingsProblem]:
    named = fields.get("file")
    if isinstance(named, str) and named:
        file = Path(named).expanduser().absolute()
        if not file.is_file():
            yield SettingsProblem(key=f"{where}.file", what=f"there is no file {file}")
        elif "in_process" in fields:
            yield from _syntax(f"{where}.file", file, fields["python"], kept_paths)
    folder = fields.get("cwd")
    if isinstance(folder, str) and folder and not Path(folder).expanduser().is_dir():
        yield SettingsProblem(
            key=f"{where}.cwd", what=f"there is no folder {Path(folder).expanduser().absolute()}"
        )


def _syntax(key: str, file: Path, interpreter: str, kept_paths: KeptPaths) -> Iterable[SettingsProblem]:
    try:
        with file.open("rb") as handle:
            source = handle.read(_SOURCE_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come when it is loaded
            compile(source, str(file), "exec", dont_inherit=True)
    except OSError as error:
        yield SettingsProblem(key=key, what=f"{file.name} cannot be read: {error.strerror}")
    except (SyntaxError, ValueError) as error:
        if _another_reads(file, interpreter, kept_paths):
            return
        at = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        yield SettingsProblem(key=key, what=f"{file.name}{at}: {type(error).__name__}: {what}")
    except (RecursionError, MemoryError):  # for whoever loads it to say
        return


def _another_reads(file: Path, written: str, kept_paths: KeptPaths) -> bool:
    """Whether the interpreter that will run it is of another version, and can."""
    from server.agents.base.child_environment import child_environment
    from server.agents.base.program_start import start
    from server.agents.python.find_interpreter import find_interpreter
    from server.lib.landlock import ForbiddenPaths

    try:
        started = start(
            [find_interpreter(written, file.parent), "-I", "-S", "-c", _CHECK, str(file)],
            child_environment((), kept_out=ForbiddenPaths(kept_paths.closed, kept_paths.read_only)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with started:
            try:
                return started.wait(_CHECK_SECONDS) == 0
            except subprocess.TimeoutExpired:
                started.kill()
    except (OSError, ValueError):  # which is said when it is to be started
        pass
    return False
