"""Which Python runs an agent: the one that the settings name, that of the virtual environment beside it, or the machine's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 9)
OLDEST_TEXT: Final = ".".join(map(str, OLDEST))
ENVIRONMENTS: Final = (".venv", "venv")


def find_interpreter(named: str, folder: Path) -> str:
    """`folder` is where the agent lies. Raises `ValueError`."""
    if named:
        found = shutil.which(os.path.expanduser(named))
        if found is None:
            raise ValueError(f"there is no Python interpreter {named}")
        return found
    for environment in ENVIRONMENTS:
        # Not resolved: an environment is known by the path under which its interpreter is started.
        if found := shutil.which(str(folder / environment / "bin" / "python")):
            return found
    if found := shutil.which("python3"):
        return found
    raise ValueError(
        f'there is no python3 to run a Python agent with; install one ({OLDEST_TEXT} or newer), or set python = "/path/to/python"'
    )
