"""The authorization endpoint, until there is one: an honest page. Its address must exist, because clients look for it.

400 whatever is asked: clients take that as "this way is closed". Never a redirect, since nothing was checked (design §12.11).
"""

from __future__ import annotations

from auth import pages
from auth.wire import Reply, Request


def not_available(request: Request, entropy: bytes) -> Reply:
    """`entropy` is `pages.NONCE_BYTES` from the system's generator. Nothing of the request but its origin is looked at."""
    return pages.error_page(
        400,
        "This way in is closed",
        "Your program tried to sign you in by sending your browser here. This server signs people in with a code instead.",
        "Switch the program to device login (a device code), or run `ostiary login` in a terminal.",
        pages.frame_for(request.origin, entropy),
        back=("/device", "Enter a code"),
    )
