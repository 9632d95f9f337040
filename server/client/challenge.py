"""Reading `WWW-Authenticate` (RFC 9110 §11.6.1): the Bearer challenge of a 401 or 403, with its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

# token68 forms (Negotiate, …) carry no parameters that matter here; they are skipped like any other scheme.
_PART = re.compile(
    r"""\s*(?:,\s*)*
        (?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)
        (?:\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]+)))?""",
    re.VERBOSE,
)
# The header is read once per refusal; a longer one is not worth the time.
MAX_HEADER = 8 * 1024


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None
    description: str | None = None


def read_challenge(headers: Iterable[str]) -> Challenge | None:
    """The first Bearer challenge of these header lines, or None."""
    for header in headers:
        scheme: str | None = None
        found: dict[str, str] | None = None
        for part in _PART.finditer(header[:MAX_HEADER]):
            quoted, plain = part["quoted"], part["plain"]
            if quoted is None and plain is None:
                if found is not None:
                    break  # the next scheme begins: the Bearer challenge is complete
                scheme = part["name"].lower()
                found = {} if scheme == "bearer" else None
            elif found is not None:
                value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
                found.setdefault(part["name"].lower(), value)
        if found is not None:
            return Challenge(
                resource_metadata=found.get("resource_metadata"),
                scope=found.get("scope"),
                error=found.get("error"),
                description=found.get("error_description"),
            )
    return None
