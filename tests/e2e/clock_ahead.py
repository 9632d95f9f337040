"""The program under a clock that is wrong by so many days.

usage: clock_ahead.py DAYS [ARGUMENT…]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

OFF_SECONDS = int(sys.argv.pop(1)) * 86_400
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + OFF_SECONDS
time.time_ns = lambda: _time_ns() + OFF_SECONDS * 1_000_000_000

if __name__ == "__main__":
    from server.__main__ import main

    main()
