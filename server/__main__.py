"""`python -m server` and the console script `ostiary`: everything is in `server.cli`."""

from __future__ import annotations

import sys

from server.cli import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
