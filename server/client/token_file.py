"""The token file: one login per server, and the clients that we are registered as, in a file that nobody else can read.

Its contents are here; how it is kept is in private_file.py, asking for tokens in device_login.py and browser_login.py, refreshing them
in access_token.py. Every change is read, applied and written under one lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

import msgspec

from server.client.client_errors import TokenFileError
from server.lib import paths
from server.lib.file_lock import FileLock
from server.lib.oauth_client.device_authorization import DeviceCode
from server.lib.oauth_client.dynamic_registration import Registered
from server.lib.oauth_client.kept_login import OAuthLogin
from server.lib.oauth_client.proof_key import ProofKey, UnusableKey
from server.lib.private_file import MAX_FILE, PrivateFile
from server.lib.secret import Secret, decode_secret, encode_secret

Millis: TypeAlias = int


def wall_clock() -> Millis:
    return time.time_ns() // 1_000_000


# 2 added registrations, and secrets of clients; 3 keys that tokens are bound to; 4 codes. What is older is read as it is, and
# written as 4.
FORMAT = 4
CHOSEN = "OSTIARY_CONFIG_HOME"


class StoredLogin(OAuthLogin, frozen=True, kw_only=True):
    """A login at one server, as the file has it."""

    url: str  # as completed from what was typed
    proof_key: Secret | None = None  # both tokens count only with a proof of it

    @property
    def key(self) -> ProofKey | None:
        """The key to which both tokens are bound. A damaged one raises `TokenFileError`."""
        try:
            return None if self.proof_key is None else ProofKey.of(self.proof_key)
        except UnusableKey:
            raise TokenFileError(
                f"the key of the login at {self.url} was damaged",
                hint=f"ostiary login {quote(self.url)} --dpop",
            ) from None


class StoredRegistration(Registered, frozen=True, kw_only=True):
    """The answer of an authorization server when we introduced ourselves (RFC 7591 §3.2.1)."""

    grant_type: str  # the way of logging in that it was made for

    @property
    def key(self) -> str:
        return f"{self.issuer} {self.grant_type}"


class StoredCode(DeviceCode, frozen=True, kw_only=True):
    """A code for a device that waits for somebody to approve it, and for whom it was made."""

    issuer: str
    client_id: str
    scope: str


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    logins: dict[str, StoredLogin]
    registrations: dict[str, StoredRegistration] = {}
    codes: dict[str, StoredCode] = {}
    latest: str = ""  # the address that was last logged in to


class _Version(msgspec.Struct, frozen=True):
    version: int


class _Unreadable(Exception):
    """The file is there, and is not ours to understand."""


def token_directory(environ: Mapping[str, str]) -> Path:
    """Return `OSTIARY_CONFIG_HOME`, else the platform's configuration directory."""
    chosen = environ.get(CHOSEN, "")
    return Path(chosen) if os.path.isabs(chosen) else paths.config_home()


