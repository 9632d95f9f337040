"""Which packages of the locks have a known weakness, as a database of advisories says.

usage: scripts/advisories [--ask ADDRESS]

ADDRESS speaks as https://api.osv.dev/v1/querybatch does, which is asked otherwise: with names and versions, and nothing else. Ends with 0 where
nothing is known, 1 where something is, 2 for a wrong command line, and 3 where it could not ask: then nothing is known about the packages.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
OSV: Final = "https://api.osv.dev/v1/querybatch"
AT_ONCE: Final = 500
SECONDS: Final = 30.0
FOUND, NOT_ASKED = 1, 3
_PINNED: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)


class Package(NamedTuple):
    ecosystem: str
    name: str
    version: str


class NotAsked(Exception):
    """There is no answer, or none that says something about each package."""


def locked(root: Path) -> dict[Package, list[str]]:
    """All packages, each with the locks that have it."""
    found: dict[Package, list[str]] = {}
    for lock in sorted((root / "build" / "locks").glob("*.txt")):
        for name, version in _PINNED.findall(lock.read_text("utf-8")):
            found.setdefault(Package("PyPI", name, version), []).append(lock.name)
    tests = root / "tests"
    for lock in sorted((*tests.glob("*/package-lock.json"), *tests.glob("*/*/package-lock.json"))):
        if "node_modules" in lock.parts:
            continue
        for place, each in json.loads(lock.read_text("utf-8"))["packages"].items():
            if place and "version" in each and not each.get("link"):
                name = each.get("name", place.rpartition("node_modules/")[2])
                found.setdefault(Package("npm", name, each["version"]), []).append(
                    str(lock.relative_to(root))
                )
    return found


def ask(address: str, packages: Sequence[Package]) -> list[list[str]]:
    """The ids of what is known of each. Raises `NotAsked`."""
    queries = [
        {"package": {"ecosystem": each.ecosystem, "name": each.name}, "version": each.version}
        for each in packages
    ]
    request = urllib.request.Request(
        address, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            results = _results(json.load(answer))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NotAsked(str(error)) from error
    if results is None or len(results) != len(packages):
        raise NotAsked("the answer does not say something about each of them")
    return results


def _results(answer: Any) -> list[list[str]] | None:
    try:
        if any(each.get("next_page_token") for each in answer["results"]):
            return None
        return [[found["id"] for found in each.get("vulns") or ()] for each in answer["results"]]
    except (TypeError, KeyError, AttributeError):
        return None


def told(known: Mapping[Package, Sequence[str]], locks: Mapping[Package, Sequence[str]]) -> list[str]:
    return [
        f"{each.name} {each.version}  {', '.join(ids)}  ({', '.join(locks[each])})"
        for each, ids in sorted(known.items())
        if ids
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/advisories", allow_abbrev=False)
    parser.add_argument("--ask", default=OSV, metavar="ADDRESS", help=f"who is asked: {OSV}")
    address = parser.parse_args().ask
    locks = locked(ROOT)
    packages, known = list(locks), dict[Package, list[str]]()
    try:
        for at in range(0, len(packages), AT_ONCE):
            some = packages[at : at + AT_ONCE]
            known.update(zip(some, ask(address, some), strict=True))
    except NotAsked as problem:
        print(f"error: could not ask {address}: {problem}", file=sys.stderr)
        print(
            f"hint: nothing is known about any of the {len(packages)} packages; try again where it answers",
            file=sys.stderr,
        )
        return NOT_ASKED
    lines = told(known, locks)
    for line in lines:
        print(line)
    print(f"{len(packages)} packages, {len(lines)} with a known weakness, says {address}", file=sys.stderr)
    return FOUND if lines else 0


if __name__ == "__main__":
    sys.exit(main())
