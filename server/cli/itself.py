"""How this very program is started once more."""

from __future__ import annotations

import sys


def this_program() -> list[str]:
    """The executable itself, or the interpreter with our package."""
    return [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-P", "-m", "server"]
