"""Mutants of the product, and the tests that notice them; scripts/mutants says how it is called."""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NoReturn

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
PRODUCT: Final = ("server", "auth")
sys.path.append(str(HERE.with_name("test.d")))  # how the suite is shared out


def changed() -> list[str]:
    """What differs from where this branch left main, committed or not."""
    base = _git("merge-base", "main", "HEAD")[0]
    return _git("diff", "--name-only", "--diff-filter=d", base, "--", *PRODUCT) + _git(
        "ls-files", "--others", "--exclude-standard", "--", *PRODUCT
    )


def below(names: list[str]) -> list[str]:
    """The files of the product that are named, or in folders that are."""
    found: list[str] = []
    for name in names:
        path = Path(name).resolve()
        if (
            not path.exists()
            or not path.is_relative_to(ROOT)
            or path.relative_to(ROOT).parts[:1] not in [(each,) for each in PRODUCT]
        ):
            raise SystemExit(f"error: {name} is no file or folder of {' or '.join(PRODUCT)}")
        found += [str(each.relative_to(ROOT)) for each in ([path] if path.is_file() else path.rglob("*.py"))]
    return found


def _git(*words: str) -> list[str]:
    return subprocess.run(
        ("git", *words), cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.splitlines()


def main() -> int:
    from trials import CannotRun, Trials, drawn, sums

    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help="of the product, or folders; left out: all")
    parser.add_argument("--changed", action="store_true", help="files that differ from main")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10_000), help="the same seed draws the same mutants"
    )
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()

    def end(signum: int, frame: object) -> NoReturn:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, end)
    try:
        names = changed() if given.changed else below(given.files or [str(ROOT / name) for name in PRODUCT])
        wanted = drawn(ROOT, [name for name in names if name.endswith(".py")], given.count, given.seed)
        with tempfile.TemporaryDirectory(prefix="ostiary-mutants-") as folder:
            print(f"{len(wanted)} mutants of seed {given.seed}", flush=True)
            verdicts = Trials(ROOT, Path(folder), jobs=given.jobs, seconds=60 * given.minutes).run(wanted)
    except (CannotRun, subprocess.CalledProcessError, SyntaxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\n{sums(verdicts)}")
    if len(verdicts) < len(wanted):
        print(f"not tried in {given.minutes:g} minutes: {len(wanted) - len(verdicts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
