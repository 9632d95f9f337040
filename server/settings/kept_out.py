"""Files of the server's own that the settings name: programs that the server starts may not open them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from server import paths
from server.settings.resolve import Resolved

_FILE: Final = "file:"
# Of whoever uses the terminal as this user: logins, names of servers, a wallet; and what a unit of systemd passes on.
_OF_THE_TERMINAL: Final = ("tokens.json", "servers.json", "wallet.json", "wallet.key", "environment")


def kept_out_paths(resolved: Resolved) -> set[Path]:
    """Return the paths of data, keys, settings, secrets, and the admin socket; some may not exist."""
    config = resolved.config
    found = {resolved.data_dir, paths.control_folder(resolved.data_dir)}
    found |= {each for each in (resolved.backup_dir, resolved.source) if each is not None}
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
