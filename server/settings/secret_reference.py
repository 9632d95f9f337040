"""Secrets that settings refer to and never contain: `env:NAME` or `file:/path`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from server.lib.secret import Secret

# A key file with a trailing newline and some slack; anything longer is not a credential.
SECRET_FILE_BYTES: Final = 16 * 1024


class SecretUnreadable(Exception):
    """The reference names no secret that can be read; the text says which reference, never a value."""


def read_secret(reference: str) -> Secret:
    """What `env:NAME` or `file:/path` names. Raises `SecretUnreadable`; a bare value is refused, so that none ends up in a file
    that people copy around."""
    source, _, name = reference.partition(":")
    if source == "env" and name:
        value = os.environ.get(name)
        if not value:
            raise SecretUnreadable(f"the environment variable {name} is not set")
        return Secret(value.strip())
    if source == "file" and name:
        path = Path(name).expanduser()
        try:
            with path.open("rb") as file:
                raw = file.read(SECRET_FILE_BYTES + 1)
        except OSError as error:
            where = "" if path.is_absolute() else f" ({path.absolute()})"
            raise SecretUnreadable(f"the file {name} cannot be read: {error.strerror}{where}") from error
        try:
            value = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise SecretUnreadable(f"the file {name} is not text") from error
        if not value or len(raw) > SECRET_FILE_BYTES:
            raise SecretUnreadable(f"the file {name} is empty or too long for a secret")
        return Secret(value)
    raise SecretUnreadable("a secret is written as env:NAME or file:/path, never in clear")


def without_credentials(address: str) -> str:
    """Hide the user name and the password of an address that somebody wrote, to show it."""
    return re.sub(r"//[^/]*@", "//…@", address)
