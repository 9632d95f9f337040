"""The image: built and run where a container engine answers, and else run from its files as the Containerfile says, by root.

Either way the file system of the program cannot be written to, its user is nobody, and its health is asked by its own command.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
from mcp_calls import call_tool
from programs import ROOT, WAIT_SECONDS, Background, Program, until

from server import __version__
from tests.free_ports import free_port

pytestmark = [pytest.mark.binary, pytest.mark.slow]

CONTAINERFILE = ROOT / "build" / "Containerfile"
NOBODY = 65532
PROGRAMS = 65533


AS_NOBODY = ("chroot", f"--userspec={NOBODY}:{NOBODY}", "--groups=")
# With --user 0 --cap-drop all --cap-add …, which leaves no more of root's rights; `chroot` is the engine's own to call.
GIVEN = "-all,+setuid,+setgid,+kill,+sys_chroot"
AS_ROOT = ("setpriv", f"--bounding-set={GIVEN}", "chroot")

SETTINGS = """
[[server]]
[[server.agent]]
kind = "command"
[[server.agent.tool]]
name = "who"
run = ["/usr/bin/cat", "/proc/self/status"]
"""


@dataclass(frozen=True)
class Instruction:
    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the form that no shell reads."""
        return json.loads(self.rest)


def instructions() -> list[Instruction]:
    lines = re.sub(
        r"\\\n\s*", "", re.sub(r"^#.*\n", "", CONTAINERFILE.read_text("utf-8"), flags=re.MULTILINE)
    )
    return [Instruction(*line.split(None, 1)) for line in lines.splitlines() if line.strip()]


def only(name: str) -> Instruction:
    (found,) = (each for each in instructions() if each.name == name)
    return found


def health_command() -> list[str]:
    return json.loads(only("HEALTHCHECK").rest.partition("CMD ")[2])


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in only("ENV").rest.split())


