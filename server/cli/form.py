"""In which form this program was installed (the one file, a package, or a checkout), and how it starts itself again in that form."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

Form: TypeAlias = Literal["executable", "package", "checkout"]

# In which `server` and `auth` lie. An installed package has them in a folder of its own, beside what starts it (build/start.py).
_AROUND: Final = Path(__file__).parent.parent.parent
_START: Final = _AROUND / "start.py"


def form_of_this() -> Form:
    if getattr(sys, "frozen", False):
        return "executable"
    return "package" if _START.is_file() else "checkout"


def is_one_file() -> bool:
    """Whether this is the executable that unpacks itself, and not a folder of the same."""
    return form_of_this() == "executable" and Path(getattr(sys, "_MEIPASS", "")).name.startswith("_MEI")


def this_again() -> Sequence[str]:
    """What starts this program from whatever directory. -P: a folder called `server` there must not be taken for ours."""
    match form_of_this():
        case "executable":
            return [sys.executable]
        case "package":
            return [sys.executable, "-P", str(_START)]
        case "checkout":
            return [sys.executable, "-P", "-m", "server"]
