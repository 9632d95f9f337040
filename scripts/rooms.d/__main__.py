"""The picture of the rooms in docs/architecture.md, drawn from the imports."""

from __future__ import annotations

import sys
from typing import Final

from tests.test_architecture import ROOMS, ROOT, imported_names

PAGE: Final = ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- scripts/rooms -->\n```text\n"
END: Final = "```\n<!-- /scripts/rooms -->\n"


def imports(room: str) -> set[str]:
    """Return the rooms that a room imports, and `auth` where it does."""
    found: set[str] = set()
    for path in (ROOT / "server" / room).rglob("*.py"):
        for name in imported_names(path.read_text("utf-8"), path.relative_to(ROOT).parent.parts):
            top, _, rest = name.partition(".")
            found.add(rest.partition(".")[0] if top == "server" else top)
    return found - {room}


def picture() -> str:
    """Draw a line for each room, the highest first: its name, and the rooms that it imports."""
    lines: list[str] = []
    for room in reversed(ROOMS):
        found = imports(room)
        lines.append(f"{room:<13} {' '.join(name for name in ('auth', *ROOMS) if name in found)}".rstrip())
    return "\n".join(lines) + "\n"


def main() -> None:
    drawn = picture()
    if sys.argv[1:] != ["--write"]:
        print(drawn, end="")
        return
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{drawn}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
