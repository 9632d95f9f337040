"""An upstream's own account of itself (`serverInfo`), and the icons that it and its tools have: what of them is shown to clients.

Icons are bounded as those of the settings are: at an `https` address, or in the text itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from server.client.mcp_session.session_messages import said
from server.mcp.messages import Icon, Implementation

NAME_CHARACTERS: Final = 128
VERSION_CHARACTERS: Final = 100
TITLE_CHARACTERS: Final = 100
ADDRESS_CHARACTERS: Final = 2048
ICONS: Final = 8
ICON_CHARACTERS: Final = 64 * 1024
SIZES: Final = 16
WORD_CHARACTERS: Final = 100  # of a media type, or a size


def introduction_of(info: Mapping[str, Any]) -> Implementation | None:
    """Read what an upstream says of itself; None: it says nothing that could be shown."""
    name, version = info.get("name"), info.get("version")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
        return None
    return Implementation(
        name=name,
        version=said(version, VERSION_CHARACTERS),
        title=said(info.get("title"), TITLE_CHARACTERS).replace("\n", " ") or UNSET,
        website_url=_website(info.get("websiteUrl")),
        icons=checked_icons(_icons(info.get("icons"))),
    )


def checked_icons(icons: Sequence[Icon] | UnsetType) -> Sequence[Icon] | UnsetType:
    """Return the icons that may be shown, the first of many; UNSET for none."""
    if icons is UNSET:
        return UNSET
    return [icon for icon in icons if _may_be_shown(icon)][:ICONS] or UNSET


def _icons(given: object) -> Sequence[Icon] | UnsetType:
    if not isinstance(given, list):
        return UNSET
    found: list[Icon] = []
    for each in cast("list[object]", given)[: 2 * ICONS]:
        try:
            found.append(msgspec.convert(each, Icon))
        except (ValueError, RecursionError):
            continue
    return found


def _may_be_shown(icon: Icon) -> bool:
    sizes = () if icon.sizes is UNSET else icon.sizes
    words = [word for word in (icon.mime_type, *sizes) if word is not UNSET]
    return (
        icon.src.startswith(("https://", "data:image/"))
        and len(icon.src) <= ICON_CHARACTERS
        and icon.src.isprintable()
        and len(sizes) <= SIZES
        and all(len(word) <= WORD_CHARACTERS for word in words)
    )


def _website(given: object) -> str | UnsetType:
    if not isinstance(given, str) or not given.startswith(("https://", "http://")):
        return UNSET
    return given if len(given) <= ADDRESS_CHARACTERS and given.isprintable() and " " not in given else UNSET
