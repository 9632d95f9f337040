"""What is inside the executable, for `scripts/release`: a bill of materials (CycloneDX 1.6) and a folder with everybody's licences.

From what was really used: the locked packages as they are installed, what these say of themselves (and, in their own bills, of what was
compiled into them), the interpreter, and the libraries of the system that were packed. Whatever has no known origin is an error.

usage: python build/bill.py --lock FILE --binaries FILE --executable FILE --bill FILE --licences FOLDER --epoch SECONDS
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "build")]
import brought_along  # noqa: E402
import interpreter  # noqa: E402
import linked  # noqa: E402

LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice|authors|copyright)", re.IGNORECASE)
# What a package that has no newer field says in its classifiers, where it says so in one of these only.
CLASSIFIED = {
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


class NoOrigin(Exception):
    """Something is inside, and nobody says what it is or under which licence."""


def locked(lock: Path) -> list[Distribution]:
    """The packages of the lock that this platform has installed."""
    found: list[Distribution] = []
    for line in re.findall(r"^[A-Za-z0-9][^\\\n]*", lock.read_text("utf-8"), re.MULTILINE):
        requirement = Requirement(line.strip())
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        installed = distribution(requirement.name)
        if not requirement.specifier.contains(installed.version, prereleases=True):
            raise NoOrigin(
                f"{requirement.name} {installed.version} is installed, and the lock has {requirement}"
            )
        found.append(installed)
    return found


def named(installed: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", installed.name).lower()


def licence_of(installed: Distribution) -> list[dict[str, Any]]:
    metadata = installed.metadata
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    classified = {CLASSIFIED[each] for each in metadata.get_all("Classifier") or () if each in CLASSIFIED}
    written = (metadata.get("License") or "").strip()
    if len(classified) == 1:
        return [{"license": {"id": classified.pop()}}]
    if written and "\n" not in written:
        return [{"license": {"name": written}}]
    if classified:
        return [{"expression": " AND ".join(sorted(classified))}]
    raise NoOrigin(f"{installed.name} does not say its licence")


def licence_files(installed: Distribution) -> list[Path]:
    inside = [file for file in installed.files or () if ".dist-info" in file.parts[0]]
    wanted = [
        file for file in inside if "sboms" not in file.parts and (
            "licenses" in file.parts or LICENCE_FILE.match(file.name)
        )
    ]  # fmt: skip
    return sorted(Path(str(installed.locate_file(file))) for file in wanted)


def compiled_in(installed: Distribution, above: str) -> list[dict[str, Any]]:
    """What a package's own bills (PEP 770) name, without the paths of the machine that compiled it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for file in installed.files or ():
        if "sboms" not in file.parts or file.suffix != ".json":
            continue
        theirs = json.loads(Path(str(installed.locate_file(file))).read_text("utf-8"))
        for each in theirs.get("components", ()):
            name, version = each["name"], each.get("version", "")
            kept = {
                key: each[key] for key in ("type", "name", "version", "licenses", "hashes") if key in each
            }
            if "purl" in each and "file:" not in each["purl"] and "file%3A" not in each["purl"]:
                kept["purl"] = each["purl"]
            found[name, version] = {"bom-ref": f"{above}/{name}@{version}", **kept}
    return [found[key] for key in sorted(found)]


def own_libraries(installed: Distribution) -> list[Path]:
    """Its compiled files, without those that it brings along."""
    return [
        Path(str(installed.locate_file(file)))
        for file in sorted(installed.files or (), key=str)
        if ".so" in file.name and not file.parts[0].endswith(".libs")
    ]


