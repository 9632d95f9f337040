"""The authorization endpoint, until there is one: an honest page. Its address must exist, because clients look for it."""

from __future__ import annotations

from typing import Final

from auth.wire import Reply, Request

_PAGE: Final = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign-in by browser redirect is not available</title>
<h1>Sign-in by browser redirect is not available here</h1>
<p>This server signs people in by device code. Use a client that offers it, or run <code>ostiary login</code> in a terminal.</p>
</html>
"""


def not_available(request: Request) -> Reply:
    """400 whatever is asked: clients take that as "this way is closed", and never a redirect, since nothing was checked."""
    del request
    return Reply(
        status=400,
        headers=(
            ("Content-Type", "text/html; charset=utf-8"),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
            ("X-Frame-Options", "DENY"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
        ),
        body=_PAGE,
    )
