"""Where an installed package starts. `server` and `auth` are no names to give away in somebody's environment: there they lie in this
file's folder, `ostiary_program`, and only this program looks for them in it.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    here = str(Path(__file__).parent)
    if here not in sys.path:
        sys.path.insert(0, here)
    from server.__main__ import main as run

    run()


if __name__ == "__main__":
    main()