def packages(installed: Iterable[Distribution]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for each in installed:
        reference = f"pkg:pypi/{named(each)}@{each.version}"
        row: dict[str, Any] = {
            "type": "library",
            "bom-ref": reference,
            "name": named(each),
            "version": each.version,
            "purl": reference,
            "licenses": licence_of(each),
        }
        try:
            inside = [*compiled_in(each, reference), *brought_along.libraries(each, reference)]
        except LookupError as error:
            raise NoOrigin(*error.args) from None
        said = {(other["name"], other["version"]) for other in inside if "version" in other}
        found = linked.components(own_libraries(each), reference)
        inside += [other for other in found if (other["name"], other["version"]) not in said]
        if inside:
            row["components"] = inside
        rows.append(row)
    return rows


@cache
def debian_package(file: Path) -> tuple[str, str, str] | None:
    """Package, version and source of what owns a file of the system, where Debian's tools know it."""
    if shutil.which("dpkg-query") is None:
        return None
    real = file.resolve()
    for place in (file, real, Path("/" + str(real).removeprefix("/usr/"))):
        done = subprocess.run(
            ["dpkg-query", "--search", str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            name = done.stdout.partition(":")[0].split(",")[0].strip()
            asked = ["dpkg-query", "--show", "--showformat=${Version}\n${source:Package}\n", name]
            version, source = subprocess.run(
                asked, capture_output=True, text=True, check=True
            ).stdout.splitlines()[:2]
            return name, version, source
    return None


def system_libraries(binaries: Path) -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """Components for what is neither of a package nor of the interpreter's own, and the file of each one's licence."""
    rows: dict[str, dict[str, Any]] = {}
    licences: dict[str, Path] = {}
    inside = (Path(sys.prefix), *(() if sys.base_prefix == "/usr" else (Path(sys.base_prefix),)))
    for line in binaries.read_text("utf-8").split("\n"):
        file = Path(line)
        if not line or any(file.is_relative_to(each) for each in inside):
            continue
        if (owner := debian_package(file)) is None:
            raise NoOrigin(f"{file} is inside, and no package owns it")
        name, version, source = owner
        reference = f"pkg:deb/debian/{name}@{version}?arch={platform.machine()}"
        copyright_file = Path("/usr/share/doc") / name / "copyright"
        if not copyright_file.exists():
            raise NoOrigin(f"{name} is inside, and its licence is not at {copyright_file}")
        licences[f"{name}-{version}"] = copyright_file
        rows[name] = {
            "type": "library",
            "bom-ref": reference,
            "name": name,
            "version": version,
            "purl": reference,
            "description": f"of the source package {source}",
            "licenses": [{"license": {"name": f"as LICENSES/{name}-{version}/copyright says"}}],
            **within(rows.get(name, {}).get("components", []), linked.components([file], reference)),
        }
    return [rows[name] for name in sorted(rows)], licences


def within(*rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is inside of a component, if anything is."""
    inside = [each for some in rows for each in some]
    return {"components": inside} if inside else {}


def the_interpreter(binaries: Path) -> dict[str, Any]:
    """Its version, its sum, and each OpenSSL in what is its own."""
    reference = f"pkg:generic/cpython@{platform.python_version()}"
    base = Path(sys.base_prefix)
    own = (
        [Path(line) for line in binaries.read_text("utf-8").split("\n") if line]
        if base != Path("/usr")
        else []
    )
    own = [file for file in own if file.is_relative_to(base) and not file.is_relative_to(sys.prefix)]
    below = interpreter.below_floor(sys.version_info[:3])
    return {
        "type": "framework",
        "bom-ref": reference,
        "name": "cpython",
        "version": platform.python_version(),
        "purl": reference,
        "licenses": [{"license": {"id": "PSF-2.0"}}],
        "hashes": [{"alg": "SHA-256", "content": interpreter.digest()}],
        "properties": [
            {"name": "ostiary:build", "value": " ".join(sys.version.split())},
            {"name": "ostiary:file", "value": interpreter.file().name},
            {"name": "ostiary:below-floor", "value": str(below).lower()},
        ],
        **within(linked.components(sorted({*own, interpreter.file()}), reference)),
    }


def every_openssl(components: list[dict[str, Any]], binaries: Path) -> None:
    """Raises `NoOrigin` at one that is inside, and not among the components."""
    told = {
        row.get("version")
        for each in components
        for row in (each, *each.get("components", ()))
        if row["name"] == "openssl" or row.get("description") == "of openssl"
    }
    for line in binaries.read_text("utf-8").split("\n"):
        if line and not told.issuperset(linked.versions(Path(line))):
            raise NoOrigin(f"{line} has an OpenSSL inside that is in no component")


def interpreter_licence() -> Path:
    for folder in (Path(sys.base_prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}",):
        if (file := folder / "LICENSE.txt").exists():
            return file
    import os

    owner = debian_package(Path(os.__file__))
    if owner is not None and (file := Path("/usr/share/doc") / owner[0] / "copyright").exists():
        return file
    raise NoOrigin("the interpreter's licence is not where it is looked for")


def depends(installed: list[Distribution]) -> list[dict[str, Any]]:
    there = {named(each): f"pkg:pypi/{named(each)}@{each.version}" for each in installed}
    rows: list[dict[str, Any]] = []
    for each in installed:
        wanted: set[str] = set()
        for line in each.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.add(re.sub(r"[-_.]+", "-", requirement.name).lower())
        rows.append(
            {"ref": there[named(each)], "dependsOn": sorted(there[name] for name in wanted & there.keys())}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("lock", "binaries", "executable", "bill", "licences"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    given = parser.parse_args()

    from server import __version__

    installed = sorted(locked(given.lock), key=named)
    try:
        bootloader = distribution("pyinstaller")
    except PackageNotFoundError:
        raise NoOrigin("pyinstaller, whose launcher is inside, is not installed") from None
    system, system_licences = system_libraries(given.binaries)
    launcher = f"pkg:pypi/pyinstaller@{bootloader.version}"
    components = [
        *packages(installed),
        the_interpreter(given.binaries),
        {
            "type": "library",
            "bom-ref": launcher,
            "name": "pyinstaller",
            "version": bootloader.version,
            "purl": launcher,
            "description": "its launcher alone",
            "licenses": [{"expression": "GPL-2.0-or-later WITH Bootloader-exception"}],
        },
        *system,
    ]
    every_openssl(components, given.binaries)
    program = f"pkg:generic/ostiary@{__version__}"
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(given.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": program,
                "name": "ostiary",
                "version": __version__,
                "purl": program,
                "licenses": [{"license": {"id": "MIT"}}],
                "hashes": [
                    {"alg": "SHA-256", "content": hashlib.sha256(given.executable.read_bytes()).hexdigest()}
                ],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": program, "dependsOn": sorted(each["bom-ref"] for each in components)},
            *depends(installed),
        ],
    }
    # The same bill has the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    given.bill.write_text(
        json.dumps({"serialNumber": f"urn:uuid:{number}", **bill}, indent=1) + "\n", "utf-8"
    )

    shutil.rmtree(given.licences, ignore_errors=True)
    further = {row["name"]: brought_along.texts(row) for row in components}
    for each in [*installed, bootloader]:
        folder = given.licences / f"{named(each)}-{each.version}"
        folder.mkdir(parents=True)
        for text in further.get(named(each), ()):
            (folder / text.name).write_bytes(text.read_bytes())
        files = licence_files(each)
        for file in files:
            # `licenses/vendor/x/LICENSE` and `licenses/LICENSE` are two.
            within = file.parts[[part.endswith(".dist-info") for part in file.parts].index(True) + 1 :]
            (folder / "-".join(part for part in within if part != "licenses")).write_bytes(file.read_bytes())
        if not files:
            # Some wheels bring no text: what they declare, and by whom.
            wanted = (
                "Name",
                "Version",
                "License-Expression",
                "License",
                "Author",
                "Author-email",
                "Home-page",
            )
            told = [f"{key}: {each.metadata[key]}" for key in wanted if each.metadata.get(key)]
            told += [f"{key}: {value}" for key in ("Classifier", "Project-URL") for value in each.metadata.get_all(key) or ()
                     if key == "Project-URL" or value.startswith("License")]  # fmt: skip
            (folder / "DECLARED").write_text("\n".join(told) + "\n", "utf-8")
    for name, file in {
        f"cpython-{platform.python_version()}": interpreter_licence(),
        **system_licences,
    }.items():
        folder = given.licences / name
        folder.mkdir(parents=True)
        (folder / ("copyright" if file.name == "copyright" else "LICENSE")).write_bytes(file.read_bytes())


if __name__ == "__main__":
    try:
        main()
    except NoOrigin as problem:
        sys.exit(f"error: {problem}")
