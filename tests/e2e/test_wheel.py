"""The wheel, in an environment that has nothing of the checkout: what it brings, what it leaves alone, and that the program works."""

from __future__ import annotations

import email
import os
import re
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from packaging.requirements import Requirement
from programs import ROOT, Program

from server import __version__

pytestmark = [pytest.mark.slow]

LOCK = ROOT / "build" / "locks" / "runtime.txt"


@pytest.fixture(scope="module")
def wheel() -> Path:
    subprocess.run([ROOT / "scripts" / "wheel"], check=True, capture_output=True, timeout=600)
    (found,) = (ROOT / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Iterator[Path]:
    """As `pip install` leaves it: the locked versions, and nothing of ours but what the wheel brings."""
    with TemporaryDirectory(prefix="ostiary-wheel-") as folder:
        home = Path(folder) / "environment"
        subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=600)
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        variables |= {
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
        }
        copy = Path(folder) / wheel.name
        copy.write_bytes(wheel.read_bytes())
        # As the document has it, with what it depends on in its place.
        (install,) = re.findall(
            r"^pip install .*$", (ROOT / "docs/install.md").read_text("utf-8"), re.MULTILINE
        )
        uv = f"'{Path(sys.executable).with_name('uv')}' pip install --quiet --python '{home}/bin/python' --compile-bytecode"
        for command, more in (
            # As scripts/env does; a tenth of the work that it is to pip.
            (f"{uv} --require-hashes --only-binary :all: --requirement '{LOCK}'", {}),
            (install, {"PIP_NO_INDEX": "1"}),
            ("pip check", {}),
        ):
            subprocess.run(
                ["/bin/sh", "-c", command], check=True, timeout=600, env=variables | more, cwd=folder
            )
        yield home


@pytest.fixture
def ostiary(environment: Path, home: Path) -> Program:
    return Program(command=(str(environment / "bin" / "ostiary"),), home=home)


def tracked(*folders: str) -> set[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    return {name for name in listing.split("\0") if name and (ROOT / name).is_file()}


def test_the_wheel_has_every_file_of_both_packages_below_one_name_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {name for name in names if ".dist-info/" not in name}
    expected = {f"ostiary_program/{name}" for name in tracked("server", "auth")}
    assert ours == expected | {"ostiary_program/start.py"}
    # Templates, migrations, the shim and its marker are among them.
    for ending in (".html", ".sql", ".css", ".js", "agents/python/shim/run.py", "py.typed"):
        assert any(name.endswith(ending) for name in ours), ending


def test_what_the_wheel_asks_for_is_what_the_lock_has(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
    assert (metadata["Name"], metadata["Version"]) == ("ostiary", __version__)
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text("utf-8"), re.MULTILINE))
    wanted = [Requirement(line) for line in metadata.get_all("Requires-Dist") or ()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {each.name for each in wanted} == {Requirement(line).name for line in project["dependencies"]}
    for each in wanted:
        assert each.specifier.contains(locked[each.name]), str(each)
    # Beside it: the very versions, for those who want what was tested.
    (constraints,) = wheel.parent.glob("*-constraints.txt")
    lines = constraints.read_text("utf-8").splitlines()
    assert {Requirement(line).name: str(Requirement(line).specifier) for line in lines} == {
        name: f"=={version}" for name, version in locked.items()
    }


def test_the_same_tree_gives_the_same_wheel_from_another_path(wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a" / "checkout elsewhere"
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
        (copy / name).chmod((ROOT / name).stat().st_mode | 0o600)
    seconds = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run(
        [ROOT / ".venvs" / "wheel" / "bin" / "python", "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "out"],
        cwd=copy,
        check=True,
        capture_output=True,
        timeout=600,
        env={**os.environ, "SOURCE_DATE_EPOCH": seconds},
    )  # fmt: skip
    (again,) = (tmp_path / "out").glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_installed_it_takes_one_name_for_itself_and_knows_how_it_was_installed(
    environment: Path, ostiary: Program
) -> None:
    told = ostiary.ask("version")
    assert (told["version"], told["form"]) == (__version__, "package")
    python = environment / "bin" / "python"
    for name in ("server", "auth", "ostiary"):
        asked = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
        done = subprocess.run([python, "-P", "-c", asked], capture_output=True, text=True, check=True)
        assert done.stdout == "None\n", name


def test_the_lines_of_the_document_that_every_form_shares_are_taken(
    environment: Path, ostiary: Program
) -> None:
    document = (ROOT / "docs" / "install.md").read_text("utf-8")
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", document, re.DOTALL) for line in block.splitlines()
    ]
    shared = [line for line in lines if re.match(r"ostiary (version|help)$|source ", line)]
    assert len(shared) == 3
    script = "\n".join(["set -e", *shared, "complete -p ostiary"])
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=ostiary.environment(PATH=f"{environment}/bin:/usr/bin:/bin"),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.startswith(f"ostiary {__version__}\n")
    assert done.stdout.endswith("complete -F _ostiary ostiary\n")


def test_installed_it_passes_its_own_test_of_everything_once(ostiary: Program) -> None:
    ostiary.run("--smoke-test")


def test_installed_it_serves_a_python_agent_from_a_folder_that_has_a_server_of_its_own(
    ostiary: Program,
) -> None:
    """The agent's process finds the package `ostiary`, which only the server lends it."""
    trap = ostiary.home / "server"
    trap.mkdir()
    (trap / "__init__.py").write_text('raise SystemExit("taken for ours")\n', "utf-8")
    agent = ostiary.home / "agent.py"
    agent.write_text(
        "from ostiary import tool\n\n\n@tool\ndef add(a: int, b: int) -> int:\n    return a + b\n", "utf-8"
    )
    with ostiary.serving("--auth", "none", str(agent)) as server:
        assert ostiary.run("call", server.endpoint, "add", "a=2", "b=3").stdout == "5\n"
        assert server.end(signal.SIGTERM) == 0
