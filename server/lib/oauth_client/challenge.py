"""The reader of `WWW-Authenticate` (RFC 9110 §11.6.1): the Bearer challenge of a 401 or 403, or the DPoP one, with its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

# token68 forms (Negotiate, …) carry no parameters that matter here; they are skipped like any other scheme.
_PART = re.compile(
    r"""(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)
        (?:\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]+)))?""",
    re.VERBOSE,
)
_BETWEEN = re.compile(r"[\s,]*")
# The header is read once per refusal; a longer one is not worth the time.
MAX_HEADER = 8 * 1024


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a challenge that a client acts on."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None
    description: str | None = None


def wants_nonce(headers: Iterable[str]) -> bool:
    """Tell whether the token is good, and its proof lacks what the server has just made up (RFC 9449 §9)."""
    found = read_challenge(headers, scheme="dpop")
    return found is not None and found.error == "use_dpop_nonce"


def read_challenge(headers: Iterable[str], *, scheme: str = "bearer") -> Challenge | None:
    """Return the first challenge of this scheme in these header lines, or None."""
    for header in headers:
        found: dict[str, str] | None = None
        for part in _parts(header[:MAX_HEADER]):
            quoted, plain = part["quoted"], part["plain"]
            if quoted is None and plain is None:
                if found is not None:
                    break  # the next scheme begins: the challenge is complete
                found = {} if part["name"].lower() == scheme else None
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


def _parts(header: str) -> Iterator[re.Match[str]]:
    """Yield schemes and parameters in order; what is neither is passed over, a character at a time."""
    position = 0
    while position < len(header):
        if between := _BETWEEN.match(header, position):
            position = between.end()
        part = _PART.match(header, position)
        if part is None:
            position += 1
        else:
            position = part.end()
            yield part
