"""What the repository promises about itself: locks with hashes and no address, no folder of one machine, commands that
exist. Nothing here starts a server; the README's commands are run by the end-to-end tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "build" / "locks").glob("*.txt"))
PEERS = ROOT / "tests" / "peers"
NPM_LOCKS = sorted(
    path for path in PEERS.rglob("package-lock.json") if "node_modules" not in path.relative_to(PEERS).parts
)
ADDRESS = re.compile(r"\b[a-z+]+://|\b--(extra-)?index-url\b|\b--find-links\b")
# Folders that exist on one machine only. Assembled so that this file does not match itself.
SOMEBODYS_FOLDER = re.compile(r"(?<![\w.\-$}])/(?:" + "|".join(["home", "Users", "work", "farm"]) + r")/\w")


@cache
def tracked() -> tuple[Path, ...]:
    """What a clone gets: tracked files, and new ones that nothing ignores."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    return tuple(path for name in listing.split("\0") if name and (path := ROOT / name).is_file())


def texts() -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data:
            found.append((path, data.decode("utf-8")))
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_locked_package_is_pinned_with_a_hash_and_no_address(lock: Path) -> None:
    text = lock.read_text("utf-8")
    assert not ADDRESS.search(text)
    requirements = [
        block for block in re.split(r"\n(?=[A-Za-z0-9])", text) if re.match(r"[A-Za-z0-9]", block)
    ]
    assert requirements
    for block in requirements:
        assert re.match(r"[A-Za-z0-9._-]+(\[[\w,-]+\])?==\S+", block), block
        assert "--hash=sha256:" in block, block


def test_there_is_a_lock_for_every_environment() -> None:
    wanted = {path.stem for path in (ROOT / "build" / "locks").glob("*.in")}
    assert {path.stem for path in LOCKS} == wanted >= {"runtime", "test", "build", "peers", "lock"}


@pytest.mark.parametrize("lock", NPM_LOCKS, ids=lambda path: path.parent.name)
def test_a_node_lock_carries_integrity_and_no_address(lock: Path) -> None:
    text = lock.read_text("utf-8")
    assert not ADDRESS.search(text)
    packages = json.loads(text)["packages"]
    for name, entry in packages.items():
        assert name == "" or entry["integrity"].startswith("sha512-"), name


@pytest.mark.parametrize("lock", NPM_LOCKS, ids=lambda path: path.parent.name)
def test_the_node_peers_are_named_with_exact_versions(lock: Path) -> None:
    manifest = json.loads(lock.with_name("package.json").read_text("utf-8"))
    for kind in ("dependencies", "overrides"):
        for name, version in manifest.get(kind, {}).items():
            assert re.fullmatch(r"\d+\.\d+\.\d+(-[\w.]+)?", version), name


def test_the_rust_peer_is_named_with_exact_versions_and_locked_with_checksums_and_no_address() -> None:
    folder = PEERS / "rmcp"
    manifest = tomllib.loads((folder / "Cargo.toml").read_text("utf-8"))
    for name, wanted in manifest["dependencies"].items():
        version = wanted if isinstance(wanted, str) else wanted["version"]
        assert re.fullmatch(r"=\d+\.\d+\.\d+", version), name
    text = (folder / "crates.lock").read_text("utf-8")
    assert not ADDRESS.search(text)
    for package in tomllib.loads(text)["package"]:
        assert package["name"] == manifest["package"]["name"] or len(package["checksum"]) == 64, package[
            "name"
        ]


@pytest.mark.parametrize("peer", ["go_sdk", "mcp_go", "pebble"])
def test_a_go_peer_is_locked_with_hashes_and_no_address(peer: str) -> None:
    assert not ADDRESS.search((PEERS / peer / "go.mod").read_text("utf-8"))
    lines = (PEERS / peer / "go.sum").read_text("utf-8").splitlines()
    assert lines
    for line in lines:
        assert re.fullmatch(r"\S+ v\S+ h1:\S+=", line), line


def test_the_runtime_lock_satisfies_what_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = sorted(re.match(r"[\w-]+", line)[0].lower() for line in project["dependencies"])  # type: ignore[index]
    inputs = (ROOT / "build" / "locks" / "runtime.in").read_text("utf-8").splitlines()
    assert sorted(re.match(r"[\w-]+", line)[0].lower() for line in inputs if line.strip()) == declared  # type: ignore[index]
    pins = dict(
        re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "build/locks/runtime.txt").read_text("utf-8"), re.MULTILINE)
    )
    for line in project["dependencies"]:
        name, exact = re.fullmatch(r"([\w-]+)(?:==([\d.]+))?.*", line).groups()  # type: ignore[union-attr]
        assert name in pins
        assert exact is None or pins[name] == exact


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if SOMEBODYS_FOLDER.search(line)
    ]
    assert not found, "\n".join(found)


