"""Pages that hosts draw beside what a tool answers (MCP Apps): HTML files beside the file that names them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable

from .content import given
from .errors import Misuse
from .hints import own

MIME_TYPE = "text/html;profile=mcp-app"
_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard_write": "clipboardWrite",
}


class Page:
    """An HTML file, and what it may reach: origins such as "https://api.example.com". `connect`: what it fetches from; `load`: scripts, styles,
    pictures and fonts; `frames`: pages in it. `permissions`: of "camera", "microphone", "geolocation", "clipboard_write"."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        connect: Sequence[str] = (),
        load: Sequence[str] = (),
        frames: Sequence[str] = (),
        permissions: Sequence[str] = (),
        border: bool | None = None,
    ) -> None:
        self.path = os.fspath(path)
        for permission in permissions:
            if permission not in _PERMISSIONS:
                raise Misuse(
                    f"{self.path}: {permission!r} is no permission; there are {', '.join(_PERMISSIONS)}"
                )
        policy = given(
            connectDomains=list(connect) or None,
            resourceDomains=list(load) or None,
            frameDomains=list(frames) or None,
        )
        asked: dict[str, Any] = {_PERMISSIONS[each]: {} for each in permissions}
        self.ui = given(csp=policy or None, permissions=asked or None, prefersBorder=border)


class PlacedPage:
    """A page as a tool has it: where its file is, and its address."""

    def __init__(self, page: str | os.PathLike[str] | Page, call: Callable[..., Any], where: str) -> None:
        """Find the file. Raises `Misuse` where there is none."""
        self.page = page if isinstance(page, Page) else Page(page)
        beside: str = getattr(own(call), "__globals__", {}).get("__file__") or ""
        self.file = os.path.join(os.path.dirname(os.path.abspath(beside)), self.page.path)
        if not os.path.isfile(self.file):
            raise Misuse(f"{where}: there is no page {self.file}")
        stem = os.path.splitext(os.path.basename(beside))[0] or "page"
        self.uri = f"ui://{stem}/{os.path.basename(self.file)}"

    def read(self) -> str:
        """Return the HTML as it is now."""
        with open(self.file, encoding="utf-8") as file:
            return file.read()