@pytest.fixture(scope="module")
def context() -> Path:
    done = subprocess.run(
        [ROOT / "scripts" / "container", "--only-files"],
        env={**os.environ, "OSTIARY_ANY_INTERPRETER": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=550,
    )
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def image(context: Path) -> Iterator[Path]:
    """A folder with what each COPY puts into the image."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may make a file system that cannot be written to")
    with TemporaryDirectory(prefix="ostiary-image-") as folder:
        image = Path(folder)
        image.chmod(0o755)
        for each in instructions():
            if each.name == "COPY":
                source, target = each.rest.split()[-2:]
                assert target == "/"
                shutil.copytree(context / source, image, symlinks=True, dirs_exist_ok=True)
                owner = re.match(r"--chown=(\d+):(\d+) ", each.rest)
                for path in (context / source).rglob("*") if owner else ():
                    os.chown(image / path.relative_to(context / source), int(owner[1]), int(owner[2]))  # type: ignore[index]
        for name in ("proc", "dev"):
            (image / name).mkdir()
        yield image


def within(
    image: Path, command: Sequence[str], data: Path, user: Sequence[str] = AS_NOBODY, **more: str
) -> list[str]:
    """`command` as an engine runs it: this root, read-only, but for the volume; this user; these variables."""
    mounts = (
        f"mount --bind {image} {image} && mount --bind {data} {image}/data && mount -t proc proc {image}/proc"
        f" && mount --bind /dev {image}/dev && mount -o remount,bind,ro {image}"
        f' && exec {" ".join(user)} {image} "$@"'
    )
    variables = [f"{name}={value}" for name, value in {**environment(), **more}.items()]
    return [
        "unshare",
        "--mount",
        "env",
        "-i",
        *variables,
        "/bin/sh",
        "-c",
        f"PATH=/usr/sbin:/usr/bin:/sbin:/bin; {mounts}",
        "sh",
        *command,
    ]


@pytest.fixture
def data(home: Path) -> Path:
    folder = home / "volume"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    return folder


def test_the_image_has_no_base_runs_nothing_while_it_is_built_and_ends_as_nobody() -> None:
    names = [each.name for each in instructions()]
    assert [each.rest for each in instructions() if each.name == "FROM"] == ["scratch"]
    assert not {"RUN", "ADD", "ARG", "SHELL"} & set(names)
    assert only("USER").rest == f"{NOBODY}:{NOBODY}"
    assert names.index("USER") > max(at for at, name in enumerate(names) if name == "COPY")
    assert [*only("ENTRYPOINT").words, *only("CMD").words] == ["/usr/bin/ostiary", "serve"]
    assert only("VOLUME").words == [environment()["OSTIARY_DATA_DIR"]]
    # Nothing that is a secret, or could become one.
    assert not re.search(r"KEY|TOKEN|SECRET|PASS", CONTAINERFILE.read_text("utf-8"))


def test_what_is_copied_has_nothing_but_the_program_and_what_it_needs(context: Path) -> None:
    files = [
        path.relative_to(context / "root") for path in (context / "root").rglob("*") if not path.is_dir()
    ]
    elsewhere = sorted(str(file) for file in files if not file.is_relative_to("usr/lib/ostiary"))
    allowed = re.compile(
        r"(usr/)?lib(64)?/(\S+/)?(ld-linux-\S+|lib(c|m|dl|pthread|rt|util|resolv|z)\.so\.\d)"
        r"|usr/bin/ostiary|etc/(passwd|group|nsswitch\.conf|ssl/certs/ca-certificates\.crt)"
    )
    assert [name for name in elsewhere if not allowed.fullmatch(name)] == []
    # A link weighs nothing: the program is in the image once.
    size = sum(path.lstat().st_size for path in (context / "root").rglob("*") if path.is_file())
    assert size < 72 * 2**20
    writable = [
        path
        for path in (context / "root").rglob("*")
        if not path.is_symlink() and path.stat().st_mode & 0o002
    ]
    assert writable == []
    assert (context / "own" / "data").stat().st_mode & 0o777 == 0o700


def test_it_serves_with_nothing_to_write_to_but_its_volume(image: Path, data: Path, home: Path) -> None:
    port = free_port()
    before = {path: path.lstat().st_mtime_ns for path in image.rglob("*")}
    variables = {"OSTIARY_PORT": str(port), "OSTIARY_HOST": "127.0.0.1"}
    site = f"http://127.0.0.1:{port}"
    health = within(image, health_command(), data, **variables)
    assert subprocess.run(health, capture_output=True, check=False, timeout=60).returncode == 1
    command = within(image, [*only("ENTRYPOINT").words, *only("CMD").words], data, **variables)
    program = Program(command=command, home=home)
    with program.starting() as server:
        server.await_words(f"Listening on {site}")
        assert httpx2.post(f"{site}/mcp", json={}, trust_env=False, timeout=WAIT_SECONDS).status_code == 401
        assert httpx2.get(f"{site}/signin", trust_env=False, timeout=WAIT_SECONDS).status_code == 200
        asked = subprocess.run(health, capture_output=True, text=True, check=False, timeout=60)
        assert (asked.returncode, asked.stdout) == (0, "ready\n"), asked.stderr
        assert owner_of(server) == NOBODY
        claim = within(image, ["/usr/bin/ostiary", "claim", "--json"], data, **variables)
        told = subprocess.run(claim, capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(told.stdout)["url"].startswith(f"{site}/claim/")
        assert server.end(signal.SIGTERM) == 0
    assert {path.name for path in data.iterdir()} >= {"ostiary.db", "master.key"}
    assert {path: path.lstat().st_mtime_ns for path in image.rglob("*")} == before


def test_with_the_right_to_it_starts_programs_as_its_second_user(image: Path, data: Path, home: Path) -> None:
    port = free_port()
    (image / "bin").mkdir(exist_ok=True)
    for name in ("bin/sh", "usr/bin/cat"):  # as in an image that is made from this one
        shutil.copy(f"/{name}", image / name)
    (data / "ostiary.toml").write_text(SETTINGS, "utf-8")
    variables = {"OSTIARY_PORT": str(port), "OSTIARY_HOST": "127.0.0.1", "OSTIARY_AUTH": "none"}
    variables["OSTIARY_PROGRAMS_RUN_AS"] = "ostiary-programs"
    words = [*only("ENTRYPOINT").words, *only("CMD").words, "--config", "/data/ostiary.toml"]
    refused = subprocess.run(
        within(image, words, data, AS_NOBODY, **variables), capture_output=True, check=False, timeout=60
    )
    assert refused.returncode != 0 and b"CAP_SETUID" in refused.stderr
    for path in (data, *data.iterdir()):
        os.chown(path, 0, 0)
    program = Program(command=within(image, words, data, AS_ROOT, **variables), home=home)
    with program.starting() as server:
        server.await_words(f"Listening on http://127.0.0.1:{port}")
        status = call_tool(f"http://127.0.0.1:{port}/mcp", "who", {})["content"][0]["text"]
        assert re.search(rf"^Uid:\s+{PROGRAMS}\s", status, re.MULTILINE), status
        assert server.end(signal.SIGTERM) == 0


def test_for_others_it_wants_to_know_its_address_first(image: Path, data: Path) -> None:
    command = within(image, [*only("ENTRYPOINT").words, *only("CMD").words], data)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "issuer: is needed when listening on 0.0.0.0" in done.stderr


def owner_of(server: Background) -> int:
    """The user of the program itself; who started it in the image's place is this test, as root."""
    status = Path(f"/proc/{server.process.pid}/status")
    found = until("the user", lambda: re.search(r"^Uid:\s+(\d+)", status.read_text("ascii"), re.MULTILINE))
    return int(found[1])


# As docs/install.md runs it; and for an engine that itself runs where limits cannot be raised and crun finds no cgroups of its own.
RUNS = (
    (),
    ("--runtime", "runc"),
)
ROOM = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


def started_by(engine: str, tag: str) -> str | None:
    """The number of a container that runs. None where this engine runs none here."""
    for options in RUNS:
        started = [
            engine, *options, "run", "--detach", "--rm", "--network", "none", *(ROOM if options else ()), "--read-only",
            "--cap-drop", "all", "--security-opt", "no-new-privileges", "--env", "OSTIARY_ISSUER=https://agent.example.org", tag,
        ]  # fmt: skip
        done = subprocess.run(started, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
        assert done.returncode in (125, 126, 127), done.stderr  # its own words, and not the program's
    return None


@pytest.mark.usefixtures("context")
def test_an_engine_builds_it_and_finds_it_healthy() -> None:
    engine = next(
        (name for name in ("podman", "docker") if shutil.which(name) and not subprocess.run([name, "info"], capture_output=True, check=False).returncode),
        None,
    )  # fmt: skip
    if engine is None:
        pytest.skip("no container engine answers here; the tests above run the same files")
    tag = subprocess.run(
        [ROOT / "scripts" / "container", "--only-image"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert tag == f"ostiary:{__version__}"
    number = started_by(engine, tag)
    if number is None:
        pytest.skip(f"{engine} runs no container here; the tests above run the same files")
    try:
        within = partial(subprocess.run, capture_output=True, text=True, check=False)
        until("health", lambda: within([engine, "exec", number, *health_command()]).returncode == 0 or None)
        if engine == "podman":
            assert within([engine, "healthcheck", "run", number]).returncode == 0
        claim = within([engine, "exec", number, "/usr/bin/ostiary", "claim", "--json"])
        assert json.loads(claim.stdout)["url"].startswith("https://agent.example.org/claim/")
    finally:
        subprocess.run([engine, "stop", number], check=True, capture_output=True)
