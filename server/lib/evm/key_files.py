"""Where a private key is kept: a file that nobody else can read, or a variable of the environment. Never written in clear anywhere
else: not in settings, arguments, logs or errors.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Final

from server.lib.evm.secp256k1 import BadPrivateKey, PrivateKey
from server.lib.own_files import make_directory, make_file, open_to_others, sync_directory

# A key and its newline; anything longer is no key file.
MAX_KEY_FILE: Final = 256
_WRITTEN: Final = re.compile(rb"(?:0x)?([0-9a-fA-F]{64})")


class KeyUnusable(Exception):
    """There is no key to be had; the sentence says where it was looked for, never what was found."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def load_key(reference: str, environ: Mapping[str, str] = os.environ) -> PrivateKey:
    """The key that `env:NAME` or `file:/path` names. Raises `KeyUnusable`."""
    source, _, name = reference.partition(":")
    if source == "env" and name:
        value = environ.get(name)
        if not value:
            raise KeyUnusable(f"the environment variable {name} is not set")
        return _read(value.encode("utf-8", "surrogateescape"), f"the environment variable {name}")
    if source == "file" and name:
        path = Path(name).expanduser()
        return _read(_content(path), str(path))
    # Whatever stands there may be the key itself, so it is not repeated.
    raise KeyUnusable("a key is written as env:NAME or file:/path, never in clear")


def make_key_file(path: Path) -> PrivateKey:
    """A new key in a new file, durable when it returns. Never overwrites one. Raises `KeyUnusable`."""
    key = PrivateKey.generate()
    try:
        make_directory(path.parent)
        fd = make_file(path)
    except FileExistsError:
        raise KeyUnusable(
            f"there is a file {path} already, and whoever overwrites a key loses the money that it holds",
            hint="name another one, or move it away",
        ) from None
    except OSError as error:
        raise _cannot("make", path, error) from None
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o600)  # whatever the umask took away
            file.write(b"0x" + key.secret().hex().encode("ascii") + b"\n")
            file.flush()
            os.fsync(fd)
        sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _cannot("write", path, error) from None
    return key


def _content(path: Path) -> bytes:
    try:
        # Not blocking: a pipe in its place is looked at below.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise KeyUnusable(
            f"there is no key file {path}", hint=f"ostiary wallet new --out {quote(str(path))}"
        ) from None
    except OSError as error:
        raise _cannot("read", path, error) from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise KeyUnusable(f"{path} is no plain file")
        if found.st_uid != os.geteuid():
            raise KeyUnusable(f"the key file {path} belongs to another user", hint="run this as that user")
        if open_to_others(found):
            raise KeyUnusable(
                f"the key file {path} can be read or changed by others",
                hint=f"chmod 600 {quote(str(path))}",
            )
        return os.read(fd, MAX_KEY_FILE + 1)
    except OSError as error:
        raise _cannot("read", path, error) from None
    finally:
        os.close(fd)


def _read(data: bytes, where: str) -> PrivateKey:
    match = None if len(data) > MAX_KEY_FILE else _WRITTEN.fullmatch(data.strip())
    if match is None:
        raise KeyUnusable(f"what is in {where} is no private key: it is 0x and 64 hex digits")
    try:
        return PrivateKey(bytes.fromhex(match[1].decode("ascii")))
    except BadPrivateKey as error:
        raise KeyUnusable(f"what is in {where} is no private key: it {error}") from None


def _cannot(what: str, path: Path, error: OSError) -> KeyUnusable:
    return KeyUnusable(f"cannot {what} {path}: {(error.strerror or 'unknown error').lower()}")
