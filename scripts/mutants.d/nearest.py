"""Which tests could notice a mutant, the nearest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from entries import ON_POSTGRES

# What a client sees of everything.
OUTSIDE: Final = "tests/interaction"
# Looks into every module.
NUMBERS: Final = "tests/test_constants.py"
# Modules for PostgreSQL that no test of a package names; what they do shows in rows that others keep.
ROWS_ON_POSTGRES: Final = ("tests/store/node_messages", "tests/store/limits", "tests/store/idempotency")


class Stage(NamedTuple):
    files: Sequence[str]
    store: str = "sqlite"


def stages(root: Path, file: str) -> list[Stage]:
    """First the tests in the folder of the package that name the module, then the others there, then those elsewhere."""
    folder = _folder(root, file)
    texts = _texts(root)
    words = set(Path(file).stem.split("_"))
    named = {name for name, text in texts.items() if _importing(file).search(text)}
    near = [name for name in texts if name.startswith(f"{folder}/")] if folder else []
    near.sort(key=lambda name: -len(words & set(Path(name).stem.split("_"))))
    far = sorted(named - set(near), key=lambda name: len(texts[name]))
    outside = [OUTSIDE] if (root / OUTSIDE).exists() and folder != OUTSIDE else []
    found = [
        Stage([NUMBERS] if (root / NUMBERS).exists() else []),
        Stage([name for name in near if name in named]),
        Stage([name for name in near if name not in named]),
        Stage(far),
        Stage(outside),
    ]
    if "postgres" in (root / file).read_text("utf-8").lower():
        whole = f"{folder}/".startswith(tuple(f"{name}/" for name in ON_POSTGRES))
        rows = [folder] if whole else [name for name in ROWS_ON_POSTGRES if (root / name).exists()]
        found.append(Stage(rows, "postgres"))
    return [stage for stage in found if stage.files]


def _folder(root: Path, file: str) -> str:
    """The folder in tests/ that mirrors the package, or the one nearest above it."""
    package = Path(file).parent
    mirror = Path("tests", *package.parts[1:] if package.parts[0] == "server" else package.parts)
    while not (root / mirror).is_dir():
        mirror = mirror.parent
    return "" if mirror == Path("tests") else mirror.as_posix()


@cache
def _importing(file: str) -> re.Pattern[str]:
    *package, name = Path(file).with_suffix("").parts
    if name == "__init__":
        *package, name = package
    above = re.escape(".".join(package))
    return re.compile(
        rf"\b{above}\.{name}\b(?!\.)|\bfrom {above} import (?:[^\n(]*\b{name}\b|\([^)]*\b{name}\b)"
    )


@cache
def _texts(root: Path) -> dict[str, str]:
    apart = {"node_modules", "peers"}
    paths = [
        path for path in (root / "tests").rglob("test_*.py") if not apart & set(path.relative_to(root).parts)
    ]
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(paths)}