def needed_variables(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that must be set for a program in another environment, so that it finds the same directory.

    There are none where that needs nothing but a home."""
    here = token_directory(environ)
    return {} if here == paths.config_home({}) else {CHOSEN: str(here)}


class TokenFile:
    def __init__(self, directory: Path) -> None:
        self._file = PrivateFile(directory, "tokens.json", kept="tokens", refused=TokenFileError)
        self.directory = directory
        self.path = self._file.path

    def get(self, url: str) -> StoredLogin | None:
        return self._read().logins.get(url)

    def all(self) -> list[StoredLogin]:
        return list(self._read().logins.values())

    def latest(self) -> str:
        """Return the address of the login that was made last, if that is known."""
        return self._read().latest

    def begin(self, login: StoredLogin) -> None:
        """Store a new login durably, as the latest from now on."""
        self._change(lambda kept: _with(kept, logins={**kept.logins, login.url: login}, latest=login.url))

    def put(self, login: StoredLogin) -> None:
        """Store a login with other tokens than before, durably."""
        self._change(lambda kept: _with(kept, logins={**kept.logins, login.url: login}))

    def drop(self, url: str) -> None:
        self._change(lambda kept: _with(kept, logins=_without(kept.logins, url)))

    def registration(self, issuer: str, grant_type: str) -> StoredRegistration | None:
        return self._read().registrations.get(f"{issuer} {grant_type}")

    def put_registration(self, made: StoredRegistration) -> None:
        self._change(lambda kept: _with(kept, registrations={**kept.registrations, made.key: made}))

    def drop_registrations(self, issuer: str, client_id: str) -> None:
        """Forget a client id that its server does not know any more."""

        def change(kept: _File) -> _File:
            left = {
                key: made
                for key, made in kept.registrations.items()
                if (made.issuer, made.client_id) != (issuer, client_id)
            }
            return _with(kept, registrations=left)

        self._change(change)

    def code(self, url: str) -> StoredCode | None:
        """Return the code that was asked for at this server, by a program that may be gone."""
        return self._read().codes.get(url)

    def put_code(self, url: str, code: StoredCode, *, now: Millis) -> None:
        def change(kept: _File) -> _File:
            left = {each: one for each, one in kept.codes.items() if one.expires_at > now}
            return _with(kept, codes={**left, url: code})

        self._change(change)

    def drop_code(self, code: DeviceCode) -> None:
        """Forget a code that is of no use any more."""

        def change(kept: _File) -> _File:
            dropped = (code.device_code, code.expires_at)
            codes = {
                url: one for url, one in kept.codes.items() if (one.device_code, one.expires_at) != dropped
            }
            return _with(kept, codes=codes)

        self._change(change)

    def lock_of(self, url: str, what: str = "login") -> FileLock:
        """Return the lock under which the login of one server is refreshed, replaced or ended.

        With a purpose, it is that of something else that is done there by one process at a time."""
        import hashlib

        self._file.make_directory()
        return self._file.lock_named(f"{what}-{hashlib.sha256(url.encode()).hexdigest()[:16]}")

    def _read(self) -> _File:
        try:
            return self._decode(self._file.load())
        except _Unreadable:
            with self._file.lock().held():
                return self._set_aside()

    def _change(self, change: Callable[[_File], _File]) -> None:
        self._file.make_directory()
        with self._file.lock().held():
            try:
                kept = self._decode(self._file.load())
            except _Unreadable:
                kept = self._set_aside()
            changed = change(kept)
            if changed != kept:
                self._file.replace(_encode(_with(changed, version=FORMAT)))

    def _decode(self, data: bytes | None) -> _File:
        if data is None:
            return _File(version=FORMAT, logins={})
        if len(data) > MAX_FILE:
            raise _Unreadable
        try:
            version = msgspec.json.decode(data, type=_Version).version
            if version > FORMAT:
                raise TokenFileError(
                    f"{self.path} was written by a newer ostiary",
                    hint="use that one, or log in again elsewhere",
                )
            return msgspec.json.decode(data, type=_File, dec_hook=decode_secret)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise _Unreadable from None

    def _set_aside(self) -> _File:
        """Keep a damaged file under another name, under the lock, and say so. Somebody may have done it just before."""
        try:
            return self._decode(self._file.load())
        except _Unreadable:
            kept = self._file.set_aside()
            raise TokenFileError(
                f"the token file was damaged, and is kept as {kept}",
                hint="log in again: `ostiary login URL`",
            ) from None


def _with(kept: _File, **changes: Any) -> _File:
    return msgspec.structs.replace(kept, **changes)


def _without(logins: Mapping[str, StoredLogin], url: str) -> dict[str, StoredLogin]:
    return {key: login for key, login in logins.items() if key != url}


def _encode(file: _File) -> bytes:
    return msgspec.json.format(msgspec.json.encode(file, enc_hook=encode_secret), indent=2) + b"\n"
