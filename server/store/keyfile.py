"""The one secret that is not in the database: 32 random bytes in a file, from which every other key is derived.

A missing or different key never leads to a new one where a database knows the old: that would silently end every login and
lose every sealed value. What the subkeys are used for is not here.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from server.lib.own_files import make_file, open_to_others, sync_directory
from server.store import meta_rows, sealed_rows
from server.store.jobs import CannotOpen, StoreDb
from server.store.sealed_rows import RightsNotSealed
from server.store.sqlite_connect import hint_for

_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 6
_MAX_TEXT: Final = 1024

# "ostiary-key-1:<id>:<secret>": the id tells two key files apart in messages without saying anything about the secret.
_TEXT: Final = re.compile(r"ostiary-key-1:([0-9a-f]{12}):([A-Za-z0-9_-]{43})")

# A purpose names what the subkey is for and its id, "user-code/1": a new id is a new, unrelated key.
_PURPOSE: Final = re.compile(r"[a-z][a-z0-9-]{0,47}/[1-9][0-9]{0,3}")


class KeyRefused(CannotOpen):
    """The key is missing, unreadable, open to others, or not this database's."""

    lasting = True


class KeyNotMade(KeyRefused):
    """There is none yet, and the disk did not take one."""

    lasting = False


class MasterKey:
    """Never leaves the process; shows nothing of itself."""

    __slots__ = ("_secret", "id")

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        self._secret = secret

    def __repr__(self) -> str:
        return f"MasterKey({self.id}, ***)"

    def __reduce__(self) -> str:
        raise TypeError("a master key is not copied or sent anywhere")

    @property
    def fingerprint(self) -> str:
        """What the database remembers of its key; tells nothing about it."""
        return f"{self.id}:{self._derive('fingerprint')[:16].hex()}"

    def subkey(self, purpose: str) -> bytes:
        """32 bytes for one purpose and id, such as `"user-code/1"`; unrelated to every other subkey."""
        if not _PURPOSE.fullmatch(purpose):
            raise ValueError(f"a purpose is a name and an id, like 'user-code/1', not {purpose!r}")
        return self._derive(f"subkey {purpose}")

    def _derive(self, info: str) -> bytes:
        kdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"ostiary " + info.encode())
        return kdf.derive(self._secret)


def open_key(
    location: str | Path,
    *,
    known_fingerprint: str | None,
    random_bytes: Callable[[int], bytes],
    environment: Mapping[str, str],
) -> MasterKey:
    """The key at `location`: a path, `file:PATH` or `env:NAME`. Made only if missing, at a path, and no database knows one.

    `known_fingerprint` is what the database remembers (`meta_rows.KEY_FINGERPRINT`). Raises `KeyRefused`.
    """
    where = str(location)
    if where.startswith("env:"):
        text = environment.get(where.removeprefix("env:"))
        if text is None:
            raise KeyRefused(
                f"the key is to come from {where}, which is not set", hint=_missing_hint(known_fingerprint)
            )
    else:
        path = Path(where.removeprefix("file:")).expanduser()
        try:
            text = _read(path)
        except FileNotFoundError:
            if known_fingerprint is not None:
                raise KeyRefused(
                    f"the key file {path} is missing, and the database cannot be used without it",
                    hint=_missing_hint(known_fingerprint),
                ) from None
            text = _create(path, random_bytes)
        except OSError as error:
            raise KeyRefused(f"cannot read the key file {path}: {error.strerror}") from error
    key = parse(text, where)
    if known_fingerprint is not None and not hmac.compare_digest(key.fingerprint, known_fingerprint):
        if key.id == id_in(known_fingerprint):
            raise KeyRefused(
                f"the key at {where} is damaged: its name is that of this database's key ({key.id}), its secret half is not",
                hint="restore the key file from a back-up",
            )
        raise KeyRefused(
            f"the key at {where} is not this database's key ({key.id} instead of {id_in(known_fingerprint)})",
            hint="put the key file back that belongs to this database, or use a new data directory",
        )
    return key


def bind_key(db: StoreDb, *, fingerprint: str) -> None:
    """Remember at first start which key this database belongs to, and begin its audit trail and its seals; refuse another key ever after,
    and a database that is not sealed. A job."""
    known = meta_rows.get(db, meta_rows.KEY_FINGERPRINT)
    if known is not None and not hmac.compare_digest(known, fingerprint):
        raise KeyRefused(
            "the key is not this database's key", hint="put the key file back that belongs to this database"
        )
    db.begin_audit()
    if known is None:
        meta_rows.put(db, meta_rows.KEY_FINGERPRINT, fingerprint)
        sealed_rows.begin(db)
    elif not sealed_rows.is_begun(db):
        raise RightsNotSealed


def parse(text: str, where: str) -> MasterKey:
    """Read the text form. The message of `KeyRefused` never shows any of it."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise KeyRefused(
            f"what is at {where} is not a key of ostiary", hint="restore the key file from a back-up"
        )
    try:
        secret = base64.urlsafe_b64decode(match[2] + "=")
    except binascii.Error:
        raise KeyRefused(
            f"the key at {where} is damaged", hint="restore the key file from a back-up"
        ) from None
    return MasterKey(match[1], secret)


def new_key_text(random_bytes: Callable[[int], bytes]) -> str:
    secret = base64.urlsafe_b64encode(random_bytes(_SECRET_BYTES)).decode().rstrip("=")
    return f"ostiary-key-1:{random_bytes(_ID_BYTES).hex()}:{secret}"


def _read(path: Path) -> str:
    # Checked on the open file, so that what is checked is what is read. Owner root: systemd credentials, mounted secrets.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise KeyRefused(f"the key file {path} is not a regular file")
        if open_to_others(status) or status.st_uid not in {0, os.geteuid()}:
            raise KeyRefused(
                f"the key file {path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o},"
                f" uid {status.st_uid})",
                hint=f"chmod 600 {quote(str(path))}",
            )
        return file.read(_MAX_TEXT).decode("utf-8", "replace")


def _create(path: Path, random_bytes: Callable[[int], bytes]) -> str:
    text = new_key_text(random_bytes)
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        descriptor = make_file(partial)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{text}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            os.link(partial, path)  # never over a key that appeared meanwhile; whole from its first moment
        finally:
            partial.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise KeyNotMade(
            f"cannot make the key file {path}: {error.strerror}", hint=hint_for(error)
        ) from error
    return text


def id_in(fingerprint: str) -> str:
    """What the key file begins with, after `ostiary-key-1:`."""
    return fingerprint.partition(":")[0]


def _missing_hint(known_fingerprint: str | None) -> str:
    if known_fingerprint is None:
        return "set it to the content of a key file, or let the server make the file"
    key_id = id_in(known_fingerprint)
    return f"put back the key file that begins with ostiary-key-1:{key_id}, or use a new data directory"
