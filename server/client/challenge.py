"""Reading `WWW-Authenticate` (RFC 9110 §11.6.1): the Bearer challenge of a 401 or 403, or the DPoP one, with its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shlex import quote

import msgspec

from server.client.client_errors import ScopeNeeded

# token68 forms (Negotiate, …) carry no parameters that matter here; they are skipped like any other scheme.
_PART = re.compile(
    r"""(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)
        (?:\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]+)))?""",
    re.VERBOSE,
)
_BETWEEN = re.compile(r"[\s,]*")
# The header is read once per refusal; a longer one is not worth the time.
MAX_HEADER = 8 * 1024
# Of what a server says of its refusal.
MAX_SAID = 300


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None
    description: str | None = None


def wants_nonce(headers: Iterable[str]) -> bool:
    """RFC 9449 §9: the token is good, and its proof lacks what the server has just made up."""
    found = read_challenge(headers, scheme="dpop")
    return found is not None and found.error == "use_dpop_nonce"


def read_challenge(headers: Iterable[str], *, scheme: str = "bearer") -> Challenge | None:
    """The first challenge of this scheme in these header lines, or None."""
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


def scope_needed(challenge: Challenge, url: str) -> ScopeNeeded:
    """Return a refusal for want of scopes, in the server's own words if it has some: the scopes that it names are all that a new login is to
    ask for, not those that this one lacks."""
    scope = challenge.scope or ""
    said = " ".join((challenge.description or "").split())[:MAX_SAID]
    if not said:
        said = (
            f"this needs a login with the scopes {scope}"
            if scope
            else "this needs more than the login may do"
        )
    more = f" --scope {quote(scope)}" if scope else ""
    return ScopeNeeded(said, hint=f"ostiary login {quote(url)}{more}", scope=scope)


def _parts(header: str) -> Iterator[re.Match[str]]:
    """Schemes and parameters in order; what is neither is passed over, a character at a time."""
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
