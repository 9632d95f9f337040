"""The token file: one login per server, in the user's configuration directory, readable by nobody else.

Files only: asking for tokens is in login.py, refreshing them in access.py. Every change is read, applied and written
under one lock, and replaces the file whole, so that a crash leaves the old file or the new one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from server import paths
from server.client.errors import TokenFileError
from server.client.lock import FileLock
from server.secret import Secret

Millis: TypeAlias = int

FORMAT = 1
# Some thousand logins; a larger file is not ours.
MAX_FILE = 4 * 1024 * 1024
# A token that ends within this time is refreshed first: it must survive the way to the server and a clock a little off.
FRESH_FOR_MILLIS = 60_000


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to call one server, and to refresh without discovering it again."""

    url: str  # as completed from what was typed
    resource: str  # as the server spells it
    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    client_id: str
    access_token: Secret
    refresh_token: Secret | None = None
    scope: str = ""
    obtained_at: Millis
    expires_at: Millis | None = None  # None: the server did not say

    def fresh(self, now: Millis) -> bool:
        if self.expires_at is None:
            return True
        if now < self.obtained_at - FRESH_FOR_MILLIS:  # the clock was set back: nothing can be told from it
            return False
        # Never more than a tenth of a short life, or a token of one minute would never be used.
        return now < self.expires_at - min(FRESH_FOR_MILLIS, (self.expires_at - self.obtained_at) // 10)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    logins: dict[str, Login]


class _Version(msgspec.Struct, frozen=True):
    version: int


class _Unreadable(Exception):
    """The file is there, and is not ours to understand."""


def token_directory(environ: Mapping[str, str]) -> Path:
    """`OSTIARY_CONFIG_HOME`, else the platform's configuration directory."""
    chosen = environ.get("OSTIARY_CONFIG_HOME", "")
    return Path(chosen) if os.path.isabs(chosen) else paths.config_home()


class TokenFile:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "tokens.json"

    def get(self, url: str) -> Login | None:
        return self._read().get(url)

    def all(self) -> list[Login]:
        return list(self._read().values())

    def put(self, login: Login) -> None:
        """Durable when it returns."""
        self._change(lambda logins: {**logins, login.url: login})

    def drop(self, url: str) -> None:
        self._change(lambda logins: {key: login for key, login in logins.items() if key != url})

    def lock_of(self, url: str) -> FileLock:
        """The lock under which the login of one server is refreshed, replaced or ended."""
        import hashlib

        self._make_directory()
        return FileLock(self.directory / f"login-{hashlib.sha256(url.encode()).hexdigest()[:16]}.lock")

    def _read(self) -> dict[str, Login]:
        try:
            return self._decode(self._load())
        except _Unreadable:
            with self._lock().held():
                return self._set_aside()

    def _change(self, change: Callable[[dict[str, Login]], dict[str, Login]]) -> None:
        self._make_directory()
        with self._lock().held():
            try:
                logins = self._decode(self._load())
            except _Unreadable:
                logins = self._set_aside()
            changed = change(logins)
            if changed != logins:
                self._replace(_encode(_File(version=FORMAT, logins=changed)))

    def _lock(self) -> FileLock:
        return FileLock(self.directory / "tokens.lock")

    def _load(self) -> bytes | None:
        self._check_directory()
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise TokenFileError(
                    f"{self.path} is a symbolic link, and tokens are kept only in a plain file",
                    hint="put the file itself there, or set OSTIARY_CONFIG_HOME",
                ) from None
            raise _cannot("read", self.path, error) from None
        try:
            self._check(
                os.fstat(fd), self.path, directory=False
            )  # first: fdopen has words of its own for a directory
        except TokenFileError:
            os.close(fd)
            raise
        with os.fdopen(fd, "rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise _Unreadable
        return data

    def _decode(self, data: bytes | None) -> dict[str, Login]:
        if data is None:
            return {}
        try:
            version = msgspec.json.decode(data, type=_Version).version
            if version > FORMAT:
                raise TokenFileError(
                    f"{self.path} was written by a newer ostiary",
                    hint="use that one, or log in again elsewhere",
                )
            return msgspec.json.decode(data, type=_File, dec_hook=_decode_secret).logins
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise _Unreadable from None

    def _set_aside(self) -> dict[str, Login]:
        """Under the lock: keep a damaged file under another name and say so. Somebody may have done it just before."""
        try:
            return self._decode(self._load())
        except _Unreadable:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
            kept = self.path.with_name(f"tokens.damaged-{stamp}.json")
            try:
                os.rename(self.path, kept)
            except OSError as error:
                raise _cannot("set aside", self.path, error) from None
            raise TokenFileError(
                f"the token file was damaged, and is kept as {kept}",
                hint="log in again: `ostiary login URL`",
            ) from None

    def _replace(self, data: bytes) -> None:
        # One fixed name, under the lock: what a killed process left behind is overwritten, not left lying about.
        new = self.path.with_name("tokens.json.new")
        try:
            new.unlink(missing_ok=True)
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
            directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise _cannot("write", self.path, error) from None

    def _make_directory(self) -> None:
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700)
            self.directory.chmod(0o700)  # whatever the umask took away
        except FileExistsError:
            self._check_directory()
        except OSError as error:
            raise _cannot("make", self.directory, error) from None

    def _check_directory(self) -> None:
        try:
            found = os.lstat(self.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _cannot("read", self.directory, error) from None
        if stat.S_ISLNK(found.st_mode):
            raise TokenFileError(
                f"{self.directory} is a symbolic link, and tokens are kept only in a plain directory",
                hint="set OSTIARY_CONFIG_HOME to the directory that is meant",
            )
        self._check(found, self.directory, directory=True)

    def _check(self, found: os.stat_result, path: Path, *, directory: bool) -> None:
        if not (stat.S_ISDIR(found.st_mode) if directory else stat.S_ISREG(found.st_mode)):
            raise TokenFileError(
                f"{path} is no plain {'directory' if directory else 'file'}", hint="move it away"
            )
        if found.st_uid != os.geteuid():
            raise TokenFileError(
                f"{path} belongs to another user", hint="run this as that user, or set OSTIARY_CONFIG_HOME"
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise TokenFileError(
                f"{path} can be read or changed by others",
                hint=f"chmod {'700' if directory else '600'} {path}",
            )


def _cannot(what: str, path: Path, error: OSError) -> TokenFileError:
    return TokenFileError(f"cannot {what} {path}: {(error.strerror or 'unknown error').lower()}")


def _encode(file: _File) -> bytes:
    return msgspec.json.format(msgspec.json.encode(file, enc_hook=_encode_secret), indent=2) + b"\n"


def _encode_secret(value: object) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value).__name__)


def _decode_secret(wanted: type, value: Any) -> Any:
    if wanted is Secret and isinstance(value, str):
        return Secret(value)
    raise NotImplementedError(wanted.__name__)
