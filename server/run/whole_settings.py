"""Settings from first to last: read, resolved, and compared with what this machine has. `serve` and `doctor` share them, so that neither
knows of anything wrong that the other does not.

Missing secrets, files and folders are found when an agent is opened, too; here all of them are named at once, and before. Nothing is
opened for good, nothing is run but an agent's own interpreter, which is asked whether it can read a file that ours cannot.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from server.settings.money_settings import PaymentsConfig
from server.settings.private_paths import KeptPaths, kept_out_paths
from server.settings.provider_settings import UpstreamConfig
from server.settings.resolved_settings import Resolved, resolve_all
from server.settings.secret_reference import SecretUnreadable, read_secret
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import ConfigInvalid, LoadedSettings, SettingsProblem, draft, located
from server.settings.store_reference import store_fault

# What says something only as long as these others are sound, besides what it is about itself.
_RESTS_ON: Final[Mapping[str, frozenset[str]]] = {
    "accept_terms": frozenset({"acme", "domain", "http_port", "port", "tls_certificate", "tls_key"}),
    "acme": frozenset({"accept_terms", "domain", "http_port", "port", "tls_certificate", "tls_key"}),
    "admin_port": frozenset({"port", "http_port"}),
    "auth": frozenset({"host", "issuer", "trusted_proxies"}),
    "domain": frozenset({"acme", "accept_terms", "http_port", "port", "tls_certificate", "tls_key"}),
    "http_port": frozenset({"acme", "admin_port", "domain", "port"}),
    "issuer": frozenset({"domain", "host"}),
    "registration_token": frozenset({"registration"}),
    "tls_certificate": frozenset({"domain", "tls_key"}),
    "tls_key": frozenset({"domain", "tls_certificate"}),
}
# Fields in which a reference is one. Elsewhere `env:` is a text like any other.
_OF_SECRETS: Final = frozenset(
    {"api_key", "credentials", "env", "environment", "headers", "oauth", "pay", "token"}
)
_SCHEMES: Final = ("env:", "file:")
# More is no program that somebody wrote.
_SOURCE_BYTES: Final = 4 * 1024 * 1024
_CHECK_SECONDS: Final = 10
_CHECK: Final = "import sys; compile(open(sys.argv[1], 'rb').read(), sys.argv[1], 'exec', dont_inherit=True)"


class NotHere(ConfigInvalid):
    """The settings are sound, and this machine lacks what they name. That may come by itself."""


def read_whole(
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    changed: Callable[[LoadedSettings], LoadedSettings] = lambda loaded: loaded,
    text: str | None = None,
) -> Resolved:
    """Read the settings, and make of what is written what is meant by `changed`, which may raise what it likes.

    `text`: what stood in the file when others read it. Raises `ConfigInvalid` with every problem, and `NotHere` where each is something
    that this machine lacks.
    """
    found = draft(file, environment, flags, text=text)
    loaded = changed(found.loaded)
    # A server that was named elsewhere is not written here, and whoever opens it says what it lacks.
    agents = found.agents if loaded is found.loaded else ()
    resolved, unresolved = resolve_all(loaded)
    bad = {_root(problem.key) for problem in found.problems}
    wrong = [problem for problem in unresolved if not _rests_on(problem, bad)]
    servers = () if "server" in bad or not agents else loaded.servers  # without gaps
    upstreams = () if "upstream" in bad else loaded.upstreams
    lacking = absences(
        loaded, servers=servers, upstreams=upstreams, agents=agents, kept_paths=kept_out_paths(resolved)
    )
    if found.problems or wrong or lacking:
        kind = ConfigInvalid if found.problems or wrong else NotHere
        meant = [*wrong, *lacking]
        in_file = found.in_file or any(each.key not in found.given for each in meant)
        # By the name under which it was given: a flag is not looked for in the file.
        meant = [msgspec.structs.replace(each, key=found.given.get(each.key, each.key)) for each in meant]
        problems = located([*found.problems, *meant], found.lines)
        raise kind(problems, str(file) if file is not None and in_file else "the settings")
    return resolved


def _rests_on(problem: SettingsProblem, bad: set[str]) -> bool:
    root = _root(problem.key)
    return root in bad or not bad.isdisjoint(_RESTS_ON.get(root, ()))


def _root(key: str) -> str:
    """Return the setting or table: `port` of OSTIARY_PORT and --port, `server` of server[1].path."""
    plain = key.removeprefix("OSTIARY_").removeprefix("--").replace("-", "_").lower()
    return plain.partition(".")[0].partition("[")[0]


# ── what settings name, and this machine must have ───────────────────────────────────────────────────────────────────


def absences(
    loaded: LoadedSettings,
    *,
    servers: Sequence[ServerConfig],
    upstreams: Sequence[UpstreamConfig],
    agents: Sequence[tuple[str, msgspec.Struct]],
    kept_paths: KeptPaths,
) -> list[SettingsProblem]:
    """Return what this machine lacks: secrets behind references, files of agents, folders. Programs may not open `kept_paths`.

    `servers` and `upstreams` are as they are written, one after the other; `agents`: where each is written, and what it says.
    """
    found: list[SettingsProblem] = []
    if store_fault(loaded.config.store, os.environ) is None:  # else nothing of it is to be shown
        found += _unreadable("store", loaded.config.store)
    found += _unreadable("registration_token", loaded.config.registration_token)
    for where, agent in agents:
        fields = {field.name: getattr(agent, field.name) for field in msgspec.structs.fields(agent)}
        for name in _OF_SECRETS.intersection(fields):
            found += _unreadable(f"{where}.{name}", fields[name])
        # One that is kept to less than its server is no more trusted to choose the interpreter that looks at it.
        bounded = bool(loaded.config.programs_run_as or getattr(agent, "run_as", "")) or getattr(
            agent, "confined", False
        )
        found += _files(where, agent, fields, None if bounded else kept_paths)
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
                yield SettingsProblem(key, str(error))
    elif isinstance(value, Mapping):
        for name, each in cast("Mapping[str, object]", value).items():
            yield from _unreadable(f"{key}.{name}", each)
    elif isinstance(value, msgspec.Struct):
        for name in ("client_secret", "key"):
            yield from _unreadable(f"{key}.{name}", getattr(value, name, ""))


def _files(
    where: str, agent: msgspec.Struct, fields: Mapping[str, Any], kept_paths: KeptPaths | None
) -> Iterable[SettingsProblem]:
    named = fields.get("file")
    if isinstance(named, str) and named:
        file = Path(named).expanduser().absolute()
        if not file.is_file():
            yield SettingsProblem(f"{where}.file", f"there is no file {file}")
        elif "in_process" in fields:
            yield from _syntax(f"{where}.file", file, fields["python"], kept_paths)
    folder = fields.get("cwd")
    if isinstance(folder, str) and folder and not Path(folder).expanduser().is_dir():
        yield SettingsProblem(f"{where}.cwd", f"there is no folder {Path(folder).expanduser().absolute()}")


def _syntax(
    key: str, file: Path, interpreter: str, kept_paths: KeptPaths | None
) -> Iterable[SettingsProblem]:
    """Say what is wrong with a Python file. `kept_paths`: of which its interpreter is kept out, that is asked in a doubt; None: it is not, and
    whoever loads the file says it."""
    try:
        with file.open("rb") as handle:
            source = handle.read(_SOURCE_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come when it is loaded
            compile(source, str(file), "exec", dont_inherit=True)
    except OSError as error:
        yield SettingsProblem(key, f"{file.name} cannot be read: {error.strerror}")
    except (SyntaxError, ValueError) as error:
        if kept_paths is None or _another_reads(file, interpreter, kept_paths):
            return
        at = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        yield SettingsProblem(key, f"{file.name}{at}: {type(error).__name__}: {what}")
    except (RecursionError, MemoryError):  # for whoever loads it to say
        return


def _another_reads(file: Path, written: str, kept_paths: KeptPaths) -> bool:
    """Return whether the interpreter that will run it is of another version, and can."""
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
