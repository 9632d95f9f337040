"""Where a browser may be sent back to after a login (RFC 8252 §7): which addresses a client may register, whether a
requested one is registered, and how the answer is put on it.

Who may ask for what is decided in authorization/authorization_request.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, unquote_plus, urlencode, urlsplit

LENGTH: Final = 2_048

# Published by well-known clients, and no browser runs anything under them. Other custom schemes need a dot (RFC 8252 §7.1).
KNOWN_SCHEMES: Final = frozenset(
    {
        "claude",
        "code-oss",
        "cursor",
        "goose",
        "kiro",
        "raycast",
        "trae",
        "vscode",
        "vscode-insiders",
        "vscodium",
        "warp",
        "windsurf",
        "windsurf-next",
        "zed",
    }
)

# The characters of RFC 3986 (§2) but for three: a fragment would take the answer with it, a star reads as a pattern, and people
# are told to paste the address into a shell between two quotes.
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&()+,;=%-]+")

# Names and addresses in the one form in which they may stand in a header of ours: a host ends up in a content policy.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PORT: Final = re.compile(r"[0-9]{1,5}")

# RFC 8252 §7.3: a program takes whatever port is free. `localhost` and 127.0.0.1 stay different hosts.
_LOOPBACK: Final = re.compile(r"http://(127\.0\.0\.1|\[::1\]|localhost)(?::[0-9]{1,5})?([/?].*)?")

# What an answer consists of. A registered address that has one of these in its own query must not give it twice.
ANSWERS: Final = frozenset({"code", "state", "iss", "error", "error_description", "error_uri"})


def is_acceptable(uri: str) -> bool:
    """https anywhere, http on loopback, or a scheme that belongs to an application; nothing that a browser would execute."""
    if len(uri) > LENGTH or _ADDRESS.fullmatch(uri) is None:
        return False
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname or "", parts.port  # `port` raises where it is none
    except ValueError:
        return False
    path = unquote(parts.path)
    if "@" in parts.netloc or not path.isprintable() or any(part in (".", "..") for part in path.split("/")):
        return False
    match parts.scheme:
        case "https":
            return _is_plain(parts.netloc)
        case "http":
            return _is_plain(parts.netloc) and _is_this_machine(host)
        case scheme:
            named = scheme in KNOWN_SCHEMES or ("." in scheme and ".." not in scheme)
            return named and (not parts.netloc or _is_plain(parts.netloc))


def _is_plain(netloc: str) -> bool:
    """A host name without a dot at its end, or an address, with or without a port."""
    if netloc.startswith("["):
        literal, bracket, rest = netloc[1:].partition("]")
        try:
            ip_address(literal)
        except ValueError:
            return False
        return bool(bracket) and "%" not in literal and (not rest or (rest[0] == ":" and _is_port(rest[1:])))
    name, colon, port = netloc.partition(":")
    return _NAME.fullmatch(name) is not None and (not colon or _is_port(port))


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# ---------------------------------------------------------------- comparing


def fits(registered: Sequence[str], asked: str) -> bool:
    """Whether a client that registered these may have the browser sent to `asked`: letter by letter, but for a loopback port."""
    if not is_acceptable(asked):
        return False
    wanted = _without_port(asked)
    return any(asked == uri or (wanted is not None and wanted == _without_port(uri)) for uri in registered)


def _without_port(uri: str) -> tuple[str, str] | None:
    """Host and path of a loopback address; None for any other."""
    found = _LOOPBACK.fullmatch(uri)
    return None if found is None else (found[1], found[2] or "")


def is_loopback(uri: str) -> bool:
    """Whether a program on the browser's own machine waits there, whichever program that is."""
    return urlsplit(uri).scheme == "http"  # no other http address is acceptable


# ---------------------------------------------------------------- naming


def host_of(uri: str) -> str:
    """Scheme and host, without a loopback port: what a person is shown, and what a remembered yes holds for."""
    parts = urlsplit(uri)
    loopback = _without_port(uri)
    netloc = parts.netloc if loopback is None else loopback[0]
    return f"{parts.scheme}://{netloc}" if netloc else f"{parts.scheme}:"


def sources_of(uri: str) -> tuple[str, ...]:
    """The address for the `form-action` of a page whose form leads there. The grammar knows no IPv6 literals (CSP3 §2.3.1).

    Browsers hold a form to its policy through every redirect, the program's own included: many a listener sends its person
    on to a page on the web, and under the address alone they would be left standing on ours, with the code already gone.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "[" in parts.netloc:
        return (f"{parts.scheme}:", "https:")
    return (f"{parts.scheme}://{parts.netloc}", "https:")


# ---------------------------------------------------------------- answering


def with_answer(uri: str, answer: Mapping[str, str]) -> str:
    """`uri` with the answer in its query. Its own parameters stay as they are, but none of them can pass for an answer (T5)."""
    base, _, query = uri.partition("?")
    own = [part for part in query.split("&") if part and unquote_plus(part.partition("=")[0]) not in ANSWERS]
    return f"{base}?{'&'.join((*own, urlencode(answer)))}"
