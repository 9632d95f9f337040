"""What is in a release (build/bill.py, build/linked.py), with which interpreter it is made (build/interpreter.py), and what is known of its
packages (scripts/advisories)."""

from __future__ import annotations

import importlib
import json
import os
import re
import ssl
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.backends.openssl import backend

ROOT = Path(__file__).parent.parent.parent
VERSION = re.compile(r"OpenSSL (\S+) ")


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of build/."""
    monkeypatch.syspath_prepend(str(ROOT / "build"))
    return importlib.import_module


def inner(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The library, not what a language has for it under the same name."""
    found = [each for each in row.get("components", ()) if each["name"] == "openssl"]
    return [each for each in found if each["purl"].startswith("pkg:generic/")]


# ---------------------------------------------------------------- the interpreter


@pytest.mark.parametrize(
    ("version", "below"),
    [
        ((3, 10, 99), True), ((3, 11, 14), True), ((3, 11, 15), False), ((3, 12, 12), True), ((3, 12, 13), False),
        ((3, 13, 11), True), ((3, 13, 12), False), ((3, 14, 2), True), ((3, 14, 3), False), ((3, 15, 0), False),
    ],
)  # fmt: skip
def test_an_interpreter_below_the_floor_is_refused_with_what_to_do(
    building: Callable[[str], Any], version: tuple[int, int, int], below: bool
) -> None:
    interpreter = building("interpreter")
    lines = interpreter.refused(version, "ab", {})
    assert bool(lines) == below
    if below:
        assert ".".join(map(str, version)) in lines[0]
        assert "3.12.13" in lines[0]
        assert "PYTHON=" in lines[1]
    assert interpreter.refused(version, "ab", {interpreter.ANY: "1"}) == ()


def test_another_interpreter_than_the_pinned_one_is_refused_whatever_else_is_allowed(
    building: Callable[[str], Any],
) -> None:
    interpreter = building("interpreter")
    allowed = {interpreter.ANY: "1", interpreter.PINNED: "ab"}
    assert interpreter.refused((3, 14, 9), "ab", allowed) == ()
    assert interpreter.PINNED in interpreter.refused((3, 14, 9), "cd", allowed)[0]


@pytest.mark.parametrize("script", ["build", "container"])
def test_the_floor_stands_before_whatever_is_built(script: str) -> None:
    lines = (ROOT / "scripts" / script).read_text("utf-8").splitlines()
    (floor,) = [number for number, line in enumerate(lines) if "build/interpreter.py" in line]
    (first,) = [number for number, line in enumerate(lines) if "-m PyInstaller" in line]
    assert floor < first


# ---------------------------------------------------------------- the bill


def test_every_openssl_is_in_the_bill_with_the_version_that_is_in_its_file(
    building: Callable[[str], Any],
) -> None:
    bill = building("bill")
    rows = {
        row["name"]: row
        for row in bill.packages(map(distribution, ("cryptography", "psycopg-binary", "msgspec")))
    }
    said = VERSION.match(backend.openssl_version_text())  # the library's own word
    assert said is not None
    assert [each["version"] for each in inner(rows["cryptography"])] == [said[1]]
    assert inner(rows["msgspec"]) == []
    silent = building("linked").components(bill.own_libraries(distribution("cryptography")), "x")
    assert [each["version"] for each in silent] == [said[1]]  # had its own bill not said so
    (libcrypto,) = [
        each for each in rows["psycopg-binary"]["components"] if each["name"].startswith("libcrypto-")
    ]
    assert re.fullmatch(r"\d+\.\d+\.\d+", libcrypto["version"])
    references = [each["bom-ref"] for row in rows.values() for each in row.get("components", ())]
    assert len(references) == len(set(references))