def test_build_is_a_folder_of_ours_and_not_a_package() -> None:
    assert not list((ROOT / "build").rglob("__init__.py"))
    ignored = subprocess.run(["git", "check-ignore", "-q", "build/ostiary.spec"], cwd=ROOT, check=False)
    assert ignored.returncode == 1, "build/ must not be ignored"


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").iterdir()), ids=lambda path: path.name)
def test_every_script_can_be_run_and_says_how(script: Path) -> None:
    if script.is_dir():
        return
    head = script.read_text("utf-8")[:1200]
    assert os.access(script, os.X_OK)
    assert head.startswith("#!/usr/bin/env ")
    assert f"usage: scripts/{script.name}" in head


def test_the_readme_names_only_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"\bscripts/([a-z][\w-]*)", readme))
    assert {"serve", "test"} <= named
    missing = sorted(name for name in named if not (ROOT / "scripts" / name).exists())
    assert not missing


def test_every_file_keeps_to_one_noun() -> None:
    vague = {"utils", "helpers", "common", "manager", "misc"}
    assert not [
        str(path.relative_to(ROOT)) for path in tracked() if path.stem in vague and path.suffix == ".py"
    ]


# Folders of tests/ that no package has, and why.
FOLDERS_OF_THEIR_OWN = {
    "agents/base/double": "the other end of an agent's line, run in the place of the shim",
    "conformance": "the official suite, and the server and the client that it is let loose on",
    "e2e": "whole programs, their terminals and their pages: of every package at once",
    "interaction": "what a client sees: each rule of the protocol in each era and on each wire",
    "peers": "foreign clients and servers in their own languages",
    "snapshots": "whole sentences that people read, a file for each surface",
}
# A module of tests is named for what it tests, not for when or why it was written.
OCCASIONS = frozenset(
    {"bug", "bugs", "checklist", "findings", "fix", "fixed", "fixes", "found", "issue", "issues", "leftovers"}
    | {"lessons", "phase", "regression", "regressions", "review", "reviewed", "todo"}
)


def unmatched(folder: str) -> bool:
    """`folder`, below tests/, is neither that of a package nor in one of those that have a reason."""
    here = f"{folder}/"
    if any(here.startswith(f"{own}/") for own in FOLDERS_OF_THEIR_OWN):
        return False
    package = ROOT / here if here.startswith("auth/") else ROOT / "server" / here
    return not any(package.glob("*.py"))


def occasions(name: str) -> set[str]:
    return set(name.split("_")) & OCCASIONS


def below_tests() -> list[Path]:
    return [path.relative_to(ROOT / "tests") for path in tracked() if ROOT / "tests" in path.parents]


def test_the_folders_of_the_tests_are_those_of_the_packages() -> None:
    folders = {path.parent.as_posix() for path in below_tests()} - {"."}
    assert not sorted(folder for folder in folders if unmatched(folder))
    assert folders >= FOLDERS_OF_THEIR_OWN.keys()


def test_only_what_is_about_the_tree_is_loose_among_the_tests() -> None:
    loose = {path.stem for path in below_tests() if path.parent == Path() and path.name.startswith("test_")}
    assert loose == {
        "test_architecture",
        "test_constants",
        "test_docs",
        "test_docstrings",
        "test_documented_blocks",
        "test_identity_manifest",
        "test_manifest",
        "test_mutants",
        "test_repository",
        "test_whole_run",
    }


def test_no_module_of_tests_is_named_for_the_occasion_on_which_it_was_written() -> None:
    named = {path.as_posix() for path in below_tests() if path.suffix == ".py" and occasions(path.stem)}
    assert named == set()


def test_no_two_modules_of_tests_have_one_name() -> None:
    """pytest imports each from its own folder, by its name alone."""
    names = [path.name for path in below_tests() if path.name.startswith("test_") and path.suffix == ".py"]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("folder", ["mcp", "auth", "auth/people", "e2e", "e2e/deep", "agents/base/double"])
def test_a_folder_of_a_package_or_with_a_reason_is_right(folder: str) -> None:
    assert not unmatched(folder)


@pytest.mark.parametrize("folder", ["web", "server/mcp", "auth/mcp", "mcp/people", "http/e2e", "e2"])
def test_a_folder_that_no_package_has_is_seen(folder: str) -> None:
    assert unmatched(folder)
