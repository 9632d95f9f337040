"""Other people's servers: each is built from its registry, once, where its toolchain is installed, and left out elsewhere.

Their sources are in tests/peers. What can be installed in place is (`scripts/env`, `scripts/peers`); the rest is built in a copy
under .work, whose name has a checksum of the sources and of the toolchain, so that a change of either builds it anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from targets import ROOT, Target

SOURCES = ROOT / "tests" / "peers"
CACHE = ROOT / ".work" / "peers"
NODE = SOURCES / "node_modules" / ".bin" / "node"
# Rust with link-time optimisation on a slow machine, with everything to be fetched.
BUILD_SECONDS = 1200.0
REMAINS = {"node_modules", "target"}  # what somebody's own build leaves beside the sources


class LeftOut(Exception):
    """This peer cannot be had here. The text says why in a few words, `detail` what the toolchain said."""

    def __init__(self, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.detail = detail


@dataclass(frozen=True, kw_only=True)
class Peer:
    """`how` is what one should know of the way it is served; `pinned` is the file that names the version, and where in it."""

    name: str
    title: str
    how: str
    pinned: tuple[Path, str]
    toolchain: tuple[str, ...]  # prints its own version
    build: Callable[[], tuple[str, ...]]  # makes it, and tells how it is started; raises `LeftOut`

    @property
    def label(self) -> str:
        path, pattern = self.pinned
        version = re.search(pattern, path.read_text("utf-8"), re.MULTILINE)
        assert version, f"{path.name} does not name the version of {self.name}"
        return f"{self.title} {version[1]} ({self.how})"

    def built(self) -> Target:
        """Raises `LeftOut`."""
        return Target(name=self.title, command=self.build())


def _python_sdk() -> tuple[str, ...]:
    _script("env", "peers")
    return (str(ROOT / ".venvs/peers/bin/python"), str(SOURCES / "python_sdk_server.py"))


def _fastmcp() -> tuple[str, ...]:
    _script("env", "fastmcp")
    return (str(ROOT / ".venvs/fastmcp/bin/python"), str(SOURCES / "fastmcp_server.py"))


def _typescript_sdk() -> tuple[str, ...]:
    _script("peers", "node")
    return (str(NODE), str(SOURCES / "ts_sdk_server.mjs"))


def _oidc_provider() -> tuple[str, ...]:
    _script("peers", "node")

    def install(home: Path) -> None:
        # npm as in scripts/peers, and from the same place.
        path = f"PATH={ROOT / '.venvs/test/bin'}:{os.environ['PATH']}"
        _run(("env", path, "NODE_USE_SYSTEM_CA=1", "npm", "ci", "--loglevel=error", "--no-progress"), home)

    home = _made("oidc_provider", (str(NODE), "--version"), install)
    return (str(NODE), str(home / "server.mjs"))


def _go(name: str) -> Callable[[], tuple[str, ...]]:
    def compile_in(home: Path) -> None:
        _run(("go", "build", "-trimpath", "-o", "server", "."), home)

    def build() -> tuple[str, ...]:
        return (str(_made(name, ("go", "version"), compile_in) / "server"),)

    return build


def _rmcp() -> tuple[str, ...]:
    def build(home: Path) -> None:
        # Our own lock says which crates, and with which checksums; cargo's says what it calls the registry.
        _run(("cargo", "generate-lockfile"), home)
        lock = home / "Cargo.lock"
        source = re.search(r"^source = .*\n", lock.read_text("utf-8"), re.MULTILINE)
        assert source
        pinned = (home / "crates.lock").read_text("utf-8")
        lock.write_text(
            re.sub(r"^checksum = ", source[0] + "checksum = ", pinned, flags=re.MULTILINE), "utf-8"
        )
        _run(("cargo", "build", "--release", "--locked", "--target-dir", "target"), home)
        (home / "target/release/rmcp-echo").rename(home / "server")
        shutil.rmtree(home / "target")

    return (str(_made("rmcp", ("cargo", "--version"), build) / "server"),)


PEERS = (
    Peer(
        name="rmcp",
        title="rmcp",
        how="Rust, axum, one thread",
        pinned=(SOURCES / "rmcp/Cargo.toml", r'^rmcp = .*"=([^"]+)"'),
        toolchain=("rustc", "--version"),
        build=_rmcp,
    ),
    Peer(
        name="mcp-go",
        title="mcp-go",
        how="net/http",
        pinned=(SOURCES / "mcp_go/go.mod", r"/mcp-go v(\S+)"),
        toolchain=("go", "version"),
        build=_go("mcp_go"),
    ),
    Peer(
        name="go-sdk",
        title="Go SDK",
        how="net/http",
        pinned=(SOURCES / "go_sdk/go.mod", r"/go-sdk v(\S+)"),
        toolchain=("go", "version"),
        build=_go("go_sdk"),
    ),
    Peer(
        name="typescript-sdk",
        title="TypeScript SDK",
        how="node:http",
        pinned=(SOURCES / "package.json", r'"@modelcontextprotocol/server": "([^"]+)"'),
        toolchain=(str(NODE), "--version"),
        build=_typescript_sdk,
    ),
    Peer(
        name="python-sdk",
        title="Python SDK",
        how="uvicorn",
        pinned=(ROOT / "build/locks/peers.txt", r"^mcp==(\S+)"),
        toolchain=(str(ROOT / ".venvs/peers/bin/python"), "--version"),
        build=_python_sdk,
    ),
    Peer(
        name="fastmcp",
        title="FastMCP",
        how="uvicorn",
        pinned=(ROOT / "build/locks/fastmcp.txt", r"^fastmcp==(\S+)"),
        toolchain=(str(ROOT / ".venvs/fastmcp/bin/python"), "--version"),
        build=_fastmcp,
    ),
)
OIDC_PROVIDER = Peer(
    name="oidc-provider",
    title="oidc-provider",
    how="in memory, opaque tokens, nothing signed",
    pinned=(SOURCES / "oidc_provider/package.json", r'"oidc-provider": "([^"]+)"'),
    toolchain=(str(NODE), "--version"),
    build=_oidc_provider,
)


def toolchain_of(peer: Peer) -> str:
    """As `go 1.26.8`."""
    said = _run(peer.toolchain, ROOT)
    version = re.search(r"\d+(?:\.\d+)+", said)
    name = re.sub(r"^python$", "CPython", Path(peer.toolchain[0]).name)
    return f"{name} {version[0] if version else said}"


def _made(name: str, toolchain: tuple[str, ...], build: Callable[[Path], None]) -> Path:
    """A copy of the sources of this name in which `build` has succeeded: the one that is there, or a new one."""
    summed = hashlib.sha256(_run(toolchain, ROOT).encode())
    for path in sorted((SOURCES / name).rglob("*")):
        inside = path.relative_to(SOURCES)
        if path.is_file() and not REMAINS & set(inside.parts):
            data = path.read_bytes()
            summed.update(f"{inside} {len(data)} ".encode() + data)
    home = CACHE / f"{name}-{summed.hexdigest()[:16]}"
    if home.exists():
        return home
    unfinished = CACHE / f"{name}.unfinished"
    for old in (unfinished, *CACHE.glob(f"{name}-*")):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(SOURCES / name, unfinished, ignore=shutil.ignore_patterns(*REMAINS))
    print(f"building {name} (once) …", file=sys.stderr, flush=True)
    build(unfinished)
    return unfinished.rename(home)


def _script(name: str, argument: str) -> None:
    """One of our own, which says itself what it does. Raises `LeftOut` where it fails."""
    command = (str(ROOT / "scripts" / name), argument)
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode:
        raise LeftOut("it could not be installed", f"scripts/{name} {argument} failed")


def _run(command: tuple[str, ...], folder: Path) -> str:
    """What the command prints. Raises `LeftOut` where it is not installed or fails."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=BUILD_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise LeftOut(f"{name} is not installed") from None
    except subprocess.TimeoutExpired:
        raise LeftOut(f"its build took more than {BUILD_SECONDS:.0f} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] or ["it said nothing"]
        told = next((each for each in lines if re.match(r"(npm )?error\b", each, re.IGNORECASE)), lines[-1])
        raise LeftOut("its build failed", f"{name}: {told[:300]}")
    return done.stdout
