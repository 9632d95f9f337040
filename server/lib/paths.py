"""The directories of this platform for data, configuration and sockets. Nothing is created here."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

APPLICATION = "ostiary"


def data_home() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / APPLICATION
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / APPLICATION


def config_home(environ: Mapping[str, str] = os.environ) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / APPLICATION
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / APPLICATION


def state_home() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / APPLICATION


def control_folder(data_dir: Path) -> Path:
    """Return the directory for a data directory's admin socket, whose path may be too long for a socket."""
    tag = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:12]
    home = runtime_home()
    return home / f"ostiary-{tag}" if home else data_dir


def runtime_home() -> Path | None:
    """Return the runtime directory that the login session or service manager provides, or None."""
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        value = os.environ.get(name, "").split(":")[0]
        if os.path.isabs(value) and os.access(value, os.W_OK):
            return Path(value)
    return None