def test_the_openssl_of_the_interpreter_is_in_the_bill_wherever_it_lies(
    building: Callable[[str], Any], tmp_path: Path
) -> None:
    bill, loaded = building("bill"), _loaded("libcrypto")
    (tmp_path / "binaries.txt").write_text(f"{loaded}\n", "utf-8")
    (tmp_path / "none.txt").touch()
    if any(bill.debian_package(file) for file in [loaded]):
        rows, _ = bill.system_libraries(tmp_path / "binaries.txt")
    else:
        rows = [bill.the_interpreter(tmp_path / "binaries.txt")]
    said = VERSION.match(ssl.OPENSSL_VERSION)
    assert said is not None
    assert [each["version"] for row in rows for each in inner(row)] == [said[1]]
    bill.every_openssl(rows, tmp_path / "binaries.txt")
    with pytest.raises(bill.NoOrigin, match=loaded.name):
        bill.every_openssl([], tmp_path / "binaries.txt")
    bill.every_openssl([], tmp_path / "none.txt")


def _loaded(name: str) -> Path:
    """Which library of the system this process has; that of a wheel lies in a folder of its own."""
    found = {
        line.split()[-1] for line in Path("/proc/self/maps").read_text("utf-8").splitlines() if name in line
    }
    (path,) = [Path(each) for each in found if "site-packages" not in each]
    return path


def test_the_bill_says_which_interpreter_it_was(building: Callable[[str], Any], tmp_path: Path) -> None:
    bill, interpreter = building("bill"), building("interpreter")
    (tmp_path / "none.txt").touch()
    row = bill.the_interpreter(tmp_path / "none.txt")
    assert row["hashes"] == [{"alg": "SHA-256", "content": interpreter.digest()}]
    said = {each["name"]: each["value"] for each in row["properties"]}
    assert said["ostiary:below-floor"] in ("true", "false")
    assert row["version"] in said["ostiary:build"]


# ---------------------------------------------------------------- advisories


@contextmanager
def database(
    answer: Callable[[list[dict[str, Any]]], Any], status: int = 200
) -> Generator[tuple[str, list[Any]]]:
    """Its address, and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            asked.extend(queries)
            said = answer(queries)
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()
            thread.join()


def advisories(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "no_proxy": "*"}
    return subprocess.run(
        [ROOT / "scripts" / "advisories", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_every_locked_package_is_asked_about_and_nothing_known_is_well() -> None:
    with database(lambda queries: {"results": [{} for _ in queries]}) as (address, asked):
        done = advisories("--ask", address)
    assert (done.returncode, done.stdout) == (0, "")
    names = {(each["package"]["ecosystem"], each["package"]["name"], each["version"]) for each in asked}
    assert ("PyPI", "cryptography", distribution("cryptography").version) in names
    assert len([name for ecosystem, name, _ in names if ecosystem == "npm"]) > 10
    locked = (ROOT / "build" / "locks" / "runtime.txt").read_text("utf-8")
    assert set(re.findall(r"^([\w.-]+)(?:\[.*\])?==", locked, re.MULTILINE)) <= {name for _, name, _ in names}


def test_what_is_known_is_told_by_package_id_and_lock() -> None:
    def answer(queries: list[dict[str, Any]]) -> Any:
        names = [each["package"]["name"] for each in queries]
        return {"results": [{"vulns": [{"id": "GHSA-1"}]} if name == "h11" else {} for name in names]}

    with database(answer) as (address, _):
        done = advisories("--ask", address)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"h11 {distribution('h11').version}")
    assert "GHSA-1" in line
    assert "runtime.txt" in line


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"results": []}, 200),  # it says nothing about some
        ({"message": "no"}, 200),
        (b"<html>", 200),
        ({"results": []}, 503),
        ("pages", 200),
    ],
)
def test_without_an_answer_it_says_that_nothing_is_known_and_ends_with_a_status_of_its_own(
    answer: Any, status: int
) -> None:
    def more(queries: list[dict[str, Any]]) -> Any:
        return {"results": [{"next_page_token": "x"} for _ in queries]} if answer == "pages" else answer

    with database(more, status) as (address, _):
        done = advisories("--ask", address)
    assert (done.returncode, done.stdout) == (3, "")
    assert address in done.stderr


def test_where_nobody_listens_it_could_not_ask_either() -> None:
    with database(lambda queries: {}) as (address, _):
        pass
    done = advisories("--ask", address)
    assert (done.returncode, done.stdout) == (3, "")
    assert "hint:" in done.stderr
