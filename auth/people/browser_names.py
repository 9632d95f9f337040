"""What a browser says of itself, as people know it: on the pages, and in the terminal of whoever runs the server."""

from __future__ import annotations

from typing import Final

# Enough to tell one's own apart. The first that fits: Edge and Opera call themselves Chrome, Chrome calls itself Safari.
_PROGRAMS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("iPhone", "an iPhone"),
    ("iPad", "an iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "a Mac"),
    ("Linux", "Linux"),
)


def browser_name(user_agent: str) -> str:
    """A browser in a few words; what it says of itself otherwise."""
    program = next((name for mark, name in _PROGRAMS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    return f"{program} on {system}" if program and system else program or user_agent or "A browser"
