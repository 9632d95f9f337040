"""The files that a program needs only to run: the system's, its interpreter's and its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

SCRIPTS: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl", ".php", ".jar"})
_NODES: Final = frozenset({".js", ".mjs", ".cjs", ".ts"})
_SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/proc", "/sys",
)  # fmt: skip
# Of /etc, where secrets lie too, what libraries read.
_ETC: Final = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts", "gai.conf", "group",
    "host.conf", "hostname", "hosts", "java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "locale.alias",
    "localtime", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem",
    "protocols", "resolv.conf", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
# Variables that name files, or folders with a colon between.
_NAMING: Final = (
    "LD_LIBRARY_PATH", "NODE_EXTRA_CA_CERTS", "NODE_PATH", "PYTHONPATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
# What a program looks for and starts.
_STARTS: Final = {
    "npx": ("node", "npm"),
    "npm": ("node",),
    "uvx": ("uv", "python3"),
    "uv": ("python3",),
    "pipx": ("python3",),
}
_PROGRAM_FOLDERS: Final = frozenset({"bin", ".bin", "sbin", "shims"})
_MOST_LINKS: Final = 16
_MOST_INTERPRETERS: Final = 3  # a script of a script
_LEVELS: Final = 8  # from a script up to what it is a part of
_FIRST_LINE: Final = 256


def system_reads() -> Iterator[str]:
    yield from _SYSTEM
    yield from (f"/etc/{name}" for name in _ETC)


def system_writes() -> Iterator[str]:
    yield from (f"/dev/{name}" for name in _DEVICES)


class Changeable:
    """The places that a program may change: links and first lines there are its own words, and give no right to what they name."""

    def __init__(self, written: Iterable[str]) -> None:
        self._places: Final = {os.path.abspath(os.path.expanduser(path)) for path in written}

    def __contains__(self, path: str) -> bool:
        ways = (path, os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
        return any(
            way == place or way.startswith(f"{place}{os.sep}") for way in ways for place in self._places
        )


def needs_of(
    words: Sequence[str], variables: Mapping[str, str], folder: str, changeable: Changeable
) -> Iterator[str]:
    """Yield what a command needs that is run in `folder`, but for what it may change. The words are its owner's: what a caller says gives no right."""
    for path in _needs_of(words, variables, folder, changeable):
        if path not in changeable:
            yield path


def _needs_of(
    words: Sequence[str], variables: Mapping[str, str], folder: str, changeable: Changeable
) -> Iterator[str]:
    search = variables.get("PATH")
    for name in (words[0], *_STARTS.get(os.path.basename(words[0]), ())):
        found = shutil.which(name, path=search) or (os.path.join(folder, name) if os.sep in name else "")
        if found:
            yield from _of_program(os.path.abspath(found), search, changeable, _MOST_INTERPRETERS)
    for word in words[1:]:
        script = Path(folder, word)
        if script.suffix in SCRIPTS and script.is_file():
            yield from _of_program(os.path.abspath(script), search, changeable, 1)
    for name in _NAMING:
        yield from filter(os.path.isabs, variables.get(name, "").split(":"))


def _of_program(path: str, search: str | None, changeable: Changeable, interpreters: int) -> Iterator[str]:
    for _ in range(_MOST_LINKS):
        yield path
        yield from _around(Path(path))
        if path in changeable:
            return
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    if interpreters > 0 and (interpreter := _interpreter(path, search)):
        yield from _of_program(interpreter, search, changeable, interpreters - 1)


def _around(path: Path) -> Iterator[str]:
    """Yield the folders that belong to a program or script."""
    folder = path.parent
    if folder.name in _PROGRAM_FOLDERS:
        whole = folder.parent
        yield from map(str, [whole] if _is_own(whole) else [whole / "lib"])
        return
    if _is_own(folder):
        yield str(folder)
    if path.suffix not in _NODES:
        return
    for above in path.parents[:_LEVELS]:
        if not _is_own(above):
            return
        if above.name == "node_modules" or (above / "package.json").is_file():
            yield str(above)


def _is_own(folder: Path) -> bool:
    """Return whether it can be a program's own: no home, none above one, nor where programs of all kinds keep what is theirs."""
    home = Path.home()
    if home.is_relative_to(folder) or folder.parent == Path("/"):
        return False
    return folder not in [home / name for name in (".local", ".config", ".cache", ".local/share")]


def _interpreter(path: str, search: str | None) -> str | None:
    """Return what runs a script, which its first line says."""
    try:
        with open(path, "rb") as file:
            line = file.read(_FIRST_LINE).split(b"\n", 1)[0]
    except OSError:
        return None
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return shutil.which(words[0], path=search) if words else None
