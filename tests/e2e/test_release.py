"""What `scripts/release` makes, from a checkout at another path: the same executable as here, and all that goes with it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from packaging.requirements import Requirement
from programs import BINARY, ROOT, needed

from server import __version__
from server.cli import COMMANDS

pytestmark = [pytest.mark.binary, pytest.mark.slow]

TOLD_BY_INSTALLERS = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")


@dataclass(frozen=True)
class Release:
    checkout: Path
    key: Path
    said: str

    @property
    def dist(self) -> Path:
        return self.checkout / "dist"

    @property
    def name(self) -> str:
        (archive,) = self.dist.glob("*.tar.gz")
        return archive.name.removesuffix(".tar.gz")

    @property
    def bill(self) -> dict[str, Any]:
        return json.loads((self.dist / f"{self.name}.cdx.json").read_text("utf-8"))


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """With environments of its own: that they are elsewhere, too, is half of what could make a difference."""
    needed(Path(BINARY[0]), "scripts/build")
    with TemporaryDirectory(prefix="ostiary-release-") as folder:
        checkout, key = Path(folder) / "somewhere else" / "ostiary", Path(folder) / "key"
        for name in git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if name and (ROOT / name).is_file():
                (checkout / name).parent.mkdir(parents=True, exist_ok=True)
                (checkout / name).write_bytes((ROOT / name).read_bytes())
                (checkout / name).chmod((ROOT / name).stat().st_mode)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        # With uv an environment takes a third of the work that it takes pip.
        (Path(folder) / "bin").mkdir()
        (Path(folder) / "bin" / "uv").symlink_to(Path(sys.executable).with_name("uv"))
        variables = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
        variables["OSTIARY_ANY_INTERPRETER"] = "1"
        variables["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [checkout / "scripts" / "release", "--key", key],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env=variables,
        )
        assert done.returncode == 0, done.stderr
        yield Release(checkout=checkout, key=key, said=done.stderr)


def test_the_executable_has_the_same_bytes_as_the_one_that_was_built_here(release: Release) -> None:
    assert (release.dist / "ostiary").read_bytes() == Path(BINARY[0]).read_bytes()


def test_nothing_in_the_executable_tells_who_installed_its_parts(release: Release) -> None:
    """Or it would have other bytes where pip makes the environment."""
    content = (release.dist / "ostiary").read_bytes()
    assert b".dist-info/METADATA" in content
    assert not [name for name in TOLD_BY_INSTALLERS if f".dist-info/{name}".encode() in content]


def test_every_file_has_its_sum_and_the_list_of_sums_its_signature(release: Release, tmp_path: Path) -> None:
    sums = (release.dist / "SHA256SUMS").read_bytes()
    listed = {name: digest for digest, name in (line.split("  ") for line in sums.decode().splitlines())}
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in release.dist.iterdir()}
    assert {name: there[name] for name in there if not name.startswith("SHA256SUMS")} == listed
    assert {
        f"{release.name}.tar.gz",
        f"ostiary-{__version__}-py3-none-any.whl",
        "latest.json",
    } <= listed.keys()

    (line,) = re.findall(r"^ostiary ssh-ed25519 \S+$", release.said, re.MULTILINE)
    (tmp_path / "allowed_signers").write_text(line + "\n", "utf-8")
    # As docs/install.md has it.
    (command,) = re.findall(
        r"^ssh-keygen -Y verify .*$", (ROOT / "docs/install.md").read_text("utf-8"), re.MULTILINE
    )
    (tmp_path / "SHA256SUMS.sig").write_bytes((release.dist / "SHA256SUMS.sig").read_bytes())
    for content, code in ((sums, 0), (sums.replace(b"a", b"b", 1), 255)):
        (tmp_path / "SHA256SUMS").write_bytes(content)
        done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == code, done.stderr


def test_the_archive_is_unpacked_and_installed_as_the_document_says(release: Release, tmp_path: Path) -> None:
    (block,) = re.findall(r"```sh\n(tar .*?)```", (ROOT / "docs/install.md").read_text("utf-8"), re.DOTALL)
    # Somebody else's machine is a folder here.
    script = "set -e\n" + block.replace("sudo ", "").replace("/usr/local/bin/", f"{tmp_path}/bin/")
    (tmp_path / "bin").mkdir()
    (tmp_path / f"{release.name}.tar.gz").write_bytes((release.dist / f"{release.name}.tar.gz").read_bytes())
    subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "bin" / "ostiary", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"ostiary {__version__}\n"


def test_the_archive_has_the_program_its_manual_completion_and_everybodys_licence(release: Release) -> None:
    with tarfile.open(release.dist / f"{release.name}.tar.gz") as archive:
        entries = {entry.name.removeprefix(f"{release.name}/"): entry for entry in archive.getmembers()}
        assert all(
            entry.name == release.name or entry.name.startswith(f"{release.name}/")
            for entry in entries.values()
        )
        assert {(entry.uid, entry.gid, entry.uname, entry.mode & 0o022) for entry in entries.values()} == {
            (0, 0, "", 0)
        }

        def content(name: str) -> bytes:
            file = archive.extractfile(entries[name])
            assert file is not None
            return file.read()

        assert content("ostiary") == (release.dist / "ostiary").read_bytes()
        assert entries["ostiary"].mode == 0o755
        assert content("ostiary.1").startswith(b".TH OSTIARY 1")
        for name in ("completion/ostiary.bash", "completion/_ostiary", "completion/ostiary.fish"):
            assert all(command.encode() in content(name) for command in COMMANDS)
        assert content("LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert json.loads(content("bill-of-materials.cdx.json")) == release.bill
        licensed = {
            name.split("/")[1]
            for name, entry in entries.items()
            if name.startswith("LICENSES/") and entry.size
        }
        for folder in (f"{name}-{version('psycopg')}" for name in ("psycopg", "psycopg-binary")):
            assert b"LESSER GENERAL PUBLIC LICENSE" in content(f"LICENSES/{folder}/LICENSE.txt")
            assert b"GNU GENERAL PUBLIC LICENSE" in content(f"LICENSES/{folder}/GPL-3.0.txt")
    named = {
        f"{each['name']}-{each['version']}" for each in release.bill["components"] if each["type"] != "file"
    }
    assert licensed == named


def test_the_bill_names_every_locked_package_the_interpreter_and_what_was_compiled_in(
    release: Release,
) -> None:
    bill = release.bill
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    digest = hashlib.sha256((release.dist / "ostiary").read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    versions = {each["name"]: each["version"] for each in bill["components"]}
    locked = re.findall(
        r"^[A-Za-z0-9][^\\\n]*", (ROOT / "build/locks/runtime.txt").read_text("utf-8"), re.MULTILINE
    )
    for requirement in map(Requirement, locked):
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(versions[requirement.name], prereleases=True)
    assert {"cpython", "pyinstaller"} <= versions.keys()
    by_name = {each["name"]: each for each in bill["components"]}
    assert any("openssl" in each["name"].lower() for each in by_name["cryptography"]["components"])
    found = [inner for each in bill["components"] for inner in each.get("components", ())]
    openssls = [each for each in found if each["name"] == "openssl" and "generic" in each["purl"]]
    assert len({each["version"] for each in openssls}) > 1  # the interpreter's and that of cryptography
    assert all(re.fullmatch(r"\d+\.\d+\.\d+\w*", each["version"]) for each in openssls)
    assert by_name["cpython"]["hashes"]
    assert by_name["psycopg-binary"]["licenses"] == [{"expression": "LGPL-3.0-only"}]
    assert any(each["name"].startswith("libpq-") for each in by_name["psycopg-binary"]["components"])
    assert all(each["licenses"] for each in bill["components"])
    references = [each["bom-ref"] for each in bill["components"]]
    references += [inner["bom-ref"] for each in bill["components"] for inner in each.get("components", ())]
    assert len(references) == len(set(references))
    written = json.dumps(bill)
    assert "file:" not in written
    assert str(release.checkout) not in written
    assert str(Path.home()) not in written


def test_made_again_bill_archive_and_signature_have_the_same_bytes(release: Release, tmp_path: Path) -> None:
    epoch = git("log", "-1", "--format=%ct").strip()
    python = release.checkout / ".venvs" / "build" / "bin" / "python"
    folder = release.checkout / ".work" / "release" / release.name
    bill = [
        python, "-P", "build/bill.py", "--lock", "build/locks/runtime.txt", "--binaries",
        ".work/build/ostiary/binaries.txt", "--executable", "dist/ostiary", "--bill", tmp_path / "bill.json",
        "--licences", folder / "LICENSES", "--epoch", epoch,
    ]  # fmt: skip
    subprocess.run(bill, cwd=release.checkout, check=True)
    assert (tmp_path / "bill.json").read_bytes() == (release.dist / f"{release.name}.cdx.json").read_bytes()
    subprocess.run(
        [python, "-P", "build/packing.py", tmp_path / "again.tar.gz", folder, epoch],
        cwd=release.checkout,
        check=True,
    )
    assert (tmp_path / "again.tar.gz").read_bytes() == (release.dist / f"{release.name}.tar.gz").read_bytes()
    (tmp_path / "SHA256SUMS").write_bytes((release.dist / "SHA256SUMS").read_bytes())
    signing = ["ssh-keygen", "-Y", "sign", "-q", "-n", "ostiary-release", "-f", release.key, "SHA256SUMS"]
    subprocess.run(signing, cwd=tmp_path, check=True)
    assert (tmp_path / "SHA256SUMS.sig").read_bytes() == (release.dist / "SHA256SUMS.sig").read_bytes()


def test_a_key_whose_signatures_differ_each_time_is_refused(tmp_path: Path) -> None:
    """Before anything is built."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", key], check=True)
    done = subprocess.run(
        [ROOT / "scripts" / "release", "--key", key], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "is no Ed25519 key" in done.stderr
