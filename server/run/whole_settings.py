"""Settings from first to last: read, resolved, and compared with what this machine has. What `serve` starts with and `doctor` looks
at, so that neither knows of anything wrong that the other does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from server.run.settings_present import absences
from server.settings.private_paths import kept_out_paths
from server.settings.resolved_settings import Resolved, resolve_all
from server.settings.settings_reader import ConfigInvalid, LoadedSettings, SettingsProblem, draft, located

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
    """`changed` makes of what is written what is meant; it may raise what it likes. `text`: what stood in the file when others read it.

    Raises `ConfigInvalid` with every problem, and `NotHere` where each is something that this machine lacks."""
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
    """The setting, or the table: `port` of OSTIARY_PORT and --port, `server` of server[1].path."""
    plain = key.removeprefix("OSTIARY_").removeprefix("--").replace("-", "_").lower()
    return plain.partition(".")[0].partition("[")[0]
