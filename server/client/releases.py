"""The check for a newer release: one small document, at the address that the settings name.

The version in it is compared and reported; nothing is downloaded or changed.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from server.client.client_errors import BadAnswer
from server.client.http_exchange import exchange
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.addresses import host_of, is_loopback

DOCUMENT_BYTES: Final = 64 * 1024
SECONDS: Final = 15.0
ADDRESS_CHARACTERS: Final = 2048
_VERSION: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6}){0,3})(?:(?:\.dev|a|b|rc)(\d{1,6}))?")


class ReleaseDocument(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    page: str = ""  # where people read about it and get it


class LatestRelease(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    page: str
    newer: bool


def releases_problem(url: str) -> str | None:
    """Return what is wrong with `url` as the address of the release document, or None."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is not an address"
    if (
        len(url) > ADDRESS_CHARACTERS
        or not url.isascii()
        or not url.isprintable()
        or " " in url
        or not parts.hostname
    ):
        return "is not an address"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(url)):
        return "must begin with https://"
    return "must not hold credentials" if "@" in parts.netloc else None


async def latest(client: HttpClient, url: str, *, running: str) -> LatestRelease:
    """Return the latest release, according to the document at `url`, and whether it is newer than `running`.

    Raise `Unreachable`, and `BadAnswer` for anything but such a document.
    """
    answer = await exchange(
        client, "GET", url, headers={"Accept": "application/json"}, limit=DOCUMENT_BYTES, seconds=SECONDS
    )
    if answer.status != 200:
        raise BadAnswer(f"{host_of(url)} answered {answer.status}, and not with a release")
    try:
        document = msgspec.json.decode(answer.body, type=ReleaseDocument)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadAnswer(f"{host_of(url)} answered with something that names no release") from None
    if (offered := _parts(document.version)) is None:
        raise BadAnswer(f"{host_of(url)} names a release that is no version")
    page = document.page if releases_problem(document.page) is None else ""
    return LatestRelease(version=document.version, page=page, newer=offered > (_parts(running) or offered))


def _parts(version: str) -> tuple[tuple[int, ...], bool, int] | None:
    """Return a key that sorts like versions do, a pre-release before its release; None if `version` is no version."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), found[2] is None, int(found[2] or 0)
