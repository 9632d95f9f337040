"""Where the child of a Python agent starts: `python run.py --fds IN,OUT --file agent.py`.

Runs on the author's interpreter, from Python 3.9 on, with its standard library alone.
"""

from __future__ import annotations

import os
import sys


def start() -> int:
    here = os.path.dirname(os.path.abspath(__file__))
    # Found last from now on: a `run.py` beside the author's file is theirs. Kept, because processes that they start
    # with multiprocessing import their file again.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    sys.path.insert(0, here)
    from ostiary.child import main

    sys.path.remove(here)
    sys.path.append(here)
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(start())
