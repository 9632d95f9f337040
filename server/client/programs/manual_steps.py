"""How a person tells a program of a server who has not got `ostiary`: a line to type, an address to open, or where to paste.

What a program is given is the row of program_table.py, as `ostiary install` writes it; here are the words around it, and the programs
that have no file on a person's machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote
from typing import Final
from urllib.parse import urlsplit

import msgspec

from server.client.programs.program_table import PROGRAMS
from server.lib.oauth_client.addresses import is_loopback

# As people look for them. Claude Desktop is told where claude.ai is, but for a server that only this machine can reach.
ORDER: Final = ("claude-code", "claude", "cursor", "vscode", "chatgpt", "codex", "gemini")


class ProgramWay(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is to be typed or pasted, `link` opens the program; neither where it cannot be done. What stands between backquotes in a
    sentence is typed as well."""

    program: str
    how: str
    text: str = ""
    link: str = ""
    then: str = ""


def ways(url: str, name: str = "", ostiary: str = "ostiary") -> Sequence[ProgramWay]:
    """`name`: what programs are to call it; "": as `ostiary install` would. `ostiary`: how this program is started on this machine."""
    named = name or name_for(url)
    return [_way(each, url, named, ostiary) for each in ORDER]


def name_for(url: str) -> str:
    """What a server is called that nobody gave a name: `ostiary` on this machine, else its host."""
    if is_loopback(url):
        return "ostiary"
    host = re.sub(r"[^a-z0-9]+", "-", (urlsplit(url).hostname or "").lower()).strip("-")
    return host[:48].strip("-") or "ostiary"


def _way(program: str, url: str, name: str, ostiary: str) -> ProgramWay:
    if program == "claude":
        return _in_settings(
            "claude.ai and Claude Desktop", "Customize → Connectors → Add custom connector", url
        ) or ProgramWay(
            program="Claude Desktop",
            how="In a terminal of this machine, type",
            text=f"{ostiary} install claude-desktop {quote(url)}",
            then="claude.ai itself comes from the internet, and reaches only a server with a public https address.",
        )
    if program == "chatgpt":
        found = _in_settings("ChatGPT", "Settings → Apps, with developer mode on → Create", url)
        return found or ProgramWay(
            program="ChatGPT",
            how="It comes from the internet, and reaches only a server with a public https address. This one has none.",
        )
    row = PROGRAMS[program]
    assert row.direct is not None  # each of the others speaks HTTP
    entry = row.direct(url)
    typed, comma, where = ("", "", "") if row.log_in is None else row.log_in.format(name=name).partition(", ")
    log_in = f"Then log in: `{typed}`{comma}{where}" if typed else ""
    if row.link is not None:
        return ProgramWay(
            program=row.title,
            how=f"Opens {row.title}, which asks before it adds anything.",
            link=row.link(name, entry),
        )
    if row.add is not None:
        text = row.add.format(name=quote(name), url=quote(url))
        return ProgramWay(program=row.title, how="In a terminal, type", text=text, then=log_in)
    raise AssertionError("every program in the order has a line of its own, or a link")


def _in_settings(program: str, where: str, url: str) -> ProgramWay | None:
    """None where it could never reach the server: it asks from the internet."""
    if not url.startswith("https://") or is_loopback(url):
        return None
    return ProgramWay(program=program, how=f"In {where}, paste", text=url)
