"""The program as it is, but that nothing ever looks for cycles of references: what only such a look would free stays.

On SIGUSR1 it writes into the file `held` of the working directory how many bytes Python objects have. Run by test_memory_given_back.py.
"""

from __future__ import annotations

import gc
import signal
import sys
import tracemalloc
from pathlib import Path
from types import FrameType

HELD = Path("held")


def say_what_is_held(_number: int, _frame: FrameType | None) -> None:
    half = HELD.with_suffix(".half")
    half.write_text(str(tracemalloc.get_traced_memory()[0]), "ascii")
    half.rename(HELD)


def main() -> None:
    gc.disable()
    tracemalloc.start()
    signal.signal(signal.SIGUSR1, say_what_is_held)
    from server.__main__ import main as serve

    serve()


if __name__ == "__main__":
    sys.exit(main())
