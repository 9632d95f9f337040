"""`scripts/env` in a checkout of its own: with uv where it is, without where it fails, and with words for whoever waits."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT

UV = """#!/bin/sh
echo "$*" >> "$UV_SAID"
case "$1" in
  venv) exec "{python}" -m venv --without-pip "$5" ;;
  pip) exit "$UV_EXIT" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "check out"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "env", folder / "scripts")
    (folder / "build" / "locks").mkdir(parents=True)
    # Nothing is to be installed: what is asked here is how.
    (folder / "build" / "locks" / "runtime.txt").write_text("# nothing\n", "utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "uv").write_text(UV.format(python=sys.executable), "utf-8")
    (programs / "uv").chmod(0o755)
    return folder


def environment(checkout: Path, *, uv_exit: int = 0, **more: str) -> dict[str, str]:
    return {
        "PATH": f"{checkout.parent / 'bin'}:{os.environ['PATH']}",
        "HOME": str(checkout.parent),
        "PYTHON": sys.executable,
        "UV_SAID": str(checkout.parent / "said"),
        "UV_EXIT": str(uv_exit),
        **more,
    }


def make(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "scripts" / "env", "runtime"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=environment(checkout) | variables,
    )


def uv_said(checkout: Path) -> list[str]:
    file = checkout.parent / "said"
    return file.read_text("utf-8").splitlines() if file.exists() else []


def test_uv_makes_it_where_it_is_installed_from_the_same_hashes(checkout: Path) -> None:
    done = make(checkout)
    home = checkout / ".venvs" / "runtime"
    assert done.stdout == f"{home}/bin/python\n"
    assert done.stderr.startswith("making the runtime environment, 0 packages (once) …\n")
    made, installed = uv_said(checkout)
    assert made.startswith("venv ")
    for part in (
        "pip install",
        "--require-hashes",
        "--only-binary :all:",
        "--quiet",
        "build/locks/runtime.txt",
    ):
        assert part in installed
    found = subprocess.run(
        [home / "bin" / "python", "-P", "-c", "import sys; print(*sys.path, sep='\\n')"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(checkout) in found.splitlines()
    # The second time there is nothing to do, and nothing to say.
    again = make(checkout)
    assert (again.stdout, again.stderr) == (done.stdout, "")
    assert len(uv_said(checkout)) == 2


def test_uv_of_the_test_environment_makes_the_others(checkout: Path) -> None:
    tools, programs = checkout / ".venvs" / "test" / "bin", checkout.parent / "bin"
    tools.mkdir(parents=True)
    (programs / "uv").rename(tools / "uv")
    for name in ("bash", "dirname", "cksum", "cat", "mkdir", "flock", "rm", "grep"):
        (programs / name).symlink_to(shutil.which(name) or name)
    make(checkout, PATH=str(programs))
    assert [line.split()[0] for line in uv_said(checkout)] == ["venv", "pip"]


@pytest.mark.parametrize(
    "variables", [{"UV_EXIT": "2"}, {"OSTIARY_WITHOUT_UV": "1"}], ids=["it fails", "unwanted"]
)
def test_pip_makes_it_where_uv_does_not(variables: dict[str, str], checkout: Path) -> None:
    done = make(checkout, **variables)
    assert (checkout / ".venvs" / "runtime" / "bin" / "pip").exists()
    assert "made in " in done.stderr
    assert len(uv_said(checkout)) == (2 if "UV_EXIT" in variables else 0)


def test_on_a_terminal_pip_is_followed_package_by_package(checkout: Path) -> None:
    """With a pip that says what pip says."""
    (checkout / "build" / "locks" / "runtime.txt").write_text("one==1\ntwo==2 ; x\n", "utf-8")
    packages = checkout.parent / "packages" / "pip"
    packages.mkdir(parents=True)
    (packages / "__init__.py").touch()
    said = [
        "Ignoring two: markers 'x' don't match your environment",
        "Collecting one==1 (from -r x)",
        "  Downloading one.whl",
    ]
    (packages / "__main__.py").write_text(
        f"print(*{said!r}, 'Installing collected packages: one', sep='\\n')\n", "utf-8"
    )
    near, far = pty.openpty()
    done = subprocess.run(
        [checkout / "scripts" / "env", "runtime"],
        stdout=subprocess.PIPE,
        stderr=far,
        check=True,
        timeout=300,
        env=environment(checkout, OSTIARY_WITHOUT_UV="1", PYTHONPATH=str(packages.parent)),
    )
    os.close(far)
    shown = os.read(near, 65536).decode()
    os.close(near)
    assert done.stdout.decode() == f"{checkout}/.venvs/runtime/bin/python\n"
    assert "  1 of 2: two" in shown
    assert "  2 of 2: one" in shown
    assert "  installing 2 packages" in shown
