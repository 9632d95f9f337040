"""The formats that a form may want a text in (client/elicitation): what a person may type for each, and what is sent then.

A reader returns the text to send, or None for one that is not of the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit


class Format(NamedTuple):
    wanted: str
    named: str
    example: str
    read: Callable[[str], str | None]


def read_email(text: str) -> str | None:
    name, at, host = text.rpartition("@")
    if not at or len(host) > 253:
        return None
    plain = re.fullmatch(r"[^\s@,;<>()\[\]\\\"]{1,64}", name) and not re.search(r"^\.|\.\.|\.$", name)
    labels = re.fullmatch(r"[^\W_](?:[\w-]*[^\W_])?(?:\.[^\W_](?:[\w-]*[^\W_])?)*", host)
    return text if plain and labels else None


def read_uri(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    # RFC 3986: a scheme and something behind it, in ASCII, with nothing that would have to be percent-encoded.
    good = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~%]+", text)
    nowhere = parts.scheme in ("http", "https") and not parts.hostname
    return text if good and not nowhere else None


def read_date(text: str) -> str | None:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None


def read_date_time(text: str) -> str | None:
    """RFC 3339. A blank for the T and missing seconds are what people write; a missing zone would have to be guessed."""
    found = re.fullmatch(
        r"([0-9-]{10})[Tt ]([0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]{1,9})?)? ?([Zz]|[+-][0-9]{2}:[0-9]{2})",
        text,
    )
    if found is None or read_date(found[1]) is None:
        return None
    written = f"{found[1]}T{found[2]}{found[3] or ':00'}{found[4].upper()}"
    try:
        # Fractions are longer in RFC 3339 than in Python.
        datetime.fromisoformat(re.sub(r"\.[0-9]+", "", written))
    except ValueError:
        return None
    return written


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "email": Format("e-mail address", "an e-mail address", "ada@example.org", read_email),
        "uri": Format("web address", "a full address", "https://example.org", read_uri),
        "date": Format("date", "a date", "2026-12-24", read_date),
        "date-time": Format(
            "date and time", "a date and a time with its zone", "2026-12-24 18:30+01:00", read_date_time
        ),
    }
)
