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
NPM_LOCK = ROOT / "tests" / "peers" / "package-lock.json"
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


def test_the_node_lock_carries_integrity_and_no_address() -> None:
    text = NPM_LOCK.read_text("utf-8")
    assert not ADDRESS.search(text)
    packages = json.loads(text)["packages"]
    for name, entry in packages.items():
        assert name == "" or entry["integrity"].startswith("sha512-"), name


def test_the_node_peers_are_named_with_exact_versions() -> None:
    manifest = json.loads((NPM_LOCK.parent / "package.json").read_text("utf-8"))
    for name, version in manifest["dependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+(-[\w.]+)?", version), name


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
